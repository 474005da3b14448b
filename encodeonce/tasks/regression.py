"""One number a document, single text or pair: a score, a rating, a similarity (spec A7, A-11, A-16)."""

import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from ..metrics.regression import regression_scores
from ..types import Document
from ._document_task import DocumentTask

__all__ = ["Regression"]

log = logging.getLogger("encodeonce")


@dataclass(frozen=True)
class Regression(DocumentTask):
    """Learns (target - mean) / deviation, both of the training targets; predictions are in the data's own scale.

    So the start values and one learning rate fit a score from 0 to 5 as well as a price. With `standardise=False` it
    learns the target itself; the paper says nothing of scaling. See `DocumentTask` for the other settings.
    """

    standardise: bool = True
    mean: float = 0.0
    deviation: float = 1.0

    LEARNED: ClassVar[tuple[str, ...]] = (*DocumentTask.LEARNED, "mean", "deviation")
    kind: ClassVar[str] = "regression"
    head: ClassVar[str] = "regressor"
    metrics: ClassVar[tuple[str, ...]] = ("pearson_spearman", "pearson", "spearman", "r2")

    @property
    def head_options(self) -> dict[str, Any]:
        """The scale of training."""
        return {"mean": self.mean, "deviation": self.deviation}

    def learned(self, gold: Sequence[float], documents: Sequence[Document]) -> dict[str, Any]:
        """Mean and standard deviation of the targets; the one label names the output."""
        if len(set(gold)) == 1:
            log.warning("task %s: every training target is %g; every prediction will be near it", self.name, gold[0])
        scale = (fmean(gold), pstdev(gold) or 1.0) if self.standardise else (0.0, 1.0)
        return {"labels": (self.column,), "mean": scale[0], "deviation": scale[1]}

    def value(self, document: Document) -> float:
        """The number."""
        value = self.read(document)
        try:
            number = math.nan if isinstance(value, bool) or "_" in str(value) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            raise self.refused(document, value, "it must be a finite number.")
        return number

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
