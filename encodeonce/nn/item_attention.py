"""Reduced self-attention between the rows of one item, values unprojected (Basirat 2024, tailoring block; A3).

Axes: B items   N rows of the longest item   M chosen rows of the item with most   P rows   R chosen rows   D width
H heads   W head width
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .item_blocks import ItemBlocks
from .item_products import item_products
from .projections import check_heads, stacked_xavier_

__all__ = ["ItemAttention"]


class ItemAttention(nn.Module):
    """Row r becomes the weighted sum of its item's rows, weights averaged over heads after the softmax.

    Query and key share the reducer (width to key width, Xavier uniform) and have one projection each inside it;
    there is no value and no output projection (A-06).
    """

    def __init__(self, width: int, key_width: int = 16, n_heads: int = 2) -> None:
        super().__init__()
        check_heads(key_width, n_heads)
        self.n_heads = n_heads
        self.reduce = nn.Linear(width, key_width)
        self.query = nn.Linear(key_width, key_width)
        self.key = nn.Linear(key_width, key_width)
        nn.init.xavier_uniform_(self.reduce.weight)
        for projection in (self.query, self.key):
            stacked_xavier_(projection.weight)
            nn.init.zeros_(projection.bias)

    def forward(
        self, x: Float[Tensor, "P D"], values: Float[Tensor, "P D"], blocks: ItemBlocks
    ) -> Float[Tensor, "R D"]:
        """The chosen rows' sums over `values`; `x` makes the queries and keys."""
        return item_products(self.maps(x, blocks), values, blocks)

    def maps(self, x: Float[Tensor, "P D"], blocks: ItemBlocks) -> Float[Tensor, "B M N"]:
        """Attention maps, one an item; lines sum to 1 over the item's own rows and are 0 past its end."""
        reduced = self.reduce(x)
        query_BHMW = self._heads(blocks.queries_of(self.query(reduced)))
        key_BHNW = self._heads(blocks.keys_of(self.key(reduced)))
        scores_BHMN = query_BHMW @ key_BHNW.transpose(-1, -2) / math.sqrt(query_BHMW.shape[-1])
        lowest = torch.finfo(scores_BHMN.dtype).min
        scores_BHMN = torch.where(blocks.real[:, None, None, :], scores_BHMN, lowest)
        return torch.softmax(scores_BHMN, dim=-1).mean(1)

    def _heads(self, x: Float[Tensor, "B N K"]) -> Float[Tensor, "B H N W"]:
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
