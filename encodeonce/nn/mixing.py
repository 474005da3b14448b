"""Weighted sums over views.

Axes: L views   R rows   D width
"""

from jaxtyping import Float
from torch import Tensor

from .precision import at_least_fp32

__all__ = ["mix"]


def mix(weights: Float[Tensor, "R L"], views: Float[Tensor, "L R D"]) -> Float[Tensor, "R D"]:
    """sum_i weights[r, i] views[i, r]: a convex combination where the weights are one."""
    return (weights.unsqueeze(1) @ at_least_fp32(views).transpose(0, 1)).squeeze(1)
