"""Reduced self-attention between the rows of one item, values unprojected (Basirat 2024, tailoring block; A3).

Axes: B items   N rows of the longest item   M chosen rows of the item with most   P rows   R chosen rows   D width
K key width   H heads   W = K/H
"""

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from .item_blocks import ItemBlocks
from .projections import check_heads, stacked_xavier_
from .step_kernel import call, plain, usable

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
        reduced = self.reduce(x)
        if usable(values) and blocks.in_order and blocks.chosen.any():
            query, key = self.query(blocks.rows_of(reduced)), self.key(reduced)
            return _Attend.apply(plain(query), plain(key), values, blocks, self.n_heads)
        maps = self._maps(self.query(reduced), self.key(reduced), blocks)
        return blocks.out_of(maps @ blocks.keys_of(values))

    def _maps(
        self, query: Float[Tensor, "P K"], key: Float[Tensor, "P K"], blocks: ItemBlocks
    ) -> Float[Tensor, "B M N"]:
        """Attention maps, one an item; lines sum to 1 over the item's own rows and are 0 past its end."""
        query_BHMW, key_BHNW = self._heads(blocks.queries_of(query)), self._heads(blocks.keys_of(key))
        scores_BHMN = query_BHMW @ key_BHNW.transpose(-1, -2) / math.sqrt(query_BHMW.shape[-1])
        lowest = torch.finfo(scores_BHMN.dtype).min
        real = torch.from_numpy(blocks.real).to(query.device)
        return torch.softmax(torch.where(real[:, None, None, :], scores_BHMN, lowest), dim=-1).mean(1)

    def _heads(self, x: Float[Tensor, "B N K"]) -> Float[Tensor, "B H N W"]:
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)


class _Attend(torch.autograd.Function):
    """The same by the compiled kernel: no blocks, no padding, one pass over an item while it lies in the cache."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, values: Tensor, blocks: ItemBlocks, n_heads: int) -> Tensor:
        counts = np.asarray(blocks.lengths, dtype=np.int64), blocks.chosen
        probabilities = values.new_empty(n_heads * int(counts[0] @ counts[1]))
        out = values.new_empty(len(query), values.shape[1])
        lengths, chosen = map(torch.from_numpy, counts)
        head_width = query.shape[1] // n_heads
        sizes = lengths, chosen, len(lengths), values.shape[1], n_heads, head_width, head_width**-0.5
        call("attend", query, key, values, *sizes, probabilities, out)
        ctx.save_for_backward(query, key, values, probabilities)
        ctx.sizes = sizes
        return out

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        query, key, values, probabilities = ctx.saved_tensors
        to_query, to_key, to_values = torch.zeros_like(query), torch.zeros_like(key), torch.empty_like(values)
        slope = slopes[0].contiguous()
        results = to_query, to_key, to_values
        call("attend_slope", slope, query, key, values, *ctx.sizes, probabilities, *results)
        return to_query, to_key, to_values, None, None
