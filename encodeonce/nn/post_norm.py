"""A post-norm transformer block (Vaswani et al. 2017; Devlin et al. 2019) over packed rows, for training on a CPU.

Matrix products take bf16 operands; what stands between two of them is one compiled pass. Sums, norms, softmax, weights
and gradients are fp32. Nothing is padded: rows of all items go through the products together, and attention stays
inside the items.

Axes: P rows of all items   B items   R chosen rows   D width
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from .barrier import Barrier
from .dropout import Dropout
from .linear import product16, rounded_rows
from .step_kernel import LANES, call, plain, usable

__all__ = ["Line", "PostNorm", "Shift"]

Line = tuple[Float[Tensor, "_ _"], Float[Tensor, " _"]]
"""Weight [O, I] and bias [O] of a linear map from width I to width O."""

Slopes = tuple[Tensor | None, ...]


@dataclass(frozen=True)
class Shift:
    """What is added to what linear maps of a block give: a vector an item, at one row of each or at all of them.

    `slots` "query", "key", "value" and "down" -> fp32 [B D]. `rows` are numbers among all P; None: every row.
    """

    slots: Mapping[str, Float[Tensor, "B D"]]
    rows: Int[Tensor, " B"] | None = None


@dataclass(frozen=True)
class PostNorm:
    """What one block computes with; `drop` come after the softmax, after attention and after feed-forward.

    norm2(y + drop(down(gelu(up(y))))) with y = norm1(x + drop(out(attend(query(x), key(x), value(x))))). `feed` is up
    and down; without it there is no feed-forward: norm2(y).
    """

    query: Line
    key: Line
    value: Line
    out: Line
    feed: tuple[Line, Line] | None
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
        shift: Shift | None = None,
    ) -> Float[Tensor, "R D"]:
        """The chosen rows after the block (all where `rows` is None), fp32; others are only keys and values."""
        given = {} if shift is None else shift.slots
        if rows is not None and "down" in given:  # by their numbers among all rows
            return self(x, lengths, None, barrier, shift).index_select(0, rows)
        n_out, width = len(x) if rows is None else len(rows), x.shape[1]
        keys = sum(n * (-(-n // LANES) * LANES) for n in lengths)
        sizes = (self.n_heads * keys,), (n_out, width), (n_out, width)
        drops = self.drop if self.feed is not None else self.drop[:2]
        plan = _Plan(
            lengths=torch.tensor(lengths),
            rows=rows,
            first=None if barrier is None else torch.tensor(barrier.first),
            reads=0 if barrier is None else barrier.first_reads + 2 * barrier.second_reads,
            n_heads=self.n_heads,
            n_probabilities=self.n_heads * keys,
            epsilons=(self.norms[0].eps, self.norms[1].eps),
            bits=tuple(drop.kept(*size) for drop, size in zip(drops, sizes, strict=False)),
            scales=tuple(drop.scale for drop in drops),
            shifted=None if shift is None else shift.rows,
        )
        at_views, at_down = [given.get(slot) for slot in ("query", "key", "value")], given.get("down")
        projections = self.query, self.key, self.value
        fused = torch.cat([weight for weight, _ in projections]), torch.cat([bias for _, bias in projections])
        first, second = ((norm.weight, norm.bias) for norm in self.norms)
        if self.feed is None:
            assert at_down is None, "there is no such map"
            attended: Tensor = _Attention.apply(plain(x), plan, *fused, *self.out, *first, *at_views)
            return self.norms[1](attended)
        up, down = self.feed
        return _Block.apply(plain(x), plan, *fused, *self.out, *first, *up, *down, *second, *at_views, at_down)


@dataclass(frozen=True)
class _Plan:
    """What is no parameter. `bits` and `scales` are those of the dropouts, `first` and `reads` heads16's, `shifted` the
    rows of a shift."""

    lengths: Tensor
    rows: Tensor | None
    first: Tensor | None
    reads: int
    n_heads: int
    n_probabilities: int
    epsilons: tuple[float, float]
    bits: tuple[Tensor, ...]
    scales: tuple[float, ...]
    shifted: Tensor | None

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

    @property
    def items(self) -> Tensor:
        """The item of each row."""
        return torch.repeat_interleave(self.lengths)

    def shift(self, y: Tensor, by: Tensor | None) -> None:
        """Add a vector an item to its row of y, bf16, or to all of its rows."""
        if by is None:
            return
        if self.shifted is None:
            y[: len(self.items)] += by.index_select(0, self.items)
        else:
            y[self.shifted] = (y[self.shifted] + by).to(y.dtype)

    def shift_slope(self, slope: Tensor) -> Tensor:
        """Slope of that vector, of y's."""
        if self.shifted is not None:
            return slope[self.shifted].float()
        items, sums = self.items, torch.zeros(len(self.lengths), slope.shape[1])
        return sums.index_add_(0, items, slope[: len(items)].float())


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


class _Attended:
    """norm1(x + drop(out(attend(...)))) of the chosen rows, and what its slopes need."""

    def __init__(self, x: Tensor, plan: _Plan, parameters: Sequence[Tensor], shifts: Sequence[Tensor | None]) -> None:
        fused, fused_bias, out, out_bias, gain, shift = parameters
        fused16, out16 = fused.bfloat16(), out.bfloat16()
        x16 = rounded_rows(x, x.shape[1], fill=True)
        views = product16(x16, fused16.T)
        for third, by in zip(views.chunk(3, 1), shifts, strict=True):
            plan.shift(third, by)
        probabilities, attended = x.new_empty(plan.n_probabilities), rounded_rows(x, x.shape[1])
        sizes = plan.attention(x.shape[1])
        call("heads16", views, fused_bias, *sizes, plan.first, plan.reads, probabilities, attended)
        attended, x = plan.chosen(attended), plan.chosen(x)
        norm = gain, shift, plan.epsilons[0]
        self.made = _AddNorm(product16(attended, out16.T), out_bias, plan.dropped(1), x, norm)
        of_attention = x16, views, probabilities, attended
        self.saved = fused16, out16, fused_bias, gain, *of_attention, self.made.sums, self.made.statistics


def _attended_slopes(
    ctx: Any, slope: Tensor, more: Tensor | None, saved: Sequence[Tensor], first_shift: int
) -> tuple[Slopes, Slopes]:
    """Slopes of x and of the parameters that `_Attended` is given, and of its shifts, which are arguments from number
    `first_shift` on. `more` bf16 is a second slope of its outcome."""
    fused16, out16, fused_bias, gain, x16, views, probabilities, attended, sums, statistics = saved
    plan, width = ctx.plan, sums.shape[1]
    n_rows = int(plan.lengths.sum())
    to_x, to_z, small = _add_norm_slope(slope, more, sums, gain, statistics, plan.dropped(1))
    to_out = _to_weight(ctx, 2, to_z, attended)
    to_attended = plan.spread(product16(to_z, out16), x16)
    to_views, to_fused_bias = rounded_rows(x16[:n_rows], 3 * width), sums.new_zeros(3 * width)
    call(
        "heads16_slope", to_attended, views, fused_bias, *plan.attention(width), probabilities, to_views, to_fused_bias
    )
    to_fused = _to_weight(ctx, 0, to_views, x16)
    to_given = None
    if ctx.needs_input_grad[0]:
        to_given = plan.spread(to_x, sums.new_empty(n_rows, width))
        to_given += product16(to_views, fused16)[:n_rows]
    to_shifts = [_to_shift(ctx, first_shift + n, third) for n, third in enumerate(to_views.chunk(3, 1))]
    return (to_given, None, to_fused, to_fused_bias, to_out, *small), tuple(to_shifts)


def _to_shift(ctx: Any, place: int, slope: Tensor) -> Tensor | None:
    """Slope of the shift that is argument number `place`, where there is one and it is trained."""
    plan: _Plan = ctx.plan
    return plan.shift_slope(slope) if ctx.needs_input_grad[place] else None


def _to_weight(ctx: Any, place: int, slope: Tensor, given: Tensor) -> Tensor | None:
    """Slope of the weight that is parameter number `place`, where it is trained."""
    return product16(slope.T, given).float() if ctx.needs_input_grad[2 + place] else None


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, plan: _Plan, *given: Any) -> Tensor:
        attended = _Attended(x, plan, given[:6], given[6:])
        ctx.save_for_backward(*attended.saved)
        ctx.plan = plan
        return attended.made.out

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Slopes:
        below, to_shifts = _attended_slopes(ctx, slopes[0].contiguous(), None, ctx.saved_tensors, 8)
        return *below, *to_shifts


class _Block(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, plan: _Plan, *given: Any) -> Tensor:
        up, up_bias, down, down_bias, gain, shift, *at_views, at_down = given[6:]
        attended = _Attended(x, plan, given[:6], at_views)
        up16, down16, middle = up.bfloat16(), down.bfloat16(), attended.made
        inner, bent = product16(middle.out16, up16.T), rounded_rows(middle.out, len(up))
        call("gelu16", inner, up_bias, len(middle.out), len(up), bent)
        norm, fed = (gain, shift, plan.epsilons[1]), product16(bent, down16.T)
        plan.shift(fed, at_down)
        end = _AddNorm(fed, down_bias, plan.dropped(2), middle.out, norm)
        own = up16, down16, up_bias, gain, middle.out16, inner, bent, end.sums, end.statistics
        ctx.save_for_backward(*attended.saved, *own)
        ctx.plan = plan
        return end.out

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Slopes:
        *saved, up16, down16, up_bias, gain, y16, inner, bent, sums, statistics = ctx.saved_tensors
        to_y, to_z, small = _add_norm_slope(slopes[0].contiguous(), None, sums, gain, statistics, ctx.plan.dropped(2))
        to_down = _to_weight(ctx, 8, to_z, bent)
        to_inner, to_up_bias = product16(to_z, down16), sums.new_zeros(len(up_bias))
        call("gelu16_slope", to_inner, inner, up_bias, len(sums), len(up_bias), to_inner, to_up_bias)
        to_up, more = _to_weight(ctx, 6, to_inner, y16), product16(to_inner, up16)
        below, to_shifts = _attended_slopes(ctx, to_y, more, saved, 14)
        return *below, to_up, to_up_bias, to_down, *small, *to_shifts, _to_shift(ctx, 17, to_z)
