"""Attention maps times values, item by item, on packed rows.

Axes: B items   N rows of the longest item   M chosen rows of the item with most   P rows   R chosen rows   D width
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from .item_blocks import ItemBlocks

__all__ = ["item_products"]


class _ItemProducts(torch.autograd.Function):
    """One small product an item, from and into the row axis: no block of values, wide as the model, is built."""

    @staticmethod
    def forward(ctx: Any, maps: Tensor, values: Tensor, lengths: tuple[int, ...], chosen: tuple[int, ...]) -> Tensor:
        ctx.save_for_backward(maps, values)
        ctx.sizes = lengths, chosen
        out = values.new_empty(sum(chosen), values.shape[1])
        pairs = zip(maps, values.split(lengths), out.split(chosen), strict=True)
        for map_MN, value_ND, out_MD in pairs:
            torch.mm(map_MN[: len(out_MD), : len(value_ND)], value_ND, out=out_MD)
        return out

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, Tensor, None, None]:
        maps, values = ctx.saved_tensors
        lengths, chosen = ctx.sizes
        to_maps, to_values = torch.zeros_like(maps), torch.empty_like(values)
        pairs = zip(
            maps, values.split(lengths), slopes[0].split(chosen), to_maps, to_values.split(lengths), strict=True
        )
        for map_MN, value_ND, slope_MD, to_map, to_value in pairs:
            m, n = len(slope_MD), len(value_ND)
            to_map[:m, :n] = slope_MD @ value_ND.T
            torch.mm(map_MN[:m, :n].T, slope_MD, out=to_value)
        return to_maps, to_values, None, None


def item_products(
    maps: Float[Tensor, "B M N"], values: Float[Tensor, "P D"], blocks: ItemBlocks
) -> Float[Tensor, "R D"]:
    """For every chosen row its line of its item's map, times the item's values."""
    if not blocks.in_order:
        return blocks.rows_of(maps @ blocks.keys_of(values))
    return _ItemProducts.apply(maps, values, blocks.lengths, blocks.chosen)
