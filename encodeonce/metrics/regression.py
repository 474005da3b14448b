"""Scores of one number a document: correlations in per cent, squared error in the square of the target's unit.

Axes: N documents
"""

from collections.abc import Sequence
from math import isfinite

import numpy as np
from jaxtyping import Float

from ..errors import ConfigError
from .accuracy import same_number
from .classification import mean_of

__all__ = ["pearson", "regression_scores", "spearman"]

ROUNDING = 4 * np.finfo(np.float64).eps
"""Of numbers around the largest, by its size."""


def regression_scores(gold: Sequence[float], predicted: Sequence[float]) -> dict[str, float | None]:
    """pearson, spearman, pearson_spearman (their mean, GLUE's score of STS-B), r2, mse and n, the number of documents.

    r2 is the share of gold's variance that is explained, x 100, negative where gold's mean would have been closer; None
    where gold is constant.
    Raises ConfigError where the two differ in length or hold a number that is not finite.
    """
    g, p = _numbers(gold, predicted)
    linear, ranked = _pearson(g, p), _spearman(g, p)
    mse = float(np.mean((g - p) ** 2)) if len(g) else None
    r2 = None if mse is None or _constant(g) else 100.0 * (1.0 - mse / float(np.var(g)))
    both = mean_of([linear, ranked])
    return {"pearson": linear, "spearman": ranked, "pearson_spearman": both, "r2": r2, "mse": mse, "n": float(len(g))}


def pearson(gold: Sequence[float], predicted: Sequence[float]) -> float | None:
    """Pearson's correlation x 100; None where either is constant but for rounding, so also for fewer than two
    numbers."""
    return _pearson(*_numbers(gold, predicted))


def spearman(gold: Sequence[float], predicted: Sequence[float]) -> float | None:
    """Pearson's correlation of the ranks, equal numbers sharing the mean of theirs, x 100; None as in `pearson`."""
    return _spearman(*_numbers(gold, predicted))


def _pearson(first: Float[np.ndarray, " N"], second: Float[np.ndarray, " N"]) -> float | None:
    if _constant(first) or _constant(second):
        return None
    x, y = first - first[0], second - second[0]  # exact where numbers are close, as their mean is not
    x, y = x - x.mean(), y - y.mean()
    x, y = x / np.abs(x).max(), y / np.abs(y).max()  # so that no square is out of range
    return float(np.clip(100.0 * (x @ y) / np.sqrt((x @ x) * (y @ y)), -100.0, 100.0))


def _spearman(first: Float[np.ndarray, " N"], second: Float[np.ndarray, " N"]) -> float | None:
    return None if _constant(first) or _constant(second) else _pearson(_ranks(first), _ranks(second))


def _constant(values: Float[np.ndarray, " N"]) -> bool:
    """Whether they differ by no more than rounding: what is left of such numbers without their mean is its error."""
    return not len(values) or bool(np.ptp(values) <= ROUNDING * np.abs(values).max())


def _ranks(values: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """Ranks from 1, the mean of their ranks for equal numbers."""
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[group]


def _numbers(
    gold: Sequence[float], predicted: Sequence[float]
) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, " N"]]:
    same_number(gold, predicted)
    for what, values in (("gold", gold), ("predicted", predicted)):
        bad = next((i for i, value in enumerate(values) if not isfinite(value)), None)
        if bad is not None:
            raise ConfigError(f"item {bad}: the {what} number is {values[bad]}; scores need finite numbers.")
    return np.array(gold, np.float64), np.array(predicted, np.float64)
