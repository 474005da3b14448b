"""The tailor's residual layer, in one piece (Basirat 2024; A3).

Axes: P rows   D width
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .dropout import Dropout
from .linear import Linear, product16, rounded_rows
from .step_kernel import call, usable

__all__ = ["residual_feed"]


def residual_feed(
    x: Float[Tensor, "P D"], norm: nn.LayerNorm, feed: Linear, dropout: Dropout
) -> tuple[Float[Tensor, "P D"], Float[Tensor, "P D"]]:
    """(Dropout(R), R) with R = x + ReLU(Dropout(LN(x) W + b)); the second is the first where the kernel did it."""
    if feed.compute == "bf16" and usable(x):
        inner, outer = dropout.kept(*x.shape), dropout.kept(*x.shape)
        out = _Feed.apply(x, norm.weight, norm.bias, feed.weight, feed.bias, norm.eps, inner, outer, dropout.scale)
        return out, out
    full = x + torch.relu(dropout(feed(norm(x))))
    return dropout(full), full


class _Feed(torch.autograd.Function):
    """bf16 products, and one pass for all that stands between two of them."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        gain: Tensor,
        shift: Tensor,
        weight: Tensor,
        bias: Tensor,
        epsilon: float,
        inner: Tensor,
        outer: Tensor,
        scale: float,
    ) -> Tensor:
        normed, statistics = rounded_rows(x, x.shape[1]), x.new_empty(len(x), 2)
        call("norm16", x, gain, shift, epsilon, *x.shape, normed, statistics)
        weight16 = weight.bfloat16()
        product, out = product16(normed, weight16.T), torch.empty_like(x)
        call("feed", product, bias, x, inner, outer, scale, *x.shape, out)
        ctx.save_for_backward(x, gain, weight16, bias, normed, statistics, product, inner, outer)
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        x, gain, weight16, bias, normed, statistics, product, inner, outer = ctx.saved_tensors
        to_x, to_product = torch.empty_like(x), rounded_rows(x, x.shape[1])
        to_gain, to_shift, to_bias = x.new_zeros(3, x.shape[1])
        call(
            "feed_slope",
            slopes[0].contiguous(),
            product,
            bias,
            inner,
            outer,
            ctx.scale,
            *x.shape,
            to_x,
            to_product,
            to_bias,
        )
        to_normed = product16(to_product, weight16)
        call("norm16_slope", to_normed, x, gain, statistics, *x.shape, to_x, to_gain, to_shift)
        to_weight = product16(to_product.T, normed).float()
        return to_x, to_gain, to_shift, to_weight, to_bias, None, None, None, None
