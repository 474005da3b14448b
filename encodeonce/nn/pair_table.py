"""A score for pairs of words: one word's vector, the other's, and one of their whole item (spec A9).

y[i, j] = W' ELU(Dropout(LN(W [x_i; x_j; g] + b))) + b', where g is the maximum over the item's rows of
tanh(W_g [s; x] + b_g). As W [x_i; x_j; g] is a sum of three products, only the sum is made for every pair, and never
for all pairs at once: a rectangle of the table at a time is made, read and forgotten, and made again on the way back.

Axes: R rows of all items, end to end   W words of all items   B items   U width   N cells   C outputs
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import elu_, linear

from . import pair_kernel
from .dropout import Dropout
from .linear import Linear

__all__ = ["Cells", "PairTable"]

AT_ONCE = 512
"""Cells of a rectangle: what is made for them (600 kB at U = 300) stays in a core's own cache."""


class Block(NamedTuple):
    """A rectangle of the table: words from ... to - 1 as rows and as columns."""

    row: int
    row_end: int
    column: int
    column_end: int

    @property
    def rows(self) -> slice:
        return slice(self.row, self.row_end)

    @property
    def columns(self) -> slice:
        return slice(self.column, self.column_end)

    @property
    def size(self) -> int:
        return (self.row_end - self.row) * (self.column_end - self.column)


@dataclass(frozen=True)
class Cells:
    """Which pairs of words are scored: all of an item, or those no more than `longest` - 1 words apart, in order.

    Words count through the whole batch. Cell `start[i] + j` holds the pair of row word i and column word j.
    """

    blocks: tuple[Block, ...]
    row: Int[np.ndarray, " N"]
    column: Int[np.ndarray, " N"]
    start: Int[np.ndarray, " W"]
    longest: int | None

    @classmethod
    def of(cls, counts: Sequence[int], longest: int | None = None) -> "Cells":
        """For items of `counts[b]` words each."""
        blocks = tuple(block for block in _blocks(counts, longest))
        grids = [np.mgrid[b.row : b.row_end, b.column : b.column_end].reshape(2, -1) for b in blocks]
        row, column = np.concatenate([np.empty((2, 0), np.int64), *grids], axis=1)
        start = np.full(sum(counts), -1, dtype=np.int64)
        first = np.flatnonzero(np.diff(row, prepend=-1))
        start[row[first]] = first - column[first]
        return cls(blocks, row, column, start, longest)

    def at(self, row: Int[np.ndarray, " K"], column: Int[np.ndarray, " K"]) -> Int[np.ndarray, " K"]:
        """The cells of pairs of words of one item each; -1 for a pair outside the band."""
        apart = column - row
        held = np.ones(len(apart), dtype=bool) if self.longest is None else (apart >= 0) & (apart < self.longest)
        return np.where(held, self.start[row] + column, -1)

    @property
    def inside(self) -> Bool[np.ndarray, " N"]:
        """Which cells count: a rectangle may reach over the edge of the band of pairs that do."""
        apart = self.column - self.row
        return np.ones(len(apart), dtype=bool) if self.longest is None else (apart >= 0) & (apart < self.longest)


def _blocks(counts: Sequence[int], longest: int | None) -> list[Block]:
    blocks, first = [], 0
    for count in counts:
        rows = max(1, AT_ONCE // max(1, count)) if longest is None else max(1, min(8, AT_ONCE // max(1, count)))
        for row in range(first, first + count, rows):
            row_end = min(first + count, row + rows)
            if longest is None:
                blocks.append(Block(row, row_end, first, first + count))
            else:
                blocks.append(Block(row, row_end, row, min(first + count, row_end - 1 + longest)))
        first += count
    return blocks


class PairTable(nn.Module):
    """`n_outputs` logits a cell from vectors of `width`. Weights start as torch's Linear and LayerNorm start them.

    But for b': it starts so that every cell has about the probability `prior` (Lin et al. 2017, section 3.3).
    """

    def __init__(
        self, width: int, n_outputs: int, dropout: float = 0.1, compute: str = "fp32", prior: float = 0.5
    ) -> None:
        super().__init__()
        self.whole = Linear(2 * width, width, compute)
        self.pair = nn.Linear(3 * width, width)
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, n_outputs)
        self.dropout = Dropout(dropout)
        nn.init.constant_(self.out.bias, math.log(prior / (1 - prior)))

    def forward(
        self,
        own: Float[Tensor, "R U"],
        shared: Float[Tensor, "R U"],
        lengths: tuple[int, ...],
        words: Int[Tensor, " W"],
        counts: tuple[int, ...],
        cells: Cells,
    ) -> Float[Tensor, "N C"]:
        """Scores of `cells`. Item b has `lengths[b]` rows and `counts[b]` words; row `words[w]` is word w's vector."""
        pooled = torch.tanh(self.whole(torch.cat([shared, own], 1)))
        # rows of other items and padding cannot take part: each item's own rows are all there is to look at
        most = torch.cat([pooled[:0], *(item.amax(0, keepdim=True) for item in pooled.split(list(lengths)))])
        of_row, of_column, of_whole = self.pair.weight.chunk(3, 1)
        vectors = own.index_select(0, words)
        item = torch.repeat_interleave(torch.tensor(counts, dtype=torch.int64, device=own.device))
        left = linear(vectors, of_row) + linear(most, of_whole, self.pair.bias).index_select(0, item)
        right = linear(vectors, of_column)
        masks = [self.dropout.factors(block.size, own.shape[1]) for block in cells.blocks]
        norm, out = self.norm, self.out
        scores: Tensor = _Scores.apply(
            left, right, norm.weight, norm.bias, out.weight, out.bias, norm.eps, cells.blocks, masks
        )
        return scores


class _Scores(torch.autograd.Function):
    """W' ELU(mask * LN(left_i + right_j)) + b' for every cell of every block."""

    @staticmethod
    def forward(
        ctx: Any,
        left: Tensor,
        right: Tensor,
        gain: Tensor,
        shift: Tensor,
        weight: Tensor,
        bias: Tensor,
        eps: float,
        blocks: tuple[Block, ...],
        masks: list[Tensor | None],
    ) -> Float[Tensor, "N C"]:
        left, right = left.contiguous(), right.contiguous()
        ctx.save_for_backward(left, right, gain, shift, weight)
        ctx.blocks, ctx.masks, ctx.eps = blocks, masks, eps
        ways = _Compiled if pair_kernel.usable(left, right, gain, shift) else _Tensors
        scores = left.new_empty(sum(block.size for block in blocks), len(weight))
        at = 0
        for block, mask in zip(blocks, masks, strict=True):
            bent = ways(left, right, gain, shift, mask, eps, block).out
            torch.addmm(bias, bent, weight.T, out=scores[at : at + block.size])
            at += block.size
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        left, right, gain, shift, weight = ctx.saved_tensors
        ways = _Compiled if pair_kernel.usable(left, right, gain, shift) else _Tensors
        *into, to_weight = map(torch.zeros_like, ctx.saved_tensors)
        at = 0
        for block, mask in zip(ctx.blocks, ctx.masks, strict=True):
            slope = slopes[0][at : at + block.size]
            at += block.size
            made = ways(left, right, gain, shift, mask, ctx.eps, block)
            to_weight.addmm_(slope.T, made.out)
            made.slopes(slope @ weight, into[0][block.rows], into[1][block.columns], into[2], into[3])
        return *into, to_weight, slopes[0].sum(0), None, None, None


class _Compiled:
    """ELU(mask * LN(left_i + right_j)) of one block as `out`, and the way back."""

    def __init__(
        self,
        left: Float[Tensor, "W U"],
        right: Float[Tensor, "W U"],
        gain: Float[Tensor, " U"],
        shift: Float[Tensor, " U"],
        mask: Float[Tensor, "N U"] | None,
        eps: float,
        block: Block,
    ) -> None:
        self.given = left[block.rows], right[block.columns], gain, mask
        self.made = pair_kernel.features(left[block.rows], right[block.columns], gain, shift, mask, eps)
        self.out = self.made[0]

    def slopes(self, slope: Tensor, *into: Tensor) -> None:
        """Adds to the gradients of left, right, gain and shift; `slope` is spoilt."""
        pair_kernel.slopes(slope, *self.given, self.made, into)  # type: ignore[arg-type]


class _Tensors:
    """The same by tensor operations, for any type and device."""

    def __init__(
        self,
        left: Float[Tensor, "W U"],
        right: Float[Tensor, "W U"],
        gain: Float[Tensor, " U"],
        shift: Float[Tensor, " U"],
        mask: Float[Tensor, "N U"] | None,
        eps: float,
        block: Block,
    ) -> None:
        self.gain, self.shift = gain, shift
        self.mask = None if mask is None else mask.to(left)
        self.summed = (left[block.rows, None] + right[block.columns]).flatten(0, 1)
        self.out, *self.statistics = torch.native_layer_norm(self.summed, left.shape[1:], gain, shift, eps)
        if self.mask is not None:
            self.out *= self.mask
        elu_(self.out)

    def slopes(self, slope: Tensor, *into: Tensor) -> None:
        """Adds to the gradients of left, right, gain and shift."""
        slope = torch.ops.aten.elu_backward(slope, 1.0, 1.0, 1.0, True, self.out)
        if self.mask is not None:
            slope *= self.mask
        shape, parameters = slope.shape[1:], (self.gain, self.shift, [True, True, True])
        found = torch.ops.aten.native_layer_norm_backward(slope, self.summed, shape, *self.statistics, *parameters)
        to_summed = found[0].unflatten(0, (len(into[0]), len(into[1])))
        for gradient, part in zip(into, (to_summed.sum(1), to_summed.sum(0), *found[1:]), strict=True):
            gradient += part
