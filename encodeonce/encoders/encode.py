"""Pieces -> stored views: the batches in which a corpus goes through a frozen stack.

Windows are sorted by length and batched by a budget of pieces, so that there is little or no padding; the order depends
on the list alone. An item's vectors do not depend on what shares its batch.

Axes: B windows of a batch   T pieces of one window   L chosen views   P rows of all items of a batch   N rows of one
item   D width
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import EncoderError
from ..types import Pieces
from .stack import Stack

__all__ = ["batches", "encode", "encode_together"]


TOGETHER = 1024
"""Pieces whose views are handed over together: enough that what is done once a batch does not count."""


@dataclass(frozen=True, slots=True)
class Job:
    """One window of one item: rows `start:stop` with special pieces around them, `keep_start:keep_stop` to keep."""

    item: int
    ids: np.ndarray
    start: int
    keep_start: int
    keep_stop: int
    segments: np.ndarray | None = None


def jobs_of(item: int, pieces: Pieces) -> list[Job]:
    """The windows of an item with the ids that the model is shown; `start` is the row of the first id."""
    if len(pieces.windows) == 1:
        return [Job(item, pieces.ids, 0, 0, len(pieces), pieces.segments)]
    before, after = pieces.windows[0][0], pieces.windows[-1][1]
    head, tail = pieces.ids[:before], pieces.ids[after:]
    return [
        Job(item, np.concatenate([head, pieces.ids[start:stop], tail]), start - before, keep_start, keep_stop)
        for start, stop, keep_start, keep_stop in pieces.windows
    ]


def batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Indices of windows, longest first, in batches of at most `budget` pieces, padding included (or one window).

    Equal lengths stay together where they fill half a batch; shorter windows join only while a twentieth at most of the
    batch is padding.
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    batch: list[int] = []
    pieces = 0
    for index in order:
        length = lengths[index]
        if batch:
            longest = lengths[batch[0]]
            padded = longest * (len(batch) + 1)
            full = pieces * 2 >= budget and length < lengths[batch[-1]]
            if padded > budget or full or (padded - pieces - length) * 20 > padded:
                yield batch
                batch, pieces = [], 0
        batch.append(index)
        pieces += length
    if batch:
        yield batch


def encode(
    stack: Stack,
    pieces: Sequence[Pieces],
    layers: Sequence[int],
    *,
    budget: int,
    padding: int = 0,
    half: bool = False,
    first_position: int = 0,
    segment: int = 0,
) -> Iterator[tuple[int, np.ndarray]]:
    """Yields `(i, views)` for every item once, views fp32 [L, T, D] of `pieces[i]`, in the order items get finished.

    `padding` is the id that fills short rows. `half` lets a GPU multiply in bf16 (on a CPU the stack itself does).
    Positions count from `first_position`, and pieces of single texts belong to `segment`.

    Raises EncoderError naming item and block where the model itself gives inf or NaN.
    """
    run = _Run(stack, pieces, layers, padding, half, first_position, segment)
    for chosen in run.plan(budget):
        stacked = torch.stack([view.float() for view in run.views(chosen)], dim=1).cpu().numpy()
        for row, job in enumerate(chosen):
            if run.is_whole(job):
                yield job.item, stacked[row, :, : len(job.ids)]
            elif (found := run.joined(job, stacked[row])) is not None:
                yield job.item, found


def encode_together(
    stack: Stack,
    pieces: Sequence[Pieces],
    layers: Sequence[int],
    *,
    budget: int,
    padding: int = 0,
    half: bool = False,
    first_position: int = 0,
    segment: int = 0,
    rounded: torch.dtype = torch.float32,
) -> Iterator[tuple[list[int], Float[Tensor, "L P D"]]]:
    """As `encode`, some batches at a time: yields their items, and their views end to end, fp32.

    Values are `rounded` to that type and back. The memory is used again for what follows.
    """
    run = _Run(stack, pieces, layers, padding, half, first_position, segment)
    memory = torch.empty(0)
    for group in run.groups(budget):
        whole = [[row for row, job in enumerate(chosen) if run.is_whole(job)] for chosen in group]
        sizes = [sum(len(chosen[row].ids) for row in own) for chosen, own in zip(group, whole, strict=True)]
        shape = len(layers), sum(sizes), stack.width
        if memory.numel() < prod(shape):
            memory = torch.empty(prod(shape))
        out = memory[: prod(shape)].view(shape)
        finished = []
        for chosen, own, to in zip(group, whole, out.split(sizes, dim=1), strict=True):
            views = run.views(chosen)
            _copy(views, [(row, len(chosen[row].ids)) for row in own], to, rounded)
            for row in sorted(set(range(len(chosen))) - set(own)):
                found = run.joined(chosen[row], torch.stack([view[row].float() for view in views]).cpu().numpy())
                finished += [] if found is None else [(chosen[row].item, torch.from_numpy(found))]
            del views  # not kept beside those of the next batch
        if shape[1]:
            yield [chosen[row].item for chosen, own in zip(group, whole, strict=True) for row in own], out
        for item, states in finished:
            yield [item], states.to(rounded).float()


def _copy(
    views: list[Float[Tensor, "B T D"]],
    rows: Sequence[tuple[int, int]],
    to: Float[Tensor, "L P D"],
    rounded: torch.dtype,
) -> None:
    """Of each of `rows`, (row, length), the views end to end."""
    n_items, longest, _ = views[0].shape
    chosen = None
    if to.shape[1] < n_items * longest:
        real = [np.arange(length) + row * longest for row, length in rows]
        chosen = torch.from_numpy(np.concatenate([np.empty(0, np.int64), *real])).to(views[0].device)
    for own, view in zip(to, views, strict=True):
        flat = view.flatten(0, 1)
        own.copy_((flat if chosen is None else flat.index_select(0, chosen)).to(rounded))


class _Run:
    """Windows of all items, batch by batch, and the items that are put together again of several windows."""

    def __init__(
        self,
        stack: Stack,
        pieces: Sequence[Pieces],
        layers: Sequence[int],
        padding: int,
        half: bool,
        first_position: int,
        segment: int,
    ) -> None:
        self.stack, self.pieces, self.layers, self.padding, self.half = stack, pieces, layers, padding, half
        self.first_position, self.segment = first_position, segment
        self._waiting: dict[int, tuple[np.ndarray, int]] = {}

    def plan(self, budget: int) -> list[list[Job]]:
        """The windows of each batch."""
        jobs = [job for item, cut in enumerate(self.pieces) for job in jobs_of(item, cut)]
        return [[jobs[index] for index in batch] for batch in batches([len(job.ids) for job in jobs], budget)]

    def groups(self, budget: int) -> Iterator[list[list[Job]]]:
        """The batches, as many together as hold `TOGETHER` pieces."""
        group: list[list[Job]] = []
        held = 0
        for chosen in self.plan(budget):
            group.append(chosen)
            held += sum(len(job.ids) for job in chosen)
            if held >= TOGETHER:
                yield group
                group, held = [], 0
        if group:
            yield group

    def views(self, chosen: list[Job]) -> list[Float[Tensor, "B T D"]]:
        """The chosen layers of one batch; right-padded where lengths differ."""
        on = self.half and torch.cuda.is_available()
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16, enabled=on):
            return self._views(chosen)

    def is_whole(self, job: Job) -> bool:
        """Whether the window is all of its item."""
        return job.keep_stop - job.keep_start == len(self.pieces[job.item])

    def joined(self, job: Job, views: Float[np.ndarray, "L T D"]) -> Float[np.ndarray, "L N D"] | None:
        """The item's views where this was its last window."""
        cut = self.pieces[job.item]
        whole, left = self._waiting.pop(job.item, (None, len(cut.windows)))
        if whole is None:
            whole = np.empty((len(views), len(cut), views.shape[-1]), np.float32)
        whole[:, job.keep_start : job.keep_stop] = views[:, job.keep_start - job.start : job.keep_stop - job.start]
        if left == 1:
            return whole
        self._waiting[job.item] = (whole, left - 1)
        return None

    def _views(self, jobs: list[Job]) -> list[Float[Tensor, "B T D"]]:
        stack = self.stack
        device = next(stack.parameters()).device
        lengths = [len(job.ids) for job in jobs]
        longest = max(lengths)
        ids = np.full((len(jobs), longest), self.padding, np.int64)
        paired = any(job.segments is not None for job in jobs)
        segments = np.full_like(ids, self.segment) if self.segment or paired else None
        for row, job in enumerate(jobs):
            ids[row, : lengths[row]] = job.ids
            if segments is not None and job.segments is not None:
                segments[row, : lengths[row]] = job.segments
        mask = None
        if min(lengths) < longest:
            mask = torch.arange(longest, device=device)[None, :] < torch.tensor(lengths, device=device)[:, None]
        positions = torch.arange(self.first_position, self.first_position + longest, device=device)[None]
        shown = None if segments is None else torch.from_numpy(segments).to(device)
        first = stack.place(stack.lookup(torch.from_numpy(ids).to(device)), positions, shown)
        views = [first, *stack.run(first, mask, 0, max(self.layers), positions=positions)]
        _check(stack, views, lengths, jobs, self.pieces)
        return [views[layer] for layer in self.layers]


def _check(stack: Stack, views: list[Tensor], lengths: list[int], jobs: list[Job], pieces: Sequence[Pieces]) -> None:
    """EncoderError with item and block where a real piece has inf or NaN, which fp32 arithmetic should not give."""
    low, high = torch.aminmax(views[-1])
    if torch.isfinite(low) and torch.isfinite(high):
        return
    for layer, view in enumerate(views):
        for row, length in enumerate(lengths):
            if not torch.isfinite(view[row, :length]).all():
                raise EncoderError(
                    f"{stack.source}: view {layer} ({'embeddings' if layer == 0 else f'after block {layer}'}) of item"
                    f" {jobs[row].item} (key {pieces[jobs[row].item].key[:12]}) holds inf or NaN, computed in fp32. The"
                    " weights are damaged or too large; check the checkpoint."
                )
