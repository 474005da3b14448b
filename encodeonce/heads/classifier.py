"""One label an item: the tagger's scores of its single row (Basirat 2024; A7, A-11).

Axes: B items, a row each   D width   C labels
"""

from jaxtyping import Float
from torch import Tensor

from ..nn.rows import Rows
from ._over_tagger import OverTagger

__all__ = ["Classifier"]


class Classifier(OverTagger):
    """Settings, scores and loss are the tagger's; a prediction is a label, not a tuple of one."""

    def decode(self, scores: Float[Tensor, "B C"], rows: Rows) -> list[str]:
        """The label of the highest score of every item."""
        return [self.labels[index] for index in scores.argmax(-1).tolist()]

    def probabilities(self, scores: Float[Tensor, "B C"], rows: Rows) -> list[dict[str, float]]:
        """Softmax over the labels, which sums to 1."""
        return [dict(zip(self.labels, line, strict=True)) for line in scores.double().softmax(-1).tolist()]
