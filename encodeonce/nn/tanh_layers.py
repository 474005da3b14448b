"""Dropout, linear, tanh, dropout, linear: the tagging head's layers (A-10), in one piece.

Axes: R rows   D width   C outputs
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from .dropout import Dropout
from .linear import Linear, product16, rounded_rows
from .step_kernel import call, usable

__all__ = ["tanh_layers"]


def tanh_layers(x: Float[Tensor, "R D"], inner: Linear, outer: Linear, dropout: Dropout) -> Float[Tensor, "R C"]:
    """outer(Dropout(tanh(inner(Dropout(x)))))."""
    if inner.compute == outer.compute == "bf16" and usable(x) and inner.out_features % 16 == 0:
        masks = dropout.kept(*x.shape), dropout.kept(len(x), inner.out_features)
        return _TanhLayers.apply(x, inner.weight, inner.bias, outer.weight, outer.bias, *masks, dropout.scale)
    return outer(dropout(torch.tanh(inner(dropout(x)))))


class _TanhLayers(torch.autograd.Function):
    """bf16 products, and one pass for all that stands between two of them."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        last_weight: Tensor,
        last_bias: Tensor,
        kept: Tensor,
        last_kept: Tensor,
        scale: float,
    ) -> Tensor:
        weight16, last_weight16 = weight.bfloat16(), last_weight.bfloat16()
        dropped = rounded_rows(x, x.shape[1])
        call("drop16", x, kept, scale, x.numel(), dropped)
        bent = product16(dropped, weight16.T)
        last = rounded_rows(x, len(weight))
        call("tanh16", bent, bias, last_kept, scale, len(x), len(weight), last)
        scores = product16(last, last_weight16.T)[: len(x)].float().add_(last_bias)
        ctx.save_for_backward(weight16, last_weight16, kept, last_kept, dropped, bent, last)
        ctx.sizes = scale, *x.shape
        return scores

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        weight16, last_weight16, kept, last_kept, dropped, bent, last = ctx.saved_tensors
        scale, n_rows, width = ctx.sizes
        slope, inner_width = slopes[0], bent.shape[1]
        slope16 = rounded_rows(slope, slope.shape[1], fill=True)
        to_last_weight = product16(slope16.T, last).float()
        to_bent, to_bias = rounded_rows(slope, inner_width), slope.new_zeros(inner_width)
        to_last = product16(slope16, last_weight16)
        call("tanh16_slope", to_last, bent, last_kept, scale, n_rows, inner_width, to_bent, to_bias)
        to_weight = product16(to_bent.T, dropped).float()
        to_x = slope.new_empty(n_rows, width)
        call("drop16_slope", product16(to_bent, weight16), kept, scale, to_x.numel(), to_x)
        return to_x, to_weight, to_bias, to_last_weight, slope.sum(0), None, None, None
