"""Scores of few-shot tables: one number a task, averages over groups of tasks, spread over seeds, paired differences.

Accuracy, Matthews's correlation (CoLA) or the F1 of one label (MRPC, QQP), all per cent (spec B10).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, pstdev, stdev

from ..errors import ConfigError
from ..prompts import PAIR_TASKS, SINGLE_TASKS
from .classification import label_scores

__all__ = ["Spread", "group_means", "over_tasks", "paired", "spread", "task_score"]


def task_score(gold: Sequence[str], predicted: Sequence[str], metric: str, positive: str = "") -> float:
    """The task's published score. Matthews's correlation of constant predictions is 0 here, and so is the F1 of a label
    that is neither gold nor predicted: a table needs a number, and this is what the tables of the field hold.
    """
    scores = label_scores(gold, predicted, positive=positive or None)
    if metric not in scores:
        raise ConfigError(f"metric={metric!r} is not known. There is: {', '.join(scores)}.")
    value = scores[metric]
    return 0.0 if value is None else value


def group_means(scores: Mapping[str, float]) -> dict[str, float | None]:
    """ "Avg-S" over the 8 tasks of single sentences, "Avg-P" over the 7 of pairs, "Avg-all" over the 15; None where a
    task of the group is missing."""
    groups = {"Avg-S": SINGLE_TASKS, "Avg-P": PAIR_TASKS, "Avg-all": (*SINGLE_TASKS, *PAIR_TASKS)}
    return {
        name: fmean(scores[task] for task in tasks) if set(tasks) <= set(scores) else None
        for name, tasks in groups.items()
    }


@dataclass(frozen=True)
class Spread:
    """Over seeds: the mean, the population's standard deviation (what LM-BFF prints; ddof 0), and half the width of the
    95 % interval of the mean by Student's t (None for one seed)."""

    mean: float
    deviation: float
    half_width: float | None


def spread(values: Sequence[float]) -> Spread:
    """Of one task's scores. ConfigError where there is none."""
    if not values:
        raise ConfigError("no scores: a mean needs at least one seed.")
    return Spread(fmean(values), pstdev(values), _half_width(values) if len(values) > 1 else None)


def over_tasks(scores: Mapping[str, Sequence[float]]) -> tuple[float, float | None]:
    """(mean of the tasks' means, half the width of its 95 % interval), task -> scores of its seeds. Seeds are what is
    drawn, of each task by themselves, with degrees of freedom by Welch and Satterthwaite; None where a task has one.

    ConfigError where there is no task, or one without a score.
    """
    if not scores:
        raise ConfigError("no scores: a mean needs at least one task.")
    mean = fmean(spread(own).mean for own in scores.values())
    if any(len(own) < 2 for own in scores.values()):
        return mean, None
    parts = [(stdev(own) ** 2 / len(own), len(own) - 1) for own in scores.values()]
    total = sum(part for part, _ in parts)
    if not total:
        return mean, 0.0
    freedom = total**2 / sum(part**2 / own for part, own in parts)
    return mean, _student(freedom) * sqrt(total) / len(scores)


def paired(
    first: Mapping[str, Sequence[float]], second: Mapping[str, Sequence[float]]
) -> tuple[float, float | None, dict[str, float]]:
    """(mean difference, its standard error clustered by task, difference a task): task -> scores in the same order of
    seeds. Tasks are what is drawn, so the error is that of the mean of the tasks' mean differences.

    ConfigError where tasks or seeds differ, or where there is none.
    """
    if set(first) != set(second) or not first:
        raise ConfigError(f"tasks differ: {sorted(set(first) ^ set(second)) or 'there is none'}.")
    uneven = sorted(task for task in first if len(first[task]) != len(second[task]) or not first[task])
    if uneven:
        raise ConfigError(f"task {uneven[0]!r}: {len(first[uneven[0]])} scores against {len(second[uneven[0]])}.")
    by_task = {task: fmean(a - b for a, b in zip(first[task], second[task], strict=True)) for task in first}
    differences = list(by_task.values())
    error = stdev(differences) / sqrt(len(differences)) if len(differences) > 1 else None
    return fmean(differences), error, by_task


def _half_width(values: Sequence[float]) -> float:
    return _student(float(len(values) - 1)) * stdev(values) / sqrt(len(values))


def _student(freedom: float) -> float:
    """Standard errors to either side of a mean that its 95 % interval reaches."""
    from scipy.stats import t  # half a second to import

    return float(t.ppf(0.975, freedom))
