"""`encodeonce plan`: what storing and training will cost, before either is done."""

import json
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import click

from .options import budget_option, json_option, set_option

if TYPE_CHECKING:
    from .planning import Corpus, Forecast
    from .sampling import Estimate

__all__ = ["plan"]


@click.command()
@click.argument("config", type=click.Path(dir_okay=False, path_type=Path))
@budget_option
@set_option
@json_option
def plan(config: Path, budget: float, changes: tuple[str, ...], as_json: bool) -> None:
    """Say what a config will cost before anything is stored or trained: bytes, seconds, break-even, and what to choose.

    Counts the pieces, then really encodes and trains on a sample for a short time, and extrapolates. Nothing is
    written. What the config's store holds already is subtracted.
    """
    from .config import load

    chosen = load(config, changes)
    chosen.need("tasks", "data.train")
    from .planning import forecast

    found = forecast(chosen, budget)
    click.echo(json.dumps(found.to_json()) if as_json else _text(found))


def _text(found: "Forecast") -> str:
    parts = [_counts(found), _sizes(found), _times(found), _break_even(found), _advice(found)]
    return "\n\n".join(parts)


def _counts(found: "Forecast") -> str:
    from .advice import bytes_text

    corpus = found.corpus
    items = ", ".join(f"{split} {count:,}" for split, count in corpus.items.items())
    mean = corpus.pieces.value / max(1, corpus.distinct)
    store = found.store
    hits = "nothing there yet" if not store["hits"] else f"{store['hits']:,} of {corpus.distinct:,} items are there"
    to_write = store["bytes_to_write"]["value"]
    return "\n".join(
        [
            f"items      {items}; {corpus.distinct:,} distinct, {corpus.words:,} words",
            f"pieces     {_counted(corpus.pieces)}, {mean:.1f} an item, longest {corpus.longest:,}; "
            f"{_counted(corpus.over_window)} items over the window of {corpus.window:,}{_how(corpus)}",
            f"store      {hits}; {store['missing']:,} to encode, {bytes_text(to_write)} to write "
            f"(layers {', '.join(map(str, store['layers']))}, {store['dtype']})",
        ]
    )


def _how(corpus: "Corpus") -> str:
    return "" if corpus.cut == corpus.distinct else f"; estimated from {corpus.cut:,} items"


def _counted(number: "Estimate") -> str:
    half = (number.high - number.low) / 2
    return f"{number.value:,.0f}" + (f" ± {half:,.0f}" if half >= 0.5 else "")


def _sizes(found: "Forecast") -> str:
    from ..report.table import aligned
    from .advice import bytes_text

    dtypes = list(dict.fromkeys(size.dtype for size in found.sizes))
    names = {size.layers: size.views for size in found.sizes}
    lines = []
    for name, views in names.items():
        own = {size.dtype: size.bytes.value for size in found.sizes if size.layers == name}
        label = f"last {name}" if name.isdigit() else name
        lines.append([f"{label} ({views})", *(bytes_text(own[dtype]) for dtype in dtypes)])
    free, memory = found.machine["free_bytes"], found.machine["memory_bytes"]
    room = f"disk free {bytes_text(free)}" + (f", memory available {bytes_text(memory)}" if memory else "")
    return aligned(["layers (views)", *dtypes], lines) + f"\n{room}"


def _times(found: "Forecast") -> str:
    from ..report.table import aligned

    seconds, n_batches = found.seconds, found.batches_per_epoch
    speed = found.corpus.pieces.value / seconds.encode.value
    lines = [["encode everything once", *_interval(seconds.encode), f"{speed:,.0f} pieces/s"]]
    if found.store["hits"] > 0:
        lines.append(["encode what is missing", *_interval(seconds.encode_missing), ""])
    lines += [
        [f"epoch, {name} on stored views", *_interval(one), _each(one, n_batches)]
        for name, one in seconds.cached.items()
    ]
    deepest = max(seconds.live, default=0)
    shown = {depth: one for depth, one in seconds.live.items() if depth in (1, 2, deepest)}
    names = [(_live_name(depth, deepest), one) for depth, one in shown.items()]
    if seconds.attention is not None:
        names.insert(1, ("live_mix, 1 live block and the attention of the next", seconds.attention))
    if seconds.weighed not in [*seconds.cached.values(), *(one for _, one in names)]:
        names.insert(-1, (f"{found.method} on stored views", seconds.weighed))
    lines += [[f"epoch, {name}", *_interval(one), _each(one, n_batches)] for name, one in names]
    machine, left_out, n_tasks = found.machine, seconds.live_left_out, len(found.tasks)
    rest = [f"plus {seconds.load:.1f} s of loading and {seconds.cut.value:.1f} s of cutting before the first pass"]
    if left_out:
        rest.append(f"live blocks refuse {left_out:,} training items, which are longer than the window")
    if n_tasks > 1:
        trains = "all train one trunk" if seconds.trunks == 1 else "each trains a trunk of its own"
        rest.append(f"an epoch is one of all {n_tasks} tasks; in fine-tuning {trains}")
    rest.append(f"{machine['machine']}, {machine['threads']} threads; measured for {seconds.calibration:.0f} s")
    return "\n".join([aligned(["time", "", "95 %", ""], lines), *rest])


def _live_name(depth: int, deepest: int) -> str:
    if depth == deepest:
        return f"finetune, all {depth} blocks live"
    return f"live_mix, {depth} live block{'s' if depth > 1 else ''} on stored views"


def _interval(one: "Estimate") -> list[str]:
    from .advice import seconds_text

    return [seconds_text(one.value), f"{seconds_text(one.low)} to {seconds_text(one.high)}"]


def _each(one: "Estimate", n_batches: int) -> str:
    return f"{1e3 * one.value / n_batches:,.1f} ms a batch"


def _break_even(found: "Forecast") -> str:
    from .planning import LIVE_EPOCHS

    even = found.break_even
    lines = {"running the frozen encoder in every epoch": _from(even["epochs_encoding_each"], "epochs")}
    if found.seconds.live:
        lines["fine-tuning, the same number of epochs"] = _from(even["epochs"], "epochs")
        lines[f"fine-tuning, {found.epochs} epochs cached and {LIVE_EPOCHS} live"] = _from(even["tasks"], "tasks")
    told = [f"  against {what}".ljust(54) + when for what, when in lines.items()]
    return "\n".join([f"break-even of storing, for {found.method}", *told])


def _from(number: float | None, what: str) -> str:
    return "never" if number is None else f"from {number:.2f} {what} on"


def _advice(found: "Forecast") -> str:
    lines = []
    for one in found.advice:
        what = f"{one.choice} {one.value}"
        line = f"  {what:<16}{one.reason}" if len(what) < 16 else f"  {what}: {one.reason}"
        lines.append(fill(line, 110, subsequent_indent=" " * 18, break_on_hyphens=False))
    return "\n".join(["advice", *lines])
