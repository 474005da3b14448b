"""A post-norm transformer block (Vaswani et al. 2017; Devlin et al. 2019) over packed rows, for training on a CPU.

Matrix products take bf16 operands; what stands between two of them is one compiled pass. Sums, norms, softmax, weights
and gradients are fp32. Nothing is padded: rows of all items go through the products together, and attention stays
inside the items.

Axes: P rows of all items   D width   F width of the feed-forward layer
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .dropout import Dropout
from .linear import rounded_rows
from .step_kernel import LANES, call, usable

__all__ = ["PostNorm"]

Line = tuple[Float[Tensor, "O I"], Float[Tensor, " O"]]


@dataclass(frozen=True)
class PostNorm:
    """What one block computes with; `drop` are the rates after the softmax, after attention and after feed-forward.

    norm2(y + drop(down(gelu(up(y))))) with y = norm1(x + drop(out(attend(query(x), key(x), value(x))))).
    """

    query: Line
    key: Line
    value: Line
    out: Line
    up: Line
    down: Line
    norms: tuple[nn.LayerNorm, nn.LayerNorm]
    drop: tuple[Dropout, Dropout, Dropout]
    n_heads: int

    @staticmethod
    def fits(width: int, n_heads: int) -> bool:
        """Whether the compiled passes are made for these sizes, and are there."""
        return width % n_heads == 0 and (width // n_heads) % LANES == 0 and usable(torch.zeros(1, width))

    def __call__(self, x: Float[Tensor, "P D"], lengths: Sequence[int]) -> Float[Tensor, "P D"]:
        """The rows after the block, fp32."""
        n_rows, width = x.shape
        keys = sum(n * (-(-n // LANES) * LANES) for n in lengths)
        bits = (
            self.drop[0].kept(self.n_heads * keys),
            self.drop[1].kept(n_rows, width),
            self.drop[2].kept(n_rows, width),
        )
        fused = (
            torch.cat([self.query[0], self.key[0], self.value[0]]),
            torch.cat([self.query[1], self.key[1], self.value[1]]),
        )
        norms = [tensor for norm in self.norms for tensor in (norm.weight, norm.bias)]
        plan = _Plan(
            torch.tensor(lengths),
            self.n_heads,
            keys,
            *(norm.eps for norm in self.norms),
            bits,
            tuple(d.scale for d in self.drop),
        )
        return _Block.apply(x.contiguous(), plan, *fused, *self.out, *self.up, *self.down, *norms)


@dataclass(frozen=True)
class _Plan:
    """What is no parameter: `bits` and `scales` of the three dropouts, `keys` places of one head's probabilities."""

    lengths: Tensor
    n_heads: int
    keys: int
    epsilon1: float
    epsilon2: float
    bits: tuple[Tensor, Tensor, Tensor]
    scales: tuple[float, float, float]

    def attention(self, width: int) -> tuple[Any, ...]:
        head_width = width // self.n_heads
        return self.lengths, len(self.lengths), self.n_heads, head_width, head_width**-0.5, self.bits[0], self.scales[0]


def _add_norm(
    z: Tensor, bias: Tensor, bits: Tensor, scale: float, x: Tensor, gain: Tensor, shift: Tensor, epsilon: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(norm(x + drop(z + bias)), the same in bf16, the sum, mean and 1 / deviation of its rows)."""
    out, sums, statistics, out16 = (
        torch.empty_like(x),
        torch.empty_like(x),
        x.new_empty(len(x), 2),
        rounded_rows(x, x.shape[1]),
    )
    call("add_norm", z, bias, bits, scale, x, gain, shift, epsilon, *x.shape, sums, out, out16, statistics)
    return out, out16, sums, statistics


def _add_norm_slope(
    slope: Tensor, more: Tensor | None, sums: Tensor, gain: Tensor, statistics: Tensor, bits: Tensor, scale: float
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor, Tensor]]:
    """Slopes of x, of z in bf16, and of (bias, gain, shift)."""
    to_x, to_z = torch.empty_like(sums), rounded_rows(sums, sums.shape[1])
    small = sums.new_zeros(3, sums.shape[1])
    call("add_norm_slope", slope, more, sums, gain, statistics, bits, scale, *sums.shape, to_x, to_z, *small)
    return to_x, to_z, (small[0], small[1], small[2])


class _Block(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, plan: _Plan, *parameters: Tensor) -> Tensor:
        fused, fused_bias, out, out_bias, up, up_bias, down, down_bias, gain1, shift1, gain2, shift2 = parameters
        n_rows, width = x.shape
        fused16, out16, up16, down16 = (weight.bfloat16() for weight in (fused, out, up, down))
        x16 = rounded_rows(x, width, fill=True)
        views = torch.mm(x16, fused16.T)
        probabilities, attended = x.new_empty(plan.n_heads * plan.keys), rounded_rows(x, width)
        call("heads16", views, fused_bias, *plan.attention(width), probabilities, attended)
        y, y16, sums1, statistics1 = _add_norm(
            torch.mm(attended, out16.T), out_bias, plan.bits[1], plan.scales[1], x, gain1, shift1, plan.epsilon1
        )
        inner = torch.mm(y16, up16.T)
        bent = rounded_rows(x, len(up))
        call("gelu16", inner, up_bias, n_rows, len(up), bent)
        z, _, sums2, statistics2 = _add_norm(
            torch.mm(bent, down16.T), down_bias, plan.bits[2], plan.scales[2], y, gain2, shift2, plan.epsilon2
        )
        ctx.save_for_backward(
            fused16,
            fused_bias,
            out16,
            up16,
            up_bias,
            down16,
            gain1,
            gain2,
            x16,
            views,
            probabilities,
            attended,
            sums1,
            statistics1,
            y16,
            inner,
            bent,
            sums2,
            statistics2,
        )
        ctx.plan = plan
        return z

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        (
            fused16,
            fused_bias,
            out16,
            up16,
            up_bias,
            down16,
            gain1,
            gain2,
            x16,
            views,
            probabilities,
            attended,
            sums1,
            statistics1,
            y16,
            inner,
            bent,
            sums2,
            statistics2,
        ) = ctx.saved_tensors
        plan, (n_rows, width) = ctx.plan, sums1.shape
        wanted = ctx.needs_input_grad[2:]

        def to_weight(place: int, slope: Tensor, given: Tensor) -> Tensor | None:
            return torch.mm(slope.T, given).float() if wanted[place] else None

        to_y, to_z, small2 = _add_norm_slope(
            slopes[0].contiguous(), None, sums2, gain2, statistics2, plan.bits[2], plan.scales[2]
        )
        to_down = to_weight(6, to_z, bent)
        to_inner, to_up_bias = torch.mm(to_z, down16), sums1.new_zeros(len(up_bias))
        call("gelu16_slope", to_inner, inner, up_bias, n_rows, len(up_bias), to_inner, to_up_bias)
        to_up = to_weight(4, to_inner, y16)
        to_x, to_z, small1 = _add_norm_slope(
            to_y, torch.mm(to_inner, up16), sums1, gain1, statistics1, plan.bits[1], plan.scales[1]
        )
        to_out = to_weight(2, to_z, attended)
        to_views, to_fused_bias = rounded_rows(sums1, 3 * width), sums1.new_zeros(3 * width)
        call(
            "heads16_slope",
            torch.mm(to_z, out16),
            views,
            fused_bias,
            *plan.attention(width),
            probabilities,
            to_views,
            to_fused_bias,
        )
        to_fused = to_weight(0, to_views, x16)
        if ctx.needs_input_grad[0]:
            to_x += torch.mm(to_views, fused16)[:n_rows]
        return (
            to_x if ctx.needs_input_grad[0] else None,
            None,
            to_fused,
            to_fused_bias,
            to_out,
            small1[0],
            to_up,
            to_up_bias,
            to_down,
            small2[0],
            small1[1],
            small1[2],
            small2[1],
            small2[2],
        )
