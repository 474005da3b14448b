"""Predictions for a split and their scores."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import DataError
from . import Scorer, SplitExamples, Trainee

__all__ = ["Evaluation", "evaluate", "predicted"]


@dataclass(frozen=True)
class Evaluation:
    """`scores[task][metric]` (None: undefined), `predictions` in order, wall seconds a batch, number of examples."""

    scores: Mapping[str, Mapping[str, float | None]]
    predictions: Sequence[Mapping[str, Any]]
    seconds_per_batch: float
    n: int


def predicted(method: Trainee, examples: SplitExamples, size: int = 32) -> tuple[list[dict[str, Any]], float]:
    """A prediction a task for each example, in order; mean wall seconds a batch, reading included. Dropout is off."""
    method.eval()
    answers: list[dict[str, Any]] = []
    batches = 0
    began = time.perf_counter()
    with torch.no_grad():
        for batch in method.batches(examples, size=size, order=None):
            answers += method.predict(batch)
            batches += 1
    return answers, (time.perf_counter() - began) / max(1, batches)


def evaluate(method: Trainee, examples: SplitExamples, scorers: Mapping[str, Scorer], size: int = 32) -> Evaluation:
    """Predict and score. Raises DataError where there is no example or no gold to score."""
    if not len(examples):
        raise DataError("no examples to evaluate.")
    without = sorted(set(scorers) - set(examples.gold))
    if without:
        raise DataError(f"no gold was read for {without}; read the examples with these tasks.")
    answers, seconds = predicted(method, examples, size)
    scores = {
        name: scorer.score(examples.gold[name], [answer[name] for answer in answers])
        for name, scorer in scorers.items()
    }
    return Evaluation(scores, answers, seconds, len(examples))
