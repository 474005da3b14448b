"""Answers scored as a training loop asks for it: exact match and F1 of `Answer`s against gold texts."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..types import Answer
from .qa import answer_scores

__all__ = ["AnswerScorer"]


@dataclass(frozen=True)
class AnswerScorer:
    """A `train.Scorer`: exact match decides between epochs (spec B5). `rule` is one of `metrics.qa.RULES`."""

    rule: str = "squad"
    metric: str = "exact_match"

    def score(self, gold: Sequence[Sequence[str]], predicted: Sequence[Answer]) -> dict[str, float | None]:
        """`metrics.qa.answer_scores` of the answers' texts."""
        return answer_scores(gold, [answer.text for answer in predicted], self.rule)
