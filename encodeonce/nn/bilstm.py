"""Bidirectional LSTM over packed rows, with dropout whose masks are the same at every step (spec A8).

Both directions are read step by step over all items at once, longest item first, one from the items' first rows and one
from their last: the items that go on are always the first rows of a step, so there is no padding. The loop runs forward
and back by hand: what does not depend on the step before (input products, gradients of weights) is one product over all
rows, and products may be bf16. On a CPU that is several times faster than `nn.LSTM` over a packed sequence.

Gates lie in torch's order: input, forget, candidate, output.

Axes: R rows of all items, end to end   I input width   H hidden width   B items of one step   directions first
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..errors import ConfigError
from .linear import COMPUTE, product16, rounded_rows
from .partition_filter import stepwise
from .shared_dropout import SharedDropout

__all__ = ["BiLSTM"]

STEP_ROWS = 16
"""bf16 products of a step are made for multiples of so many rows: a product of a new shape costs milliseconds."""


@dataclass(frozen=True, eq=False)
class _Reading:
    """`order[d]` are the rows in the order in which direction d reads them, `back[d]` the inverse, `sizes` the items of
    each step, `rank` the item that each place of a step holds."""

    order: Int[Tensor, "2 R"]
    back: Int[Tensor, "2 R"]
    sizes: tuple[int, ...]
    rank: Int[Tensor, " B"]

    @classmethod
    def of(cls, lengths: tuple[int, ...], device: torch.device) -> "_Reading":
        counts = np.array(lengths, dtype=np.int64)
        starts = np.cumsum(counts) - counts
        order, back, sizes = stepwise(lengths)
        mirrored = torch.from_numpy(np.repeat(2 * starts + counts - 1, counts) - np.arange(counts.sum()))
        orders, backs = torch.stack([order, mirrored[order]]), torch.stack([back, back[mirrored]])
        rank = torch.from_numpy(np.argsort(-counts, kind="stable"))
        return cls(orders.to(device), backs.to(device), sizes, rank.to(device))


class BiLSTM(nn.Module):
    """`n_layers` layers of `hidden` features a direction; 0 layers pass their input on.

    Weights start orthogonal (each gate's block and direction by itself), biases at zero. `dropout` is the rate on the
    state that goes from step to step and on what goes from layer to layer, the same mask at every step; what comes out
    is not dropped. `compute` is the number type of the products. ConfigError for settings out of range.
    """

    def __init__(self, width: int, hidden: int, n_layers: int = 1, dropout: float = 0.0, compute: str = "fp32") -> None:
        super().__init__()
        if n_layers < 0 or hidden < 1:
            raise ConfigError(f"n_lstm_layers={n_layers} must be 0 or more, lstm_width={hidden} at least 1.")
        if compute not in COMPUTE:
            raise ConfigError(f"compute={compute!r} is unknown. There is: {', '.join(COMPUTE)}.")
        self.compute = compute
        widths = [width if layer == 0 else 2 * hidden for layer in range(n_layers)]
        self.inputs = nn.ParameterList(_orthogonal(hidden, each) for each in widths)
        self.past = nn.ParameterList(_orthogonal(hidden, hidden) for _ in widths)
        self.bias = nn.ParameterList(torch.zeros(2, 4 * hidden) for _ in widths)
        self.between = SharedDropout(dropout)
        self.width = 2 * hidden if n_layers else width

    def forward(self, x: Float[Tensor, "R I"], lengths: tuple[int, ...]) -> Float[Tensor, "R O"]:
        """`lengths[b]` neighbouring rows are item b's; both directions begin with a state of zeros."""
        if not len(x):
            return x.new_zeros(0, self.width)
        reading = _Reading.of(lengths, x.device)
        product = torch.bfloat16 if self.compute == "bf16" else x.dtype
        for layer, weights in enumerate(zip(self.inputs, self.past, self.bias, strict=True)):
            if layer:
                x = self.between(x, lengths)
            factors = self.between.factors(2, len(lengths), weights[1].shape[2])
            kept = None if factors is None else factors.to(x).index_select(1, reading.rank)
            x = _Layer.apply(x, *weights, kept, reading, product)
        return x


def _orthogonal(hidden: int, width: int) -> nn.Parameter:
    weight = torch.empty(2, 4, hidden, width)
    for block in weight.flatten(0, 1):
        nn.init.orthogonal_(block)
    return nn.Parameter(weight.flatten(1, 2))


class _Layer(torch.autograd.Function):
    """One layer, both directions. `kept` [2, B, H] are the factors on the state, items in order of length."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        past: Tensor,
        bias: Tensor,
        kept: Tensor | None,
        reading: _Reading,
        product: torch.dtype,
    ) -> Float[Tensor, "R O"]:
        n_rows, hidden, sizes = len(x), past.shape[2], reading.sizes
        read = [_rows(x, order, product) for order in reading.order]
        weights, pasts = weight.to(product), past.to(product)
        gates = x.new_empty(2, n_rows, 4 * hidden)
        for d in (0, 1):
            torch.add(product16(read[d], weights[d].T)[:n_rows], bias[d], out=gates[d])
        cells, out = x.new_empty(2, 2, n_rows, hidden)
        entering = x.new_empty(2, n_rows, hidden, dtype=product)
        state = x.new_zeros(2, _rounded(sizes[0], product), hidden, dtype=product)
        start = before = 0
        for step, size in enumerate(sizes):
            at, earlier = slice(start, start + size), slice(before, before + size)
            now = gates[:, at]
            if step:
                entering[:, at] = state[:, :size]
                for d in (0, 1):
                    now[d] += product16(state[d, : _rounded(size, product)], pasts[d].T)[:size]
            taken, held, candidate, given = _activated(now)
            torch.mul(taken, candidate, out=cells[:, at])
            if step:
                cells[:, at].addcmul_(held, cells[:, earlier])
            torch.mul(given, cells[:, at].tanh(), out=out[:, at])
            state[:, :size] = out[:, at] if kept is None else out[:, at] * kept[:, :size]
            start, before = start + size, start
        ctx.save_for_backward(*read, weights, pasts, gates, cells, entering, kept)
        ctx.reading, ctx.product = reading, product
        return torch.cat([out[d].index_select(0, reading.back[d]) for d in (0, 1)], 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        *read, weights, pasts, gates, cells, entering, kept = ctx.saved_tensors
        reading, product, n_rows, hidden = ctx.reading, ctx.product, gates.shape[1], cells.shape[2]
        sizes, first = reading.sizes, reading.sizes[0]
        halves = zip(slopes[0].chunk(2, 1), reading.order, strict=True)
        to_out = torch.stack([half.index_select(0, order) for half, order in halves])
        n_more = len(read[0]) - n_rows + STEP_ROWS  # steps read on to a multiple of rows
        to_gates = gates.new_empty(2, n_rows + n_more, 4 * hidden, dtype=product)
        to_gates[:, n_rows:] = 0
        to_cell = gates.new_zeros(2, first, hidden)
        stop = n_rows
        for step in range(len(sizes) - 1, -1, -1):
            size, start = sizes[step], stop - sizes[step]
            at = slice(start, stop)
            earlier = cells[:, start - sizes[step - 1] :][:, :size] if step else None
            _slopes(gates[:, at], cells[:, at], earlier, to_out[:, at], to_cell[:, :size], to_gates[:, at])
            if step:
                n, above = _rounded(size, product), to_out[:, start - sizes[step - 1] :][:, :size]
                for d in (0, 1):
                    to_state = product16(to_gates[d, start : start + n], pasts[d])[:size]
                    above[d].add_(to_state) if kept is None else above[d].addcmul_(to_state, kept[d, :size])
            stop = start
        own = to_gates[:, : len(read[0])]
        to_weight = torch.stack([product16(own[d].T, read[d]) for d in (0, 1)]).to(cells)
        to_past = torch.stack([product16(to_gates[d, first:n_rows].T, entering[d, first:]) for d in (0, 1)]).to(cells)
        to_bias = to_gates[:, :n_rows].sum(1, dtype=cells.dtype)
        to_x = None
        if ctx.needs_input_grad[0]:
            to_read = [product16(own[d], weights[d])[:n_rows] for d in (0, 1)]
            forth, back = (each.index_select(0, o).to(cells) for each, o in zip(to_read, reading.back, strict=True))
            to_x = forth + back
        return to_x, to_weight, to_past, to_bias, None, None, None


def _activated(gates: Float[Tensor, "2 B _"]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The four gates, activated in place."""
    taken, held, candidate, given = gates.chunk(4, 2)
    gates[..., : 2 * taken.shape[2]].sigmoid_()
    return taken, held, candidate.tanh_(), given.sigmoid_()


def _slopes(
    gates: Float[Tensor, "2 B _"],
    cell: Float[Tensor, "2 B H"],
    earlier: Float[Tensor, "2 B H"] | None,
    to_out: Float[Tensor, "2 B H"],
    to_cell: Float[Tensor, "2 B H"],
    to_gates: Tensor,
) -> None:
    """Gradients of one step: fills `to_gates`, turns `to_cell` into that of the cell one step earlier."""
    taken, held, candidate, given = gates.chunk(4, 2)
    to_taken, to_held, to_candidate, to_given = to_gates.chunk(4, 2)
    bent = cell.tanh()
    to_given.copy_(to_out * bent * given * (1 - given))
    to_cell += to_out * given * (1 - bent * bent)
    to_taken.copy_(to_cell * candidate * taken * (1 - taken))
    to_candidate.copy_(to_cell * taken * (1 - candidate * candidate))
    if earlier is None:
        to_held.zero_()
    else:
        to_held.copy_(to_cell * earlier * held * (1 - held))
    to_cell *= held


def _rounded(size: int, product: torch.dtype) -> int:
    return -(-size // STEP_ROWS) * STEP_ROWS if product == torch.bfloat16 else size


def _rows(x: Float[Tensor, "R I"], order: Int[Tensor, " R"], product: torch.dtype) -> Tensor:
    """The rows in this order, rounded to the product's type and filled up to a number of rows it is quick with."""
    if product != torch.bfloat16:
        return x.index_select(0, order)
    rows = rounded_rows(x, x.shape[1])
    torch.index_select(x.to(product), 0, order, out=rows[: len(x)])
    return rows
