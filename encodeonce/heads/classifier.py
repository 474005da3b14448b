"""One label an item: the tagger's scores of its single row (Basirat 2024; A7, A-11).

Axes: B items, a row each   D width   C labels
"""

from collections.abc import Sequence

from jaxtyping import Float, Int
from torch import Tensor

from ..nn.rows import Rows
from . import Head
from .tagger import Tagger

__all__ = ["Classifier"]


class Classifier(Head):
    """Settings, scores and loss are the tagger's; a prediction is a label, not a tuple of one."""

    def __init__(
        self,
        width: int,
        labels: Sequence[str],
        dropout: float = 0.1,
        reference: bool = False,
        compute: str = "fp32",
    ) -> None:
        super().__init__()
        self.tagger = Tagger(width, labels, dropout, reference, compute)

    @property
    def labels(self) -> tuple[str, ...]:
        """The label of every score."""
        return self.tagger.labels

    def forward(self, vectors: Float[Tensor, "B D"], rows: Rows | None = None) -> Float[Tensor, "B C"]:
        """A logit for every label."""
        return self.tagger(vectors)

    def loss(
        self, scores: Float[Tensor, "B C"], gold: Int[Tensor, " B"], counts: tuple[int, ...] = ()
    ) -> Float[Tensor, ""]:
        """Cross-entropy in nats, SUMMED over the items whose gold is not IGNORE."""
        return self.tagger.loss(scores, gold)

    def decode(self, scores: Float[Tensor, "B C"], rows: Rows) -> list[str]:
        """The label of the highest score of every item."""
        return [self.labels[index] for index in scores.argmax(-1).tolist()]

    def probabilities(self, scores: Float[Tensor, "B C"], rows: Rows) -> list[dict[str, float]]:
        """Softmax over the labels, which sums to 1."""
        return [dict(zip(self.labels, line, strict=True)) for line in scores.double().softmax(-1).tolist()]
