"""Answers as spans of one of several documents: TechQA's scores, by overlap in characters (spec A12).

A span is (document, start, stop) in code points; the empty document id "" says that there is no answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

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


def techqa(found: Sequence[Spans], gold: Sequence[Span], threshold: float = float("-inf")) -> dict[str, float]:
    """In per cent: `f1` over all questions, `ha_f1@1` and `ha_f1@5` over those with an answer.

    Where the best score is under the threshold nothing is answered: 1 for a question without an answer, else 0.
    `ha_f1@k` takes the best of the first k spans, without a threshold (the published script; not their average).
    DataError where no question has an answer.
    """
    if len(found) != len(gold):
        raise DataError(f"{len(found)} predictions for {len(gold)} questions.")
    answerable = [n for n, span in enumerate(gold) if span[0]]
    if not answerable:
        raise DataError("no question has an answer, so ha_f1 has nothing to be the mean of.")
    whole = [_f1(one, due, threshold) for one, due in zip(found, gold, strict=True)]
    best = {
        k: [max((overlap_f1(span, gold[n]) for span in found[n].spans[:k]), default=0.0) for n in answerable]
        for k in (1, 5)
    }
    return {
        "f1": 100 * sum(whole) / len(whole),
        **{f"ha_f1@{k}": 100 * sum(values) / len(answerable) for k, values in best.items()},
    }


def _f1(found: Spans, gold: Span, threshold: float) -> float:
    if not found.spans or found.scores[0] < threshold:
        return float(not gold[0])
    return overlap_f1(found.spans[0], gold) if gold[0] else 0.0


def best_threshold(found: Sequence[Spans], gold: Sequence[Span]) -> tuple[float, float]:
    """(threshold, f1) where f1 is highest on these very questions: optimistic, to be named so."""
    candidates = [float("-inf"), *sorted({one.scores[0] for one in found if one.scores}), float("inf")]
    return max(((t, techqa(found, gold, t)["f1"]) for t in candidates), key=lambda pair: pair[1])


def hits(ranked: Sequence[Sequence[str]], gold: Sequence[str], k: int) -> float:
    """HITS@K in per cent of ALL questions: the gold section is among the first k; not found at all is a miss."""
    if len(ranked) != len(gold) or not gold:
        raise DataError(f"{len(ranked)} rankings for {len(gold)} questions; as many, and at least one, are needed.")
    return 100 * sum(due in one[:k] for one, due in zip(ranked, gold, strict=True)) / len(gold)
