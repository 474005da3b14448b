"""The tables and the curve of this folder's rows: `python experiments/lumen/page.py` writes curve.png, and the tables
between the two marks of docs/methods/lumen.md.

Means with standard deviations over seeds; "gap closed" is (LUMEN - memory) / (FiD - memory), of exact match. A step of
the curve is the mean over seeds of the difference between two depths with the same seed, with its standard error.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean, stdev

from encodeonce.report.results import ResultsRow, latest, read_rows

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "methods" / "lumen.md"
START, END = "<!-- figures: written by page.py -->\n", "<!-- end of figures -->"
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


def grouped(rows: Sequence[ResultsRow]) -> dict[tuple[str, str], Cells]:
    """By data set and encoder, in the order they came."""
    found: dict[tuple[str, str], list[ResultsRow]] = {}
    for row in latest(rows):
        found.setdefault((row.dataset, row.encoder), []).append(row)
    return {key: Cells(own) for key, own in found.items()}


def written(values: Values) -> str:
    own = list(values.values())
    return f"{mean(own):.1f}" + (f" ± {stdev(own):.1f}" if len(own) > 1 else "")


def steps(cells: Cells) -> list[tuple[str, int, str]]:
    """Between neighbours of the curve: which, seeds, the difference."""
    curve, found = cells.curve(), []
    for (low, before), (high, after) in pairwise(curve):
        both = sorted(before.keys() & after.keys(), key=str)
        own = [after[seed] - before[seed] for seed in both]
        error = f" ± {stdev(own) / len(own) ** 0.5:.1f}" if len(own) > 1 else ""
        if own:
            found.append((f"{low} to {high}", len(own), f"{mean(own):+.1f}{error}"))
    return found


def table(rows: Sequence[ResultsRow]) -> str:
    scores = ["| data | encoder | split | variant | seeds | exact match | F1 | gap closed, % |", "| --- " * 8 + "|"]
    between = ["| data | encoder | live | seeds | exact match, and its standard error |", "| --- " * 5 + "|"]
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
        between += [f"| {dataset} | {encoder} | {which} | {n} | {step} |" for which, n, step in steps(cells)]
    return "\n\n".join("\n".join(lines) for lines in (scores, between, times) if len(lines) > 2) + "\n"


def curve(rows: Sequence[ResultsRow], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.4), dpi=150, layout="constrained")
    every = {key: cells for key, cells in grouped(rows).items() if len(cells.curve()) > 1}
    if not every:
        return
    axes = figure.subplots(1, len(every), squeeze=False)[0]
    for axis, ((dataset, encoder), cells) in zip(axes, every.items(), strict=True):
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
            if split == "test" and "blocks=" in variant:
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


def made(rows: Sequence[ResultsRow]) -> str:
    """Where, when and by which commands."""
    machines = dict.fromkeys(f"{row.machine}, {row.threads} thread(s), torch {row.torch}" for row in rows)
    commits, commands = (dict.fromkeys(getattr(row, name) or "" for row in rows) for name in ("commit", "command"))
    first, last = min(row.started or "" for row in rows), max(row.started or "" for row in rows)
    lines = "\n".join(f"    {command}" for command in sorted(commands) if command)
    return f"{'; '.join(machines)}; commit {', '.join(commits)}; {first} to {last}.\n\n{lines}\n"


def main() -> None:
    rows = [row for path in sorted(HERE.glob("*.jsonl"), reverse=True) for row in read_rows(path)]
    if not rows:
        raise SystemExit("no row yet: run experiments/lumen/run first.")
    curve(rows, HERE / "curve.png")
    picture = "```{image} ../../experiments/lumen/curve.png\n:alt: exact match by live blocks\n```\n"
    before, start, rest = PAGE.read_text(encoding="utf-8").partition(START)
    _, end, after = rest.partition(END)
    PAGE.write_text(before + start + "\n".join(["", table(rows), picture, made(rows)]) + end + after, encoding="utf-8")


if __name__ == "__main__":
    main()
