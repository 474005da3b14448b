"""Rows of the few-shot experiment as a table of means, and paired differences between methods."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from recipe import FILES

from encodeonce.methods.fewshot import SIDES
from encodeonce.methods.refusion import CONTROLS
from encodeonce.metrics.few_shot import Spread, group_means, over_tasks, paired, spread
from encodeonce.report.results import ResultsRow, latest, read_rows
from encodeonce.report.table import aligned

__all__ = [
    "TASKS",
    "Cells",
    "Difference",
    "Found",
    "Grid",
    "against",
    "common",
    "controls_of",
    "means",
    "pairs",
    "plain_of",
    "setting",
    "settings_of",
    "table",
]

TASKS = (*FILES, "squad")

Grid = tuple[list[str], list[list[str]]]
"""Header and lines."""

Cells = dict[str, dict[int, float]]
"""Task -> seed -> score."""

Found = dict[str, Cells]
"""Of each method."""


@dataclass(frozen=True)
class Difference:
    """Between two methods over the tasks and seeds that both have: the mean over tasks, its standard error with tasks
    as what is drawn (None for one task), every task's, and of how many cells they are."""

    mean: float
    error: float | None
    by_task: Mapping[str, float]
    cells: int

    @classmethod
    def of(cls, first: Cells, second: Cells, *also: Cells) -> "Difference | None":
        """Over the cells that others have `also`; None where there is none."""
        mine, other, *_ = common(first, second, *also)
        return cls(*paired(mine, other), sum(map(len, mine.values()))) if mine else None

    @property
    def told(self) -> bool:
        """Whether its 95 % interval by Student's t leaves out 0."""
        width = spread(list(self.by_task.values())).half_width
        return width is not None and abs(self.mean) > width

    def __str__(self) -> str:
        doubt = "" if self.error is None else f"standard error {self.error:.2f}, "
        n = len(self.by_task)
        return f"{self.mean:+.2f} ({doubt}{n} task{'s' * (n > 1)}, {self.cells} cell{'s' * (self.cells > 1)})"


def common(*methods: Cells) -> list[dict[str, list[float]]]:
    """Of each method task -> scores, the tasks and seeds that all of them have, in one order."""
    tasks = [task for task in TASKS if all(task in own for own in methods)]
    seeds = {task: sorted(set.intersection(*(set(own[task]) for own in methods))) for task in tasks}
    return [{task: [own[task][seed] for seed in seeds[task]] for task in tasks if seeds[task]} for own in methods]


def table(path: Path) -> None:
    """For each setting (rows whose variants differ in nothing but the unlabelled texts there are) the means over seeds
    with half the width of their 95 % interval and the population's standard deviation, a line a method, and the paper's
    averages where all their tasks are run; below, fewshot against the better of probe and fine-tuning, and each kind of
    fusion against what it adds to and its controls, paired."""
    settings = settings_of(read_rows(path))
    for number, (name, found) in enumerate(settings.items()):
        if len(settings) > 1:
            print(f"{chr(10) if number else ''}{name}\n")
        one_setting(found)


def settings_of(rows: Sequence[ResultsRow]) -> dict[str, Found]:
    """The scores of each setting; of rows of one cell the last."""
    settings: dict[str, Found] = {}
    for row in latest(rows):
        if row.value is not None:
            tasks = settings.setdefault(setting(row.variant), {}).setdefault(row.method, {})
            tasks.setdefault(row.task, {})[int(row.seed or 0)] = row.value
    return settings


def setting(variant: str) -> str:
    """A row's variant but for the number of unlabelled texts there are, which is the task's."""
    return re.sub(r"unlabelled=\d+ ", "", variant)


def one_setting(found: Found) -> None:
    """The tables of one setting."""
    print(aligned(*means(found)))
    if (said := against(found)) is not None:
        print(f"\n{said}")
    header, lines = pairs(found)
    if lines:
        print()
        print(aligned(header, lines))


def means(found: Found) -> Grid:
    """A line a method: the mean of every task, of all with its interval, how many cells that is, and of the paper's
    groups."""
    tasks = tasks_of(found)
    lines, averages = [], []
    for name, own in found.items():
        scores = {task: list(own[task].values()) for task in tasks if task in own}
        by_task = {task: spread(values) for task, values in scores.items()}
        cells = [with_interval(by_task[task]) if task in by_task else "" for task in tasks]
        averages.append(group_means({task: one.mean for task, one in by_task.items()}))
        mean, width = over_tasks(scores)
        shown = f"{mean:.2f}" if width is None else f"{mean:.2f} ±{width:.2f}"
        lines.append([name, *cells, f"{shown} of {len(by_task)}", str(sum(map(len, scores.values())))])
    groups = [group for group in averages[0] if any(own[group] is not None for own in averages)]
    for line, own in zip(lines, averages, strict=True):
        line.extend("" if own[group] is None else f"{own[group]:.2f}" for group in groups)
    return ["method", *tasks, "mean", "cells", *groups], lines


def pairs(found: Found) -> Grid:
    """A line a method and rival: the mean difference over tasks, its standard error, of how many cells, each task's."""
    tasks = tasks_of(found)
    both = [(name, rival) for name in found for rival in rivals(name) if rival in found]
    every = {f"{name} - {rival}": Difference.of(found[name], found[rival]) for name, rival in both}
    lines = [
        [
            name,
            f"{one.mean:+.2f}",
            "" if one.error is None else f"{one.error:.2f}",
            str(one.cells),
            *(f"{one.by_task[task]:+.1f}" if task in one.by_task else "" for task in tasks),
        ]
        for name, one in every.items()
        if one is not None
    ]
    return ["paired difference", "mean", "error", "cells", *tasks], lines


def tasks_of(found: Found) -> list[str]:
    """Those that any method has, in the paper's order."""
    return [task for task in TASKS if any(task in own for own in found.values())]


def with_interval(one: Spread) -> str:
    """Mean, half the width of its interval, and in brackets the population's standard deviation."""
    if one.half_width is None:
        return f"{one.mean:.1f}"
    return f"{one.mean:.1f} ±{one.half_width:.1f} ({one.deviation:.1f})"


def rivals(name: str) -> list[str]:
    """What a method is held against: what it adds to, then its controls."""
    if name == "fewshot":
        return ["probe+dev", "layers+dev", "finetune+dev"]
    plain = plain_of(name)
    released = [f"{plain}+dev"] if plain and ".release" in name else []  # what its leak amounts to
    return [*([plain] if plain else []), *released, *controls_of(name)]


def plain_of(name: str) -> str:
    """What it adds to: late fusion to the probe, fusion and texts before a text to the model; "" for all others."""
    base, plus, part = name.partition("+")
    kind, _, fusion = base.partition(".")
    plain = {"late": "layers", "concat": "prompt", "fused": "finetune", "fused-prompt": "prompt"}.get(kind, "")
    return "" if not plain or ":" in fusion else f"{plain}{plus}{part}"


def controls_of(name: str) -> list[str]:
    """The same with something else in the neighbours' place."""
    base, plus, part = name.partition("+")
    if base == "late":
        return [f"{own}{plus}{part}" for own in SIDES if own != "neighbours"]
    if not base.startswith("fused") or ":" in base:
        return []
    head, comma, rest = base.partition(",")
    return [f"{head}:{control}{comma}{rest}{plus}{part}" for control in CONTROLS]


def against(found: Found) -> str | None:
    """What `fewshot` has over the better of probe and fine-tuning, task by task; None where one of them is missing, or
    all three share no cell."""
    if not {"fewshot", "probe", "finetune"} <= set(found):
        return None
    own, probe, tuned = common(found["fewshot"], found["probe"], found["finetune"])
    if not own:
        return None
    mean, error, by_task = paired(own, {task: max(probe[task], tuned[task], key=sum) for task in own})
    one = Difference(mean, error, by_task, sum(map(len, own.values())))
    listed = ", ".join(f"{task} {value:+.1f}" for task, value in by_task.items())
    return f"fewshot against the better of probe and finetune of each task: {one}; {listed}"
