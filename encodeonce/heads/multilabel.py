"""Any number of labels an item, each decided on its own by a logistic regression on the tagger's two layers.

Axes: B items, a row each   D width   C labels
"""

import math
from collections.abc import Sequence
from typing import Any

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from ..errors import ConfigError
from ..nn.rows import Rows
from ._over_tagger import OverTagger

__all__ = ["Multilabel"]


class Multilabel(OverTagger):
    """Layers are the tagger's. A label is predicted where its probability is above `threshold`, in (0, 1)."""

    def __init__(self, width: int, labels: Sequence[str], threshold: float = 0.5, **layers: Any) -> None:
        if not 0 < threshold < 1:
            raise ConfigError(f"threshold={threshold} must lie between 0 and 1, both excluded.")
        super().__init__(width, labels, **layers)
        self.cut = math.log(threshold / (1 - threshold))

    def loss(
        self, scores: Float[Tensor, "B C"], gold: Float[Tensor, "B C"], counts: tuple[int, ...] = ()
    ) -> Float[Tensor, ""]:
        """Binary cross-entropy in nats, SUMMED over items and labels; gold is 1 where an item has the label, else 0."""
        return binary_cross_entropy_with_logits(scores, gold, reduction="sum")

    def decode(self, scores: Float[Tensor, "B C"], rows: Rows) -> list[tuple[str, ...]]:
        """The labels of every item, in the order of `labels`; an item may have none."""
        return [
            tuple(label for label, score in zip(self.labels, line, strict=True) if score > self.cut)
            for line in scores.tolist()
        ]

    def probabilities(self, scores: Float[Tensor, "B C"], rows: Rows) -> list[dict[str, float]]:
        """Each label's own probability; they do not sum to 1."""
        return [dict(zip(self.labels, line, strict=True)) for line in scores.double().sigmoid().tolist()]
