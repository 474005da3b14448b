"""The tables and the curve of this folder's rows: `python experiments/lumen/page.py` writes curve.png, and the tables
between the two marks of docs/methods/lumen.md.

Means with standard deviations over seeds; "gap closed" is (LUMEN - memory) / (FiD - memory), of exact match. What a
step of the curve, a restriction or a transfer changes is the mean over seeds of the difference between two runs of the
same seed, with its standard error.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean, stdev

from encodeonce.report.results import ResultsRow, latest, made_by, read_rows

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "methods" / "lumen.md"
START, END = "<!-- figures: written by page.py -->\n", "<!-- end of figures -->"
FILES = ("rows.jsonl", "small.jsonl", "twelve.jsonl", "lookup.jsonl")
CHANGED = ("attention", "question_encoder", "memory", "transfer")
"""Words of a variant that are held against the same without them, or without transfer."""
INK, BLUE, ORANGE = "#22272e", "#0072B2", "#E69F00"

Values = Mapping[int | None, float]
"""A value a seed."""


class Cells:
    """Rows of one data set and encoder: (split, variant) -> metric -> a value a seed."""

    def __init__(self, rows: Sequence[ResultsRow]) -> None:
        self.by: dict[tuple[str, str], dict[str, dict[int | None, float]]] = {}
        for row in rows:
            if row.value is not None:
                own = self.by.setdefault((row.split, row.variant), {})
                own.setdefault(row.metric, {})[row.seed] = row.value

    def curve(self, split: str = "test") -> list[tuple[int, Values]]:
        """Exact match at the paper's cut by live blocks, ascending."""
        plain = {variant: own for (own_split, variant), own in self.by.items() if own_split == split}
        named = {v: own for v, own in plain.items() if v.startswith("live=") and v[5:].isdigit()}
        return sorted((int(variant[5:]), own["exact_match"]) for variant, own in named.items())

    def closed(self, values: Values, split: str) -> str:
        """Share of the gap between the ends of the curve; "" where there is none."""
        ends = self.curve(split)
        if len(ends) < 2 or ends[0][0] != 0:
            return ""
        low, high = mean(ends[0][1].values()), mean(ends[-1][1].values())
        return f"{100 * (mean(values.values()) - low) / (high - low):.0f}" if high != low else ""


def learnt_from(row: ResultsRow) -> str:
    """The data set, with the command's word for how much of it at most."""
    words = (row.command or "").split()
    counts = [f"{word} {after}" for word, after in pairwise(words) if word in ("--train", "--questions")]
    return ", ".join([row.dataset, *counts])


def grouped(rows: Sequence[ResultsRow]) -> dict[tuple[str, str], Cells]:
    """By what was learnt from, and encoder, in the order they came."""
    found: dict[tuple[str, str], list[ResultsRow]] = {}
    for row in rows:
        found.setdefault((learnt_from(row), row.encoder), []).append(row)
    return {key: Cells(latest(own)) for key, own in found.items()}


def written(values: Values) -> str:
    own = list(values.values())
    return f"{mean(own):.1f}" + (f" ± {stdev(own):.1f}" if len(own) > 1 else "")


def difference(before: Values, after: Values) -> tuple[int, str]:
    """Seeds of both, and the mean difference with its standard error."""
    own = [after[seed] - before[seed] for seed in before.keys() & after.keys()]
    error = f" ± {stdev(own) / len(own) ** 0.5:.1f}" if len(own) > 1 else ""
    return len(own), f"{mean(own):+.1f}{error}" if own else ""


def steps(cells: Cells) -> list[tuple[str, int, str]]:
    """Between neighbours of the curve: which, seeds, the difference."""
    found = [(f"live={low} to {high}", *difference(a, b)) for (low, a), (high, b) in pairwise(cells.curve())]
    return [step for step in found if step[1]]


def changes(cells: Cells) -> list[tuple[str, int, str]]:
    """What a restriction, a relaxation or a transfer changes: which, seeds, the difference."""
    found = []
    for (split, variant), by in sorted(cells.by.items()):
        words = variant.split()
        if split != "test" or words[-1].partition("=")[0] not in CHANGED:
            continue
        plain = " ".join([*words[:-1], *(["transfer=none"] if "transfer" in words[-1] else [])])
        if plain != variant and (base := cells.by.get((split, plain))):
            found.append((f"{' '.join(words[:-1])}: {words[-1]}", *difference(base["exact_match"], by["exact_match"])))
    return [change for change in found if change[1]]


def table(rows: Sequence[ResultsRow]) -> str:
    scores = ["| data | encoder | split | variant | seeds | exact match | F1 | gap closed, % |", "| --- " * 8 + "|"]
    between = ["| data | encoder | what changes | seeds | exact match, and its standard error |", "| --- " * 5 + "|"]
    times = ["| encoder | variant | training step, % of FiD | answering, % of FiD |", "| --- " * 4 + "|"]
    for (dataset, encoder), cells in grouped(rows).items():
        for (split, variant), by in sorted(cells.by.items(), key=lambda cell: (cell[0][0] != "test", cell[0][1])):
            if split == "timing":
                ratios = [next(iter(by[name].values())) for name in ("train_ratio", "answer_ratio")]
                times.append(f"| {encoder} | {variant} | {ratios[0]:.0f} | {ratios[1]:.0f} |")
            elif "exact_match" in by:
                em, f1 = by["exact_match"], written(by["f1"]) if "f1" in by else ""
                own = [dataset, encoder, split, variant, str(len(em)), written(em), f1, cells.closed(em, split)]
                scores.append(f"| {' | '.join(own)} |")
        between += [
            f"| {dataset} | {encoder} | {which} | {n} | {step} |" for which, n, step in steps(cells) + changes(cells)
        ]
    return "\n\n".join("\n".join(lines) for lines in (scores, between, times) if len(lines) > 2) + "\n"


def curve(rows: Sequence[ResultsRow], path: Path) -> None:
    from matplotlib.figure import Figure

    every = {key: cells for key, cells in grouped(rows).items() if len(cells.curve()) > 1}
    if not every:
        return
    lines = -(-len(every) // 2)
    figure = Figure(figsize=(8, 3.2 * lines), dpi=150, layout="constrained")
    axes = figure.subplots(lines, 2, squeeze=False).flat
    for axis in axes[len(every) :]:
        axis.set_axis_off()
    for axis, ((dataset, encoder), cells) in zip(axes, every.items(), strict=False):
        plain = cells.curve()
        axis.errorbar(
            [live for live, _ in plain],
            [mean(own.values()) for _, own in plain],
            [spread(own) for _, own in plain],
            color=BLUE,
            marker="o",
            capsize=3,
            label="the paper's cut",
        )
        for (split, variant), by in cells.by.items():
            if split == "test" and "blocks=" in variant and variant.split()[-1].partition("=")[0] not in CHANGED:
                own, live = by["exact_match"], variant.split("blocks=")[1].split(" ")[0].count(",") + 1
                axis.errorbar([live], [mean(own.values())], [spread(own)], color=ORANGE, marker="D")
                axis.annotate(
                    variant, (live, mean(own.values())), fontsize=7, xytext=(6, -3), textcoords="offset points"
                )
        axis.set_title(f"{dataset}\n{encoder}", loc="left", fontsize=9, color=INK)
        axis.set_xlabel(f"live blocks of {plain[-1][0]}", fontsize=9)
        axis.set_ylabel("exact match, %", fontsize=9)
    figure.savefig(path, facecolor="white")


def spread(values: Values) -> float:
    return stdev(values.values()) if len(values) > 1 else 0.0


def main() -> None:
    rows = [row for name in FILES for row in read_rows(HERE / name)]
    if not rows:
        raise SystemExit("no row yet: run experiments/lumen/run first.")
    curve(rows, HERE / "curve.png")
    picture = "```{image} ../../experiments/lumen/curve.png\n:alt: exact match by live blocks\n```\n"
    before, start, rest = PAGE.read_text(encoding="utf-8").partition(START)
    _, end, after = rest.partition(END)
    PAGE.write_text(
        before + start + "\n".join(["", table(rows), picture, made_by(rows) + "\n"]) + end + after, encoding="utf-8"
    )


if __name__ == "__main__":
    main()
