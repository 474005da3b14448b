"""Answers as spans of one of several documents: TechQA's scores, by overlap in characters (spec A12).

A span is (document, start, stop) in code points; the empty document id "" says that there is no answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from ..errors import DataError

__all__ = ["NO_ANSWER", "Span", "Spans", "best_threshold", "hits", "overlap_f1", "techqa"]

Span = tuple[str, int, int]
NO_ANSWER: Span = ("", 0, 0)


@dataclass(frozen=True)
class Spans:
    """What was found for a question: spans from the best on, and their scores (span less null score)."""

    spans: tuple[Span, ...]
    scores: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.spans) != len(self.scores) or list(self.scores) != sorted(self.scores, reverse=True):
            raise DataError(f"{len(self.spans)} spans, scores {self.scores[:5]}: one a span, from the highest on.")


def overlap_f1(found: Span, gold: Span) -> float:
    """F1 of the characters of two spans; 0 in different documents. Where one is empty: 1 if both are, else 0."""
    length, due = found[2] - found[1], gold[2] - gold[1]
    if length == 0 or due == 0:
        return float(length == due)
    if found[0] != gold[0]:
        return 0.0
    common = max(0, min(found[2], gold[2]) - max(found[1], gold[1]))
    return 2 * common / (length + due)


def techqa(found: Sequence[Spans], gold: Sequence[Span], threshold: float = float("-inf")) -> dict[str, float | None]:
    """In per cent: `f1` over all questions, `ha_f1@1` and `ha_f1@5` over those with an answer.

    Where the best score is under the threshold nothing is answered: 1 for a question without an answer, else 0.
    `ha_f1@k` takes the best of the first k spans, without a threshold (the published script; not their average).
    A score without a question to be the mean of is None.
    """
    if len(found) != len(gold):
        raise DataError(f"{len(found)} predictions for {len(gold)} questions.")
    answerable = [n for n, span in enumerate(gold) if span[0]]
    whole = [_f1(one, due, threshold) for one, due in zip(found, gold, strict=True)]
    best = {
        k: [max((overlap_f1(span, gold[n]) for span in found[n].spans[:k]), default=0.0) for n in answerable]
        for k in (1, 5)
    }
    return {
        "f1": _mean(whole),
        **{f"ha_f1@{k}": _mean(values) for k, values in best.items()},
    }


def _mean(shares: Sequence[float]) -> float | None:
    return 100 * sum(shares) / len(shares) if shares else None


def _f1(found: Spans, gold: Span, threshold: float) -> float:
    if not found.spans or found.scores[0] < threshold:
        return float(not gold[0])
    return overlap_f1(found.spans[0], gold) if gold[0] else 0.0


def best_threshold(found: Sequence[Spans], gold: Sequence[Span]) -> tuple[float, float]:
    """(threshold, f1) where f1 is highest on these very questions: optimistic, to be named so. DataError for none."""
    if len(found) != len(gold) or not gold:
        raise DataError(f"{len(found)} predictions for {len(gold)} questions; as many, and at least one, are needed.")
    said = [_f1(one, due, -inf) for one, due in zip(found, gold, strict=True)]
    silent = [_f1(one, due, inf) for one, due in zip(found, gold, strict=True)]
    order = sorted((n for n, one in enumerate(found) if one.scores), key=lambda n: found[n].scores[0])
    best, gain, most = -inf, 0.0, 0.0
    for place, n in enumerate(order):  # withheld in this order, those of equal score together
        gain += silent[n] - said[n]
        above = found[order[place + 1]].scores[0] if place + 1 < len(order) else inf
        if above > found[n].scores[0] and gain > most + 1e-9:
            best, most = above, gain
    return best, 100 * sum(_f1(one, due, best) for one, due in zip(found, gold, strict=True)) / len(gold)


def hits(ranked: Sequence[Sequence[str]], gold: Sequence[str], k: int) -> float:
    """HITS@K in per cent of ALL questions: the gold section is among the first k; not found at all is a miss."""
    if len(ranked) != len(gold) or not gold:
        raise DataError(f"{len(ranked)} rankings for {len(gold)} questions; as many, and at least one, are needed.")
    return 100 * sum(due in one[:k] for one, due in zip(ranked, gold, strict=True)) / len(gold)
