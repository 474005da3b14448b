"""One number a pair of texts: how much likelier it is that the second answers the first than that it does not (A12).

Axes: B items, a row each   D width
"""

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from ..nn.rows import Rows
from ._over_tagger import OverTagger

__all__ = ["Relevance"]


class Relevance(OverTagger):
    """Layers are the tagger's, with a single output: the logit of the pair's being right, which is the difference of
    the two logits of a classifier of two labels."""

    def forward(self, vectors: Float[Tensor, "B D"], rows: Rows | None = None) -> Float[Tensor, " B"]:
        """A logit for every item."""
        return self.tagger(vectors)[:, 0]

    def loss(
        self, scores: Float[Tensor, " B"], gold: Float[Tensor, " B"], counts: tuple[int, ...] = ()
    ) -> Float[Tensor, ""]:
        """Binary cross-entropy in nats, SUMMED over the items; gold is 1 for a right pair, else 0."""
        return binary_cross_entropy_with_logits(scores, gold, reduction="sum")

    def decode(self, scores: Float[Tensor, " B"], rows: Rows) -> list[float]:
        """The logits."""
        return [float(score) for score in scores.tolist()]
