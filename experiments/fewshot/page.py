"""Writes scores, what fusion and concatenation cost, and both side by side, between the marks in docs/fewshot.md.

    python experiments/fewshot/page.py

Times and FLOPs are those of `benchmarks/fusion.py` (the paper's Table 4 and Figure 1), scores those of rows.jsonl,
whatever tasks and seeds there are: the recipe's own setting first, then full data and all others. Methods are compared
over the tasks and seeds that both have, and how many these are is said. cost.png shows by FLOPs how far each method is
above the probe, as soon as fusion or concatenation has scores of two tasks.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from recipe import Recipe
from run import GROUPS
from tables import Difference, Found, against, means, pairs, setting, settings_of
from verdicts import settings, shown, verdicts

from encodeonce.methods.fewshot import PROBES
from encodeonce.report.plots import COLOURS, INK, bare, new_figure, plain_log, saved
from encodeonce.report.results import made_by, read_rows
from encodeonce.report.table import markdown

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BENCHMARKS = ROOT / "benchmarks" / "results"
COSTS = ("<!-- costs: written by page.py -->\n", "<!-- end of costs -->")
SCORES = ("<!-- scores: written by page.py -->\n", "<!-- end of scores -->")

PAPER = {"plain": 7.35, "concat512": 31.69, "integrator": 8.95}
"""Forward of Table 4, MPQA: RoBERTa-large, CA-512, ReFusion. Its unit is in doubt and cancels in ratios."""

UNITS = ("ms", "flops")

REFERENCE = "probe"
"""What scores beside costs are differences to."""

SAID = {
    "plain": "plain",
    "add": "fusion: RF-add",
    "reranker": "fusion: reranker",
    "mask": "fusion: ordered mask",
    "integrator": "fusion: integrator",
    "integrator_soft": "fusion: integrator, soft",
    "concat8": "eight texts before it",
    "concat512": "texts before it up to 512 pieces",
}
SERIES = {"texts before the prompt": "concat", "neighbours added": "fused-prompt.add"}
"""Of Figure 1: what has a number of retrievals; none of them is "prompt"."""


def breakdown(found: Mapping[str, Any], n: int) -> list[list[str]]:
    """A line a method: milliseconds of a batch for retrieval, forward and both, forward to plain's (of one text also
    the paper's), then billions of FLOPs of one text."""
    forward, retrieval = found[f"forward_{n}"], found[f"retrieval_{n}"]
    lines = []
    for name in forward["ms"]:
        search = "search8" if name.startswith("concat") else f"search{found['k']}"
        before = {
            unit: 0.0 if name == "plain" else retrieval[unit]["query"] + retrieval[unit][search] for unit in UNITS
        }
        times = [before["ms"], forward["ms"][name], before["ms"] + forward["ms"][name]]
        work = [before["flops"], forward["flops"][name], before["flops"] + forward["flops"][name]]
        paper = [f"{PAPER[name] / PAPER['plain']:.2f}" if name in PAPER else ""] if n == 1 else []
        lines.append(
            [
                SAID[name],
                *(f"{ms:.1f}" for ms in times),
                f"{forward['to_plain'][name]:.2f}",
                *paper,
                *map(billions, work),
            ]
        )
    return lines


def billions(flops: float) -> str:
    return f"{flops / 1e9:.3f}"


def numbers(found: Mapping[str, Any]) -> list[list[str]]:
    """A line a number of retrievals: FLOPs and milliseconds of a forward pass, added and laid before."""
    own = found["number"]
    counts = sorted({int(name.removeprefix(kind)) for name in own["ms"] for kind in ("add", "concat") if kind in name})
    lines = [["none", *[billions(own["flops"]["plain"]), f"{own['ms']['plain']:.1f}"] * 2]]
    for count in counts:
        line = [str(count)]
        for kind in ("add", "concat"):
            name = f"{kind}{count}"
            line += [billions(own["flops"][name]), f"{own['ms'][name]:.1f}"] if name in own["ms"] else ["", ""]
        lines.append(line)
    return lines


def one_run(found: Mapping[str, Any]) -> list[str]:
    """The tables of one benchmark file."""
    times = ["retrieval, ms", "forward, ms", "both, ms", "forward to plain"]
    work = ["retrieval, GFLOPs", "forward, GFLOPs", "both, GFLOPs"]
    pieces = found["of_one_text"]
    whole = {n: found[f"end_to_end_{n}"]["ms"] for n in (1, 32)}
    ratios = {n: own["concat8"] / own["fusion"] for n, own in whole.items()}
    return [
        f"{found['machine']}, one thread, {found.get('compute', 'fp32')}, commit {found['commit']}; milliseconds of "
        "CPU, the least of the rounds. "
        f"MiniLM, keys and values of all blocks, {found['k']} of {found['rows']:,} vectors found exactly. "
        "Retrieval is the query's encoding and the search. FLOPs are of one text.",
        f"One text of {pieces['own']} pieces ({pieces['concat8']} with eight others before it, {pieces['concat512']} "
        "with as many as fit):",
        markdown(["", *times, "in the paper", *work], breakdown(found, 1)),
        "32 texts at once:",
        markdown(["", *times, *work], breakdown(found, 32)),
        f"Whole answers, texts in and labels out, with eight texts before a text against fusion: {ratios[1]:.1f} times "
        f"the time for one text, {ratios[32]:.1f} for 32 at once.",
        "By the number of retrievals, one text (the paper's Figure 1):",
        markdown(
            ["retrievals", "added, GFLOPs", "added, ms", "before the text, GFLOPs", "before the text, ms"],
            numbers(found),
        ),
    ]


def cost_of(method: str, found: Mapping[str, Any]) -> int | None:
    """FLOPs of the one text's answer, retrieval included; None where the benchmark does not say."""
    forward, retrieval, number = found["forward_1"]["flops"], found["retrieval_1"]["flops"], found["number"]["flops"]
    search = retrieval[f"search{found['k']}"]
    asked = retrieval["query"] + search
    base, _, how = method.partition(".")
    if base in ("probe", "layers", "finetune", "prompt", "mlm_head"):
        return int(forward["plain"])
    if base == "late":
        return int(asked)
    if base == "concat":
        return int(asked + number[f"concat{how or 8}"])
    name, *options = how.split(",")
    if not base.startswith("fused") or "queries=hidden" in options:
        return None
    k = next((one.removeprefix("k=") for one in options if one.startswith("k=")), "")
    return int(asked + (number[f"add{k}"] if k else forward.get(name, forward["integrator"])))


def shown_methods() -> list[str]:
    """What has a place in the picture: all that learns from 16 a label, controls left out."""
    named = [name for group in GROUPS if group != "all" for name in GROUPS[group]]
    controls = {name for name, probe in PROBES.items() if probe.rounds or probe.side not in ("", "neighbours")}
    return [name for name in dict.fromkeys(named) if "+" not in name and ":" not in name and name not in controls]


def against_costs(found: Mapping[str, Any]) -> list[str]:
    """Scores beside FLOPs, the picture, and what is missing. Scores are differences to the probe, over the tasks and
    seeds that both have, so that methods with few of them can stand beside the others."""
    own = settings_of(read_rows(HERE / "rows.jsonl")).get(setting(Recipe().variant(0)), {})
    methods = shown_methods()
    over = {
        name: one
        for name in methods
        if name in own and REFERENCE in own and (one := Difference.of(own[name], own[REFERENCE])) is not None
    }
    costs = {name: cost / 1e9 for name in over if (cost := cost_of(name, found)) is not None}
    points = {name: (cost, over[name].mean) for name, cost in costs.items()}
    parts = [
        f"Score over `{REFERENCE}`'s, paired by task and seed, 16 examples a label, beside the FLOPs of the one text's "
        "answer, retrieval included:",
        markdown(
            ["method", "GFLOPs", f"over `{REFERENCE}`", "error", "cells"],
            [[f"`{name}`", f"{costs[name]:.3f}", *shown(over[name])] for name in points],
        ),
    ]
    drawn = {name: point for name, point in points.items() if in_picture(name) and over[name].error is not None}
    if any(name.startswith(("concat", "fused")) for name in drawn):
        draw(drawn, HERE / "cost.png")
        parts.append("```{image} ../experiments/fewshot/cost.png\n:alt: score by cost\n```")
    absent = [name for name in methods if name not in own]
    if absent:
        parts.append("Not run yet: " + ", ".join(f"`{name}`" for name in absent) + ".")
    return parts


def in_picture(name: str) -> bool:
    """Settings of a fusion have tables of their own, but for the numbers of Figure 1."""
    return "," not in name or name.startswith(f"{SERIES['neighbours added']},k=")


def draw(points: Mapping[str, tuple[float, float]], path: Path) -> None:
    """Scores by FLOPs; more and more retrievals of one kind are joined by a line."""
    figure = new_figure((8.0, 4.2))
    axis = figure.subplots()
    for colour, (title, kind) in zip(COLOURS, SERIES.items(), strict=False):
        line = sorted(
            point
            for name, point in points.items()
            if name == "prompt" or re.split(r",k=|(?<=concat)\.", name)[0] == kind
        )
        if len(line) > 1:
            axis.plot(*zip(*line, strict=True), color=colour, linewidth=1, label=title)
    close = 0.06 * (max(score for _, score in points.values()) - min(score for _, score in points.values()))
    for name, (cost, score) in points.items():
        axis.plot(cost, score, "o", color=INK, markersize=4)
        crowded = any(
            0 < above - score < close and abs(math.log(beside / cost)) < 0.2 for beside, above in points.values()
        )
        place = (5, -8 if crowded else 3)  # under its point where another's name would lie over it
        axis.annotate(name, (cost, score), xytext=place, textcoords="offset points", fontsize=7, color=INK)
    axis.set_xscale("log")
    axis.set_xlabel("GFLOPs of one text's answer, retrieval included", fontsize=9, color=INK)
    axis.set_ylabel(f"score over {REFERENCE}'s", fontsize=9, color=INK)
    axis.margins(x=0.15, y=0.12)
    plain_log(axis.xaxis)
    if axis.get_legend_handles_labels()[0]:
        axis.legend(fontsize=8, frameon=False)
    bare(axis)
    saved(figure, path)


def main() -> None:
    files = [path for path in (BENCHMARKS / at / "fusion.json" for at in ("", "epyc", "avx2")) if path.is_file()]
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    runs = [run for run in runs if "number" in run]
    if not runs:
        raise SystemExit("no costs yet: python benchmarks/fusion.py --out benchmarks/results/fusion.json")
    written(SCORES, scored())
    written(COSTS, [part for run in runs for part in one_run(run)] + against_costs(runs[0]))


def scored() -> list[str]:
    """Scores of every setting, the recipe's own first, and how they were made."""
    rows = read_rows(HERE / "rows.jsonl")
    if not rows:
        return ["No rows yet."]
    found, own = settings_of(rows), setting(Recipe().variant(0))
    parts = [part for name in sorted(found, key=lambda one: one != own) for part in of_setting(name, found[name])]
    return [*parts, made_by([replace(row, command=None) for row in rows])]  # a command a cell, in the row


def of_setting(name: str, found: Found) -> list[str]:
    """Means, the verdicts on `fewshot` and on fusion, settings of fusion, paired differences."""
    learns = "all training texts but a tenth, which is dev" if "train=full" in name else "train (16 a class)"
    parts = [
        f"`{name}`: means over seeds with half the width of their 95 % interval and, in brackets, the population's "
        "standard deviation (LM-BFF's spread); then the mean of the tasks with its own interval (seeds are what is "
        "drawn), and how many cells it is of. A `+dev` learns from train and dev, `fewshot` too; the others learn from "
        f"{learns}, and dev chooses the penalty, the epoch, or what a search weighs. MRPC and QQP have F1, CoLA "
        "Matthews's correlation, SQuAD the F1 of words, the others accuracy.",
        markdown(*means(found)),
    ]
    if (verdict := against(found)) is not None:
        parts.append(f"{verdict}.")
    parts += [f"- {sentence}" for sentence in verdicts(found)]
    for title, (header, lines) in settings(found):
        parts += [title, markdown(header, lines)]
    header, lines = pairs(found)
    if lines:
        said = "Paired by task and seed, over the cells that both have; the error is that of the mean over tasks."
        parts += [said, markdown(header, lines)]
    return parts


def written(marks: tuple[str, str], parts: Sequence[str]) -> None:
    """In place of what stood between the marks."""
    page = ROOT / "docs" / "fewshot.md"
    before, start, rest = page.read_text(encoding="utf-8").partition(marks[0])
    _, end, after = rest.partition(marks[1])
    if not start or not end:
        raise SystemExit(f"{page}: the marks {marks[0].strip()} and {marks[1].strip()} are not there.")
    inside = "\n\n".join(parts).rstrip("\n") + "\n"
    page.write_text(before + start + inside + end + after, encoding="utf-8")


if __name__ == "__main__":
    main()
