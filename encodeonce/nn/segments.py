"""Reductions over runs of neighbouring rows, the packed batch's substitute for masked sums over padding.

Axes: L views   P rows laid end to end   D width   B runs (items, or words)
"""

import torch
from jaxtyping import Float
from torch import Tensor

from .precision import at_least_fp32

__all__ = ["segment_means"]


def segment_means(rows: Float[Tensor, "*L P D"], lengths: tuple[int, ...]) -> Float[Tensor, "*L B D"]:
    """Mean of each run of `lengths[b]` neighbouring rows, in fp32 (fp64 for fp64 input); no padding takes part."""
    if not lengths:
        return at_least_fp32(rows[..., :0, :])
    if min(lengths) == max(lengths):
        return at_least_fp32(rows.unflatten(-2, (len(lengths), lengths[0]))).mean(-2)
    return torch.stack([at_least_fp32(run).mean(-2) for run in rows.split(lengths, dim=-2)], dim=-2)
