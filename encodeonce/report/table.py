"""Rows to tables: mean and standard deviation over seeds, Welch's t-test against the best, Markdown or aligned text.

A mark says how a method stands against the best of its task: the best (of an error the lowest) is bold, and so is what
ties with it; "≈" follows every other mean that does not differ from it at p < 0.05 (two-tailed Welch t-test), "°" one
that cannot be tested, as either has a single seed or neither has any spread. A cost that is not known of every row is
a dash.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..errors import DataError
from ..metrics.significance import mean_sd, welch
from .results import COMPANY, ResultsRow, apart, without

__all__ = [
    "LOWER",
    "Paper",
    "Score",
    "aligned",
    "columns",
    "comparison",
    "deciding",
    "labels",
    "markdown",
    "metrics_of",
    "scores",
    "seconds",
    "shown",
    "steps",
    "training_seconds",
]

SIGNIFICANT = 0.05

LOWER = ("mse",)
"""Scores of which the lowest is the best."""


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
        digits = _digits(self.mean)
        return f"{self.mean:.{digits}f}" if self.sd is None else f"{self.mean:.{digits}f} ± {self.sd:.{digits}f}"


def scores(
    rows: Sequence[ResultsRow], split: str = "test", metrics: Mapping[str, Sequence[str]] | None = None
) -> dict[str, dict[str, Score]]:
    """task -> method -> Score over the seeds of `split`, in the order of the rows; a later row of a cell replaces it.
    An undefined value is in no score, and a method without any in no task.

    Of several metrics of a task the one of its first row counts, or those that `metrics` lists for it: a task of
    several stands once for each, as "task metric". A method whose rows come in several variants (company aside, and
    rates and epochs where no task has two of them) is split into "method (variant)".
    """
    chosen = deciding(rows, split, metrics)
    label, column = labels(chosen), columns(chosen)
    table: dict[str, dict[str, list[float]]] = {}
    for row in chosen:
        by = table.setdefault(column(row), {})
        if row.value is not None:
            by.setdefault(label(row), []).append(row.value)
    return {task: {name: Score(tuple(values)) for name, values in by.items()} for task, by in table.items()}


def seconds(
    rows: Sequence[ResultsRow], split: str = "test", metrics: Mapping[str, Sequence[str]] | None = None
) -> dict[str, dict[str, float]]:
    """task -> method -> mean seconds of a training, encoding included, as `scores` calls them; only what is known.

    Of tasks that were trained side by side each has the time of all.
    """
    chosen = deciding(rows, split, metrics)
    label, column = labels(chosen), columns(chosen)
    found: dict[str, dict[str, list[float]]] = {}
    for row in chosen:
        taken = training_seconds(row)
        if taken:
            found.setdefault(column(row), {}).setdefault(label(row), []).append(taken)
    return {task: {name: mean_sd(values)[0] for name, values in by.items()} for task, by in found.items()}


def steps(
    table: Mapping[str, Mapping[str, Score]], pairs: Sequence[tuple[str, str]]
) -> tuple[list[str], list[list[str]]]:
    """Header and lines of what the second method of each pair has over the first, with Welch's p, "°" where there is
    none; a line a task that has both."""
    lines = []
    for task, by in table.items():
        for low, high in pairs:
            if low in by and high in by:
                p = welch(by[low].values, by[high].values)["p"]
                gain = by[high].mean - by[low].mean
                lines.append([task, f"{high} − {low}", f"{gain:+.2f}", "°" if p is None else f"{p:.2g}"])
    return ["task", "step", "difference", "p (Welch)"], lines


def deciding(
    rows: Sequence[ResultsRow], split: str, metrics: Mapping[str, Sequence[str]] | None = None
) -> list[ResultsRow]:
    """The rows that count in a table: of this split, the last of every cell whatever was trained beside it, the first
    metric of each task or those that are asked for. DataError names a metric that no row has."""
    last = {apart(row).cell: row for row in rows if row.split == split}
    own = list(last.values())
    shown: dict[str, Sequence[str]] = {}
    for row in own:
        shown.setdefault(row.task, [row.metric])
    for task, wanted in (metrics or {}).items():
        there = list(dict.fromkeys(row.metric for row in own if row.task == task))
        absent = [metric for metric in wanted if metric not in there]
        if absent:
            raise DataError(f"task {task!r} has no metric {absent[0]!r} on {split}. There is: {', '.join(there)}.")
        shown[task] = wanted
    return [row for row in own if row.metric in shown[row.task]]


def metrics_of(
    rows: Sequence[ResultsRow], split: str = "test", metrics: Mapping[str, Sequence[str]] | None = None
) -> dict[str, str]:
    """task -> which score it is that stands in a table, tasks as `scores` calls them."""
    chosen = deciding(rows, split, metrics)
    column = columns(chosen)
    return {column(row): row.metric for row in chosen}


def columns(rows: Sequence[ResultsRow]) -> Callable[[ResultsRow], str]:
    """How a task's column is called in a table of these rows."""
    metrics: dict[str, set[str]] = {}
    for row in rows:
        metrics.setdefault(row.task, set()).add(row.metric)
    return lambda row: row.task if len(metrics[row.task]) == 1 else f"{row.task} {row.metric}"


def labels(rows: Sequence[ResultsRow]) -> Callable[[ResultsRow], str]:
    """How a method is called in a table of these rows."""
    hidden: dict[str, Sequence[str]] = {}
    for method in dict.fromkeys(row.method for row in rows):
        own = [row for row in rows if row.method == method]
        hidden[method] = COMPANY if _collide(own, CHOSEN) else CHOSEN
    variants: dict[str, set[str]] = {}
    for row in rows:
        variants.setdefault(row.method, set()).add(without(row.variant, hidden[row.method]))

    def label(row: ResultsRow) -> str:
        shown = without(row.variant, hidden[row.method])
        return row.method if len(variants[row.method]) == 1 else f"{row.method} ({shown or '-'})"

    return label


CHOSEN = ("lr", "encoder_lr", "epochs", *COMPANY)
"""What a table leaves out of a variant: mostly chosen on dev, for each task by itself."""


def _collide(rows: Sequence[ResultsRow], hidden: Sequence[str]) -> bool:
    """Whether two settings of one task would be averaged, were these keys left out."""
    seen: dict[tuple[object, ...], set[str]] = {}
    for row in rows:
        cell = (row.dataset, row.task, row.metric, without(row.variant, hidden))
        seen.setdefault(cell, set()).add(without(row.variant, COMPANY))
    return any(len(variants) > 1 for variants in seen.values())


Paper = Mapping[str, Mapping[str, "float | Sequence[float]"]]
"""task -> method -> value, or mean and standard deviation."""


def comparison(
    rows: Sequence[ResultsRow],
    split: str = "test",
    paper: Paper | None = None,
    bold: Callable[[str], str] = "**{}**".format,
    metrics: Mapping[str, Sequence[str]] | None = None,
) -> tuple[list[str], list[list[str]]]:
    """Header and lines of methods x tasks with efficiency columns; `paper[task][method]` stands beside ours."""
    table = scores(rows, split, metrics)
    chosen = deciding(rows, split, metrics)
    label, metric = labels(chosen), metrics_of(rows, split, metrics)
    methods = list(dict.fromkeys(label(row) for row in chosen))
    paper = paper or {}
    header = ["method"]
    for task in table:
        name = task if task.endswith(f" {metric[task]}") else f"{task} ({metric[task]})"
        header += [name] + ([f"{task} paper"] if task in paper else [])
    header += [title for title, _, _ in EFFICIENCY]
    lines = []
    for method in methods:
        line = [method]
        for task, by in table.items():
            line.append(_marked(method, by, bold, min if metric[task] in LOWER else max))
            if task in paper:
                line.append(_published(paper[task].get(method.partition(" (")[0])))
        mine = [row for row in chosen if label(row) == method]
        line += [_mean_of(mine, value, form) for _, value, form in EFFICIENCY]
        lines.append(line)
    used = [c for c in range(len(header)) if c == 0 or any(line[c] for line in lines)]
    costs = len(header) - len(EFFICIENCY)
    return [header[c] for c in used], [[line[c] or "–" if c >= costs else line[c] for c in used] for line in lines]


def _training_ms(row: ResultsRow) -> float | None:
    """Milliseconds of training on a batch, the encoder's share of its pass included."""
    return _sum_ms(row.train_s_per_batch, row.train_encoder_s_per_batch)


def training_seconds(row: ResultsRow) -> float | None:
    """Seconds of the whole training, scoring dev included, and of the one pass that encoded all items; where that pass
    is not known as a whole, of the encoder's pass over the documents trained on, by its share a batch. None where views
    are read and neither is known."""
    if row.train_s_total is None:
        return None
    if row.encode_s is not None:
        return row.train_s_total + row.encode_s
    if row.train_encoder_s_per_batch is not None and row.train_s_per_batch:
        return row.train_s_total * (1 + row.train_encoder_s_per_batch / row.train_s_per_batch)
    return row.train_s_total if row.store_mb is None else None


def _predicting_ms(row: ResultsRow) -> float | None:
    return _sum_ms(row.infer_s_per_batch, row.infer_encoder_s_per_batch)


def _sum_ms(own: float | None, encoder: float | None) -> float | None:
    return None if own is None else 1000 * (own + (encoder or 0.0))


def _ms(value: float | None) -> float | None:
    return None if value is None else 1000 * value


EFFICIENCY: tuple[tuple[str, Callable[[ResultsRow], float | None], Callable[[float], str]], ...] = (
    ("ms/batch", lambda row: _ms(row.train_s_per_batch), "{:.1f}".format),
    ("ms/batch + encoding", lambda row: _training_ms(row) if row.train_encoder_s_per_batch else None, "{:.1f}".format),
    ("train s", lambda row: row.train_s_total, "{:.1f}".format),
    ("encode s", lambda row: row.encode_s, "{:.1f}".format),
    ("infer ms/batch", lambda row: _ms(row.infer_s_per_batch), "{:.1f}".format),
    (
        "infer ms/batch + encoder",
        lambda row: _predicting_ms(row) if row.infer_encoder_s_per_batch else None,
        "{:.1f}".format,
    ),
    ("trainable", lambda row: row.params_trainable, lambda value: f"{round(value):,}"),
    ("peak MB", lambda row: row.peak_mb, "{:.0f}".format),
    ("store MB", lambda row: row.store_mb, "{:.1f}".format),
)


def _marked(method: str, by: Mapping[str, Score], bold: Callable[[str], str], best_of: Callable[..., str] = max) -> str:
    if method not in by:
        return ""
    best = best_of(by, key=lambda name: by[name].mean)
    if by[method].mean == by[best].mean:
        return bold(str(by[method]))
    p = welch(by[method].values, by[best].values)["p"]
    mark = " °" if p is None else " ≈" if p >= SIGNIFICANT else ""
    return f"{by[method]}{mark}"


def _mean_of(
    rows: Sequence[ResultsRow], value: Callable[[ResultsRow], float | None], form: Callable[[float], str]
) -> str:
    """Over all rows; "" where one's is not known: a mean of some would stand beside means of others."""
    known = [float(one) for row in rows if (one := value(row)) is not None]
    return form(mean_sd(known)[0]) if known and len(known) == len(rows) else ""


def _published(value: "float | Sequence[float] | None") -> str:
    if value is None:
        return ""
    mean, *sd = [value] if isinstance(value, (int, float)) else value
    return f"{mean:.2f}" + "".join(f" ± {one:.2f}" for one in sd)


def shown(value: float | None) -> str:
    """A score with two digits, or four where it is small."""
    return "undefined" if value is None else f"{value:.{_digits(value)}f}"


def _digits(value: float) -> int:
    """After the point: per cents need two, the mean square of an error below 1 would vanish."""
    return 4 if 0 < abs(value) < 1 else 2


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
