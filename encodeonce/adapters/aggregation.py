"""The aggregation block alone (Basirat 2024, Table 4 column Agg; A2).

Axes: L views   P rows   R chosen rows   D width
"""

from collections.abc import Mapping

from jaxtyping import Float, Int
from torch import Tensor

from ..nn.layer_attention import LayerAttention
from ..nn.packed import Packed
from . import Adapter
from ._authors import load_authors

__all__ = ["Aggregation"]


class Aggregation(Adapter):
    """G: every row mixes its views by attention from its layer mean to the item's token means. Any number of views."""

    def __init__(self, width: int, key_width: int = 16, n_heads: int = 2) -> None:
        super().__init__()
        self.attention = LayerAttention(width, key_width, n_heads)

    def forward(self, batch: Packed, rows: Int[Tensor, " R"] | None = None) -> Float[Tensor, "R D"]:
        """G of the chosen rows, fp32; other rows are read for the token means only."""
        return self.attention(batch, rows)

    def layer_weights(self, batch: Packed, rows: Int[Tensor, " R"] | None = None) -> Float[Tensor, "R L"]:
        """A^T of the chosen rows."""
        return self.attention.weights(batch, rows)

    def load_authors(self, checkpoint: Mapping[str, Tensor]) -> tuple[str, ...]:
        """Take the tensors of a checkpoint in the authors' layout; returns the names left out, encoder and dead ones.

        ConfigError names what is unknown, missing, left over or of another shape; then nothing has changed.
        """
        return load_authors(self, checkpoint)
