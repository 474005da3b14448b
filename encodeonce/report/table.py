"""Rows to tables: mean and standard deviation over seeds, Welch's t-test against the best, Markdown or aligned text.

A mark says how a method stands against the best of its task: the best is bold; "≈" follows every mean that does not
differ from it at p < 0.05 (two-tailed Welch t-test, at least two seeds each).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..metrics.significance import mean_sd, welch
from .results import ResultsRow, latest

__all__ = ["Score", "aligned", "comparison", "deciding", "markdown", "scores"]

SIGNIFICANT = 0.05


@dataclass(frozen=True, slots=True)
class Score:
    """The values of one method on one task: mean and sample standard deviation over seeds."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return mean_sd(self.values)[0]

    @property
    def sd(self) -> float | None:
        """None with fewer than two values."""
        return mean_sd(self.values)[1]

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.sd is None else f"{self.mean:.2f} ± {self.sd:.2f}"


def scores(rows: Sequence[ResultsRow], split: str = "test") -> dict[str, dict[str, Score]]:
    """task -> method -> Score over the seeds of `split`, in the order of the rows; a later row of a cell replaces it.

    Of several metrics of a task the one of its first row counts. A method whose rows come in several variants (learning
    rate and company aside) is split into "method (variant)".
    """
    chosen = deciding(rows, split)
    label = labels(chosen)
    table: dict[str, dict[str, list[float]]] = {}
    for row in chosen:
        table.setdefault(row.task, {}).setdefault(label(row), []).append(row.value)
    return {task: {name: Score(tuple(values)) for name, values in by.items()} for task, by in table.items()}


def deciding(rows: Sequence[ResultsRow], split: str) -> list[ResultsRow]:
    """The rows that count in a table: of this split, the last of every cell, the first metric of each task."""
    chosen = [row for row in latest(rows) if row.split == split]
    metric: dict[str, str] = {}
    for row in chosen:
        metric.setdefault(row.task, row.metric)
    return [row for row in chosen if row.metric == metric[row.task]]


def labels(rows: Sequence[ResultsRow]) -> Callable[[ResultsRow], str]:
    """How a method is called in a table of these rows."""
    variants: dict[str, set[str]] = {}
    for row in rows:
        variants.setdefault(row.method, set()).add(_shown(row.variant))
    return lambda row: row.method if len(variants[row.method]) == 1 else f"{row.method} ({_shown(row.variant) or '-'})"


def _shown(variant: str) -> str:
    return " ".join(part for part in variant.split() if not part.startswith(("lr=", "joint=")))


def comparison(
    rows: Sequence[ResultsRow],
    split: str = "test",
    paper: Mapping[str, Mapping[str, float]] | None = None,
    bold: Callable[[str], str] = "**{}**".format,
) -> tuple[list[str], list[list[str]]]:
    """Header and lines of methods x tasks with efficiency columns; `paper[task][method]` stands beside ours."""
    table = scores(rows, split)
    chosen = deciding(rows, split)
    label = labels(chosen)
    metric = {row.task: row.metric for row in chosen}
    methods = list(dict.fromkeys(label(row) for row in chosen))
    paper = paper or {}
    header = ["method"]
    for task in table:
        header += [f"{task} ({metric[task]})"] + ([f"{task} paper"] if task in paper else [])
    header += [title for title, _, _ in EFFICIENCY]
    lines = []
    for method in methods:
        line = [method]
        for task, by in table.items():
            line.append(_marked(method, by, bold))
            if task in paper:
                value = paper[task].get(method.partition(" (")[0])
                line.append("" if value is None else f"{value:.2f}")
        mine = [row for row in chosen if label(row) == method]
        line += [_mean_field(mine, field, form) for _, field, form in EFFICIENCY]
        lines.append(line)
    used = [c for c in range(len(header)) if c == 0 or any(line[c] for line in lines)]
    return [header[c] for c in used], [[line[c] for c in used] for line in lines]


EFFICIENCY = (
    ("ms/batch", "train_s_per_batch", lambda v: f"{1000 * v:.1f}"),
    ("train s", "train_s_total", lambda v: f"{v:.1f}"),
    ("encode s", "encode_s", lambda v: f"{v:.1f}"),
    ("infer ms/batch", "infer_s_per_batch", lambda v: f"{1000 * v:.1f}"),
    ("trainable", "params_trainable", lambda v: f"{round(v):,}"),
    ("peak MB", "peak_mb", lambda v: f"{v:.0f}"),
    ("store MB", "store_mb", lambda v: f"{v:.1f}"),
)


def _marked(method: str, by: Mapping[str, Score], bold: Callable[[str], str]) -> str:
    if method not in by:
        return ""
    best = max(by, key=lambda name: by[name].mean)
    if method == best:
        return bold(str(by[method]))
    p = welch(by[method].values, by[best].values)["p"]
    return f"{by[method]} ≈" if p is not None and p >= SIGNIFICANT else str(by[method])


def _mean_field(rows: Sequence[ResultsRow], field: str, form: Callable[[float], str]) -> str:
    values = [getattr(row, field) for row in rows]
    known = [float(value) for value in values if value is not None]
    return form(mean_sd(known)[0]) if known else ""


def markdown(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first column to the left, all others to the right."""
    rule = [":--", *["--:"] * (len(header) - 1)]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in [header, rule, *lines]
    )


def aligned(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """The same for a terminal: columns two blanks apart, numbers to the right."""
    widths = [max(len(line[c]) for line in [header, *lines]) for c in range(len(header))]
    rule = ["─" * width for width in widths]
    return "\n".join(
        "  ".join(
            cell.ljust(w) if c == 0 else cell.rjust(w) for c, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in [header, rule, *lines]
    )
