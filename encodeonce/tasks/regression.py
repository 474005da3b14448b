"""One number a document, single text or pair: a score, a rating, a similarity (spec A7, A-11, A-16)."""

import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, pstdev
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from ..errors import DataError
from ..metrics.regression import regression_scores
from ..types import Document
from . import Task
from ._documents import PIECES, check_choice, check_text, place_of, value_of

__all__ = ["Regression"]

log = logging.getLogger("encodeonce")

METRICS = ("pearson_spearman", "pearson", "spearman", "r2")
"""Scores that may choose between epochs."""


@dataclass(frozen=True)
class Regression(Task):
    """`column` is the field or table column with the number.

    With `standardise`, the network learns (target - mean) / deviation, both of the training targets, so that the start
    values and one learning rate fit a score from 0 to 5 as well as a price. Predictions and scores are in the data's
    own scale. Without it the network learns the target itself; the paper says nothing of scaling. `metric` chooses
    between epochs.
    """

    column: str = "label"
    piece: str = "document"
    metric: str = "pearson_spearman"
    standardise: bool = True
    called: str = "regression"
    mean: float = 0.0
    deviation: float = 1.0
    labels: tuple[str, ...] = ()

    head: ClassVar[str] = "regressor"

    def __post_init__(self) -> None:
        check_choice("piece", self.piece, PIECES)
        check_choice("metric", self.metric, METRICS)

    @property
    def name(self) -> str:
        """As in settings."""
        return self.called

    @property
    def head_options(self) -> dict[str, Any]:
        """The scale of training."""
        return {"mean": self.mean, "deviation": self.deviation}

    def learn(self, documents: Sequence[Document]) -> "Regression":
        """With the mean and the standard deviation of these documents' targets; its one label names the output."""
        gold = self.gold(documents)
        if not gold:
            raise DataError(f"task {self.name!r}: no examples.")
        learned = replace(self, labels=(self.column,))
        if len(set(gold)) == 1:
            log.warning("task %s: every training target is %g; every prediction will be near it", self.name, gold[0])
        if not self.standardise:
            return learned
        return replace(learned, mean=fmean(gold), deviation=pstdev(gold) or 1.0)

    def gold(self, documents: Sequence[Document]) -> list[float]:
        """The number of each document."""
        return [self._number(document) for document in documents]

    def ids(self, gold: float) -> Float[np.ndarray, " 1"]:
        """Float32 [1], in the scale of training."""
        return np.array([(gold - self.mean) / self.deviation], dtype=np.float32)

    def scored(self, ids: np.ndarray) -> int:
        """Every number counts, whatever it is."""
        return len(ids)

    def unseen(self, gold: float) -> Iterable[str]:
        """None: a number needs not have been seen."""
        return ()

    def score(self, gold: Sequence[float], predicted: Sequence[float]) -> dict[str, float | None]:
        """pearson, spearman, pearson_spearman, r2 (all x 100), mse and n (`regression_scores`)."""
        return regression_scores(gold, predicted)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        fields = ("column", "piece", "metric", "standardise", "called", "mean", "deviation")
        plain = {"kind": "regression", **{name: getattr(self, name) for name in fields}}
        return {**plain, "labels": list(self.labels)}

    def _number(self, document: Document) -> float:
        check_text(document, self.name)
        value = value_of(document, self.column, self.name)
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise DataError(
                f"{place_of(document)}: task {self.name!r}: {self.column!r} is {value!r}, which is no finite number."
            )
        return number
