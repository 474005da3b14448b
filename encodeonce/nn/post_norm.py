"""A post-norm transformer block (Vaswani et al. 2017; Devlin et al. 2019) over packed rows, for training on a CPU.

Matrix products take bf16 operands; what stands between two of them is one compiled pass. Sums, norms, softmax, weights
and gradients are fp32. Nothing is padded: rows of all items go through the products together, and attention stays
inside the items.

Axes: P rows of all items   R chosen rows   D width
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from .barrier import Barrier
from .dropout import Dropout
from .linear import product16, rounded_rows
from .step_kernel import LANES, call, plain, usable

__all__ = ["Line", "PostNorm"]

Line = tuple[Float[Tensor, "_ _"], Float[Tensor, " _"]]
"""Weight [O, I] and bias [O] of a linear map from width I to width O."""


@dataclass(frozen=True)
class PostNorm:
    """What one block computes with; `drop` come after the softmax, after attention and after feed-forward.

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

    def __call__(
        self,
        x: Float[Tensor, "P D"],
        lengths: Sequence[int],
        rows: Int[Tensor, " R"] | None = None,
        barrier: Barrier | None = None,
    ) -> Float[Tensor, "R D"]:
        """The chosen rows after the block (all where `rows` is None), fp32; others are only keys and values."""
        n_out, width = len(x) if rows is None else len(rows), x.shape[1]
        keys = sum(n * (-(-n // LANES) * LANES) for n in lengths)
        bits = (
            self.drop[0].kept(self.n_heads * keys),
            self.drop[1].kept(n_out, width),
            self.drop[2].kept(n_out, width),
        )
        plan = _Plan(
            lengths=torch.tensor(lengths),
            rows=rows,
            first=None if barrier is None else torch.tensor(barrier.first),
            reads=0 if barrier is None else barrier.first_reads + 2 * barrier.second_reads,
            n_heads=self.n_heads,
            n_probabilities=self.n_heads * keys,
            epsilons=(self.norms[0].eps, self.norms[1].eps),
            bits=bits,
            scales=(self.drop[0].scale, self.drop[1].scale, self.drop[2].scale),
        )
        projections = self.query, self.key, self.value
        fused = torch.cat([weight for weight, _ in projections]), torch.cat([bias for _, bias in projections])
        norms = [tensor for norm in self.norms for tensor in (norm.weight, norm.bias)]
        return _Block.apply(plain(x), plan, *fused, *self.out, *self.up, *self.down, *norms)


@dataclass(frozen=True)
class _Plan:
    """What is no parameter. `bits` and `scales` are those of the three dropouts, `first` and `reads` heads16's."""

    lengths: Tensor
    rows: Tensor | None
    first: Tensor | None
    reads: int
    n_heads: int
    n_probabilities: int
    epsilons: tuple[float, float]
    bits: tuple[Tensor, Tensor, Tensor]
    scales: tuple[float, float, float]

    def attention(self, width: int) -> tuple[Any, ...]:
        """Arguments that both passes of attention take."""
        head_width = width // self.n_heads
        return self.lengths, len(self.lengths), self.n_heads, head_width, head_width**-0.5, self.bits[0], self.scales[0]

    def dropped(self, place: int) -> tuple[Tensor, float]:
        """Bits and scale of one dropout."""
        return self.bits[place], self.scales[place]

    def chosen(self, x: Tensor) -> Tensor:
        """The chosen rows of all rows; bf16 rows stay padded to a round number."""
        if self.rows is None:
            return x
        if x.dtype != torch.bfloat16:
            return x.index_select(0, self.rows)
        rounded = rounded_rows(self.rows, x.shape[1])
        torch.index_select(x, 0, self.rows, out=rounded[: len(self.rows)])
        return rounded

    def spread(self, x: Tensor, like: Tensor) -> Tensor:
        """Slopes of the chosen rows, as slopes of all rows of `like`."""
        if self.rows is None:
            return x
        return torch.zeros_like(like).index_add_(0, self.rows, x[: len(self.rows)])


class _AddNorm:
    """norm(x + drop(z + bias)), and what its slope needs."""

    def __init__(self, z: Tensor, bias: Tensor, drop: tuple[Tensor, float], x: Tensor, norm: tuple[Any, ...]) -> None:
        self.out, self.out16 = torch.empty_like(x), rounded_rows(x, x.shape[1])
        self.sums, self.statistics = torch.empty_like(x), x.new_empty(len(x), 2)
        call("add_norm", z, bias, *drop, x, *norm, *x.shape, self.sums, self.out, self.out16, self.statistics)


def _add_norm_slope(
    slope: Tensor, more: Tensor | None, sums: Tensor, gain: Tensor, statistics: Tensor, drop: tuple[Tensor, float]
) -> tuple[Tensor, Tensor, Tensor]:
    """Slopes of x, of z in bf16, and of bias, gain and shift as three rows. `more` bf16 is a second slope."""
    to_x, to_z, small = torch.empty_like(sums), rounded_rows(sums, sums.shape[1]), sums.new_zeros(3, sums.shape[1])
    call("add_norm_slope", slope, more, sums, gain, statistics, *drop, *sums.shape, to_x, to_z, *small)
    return to_x, to_z, small


class _Block(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, plan: _Plan, *parameters: Tensor) -> Tensor:
        fused, fused_bias, out, out_bias, up, up_bias, down, down_bias, gain1, shift1, gain2, shift2 = parameters
        fused16, out16, up16, down16 = (weight.bfloat16() for weight in (fused, out, up, down))
        x16 = rounded_rows(x, x.shape[1], fill=True)
        views = product16(x16, fused16.T)
        probabilities, attended = x.new_empty(plan.n_probabilities), rounded_rows(x, x.shape[1])
        sizes = plan.attention(x.shape[1])
        call("heads16", views, fused_bias, *sizes, plan.first, plan.reads, probabilities, attended)
        attended, x = plan.chosen(attended), plan.chosen(x)
        norm1, norm2 = (gain1, shift1, plan.epsilons[0]), (gain2, shift2, plan.epsilons[1])
        middle = _AddNorm(product16(attended, out16.T), out_bias, plan.dropped(1), x, norm1)
        inner, bent = product16(middle.out16, up16.T), rounded_rows(x, len(up))
        call("gelu16", inner, up_bias, len(x), len(up), bent)
        end = _AddNorm(product16(bent, down16.T), down_bias, plan.dropped(2), middle.out, norm2)
        ctx.save_for_backward(
            *(fused16, out16, up16, down16, fused_bias, up_bias, gain1, gain2),
            *(x16, views, probabilities, attended, middle.sums, middle.statistics, middle.out16),
            *(inner, bent, end.sums, end.statistics),
        )
        ctx.plan = plan
        return end.out

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        fused16, out16, up16, down16, fused_bias, up_bias, gain1, gain2, *saved = ctx.saved_tensors
        x16, views, probabilities, attended, sums1, statistics1, y16, inner, bent, sums2, statistics2 = saved
        plan, (n_out, width) = ctx.plan, sums1.shape
        n_rows = int(plan.lengths.sum())

        def to_weight(place: int, slope: Tensor, given: Tensor) -> Tensor | None:
            return product16(slope.T, given).float() if ctx.needs_input_grad[2 + place] else None

        slope = slopes[0].contiguous()
        to_y, to_z, small2 = _add_norm_slope(slope, None, sums2, gain2, statistics2, plan.dropped(2))
        to_down = to_weight(6, to_z, bent)
        to_inner, to_up_bias = product16(to_z, down16), sums1.new_zeros(len(up_bias))
        call("gelu16_slope", to_inner, inner, up_bias, n_out, len(up_bias), to_inner, to_up_bias)
        to_up, more = to_weight(4, to_inner, y16), product16(to_inner, up16)
        to_x, to_z, small1 = _add_norm_slope(to_y, more, sums1, gain1, statistics1, plan.dropped(1))
        to_out = to_weight(2, to_z, attended)
        to_attended = plan.spread(product16(to_z, out16), x16)
        to_views, to_fused_bias = rounded_rows(x16[:n_rows], 3 * width), sums1.new_zeros(3 * width)
        sizes = plan.attention(width)
        call("heads16_slope", to_attended, views, fused_bias, *sizes, probabilities, to_views, to_fused_bias)
        to_fused = to_weight(0, to_views, x16)
        to_given = None
        if ctx.needs_input_grad[0]:
            to_given = plan.spread(to_x, sums1.new_empty(n_rows, width))
            to_given += product16(to_views, fused16)[:n_rows]
        return (
            *(to_given, None, to_fused, to_fused_bias, to_out, small1[0], to_up, to_up_bias, to_down, small2[0]),
            *(small1[1], small1[2], small2[1], small2[2]),
        )
