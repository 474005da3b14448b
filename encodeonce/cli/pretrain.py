"""`encodeonce pretrain`: documents with metadata to a domain encoder."""

import json
from pathlib import Path
from typing import Any

import click

from .options import json_option, set_option

__all__ = ["pretrain"]

DRAWN = 0.05
"""Seconds of drawing tuples that are worth a word."""


@click.command()
@click.argument("config", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--output",
    "-o",
    "folder",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="FOLDER of this run: encoder, report, checkpoint.",
)
@click.option("--budget", help="What to spend, encoding included: 90s, 5m, 1h, or 44TFLOP.  [default: all tuples once]")
@set_option
@json_option
def pretrain(config: Path, folder: Path, budget: str | None, changes: tuple[str, ...], as_json: bool) -> None:
    """Train an encoder on whole documents: their similarity, their taxonomy, their text.

    CONFIG names documents, the field of their category path, encoder and objective. FOLDER/encoder is then an ordinary
    encoder; FOLDER/report.json says what was sampled, what it cost, and how held-out documents come out beside the
    plain mean of sentence vectors. With objective = "probe" several are tried, each with a part of the budget, and the
    rest is spent on the one that a small probe of your own task prefers. Given again, an interrupted run goes on and a
    finished one is left as it is.
    """
    from .config import load
    from .pretrain_config import PROBE, PretrainConfig

    given = (f"budget={budget}",) if budget else ()
    chosen = load(config, (*changes, *given), model=PretrainConfig)
    from .pretrain_trials import pretrain_probed
    from .pretraining import pretrain as pretrained

    report = (pretrain_probed if chosen.objective == PROBE else pretrained)(chosen, folder)
    click.echo(json.dumps(report) if as_json else _text(report, folder))


def _text(report: dict[str, Any], folder: Path) -> str:
    cost, held = report["costs"], report["held_out"]
    counts, sample = report["counts"], report["sample"]
    lines = [
        f"documents  {counts['documents']:,}: {counts['without_sentence']:,} without a sentence, "
        f"{counts['shortened']:,} shortened; {counts['sentences']:,} sentences",
        f"tuples     {report['tuples']:,} ({sample['anchors']:,} possible anchors, {sample['without_partner']:,} "
        f"without a partner, {sample['without_metadata']:,} without metadata)",
    ]
    lines += [*_class_lines(report), *_cost_lines(cost)]
    if held["plain mean of sentence vectors"] is not None:
        few, line = held["untouched"], f"held out   triplet accuracy over {held['tuples']:,} tuples"
        if "pieces" in few:
            line += f"; from pieces over {few['pieces_tuples']:,} tuples of {few['pieces_documents']:,} documents"
        lines.append(line)
        lines.append(f"           plain mean of sentence vectors {held['plain mean of sentence vectors']:.1f}")
        for name in ("untouched", "trained"):
            parts = [f"{kind} {held[name][kind]:.1f}" for kind in ("sentences", "pieces") if kind in held[name]]
            lines.append(f"           {name}: {', '.join(parts)}")
    if "probe" in report:
        lines += _probe_lines(report["probe"], report["chosen"])
    lines.append(f"encoder    {folder / 'encoder'}")
    return "\n".join(lines)


def _class_lines(report: dict[str, Any]) -> list[str]:
    """What documents were classified into: levels of a taxonomy, where categories went, topics by their words."""
    lines, levels, mapped, topics = [], report["taxonomy"], report["mapped"], report["topics"]
    if levels:
        each = [f"{one['classes']:,} ({one['documents']:,})" for one in levels]
        lines.append(f"classes    of each level, with the documents that reach it: {', '.join(each)}")
    if mapped:
        exact, nowhere = (sum(test(one) for one in mapped) for test in (lambda o: o["exact"], lambda o: not o["leaf"]))
        lines.append(
            f"mapped     {len(mapped):,} categories: {exact:,} by path, code or name, "
            f"{len(mapped) - exact - nowhere:,} to the nearest leaf, {nowhere:,} nowhere"
        )
    named = [one for one in topics if one["path"]]
    if named:
        outside = sum(one["documents"] for one in topics if not one["path"])
        few = "; ".join(" ".join(one["words"][:3]) for one in named[:4])
        lines.append(f"topics     {len(named):,}, {outside:,} documents in none: {few}{' ...' if named[4:] else ''}")
    return lines


def _cost_lines(cost: dict[str, Any]) -> list[str]:
    """Encode once, train, total; and an epoch of masked-language training, beside the run and as the paper counts."""
    lines = [
        f"{name:<11}{cost['seconds'].get(name, 0):,.1f} s, {_flops(cost['flops'][name])}"
        f"{_stored(cost) if name == 'encode' else ''}"
        for name in ("encode", "train", "total")
    ]
    if cost["seconds"].get("draw", 0) >= DRAWN:  # reports did not always have it
        lines[-1] += f", {cost['seconds']['draw']:,.1f} s of it drawing tuples and finding topics"
    over, cut = cost["masked_epoch_over"], cost["cut"]
    seconds = {name: "?" if one["seconds"] is None else f"{one['seconds']:,.1f}" for name, one in over.items()}
    times = {name: f"{seconds[name]} and {over[name]['flops']:,.1f}" for name in ("total", "train")}
    return [
        *lines,
        f"masked LM  {cost['masked_epoch_seconds']:,.1f} s as probed, {_flops(cost['masked_epoch_flops'])} for one "
        f"epoch of the same documents: {times['total']} times the total;",
        f"           {times['train']} times training alone, which is what the paper counts",
        *_scoring(cost),
        f"padding    {_padding(cost['positions'])}"
        + (f"; {cut:,} documents have more sentences than are read" if cut else ""),
    ]


def _padding(positions: dict[str, Any]) -> str:
    """The part of what was run that is padding: of documents and of windows of pieces, where there were any."""
    windows = positions.get("windows", {"run": 0})  # reports did not always have it
    parts = (("documents", positions), ("windows", windows))
    shown = [f"{100 * own['padded_share']:.1f} % of the positions of {name}" for name, own in parts if own["run"]]
    return ", ".join(shown) or "nothing was run"


def _scoring(cost: dict[str, Any]) -> list[str]:
    """What held-out documents cost, which are encoded to be scored; nothing where there are none."""
    own = cost.get("scoring")  # reports did not always have it
    if not own or not own["documents"]:
        return []
    return [
        f"scored     {own['documents']:,} held-out documents, encoded beside: {own['seconds']:,.1f} s, "
        f"{_flops(own['flops'])}"
    ]


def _stored(cost: dict[str, Any]) -> str:
    """What an earlier run had encoded, where encoding counts: its FLOPs are those of all documents, its seconds not."""
    before, of = cost["stored"]["before"], cost["stored"]["of"]
    if not cost["flops"]["encode"] or not before:
        return ""
    if before == of:
        return " (stored before: no time was spent on it)"
    return f" ({before:,} of {of:,} documents were stored before: no time was spent on these)"


def _flops(amount: int) -> str:
    """In TFLOP, or in GFLOP where these are few."""
    return f"{amount / 1e12:,.2f} TFLOP" if amount >= 1e11 else f"{amount / 1e9:,.2f} GFLOP"


def _probe_lines(probe: dict[str, Any], chosen: str) -> list[str]:
    """Dev scores of the user's task: untouched, each objective that was tried, and the encoder that came out."""
    from .pretrain_trials import gain

    lines = [
        f"probe      {probe['config']}: {probe['metric']} on dev, {len(probe['seeds'])} seeds, "
        f"{probe['seconds']:,.0f} s; chosen: {chosen}"
    ]
    for name, scores in probe["scores"].items():
        line = f"           {name:<10} {sum(scores) / len(scores):.2f}"
        if name != "untouched":
            apart, error = gain(probe["scores"], name)
            line += f" ({apart:+.2f}{'' if error is None else f' ± {error:.2f}'})"
        lines.append(line)
    return [*lines, *(f"           {name}: not tried. {why}" for name, why in probe["left_out"].items())]
