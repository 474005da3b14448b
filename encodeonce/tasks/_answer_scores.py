"""Scores of extractive answers by whose rules they are published under: SQuAD's, TechQA's, CUAD's (spec A12)."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..metrics.cuad import Clause, cuad
from ..metrics.qa import answer_scores
from ..metrics.techqa import NO_ANSWER, Spans, best_threshold, techqa
from ..types import Answer

__all__ = ["SCORINGS", "Answered", "Scoring"]

PARTIES = "Parties"
"""The clause whose gold counts also where it is part of a prediction."""


@dataclass(frozen=True)
class Answered:
    """A question's text, its gold answers (the empty text: it has none) and what was found, best first; the score of a
    found one is log p(span) - log p(no answer)."""

    text: str
    due: tuple[Answer, ...]
    ranked: tuple[Answer, ...]


@dataclass(frozen=True)
class Scoring:
    """Scores that may choose between epochs, the first by default; and (questions, whether every one must be answered)
    -> scores by name, per cent, and `n`."""

    metrics: tuple[str, ...]
    score: Callable[[Sequence[Answered], bool], dict[str, float | None]]


def _squad(questions: Sequence[Answered], forced: bool) -> dict[str, float | None]:
    """`metrics.qa.answer_scores` of the best span, of nothing where its score is not above 0."""
    said = [own.ranked[0].text if own.ranked and (forced or own.ranked[0].score > 0) else "" for own in questions]
    return answer_scores([[answer.text for answer in own.due] for own in questions], said)


def _techqa(questions: Sequence[Answered], forced: bool) -> dict[str, float | None]:
    """ha_f1@1 and @5; f1 with nothing withheld, as published, `f1_at_null` at the null score's threshold 0, and
    `best_f1` at the threshold that is best for these very questions. The gold is a question's first answer."""
    found, gold = [], []
    for own in questions:
        places = tuple((answer.passage, answer.start, answer.end) for answer in own.ranked)
        found.append(Spans(places, tuple(answer.score for answer in own.ranked)))
        due = own.due[0]
        gold.append((due.passage, due.start, due.end) if due.text else NO_ANSWER)
    scores = techqa(found, gold)
    at_null, best = techqa(found, gold, 0.0)["f1"], best_threshold(found, gold)[1]
    return {**scores, "f1_at_null": at_null, "best_f1": best, "n": float(len(questions))}


def _cuad(questions: Sequence[Answered], forced: bool) -> dict[str, float | None]:
    """aupr and precision@80 of all questions together. A span's probability is its share among those found and no
    answer: exp(score) / (1 + sum of exp(scores))."""
    clauses = []
    for own in questions:
        highest = max((0.0, *(answer.score for answer in own.ranked)))
        weights = [math.exp(answer.score - highest) for answer in own.ranked]
        total = math.exp(-highest) + sum(weights)
        predicted = tuple((one.text, weight / total) for one, weight in zip(own.ranked, weights, strict=True))
        gold = tuple(answer.text for answer in own.due if answer.text)
        clauses.append(Clause(gold, predicted, own.text == PARTIES or f'"{PARTIES}"' in own.text))
    if not any(clause.gold for clause in clauses):  # there is no recall
        return {"aupr": None, "precision@80": None, "n": float(len(questions))}
    curve = cuad(clauses)
    return {"aupr": curve.aupr, "precision@80": curve.precision_at_80, "n": float(len(questions))}


SCORINGS: Mapping[str, Scoring] = {
    "squad": Scoring(("f1", "exact_match"), _squad),
    "techqa": Scoring(("ha_f1@1", "ha_f1@5", "f1", "f1_at_null", "best_f1"), _techqa),
    "cuad": Scoring(("aupr", "precision@80"), _cuad),
}
"""By name."""
