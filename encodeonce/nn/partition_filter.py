"""The partition filter (Yan et al. 2021; spec A9): a recurrence that sorts what it reads by the task that needs it.

Of every piece it keeps what names entities, what tells relations, and what both share. With the gates e (entity) and r
(relation), each in [0, 1], of the cell's past and of its candidate, the paper cuts a memory v into three partitions,
shared e r v, relation r v - e r v, entity e v - e r v, and hands shared + relation to one task and shared + entity to
the other. Those sums are r v and e v, and so they are computed here.

The rows are read step by step over all items at once, longest item first, so that the items that go on are always the
first rows of a step: there is no padding, and nothing an item gets depends on the items beside it.

The 5 U gate inputs are the candidate, then e and r of the past, then e and r of the candidate.

Axes: R rows of all items, end to end   D width   U hidden width   B items of one step
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from .dropout import Dropout
from .linear import Linear

__all__ = ["Filtered", "PartitionFilter", "gates", "stepwise"]


class Filtered(NamedTuple):
    """What the recurrence keeps of every row for relations, for entities, and for both; each in (-1, 1)."""

    relation: Float[Tensor, "R U"]
    entity: Float[Tensor, "R U"]
    shared: Float[Tensor, "R U"]


class PartitionFilter(nn.Module):
    """x W_x + b_x + h W_h + b_h -> gates -> memory -> c W_t + b_t.

    `dropconnect` is the share of W_h that is cut, one mask for a whole forward pass; what is left is not scaled up, and
    all of W_h is scaled down in eval mode. Weights start as torch's Linear starts them. `compute` is the number type of
    the input product alone: the steps' own are too small to gain by bf16.
    """

    def __init__(self, width: int, hidden: int, dropconnect: float = 0.1, compute: str = "fp32") -> None:
        super().__init__()
        self.input = Linear(width, 5 * hidden, compute)
        self.past = nn.Linear(hidden, 5 * hidden)
        self.merge = nn.Linear(3 * hidden, hidden)
        self.dropconnect = Dropout(dropconnect)

    def forward(self, x: Float[Tensor, "R D"], lengths: tuple[int, ...]) -> Filtered:
        """`lengths[b]` neighbouring rows are item b's; the state starts at zero with every item."""
        order, back, sizes = stepwise(lengths)
        inputs = (self.input(x) + self.past.bias).index_select(0, order.to(x.device))
        past = self.dropconnect(self.past.weight) * (1 - self.dropconnect.rate)
        kept = _Recurrence.apply(inputs, past, self.merge.weight, self.merge.bias, sizes)
        return Filtered(*kept.index_select(0, back.to(x.device)).chunk(3, 1))


def gates(
    inputs: Float[Tensor, "B _"],
) -> tuple[Float[Tensor, "B U"], Float[Tensor, "B 2 2 U"], Float[Tensor, "B 2 2 U"]]:
    """Gate inputs -> candidate; softmaxes; gates, past then candidate, e then r of each.

    r is the running sum of a softmax, so it rises to 1 along the features, and e is 1 minus one, so it falls to 0.
    """
    width = inputs.shape[1] // 5
    soft = inputs[:, width:].unflatten(1, (2, 2, width)).softmax(-1)
    risen = soft.cumsum(-1)
    risen[:, :, 0] = 1 - risen[:, :, 0]
    return inputs[:, :width].tanh(), soft, risen


def stepwise(lengths: tuple[int, ...]) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """Int64 [R]: the rows in reading order; int64 [R]: the inverse; and how many items each step reads.

    Step t reads row t of every item that has one, longest item first.
    """
    counts = np.array(lengths, dtype=np.int64)
    rank = np.empty_like(counts)
    rank[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    step = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    order = np.lexsort((np.repeat(rank, counts), step))
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return torch.from_numpy(order), torch.from_numpy(back), tuple(np.bincount(step).tolist())


class _Recurrence(torch.autograd.Function):
    """The loop over steps, forward and back by hand: a third of the time of a graph of its operations.

    The gradient of each weight is one product over all rows at the end, not a sum over steps.
    """

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, past: Tensor, merge: Tensor, bias: Tensor, sizes: tuple[int, ...]
    ) -> Float[Tensor, "R _"]:
        width, n_rows = len(merge), len(inputs)
        soft, risen = inputs.new_empty(2, n_rows, 2, 2, width)
        memory = inputs.new_zeros(n_rows, 2, width)  # the cell's past, and its candidate
        parts, state, cell = (inputs.new_empty(n_rows, k * width) for k in (3, 1, 1))
        from_past, from_parts = past.T.contiguous(), merge.T.contiguous()
        start = before = 0
        for step, size in enumerate(sizes):
            at, earlier = slice(start, start + size), slice(before, before + size)
            into = inputs[at]
            if step:
                into = torch.addmm(into, state[earlier], from_past)
                memory[at, 0] = cell[earlier]
            memory[at, 1], soft[at], risen[at] = gates(into)
            _partition(risen[at], memory[at], parts[at])
            torch.addmm(bias, parts[at], from_parts, out=cell[at])
            torch.tanh(cell[at], out=state[at])
            start, before = start + size, start
        kept = parts.tanh()
        ctx.save_for_backward(soft, risen, memory, parts, state, kept, past, merge)
        ctx.sizes = sizes
        return kept

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        soft, risen, memory, parts, state, kept, past, merge = ctx.saved_tensors
        sizes, width = ctx.sizes, len(merge)
        to_parts = slopes[0] * (1 - kept * kept)
        to_inputs, to_merged = kept.new_empty(len(kept), 5 * width), kept.new_empty(len(kept), width)
        to_state, to_cell = kept.new_zeros(2, sizes[0], width)
        stop = len(kept)
        for size in reversed(sizes):
            at = slice(stop - size, stop)
            torch.addcmul(to_state[:size], to_state[:size] * state[at], state[at], value=-1, out=to_merged[at])
            to_merged[at] += to_cell[:size]
            to_parts[at].addmm_(to_merged[at], merge)
            to_memory = _slopes(soft[at], risen[at], memory[at], to_parts[at], to_inputs[at])
            if stop > sizes[0]:
                torch.mm(to_inputs[at], past, out=to_state[:size])
                to_cell[:size] = to_memory
            stop -= size
        earlier = kept.new_empty(0, width) if len(sizes) == 1 else state.index_select(0, _earlier(sizes, state.device))
        return to_inputs, to_inputs[sizes[0] :].T @ earlier, to_merged.T @ parts, to_merged.sum(0), None


def _partition(risen: Float[Tensor, "B 2 2 U"], memory: Float[Tensor, "B 2 U"], out: Float[Tensor, "B 3*U"]) -> None:
    """What relations, entities and both take from the cell's past and from its candidate."""
    width = memory.shape[-1]
    entity, relation = risen.unbind(2)
    told = relation * memory
    for k, taken in enumerate((told, entity * memory, entity * told)):
        torch.add(taken[:, 0], taken[:, 1], out=out[:, k * width : (k + 1) * width])


def _slopes(
    soft: Float[Tensor, "B 2 2 U"],
    risen: Float[Tensor, "B 2 2 U"],
    memory: Float[Tensor, "B 2 U"],
    to_parts: Float[Tensor, "B 3*U"],
    to_inputs: Float[Tensor, "B 5*U"],
) -> Float[Tensor, "B U"]:
    """Gradients of one step: fills that of the gate inputs, returns that of the cell's past."""
    width = memory.shape[-1]
    entity, relation = risen.unbind(2)
    to_relation, to_entity, to_shared = to_parts[:, None].split(width, -1)
    by_relation = torch.addcmul(to_relation, to_shared, entity)
    to_memory = torch.addcmul(relation * by_relation, entity, to_entity)
    to_risen = torch.empty_like(risen)
    torch.mul(torch.addcmul(to_entity, to_shared, relation), memory, out=to_risen[:, :, 0]).neg_()
    torch.mul(by_relation, memory, out=to_risen[:, :, 1])
    sums = to_risen.cumsum(-1)
    to_soft = to_risen.sub_(sums).add_(sums[..., -1:])  # a running sum from the end
    to_soft.sub_((soft * to_soft).sum(-1, keepdim=True))
    torch.mul(soft, to_soft, out=to_inputs[:, width:].unflatten(1, (2, 2, width)))
    candidate = memory[:, 1]
    torch.mul(to_memory[:, 1], 1 - candidate * candidate, out=to_inputs[:, :width])
    return to_memory[:, 0]


def _earlier(sizes: tuple[int, ...], device: torch.device) -> Tensor:
    """Int64: for every row of the second and later steps, the row of its item one step before."""
    starts = np.cumsum((0, *sizes[:-1]))
    rows = [np.arange(start, start + size) for start, size in zip(starts, sizes[1:], strict=False)]
    return torch.from_numpy(np.concatenate(rows)).to(device)
