"""The full adapter (Basirat 2024; A2-A4): aggregation, then tailoring, then their sum.

Axes: L views   P rows   R chosen rows   D width
"""

from collections.abc import Mapping

from jaxtyping import Float, Int
from torch import Tensor

from ..nn.item_blocks import ItemBlocks
from ..nn.layer_attention import LayerAttention
from ..nn.packed import Packed
from ..nn.tailor import Tailor
from . import Adapter
from ._authors import load_authors

__all__ = ["Adapted"]


class Adapted(Adapter):
    """out = G + T, the method; `residual=False` is out = T, Table 4's `agg_tailor`. Any number of views.

    T holds G a second time, inside the tailor's own residual (A4). `drop_values` is A-04's switch, `compute` the
    number type of the wide matrix products (`nn.linear`).
    """

    def __init__(
        self,
        width: int,
        key_width: int = 16,
        n_heads: int = 2,
        dropout: float = 0.1,
        residual: bool = True,
        drop_values: bool = True,
        compute: str = "fp32",
    ) -> None:
        super().__init__()
        self.residual = residual
        self.attention = LayerAttention(width, key_width, n_heads)
        self.tailor = Tailor(width, key_width, n_heads, dropout, drop_values, compute)

    def forward(self, batch: Packed, rows: Int[Tensor, " R"] | None = None) -> Float[Tensor, "R D"]:
        """The chosen rows, fp32. All rows are aggregated, being keys and values; queries are the chosen rows only."""
        mixed = self.attention(batch)
        tailored = self.tailor(mixed, ItemBlocks(batch.lengths, rows))
        if not self.residual:
            return tailored
        return tailored + (mixed if rows is None else mixed.index_select(0, rows))

    def layer_weights(self, batch: Packed, rows: Int[Tensor, " R"] | None = None) -> Float[Tensor, "R L"]:
        """A^T of the chosen rows: the aggregation's weights, before tailoring."""
        return self.attention.weights(batch, rows)

    def load_authors(self, checkpoint: Mapping[str, Tensor]) -> tuple[str, ...]:
        """Take the tensors of a checkpoint in the authors' layout; returns the names left out, encoder and dead ones.

        ConfigError names what is unknown, missing, left over or of another shape; then nothing has changed.
        """
        return load_authors(self, checkpoint)
