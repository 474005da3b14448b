"""One number an item: the tagger's two layers with a single output and squared error (A-11).

Axes: B items, a row each   D width
"""

from collections.abc import Sequence
from typing import Any

from jaxtyping import Float
from torch import Tensor

from ..errors import ConfigError
from ..nn.rows import Rows
from ._over_tagger import OverTagger

__all__ = ["Regressor"]


class Regressor(OverTagger):
    """Scores are in the scale it is trained in; a prediction is `mean + deviation x score`, in the data's own scale.

    `labels` is the one name of the output. ConfigError for more names, and for a deviation that is not positive.
    """

    def __init__(
        self, width: int, labels: Sequence[str], mean: float = 0.0, deviation: float = 1.0, **layers: Any
    ) -> None:
        if len(labels) != 1 or not deviation > 0:
            raise ConfigError(f"a regressor has one output and deviation > 0; given {list(labels)} and {deviation}.")
        super().__init__(width, labels, **layers)
        self.mean, self.deviation = mean, deviation

    def forward(self, vectors: Float[Tensor, "B D"], rows: Rows | None = None) -> Float[Tensor, " B"]:
        """A number for every item, in the scale of training."""
        return self.tagger(vectors)[:, 0]

    def loss(
        self, scores: Float[Tensor, " B"], gold: Float[Tensor, " B"], counts: tuple[int, ...] = ()
    ) -> Float[Tensor, ""]:
        """Squared error in the scale of training, SUMMED over the items."""
        return (scores - gold).square().sum()

    def decode(self, scores: Float[Tensor, " B"], rows: Rows) -> list[float]:
        """A number for every item, in the data's own scale."""
        return [self.mean + self.deviation * score for score in scores.tolist()]
