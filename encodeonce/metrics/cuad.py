"""Clauses of contracts: area under the precision-recall curve, and precision at 80 % recall (CUAD; spec A12)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf

import numpy as np
from jaxtyping import Float

from ..errors import DataError

__all__ = ["Clause", "Curve", "cuad", "similar"]

THRESHOLDS = (*(step / 100 for step in range(99, 0, -1)), 0.001, 0.0)
JACCARD = 0.5


@dataclass(frozen=True)
class Clause:
    """One question about one contract: gold texts (none: unanswerable), predicted texts with their probabilities, and
    whether it asks for the parties, where a gold that is part of a prediction also counts."""

    gold: tuple[str, ...]
    predicted: tuple[tuple[str, float], ...]
    parties: bool = False


@dataclass(frozen=True)
class Curve:
    """In per cent: area under the curve, precision at 80 % recall (0 where it is not reached). `points` are (recall,
    precision) as shares, precision being the highest at that recall or beyond."""

    aupr: float
    precision_at_80: float
    points: tuple[tuple[float, float], ...]


def _words(text: str) -> set[str]:
    cleaned = "".join(c for c in text.lower() if c not in ".,;:").replace("/", " ")
    return set(cleaned.split())


def similar(predicted: str, gold: str, parties: bool = False) -> bool:
    """Whether a prediction is that clause: half of the words of both are common to both. With `parties` also one that
    holds the gold letter by letter, as the published script has it."""
    one, two = _words(predicted), _words(gold)
    if parties and gold in predicted:
        return True
    return bool(one | two) and len(one & two) / len(one | two) >= JACCARD


def cuad(clauses: Sequence[Clause], thresholds: Sequence[float] = THRESHOLDS) -> Curve:
    """All questions pooled. At each confidence, from the highest on, a prediction counts if its probability is higher
    and its text not empty; equal texts count once, the later probability holding. The area ends at the largest recall
    that is reached. DataError where no question has an answer: there is no recall then."""
    due = sum(len(clause.gold) for clause in clauses)
    if not due:
        raise DataError(f"none of {len(clauses)} questions has a gold answer, so recall is not defined.")
    chances: list[float] = []
    right: list[bool] = []
    met: list[float] = []
    for clause in clauses:
        said = {text: chance for text, chance in clause.predicted if text.strip()}
        alike = [[similar(text, gold, clause.parties) for gold in clause.gold] for text in said]
        chances += said.values()
        right += map(any, alike)
        for own in zip(*alike, strict=True):
            met.append(max((chance for chance, hit in zip(said.values(), own, strict=True) if hit), default=-inf))
    shown, good, found = (
        np.sort(chances),
        np.sort([chance for chance, hit in zip(chances, right, strict=True) if hit]),
        np.sort(met),
    )
    points = [(0.0, 1.0)]
    for threshold in thresholds:
        hit, false = _above(found, threshold), _above(shown, threshold) - _above(good, threshold)
        # nothing predicted has no precision of its own: it gets the best of what comes after
        points.append((hit / due, hit / (hit + false) if hit + false else 0.0))
    best, kept = 0.0, []
    for recall, precision in reversed(points):
        best = max(best, precision)
        kept.append((recall, best))
    kept.reverse()
    area = sum(((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(kept)), 0.0)
    at_80 = next((precision for recall, precision in kept if recall >= 0.8), 0.0)
    return Curve(100 * area, 100 * at_80, tuple(kept))


def _above(rising: Float[np.ndarray, " N"], threshold: float) -> int:
    """How many are higher."""
    return len(rising) - int(np.searchsorted(rising, threshold, side="right"))
