"""Rows of the few-shot experiment as a table of means, and paired differences between methods."""

import re
from collections.abc import Sequence
from pathlib import Path

from recipe import FILES

from encodeonce.methods.fewshot import SIDES
from encodeonce.methods.refusion import CONTROLS
from encodeonce.metrics.few_shot import Spread, group_means, paired, spread
from encodeonce.report.results import ResultsRow, latest, read_rows
from encodeonce.report.table import aligned

__all__ = ["Found", "against", "means", "pairs", "setting", "settings_of", "table"]


TASKS = (*FILES, "squad")

Grid = tuple[list[str], list[list[str]]]
"""Header and lines."""

Found = dict[str, dict[str, dict[int, float]]]
"""Method -> task -> seed -> score."""


def table(path: Path) -> None:
    """For each setting (rows whose variants differ in nothing but the unlabelled texts there are) the means over seeds
    with half the width of their 95 % interval, a line a method, and the paper's averages where all their tasks are run;
    below, fewshot against the better of probe and fine-tuning, and each kind of fusion against what it adds to and its
    controls, paired."""
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
    """A line a method: the mean of every task, of all, and of the paper's groups."""
    tasks = tasks_of(found)
    lines, averages = [], []
    for name, own in found.items():
        by_task = {t: spread(list(own[t].values())) for t in tasks if t in own}
        cells = [with_interval(by_task[t]) if t in by_task else "" for t in tasks]
        averages.append(group_means({t: one.mean for t, one in by_task.items()}))
        average = sum(one.mean for one in by_task.values()) / len(by_task)
        lines.append([name, *cells, f"{average:.2f} of {len(by_task)}"])
    groups = [group for group in averages[0] if any(own[group] is not None for own in averages)]
    for line, own in zip(lines, averages, strict=True):
        line.extend("" if own[group] is None else f"{own[group]:.2f}" for group in groups)
    return ["method", *tasks, "mean", *groups], lines


def pairs(found: Found) -> Grid:
    """A line a method and rival: paired differences, their mean over tasks and its standard error."""
    tasks = tasks_of(found)
    lines = [
        differences(found[name], found[rival], f"{name} - {rival}", tasks)
        for name in found
        for rival in rivals(name)
        if rival in found and set(found[rival]) & set(found[name])
    ]
    return ["paired difference", "mean", "error", *tasks], lines


def tasks_of(found: Found) -> list[str]:
    """Those that any method has, in the paper's order."""
    return [task for task in TASKS if any(task in own for own in found.values())]


def with_interval(one: Spread) -> str:
    return f"{one.mean:.1f}" if one.half_width is None else f"{one.mean:.1f} ±{one.half_width:.1f}"


def rivals(name: str) -> list[str]:
    """What a method is held against: of fusion what it adds to, and its controls."""
    base, plus, part = name.partition("+")
    kind, _, fusion = base.partition(".")
    if base == "late":
        return [f"{own}{plus}{part}" for own in ("layers", *SIDES) if own != "neighbours"]
    if base == "fewshot":
        return ["probe+dev", "layers+dev", "finetune+dev"]
    if kind == "concat":
        return [f"prompt{plus}{part}"]
    if not fusion or ":" in fusion:
        return []
    plain = "prompt" if kind == "fused-prompt" else "finetune"
    head, comma, rest = base.partition(",")
    controls = [f"{head}:{control}{comma}{rest}{plus}{part}" for control in CONTROLS]
    return [f"{plain}{plus}{part}", *([f"{plain}+dev"] if fusion == "release" else []), *controls]


def differences(
    first: dict[str, dict[int, float]], second: dict[str, dict[int, float]], name: str, tasks: list[str]
) -> list[str]:
    """A line: the mean over tasks, its standard error with tasks as what is drawn, and every task's difference."""
    seeds = {task: sorted(set(first[task]) & set(second[task])) for task in tasks if task in first and task in second}
    pairs = [{t: [own[t][s] for s in seeds[t]] for t in seeds if seeds[t]} for own in (first, second)]
    mean, error, by_task = paired(*pairs)
    return [
        name,
        f"{mean:+.2f}",
        "" if error is None else f"{error:.2f}",
        *(f"{by_task[t]:+.1f}" if t in by_task else "" for t in tasks),
    ]


def against(found: Found) -> str | None:
    """What `fewshot` has over the better of probe and fine-tuning, task by task; None where one of them is missing."""
    if not {"fewshot", "probe", "finetune"} <= set(found):
        return None
    own, probe, tuned = found["fewshot"], found["probe"], found["finetune"]
    tasks = [t for t in TASKS if t in own and t in probe and t in tuned]
    first, second = {}, {}
    for task in tasks:
        seeds = sorted(set(own[task]) & set(probe[task]) & set(tuned[task]))
        better = max((probe[task], tuned[task]), key=lambda scores: sum(scores[s] for s in seeds))
        first[task], second[task] = [own[task][s] for s in seeds], [better[s] for s in seeds]
    mean, error, by_task = paired(first, second)
    doubt = "" if error is None else f" (standard error {error:.2f}, clustered by task)"
    listed = ", ".join(f"{task} {value:+.1f}" for task, value in by_task.items())
    return f"fewshot against the better of probe and finetune of each task: {mean:+.2f}{doubt}; {listed}"
