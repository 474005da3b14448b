"""Heads that score with the tagger's two layers and differ in loss or prediction.

Axes: R rows   D width   C labels
"""

from collections.abc import Sequence
from typing import Any

from jaxtyping import Float, Shaped
from torch import Tensor

from ..nn.rows import Rows
from . import Head
from .tagger import Tagger

__all__ = ["OverTagger"]


class OverTagger(Head):
    """`layers` are the tagger's settings: dropout, reference, compute, inner_width."""

    def __init__(self, width: int, labels: Sequence[str], **layers: Any) -> None:
        super().__init__()
        self.tagger = Tagger(width, labels, **layers)

    @property
    def labels(self) -> tuple[str, ...]:
        """The label of every score."""
        return self.tagger.labels

    def forward(self, vectors: Float[Tensor, "R D"], rows: Rows | None = None) -> Float[Tensor, "R ..."]:
        """A logit for every label."""
        return self.tagger(vectors)

    def loss(
        self, scores: Float[Tensor, "R ..."], gold: Shaped[Tensor, "R ..."], counts: tuple[int, ...] = ()
    ) -> Float[Tensor, ""]:
        """Cross-entropy in nats, SUMMED over the rows whose gold is not IGNORE."""
        return self.tagger.loss(scores, gold)
