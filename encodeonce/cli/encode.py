"""`encodeonce encode`: run the frozen encoder over files once and keep what comes out."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import ConfigError
from .options import json_option, layers_of, max_gb_option, read_option, reader_options, set_option

if TYPE_CHECKING:
    from ..encoders.pooled import Pooled
    from ..encoders.pretrained import Pretrained
    from ..types import Document, Spec
    from .config import Config
    from .steps import Encoded, Plan

__all__ = ["encode"]


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="CONFIG.toml | FILE...")
@click.option("--encoder", "-e", help="A folder, a hub name, or quickstart (the packaged one).")
@click.option("--output", "-o", "store", help="The store's folder.")
@click.option("--layers", help="all, last, N (the last N) or a list such as 0,3,6.  [default: all]")
@click.option("--dtype", type=click.Choice(["fp32", "fp16", "bf16", "int8"]), help="Stored type.  [default: fp16]")
@click.option(
    "--compute", type=click.Choice(["fp32", "bf16x3", "bf16"]), help="The encoder's arithmetic.  [default: fp32]"
)
@click.option("--window", type=int, help="Pieces the encoder sees at once.  [default: its limit]")
@click.option(
    "--unit", type=click.Choice(["piece", "sentence", "text"]), default="piece", help="What a row is.  [default: piece]"
)
@click.option("--pooling", type=click.Choice(["mean", "cls"]), help="Pieces to a sentence or text.  [default: mean]")
@click.option("--normalize", is_flag=True, help="Scale each sentence or text to length 1.")
@click.option("--dry-run", is_flag=True, help="Print what would be written, or that there is no room; write nothing.")
@max_gb_option("Refuse before writing if the store would become larger")
@click.option("--num-shards", type=click.IntRange(min=1), default=1, help="Jobs that fill this store together.")
@click.option("--shard-index", type=click.IntRange(min=0), help="This job's number, from 0; with --num-shards.")
@reader_options
@read_option
@set_option
@json_option
def encode(
    files: tuple[str, ...],
    encoder: str | None,
    store: str | None,
    layers: str | None,
    dtype: str | None,
    compute: str | None,
    window: int | None,
    unit: str,
    pooling: str | None,
    normalize: bool,
    dry_run: bool,
    max_bytes: int | None,
    num_shards: int,
    shard_index: int | None,
    format: str | None,
    columns: dict[str, int | str] | None,
    reading: dict[str, Any],
    changes: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run the frozen encoder over files once and keep what comes out.

    Give a config, whose train, dev and test files are encoded, or files with --encoder and -o. What is stored
    already is not computed again; where nothing is missing, the encoder is not even loaded.

    With --unit sentence a document is an item with a row a sentence, with --unit text it is one row; with files, the
    last layer alone is then kept unless --layers says otherwise.
    """
    part = _part(shard_index, num_shards)
    if unit == "piece" and (pooling or normalize):
        raise click.UsageError("--pooling and --normalize need --unit sentence or --unit text.")
    given: dict[str, object] = {"encoder": encoder, "store": store, "dtype": dtype}
    given |= {"compute": compute, "window": window, "layers": None if layers is None else layers_of(layers)}
    chosen = {key: value for key, value in given.items() if value is not None}
    if layers is None and unit != "piece" and not _is_config(files):
        chosen["layers"] = "last"
    config = _config(files, chosen, {"format": format, "columns": columns, "options": reading}, changes)
    from ..store import Store, check_room
    from . import steps

    model, documents = _read(config, unit, pooling or "mean", normalize)
    spec = steps.spec_of(config, model, dry=dry_run)
    path = Path(config.store)
    begun = (path / "store.json").exists()
    if dry_run or (max_bytes is not None and not begun):  # a store that would be too large is not even begun
        plan = steps.planned(path, spec, documents, model, part)
        if dry_run:
            said = json.dumps({"store": config.store, **asdict(plan)}) if as_json else _plan_text(config, spec, plan)
            click.echo(said)
        check_room(path, plan.missing, plan.rows, plan.bytes, max_bytes)
    if dry_run:
        return
    opened = Store.open(path, spec)
    done = steps.encode(opened, documents, model, max_bytes=max_bytes, part=part)
    click.echo(json.dumps({"store": config.store, **done.to_json()}) if as_json else _done_text(config, spec, done))


def _part(index: int | None, n: int) -> tuple[int, int]:
    """Which of n jobs this one is. UsageError where several are and none is named, and for one that is none of them."""
    if index is None and n > 1:
        raise click.UsageError(f"--num-shards {n} needs --shard-index, from 0 to {n - 1}: which job.")
    if index is not None and index >= n:
        raise click.UsageError(f"--shard-index {index} must be less than --num-shards {n}.")
    return index or 0, n


def _is_config(files: tuple[str, ...]) -> bool:
    return len(files) == 1 and files[0].endswith(".toml")


def _config(
    files: tuple[str, ...],
    chosen: Mapping[str, object],
    read: Mapping[str, object],
    changes: tuple[str, ...],
) -> "Config":
    """The config file with the flags put in, or one made of the flags alone."""
    from .config import load, parse

    if _is_config(files):
        config = load(Path(files[0]), changes)
        data = {key: value for key, value in read.items() if value}
        values = {**config.model_dump(), **chosen}
        config = parse({**values, "data": {**values["data"], **data}}, "the command line")
        config.need("data.train")
        return config
    if changes:
        raise click.UsageError("--set changes a config file; with files, use the flags.")
    for key, flag in (("encoder", "--encoder"), ("store", "-o")):
        if key not in chosen:
            raise click.UsageError(f"{flag} is needed where files are given instead of a config.")
    missing = [name for name in files if not Path(name).exists()]
    if missing:
        raise ConfigError(f"There is no file {missing[0]}.")
    return parse({**chosen, "data": {"train": list(files), **read}}, "the command line")


def _read(config: "Config", unit: str, pooling: str, normalize: bool) -> "tuple[Pretrained | Pooled, list[Document]]":
    """The encoder, which gives a row a `unit`, and the documents of all files with what such rows are of."""
    from ..encoders.pooled import Pooled
    from . import steps

    pieces = steps.pretrained(config)
    if unit == "piece":
        return pieces, _documents(config, pieces)
    pooled = Pooled(pieces, unit, pooling, normalize=normalize)
    return pooled, steps.with_rows(_documents(config, None), unit)


def _documents(config: "Config", pieces: "Pretrained | None") -> "list[Document]":
    """Of all files; with `pieces`, the parts of them that the config's tasks read."""
    from ..tasks import in_parts, named
    from . import steps

    names = [*config.data.train, *config.data.dev, *config.data.test]
    documents = steps.documents_of(
        names, config.data.format, config.data.columns, config.data.passages, config.data.options
    )
    if pieces is None or not config.tasks:
        return documents
    tasks = [named(name, **config.task.get(name, {})) for name in config.tasks]
    return [part for own in in_parts(tasks, documents, pieces, pieces.window) for part in own]


def _head(config: "Config", spec: "Spec") -> str:
    layers = ", ".join(map(str, spec.layers))
    pooled = "" if spec.unit == "piece" else f", a row a {spec.unit} ({spec.pooling})"
    return f"store      {config.store}: {spec.encoder}, layers {layers}, width {spec.width}, {spec.dtype}{pooled}"


def _plan_text(config: "Config", spec: "Spec", plan: "Plan") -> str:
    bound = ("about " if plan.elsewhere else "at least ") if "vocabulary" in plan.lacks else ""
    left = f", {plan.elsewhere:,} left to other jobs" if plan.elsewhere else ""
    lines = [
        _head(config, spec),
        f"documents  {plan.asked:,}: {plan.hits:,} stored already, {plan.duplicates:,} repeated, "
        f"{plan.missing:,} missing{left}",
        f"to write   {bound}{plan.rows:,} rows ({spec.unit}s), {plan.bytes:,} bytes ({plan.bytes / 1e6:.1f} MB)",
    ]
    if plan.lacks:
        lines.append(f"lacking    {config.encoder} has no {' and no '.join(plan.lacks)}: nothing can be encoded yet")
    return "\n".join([*lines, "Nothing was written."])


def _done_text(config: "Config", spec: "Spec", done: "Encoded") -> str:
    report = done.report
    distinct = report.asked - report.duplicates
    elsewhere = f", {report.elsewhere:,} left to or done by other jobs" if report.elsewhere else ""
    lines = [
        _head(config, spec),
        f"documents  {report.asked:,}: {report.hits:,} hits ({100 * report.hits / max(1, distinct):.1f} %), "
        f"{report.written:,} misses, {report.duplicates:,} repeated{elsewhere}",
        f"written    {report.rows:,} {spec.unit}s, {report.bytes:,} bytes in {report.shards} shards",
    ]
    if done.rows_per_second is None:
        lines.append(f"time       {done.seconds:.1f} s" + ("" if done.encoder_loaded else "; encoder not loaded"))
    else:
        lines.append(f"time       {done.seconds:.1f} s, {done.rows_per_second:,.0f} {spec.unit}s/s")
    if report.windowed:
        items = "items" if spec.unit == "piece" else f"{spec.unit}s"
        lines.append(
            f"windowed   {report.windowed:,} {items} are longer than {spec.window} pieces and were cut with overlap"
        )
    if report.unknown_words:
        lines.append(
            f"unknown    {report.unknown_words:,} words have no piece of their own; the unknown piece stands for them"
        )
    return "\n".join(lines)
