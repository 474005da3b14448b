"""Clauses of contracts: area under the precision-recall curve, and precision at 80 % recall (CUAD; spec A12)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

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


def cuad(clauses: Sequence[Clause]) -> Curve:
    """All questions pooled. At each confidence a prediction counts if its probability is higher and its text not empty;
    equal texts count once, the later probability holding. The area ends at the largest recall that is reached.
    DataError where no question has an answer: there is no recall then."""
    if not any(clause.gold for clause in clauses):
        raise DataError(f"none of {len(clauses)} questions has a gold answer, so recall is not defined.")
    counted = [dict(clause.predicted) for clause in clauses]
    points = [(0.0, 1.0)]
    for threshold in THRESHOLDS:
        hit = missed = false = 0
        for clause, texts in zip(clauses, counted, strict=True):
            shown = [text for text, chance in texts.items() if chance > threshold and text.strip()]
            met = [any(similar(text, due, clause.parties) for text in shown) for due in clause.gold]
            hit, missed = hit + sum(met), missed + len(met) - sum(met)
            false += sum(not any(similar(text, due, clause.parties) for due in clause.gold) for text in shown)
        if hit + false:  # nothing predicted has no precision
            points.append((hit / (hit + missed), hit / (hit + false)))
    best, kept = 0.0, []
    for recall, precision in reversed(points):
        best = max(best, precision)
        kept.append((recall, best))
    kept.reverse()
    area = sum(((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(kept)), 0.0)
    at_80 = next((precision for recall, precision in kept if recall >= 0.8), 0.0)
    return Curve(100 * area, 100 * at_80, tuple(kept))
