"""The tailoring block (Basirat 2024; A3): a residual layer, then attention between the rows of an item.

Axes: P rows   R chosen rows   D width
"""

from jaxtyping import Float
from torch import Tensor, nn

from .dropout import Dropout
from .item_attention import ItemAttention
from .item_blocks import ItemBlocks
from .linear import Linear
from .residual_feed import residual_feed

__all__ = ["Tailor"]


class Tailor(nn.Module):
    """R = G + ReLU(Dropout(LN(G) W_F + b_F)),   T = M Dropout(R),   M an attention map of every item.

    The paper multiplies the map with R undropped; the authors' code with the dropped one, and its scores were made so.
    `drop_values=True` follows the code (A-04); in eval mode the two are one. LayerNorm's eps is 1e-12.
    `compute` is the number type of the wide matrix product (`nn.linear`).
    """

    def __init__(
        self,
        width: int,
        key_width: int = 16,
        n_heads: int = 2,
        dropout: float = 0.1,
        drop_values: bool = True,
        compute: str = "fp32",
    ) -> None:
        super().__init__()
        self.drop_values = drop_values
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.feed = Linear(width, width, compute)
        self.dropout = Dropout(dropout)
        self.attention = ItemAttention(width, key_width, n_heads)

    def forward(self, mixed: Float[Tensor, "P D"], blocks: ItemBlocks) -> Float[Tensor, "R D"]:
        """T for the chosen rows; every row of an item is read as key and value."""
        dropped, full = residual_feed(mixed, self.norm, self.feed, self.dropout)
        return self.attention(dropped, dropped if self.drop_values else full, blocks)
