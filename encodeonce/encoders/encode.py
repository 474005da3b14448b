"""Pieces -> stored views: the batches in which a corpus goes through a frozen stack.

Windows are sorted by length and batched by a budget of pieces, so that there is little or no padding; the order depends
on the list alone. An item's vectors do not depend on what shares its batch.

Axes: B windows of a batch   T pieces of one window   L chosen views   D width
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..errors import EncoderError
from ..types import Pieces
from .stack import Stack

__all__ = ["batches", "encode"]


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
    jobs = [job for item, cut in enumerate(pieces) for job in jobs_of(item, cut)]
    waiting: dict[int, tuple[np.ndarray, int]] = {}
    for batch in batches([len(job.ids) for job in jobs], budget):
        chosen = [jobs[index] for index in batch]
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16, enabled=half and torch.cuda.is_available()):
            views = _views(stack, chosen, layers, padding, pieces, (first_position, segment))
        for row, job in enumerate(chosen):
            if job.keep_stop - job.keep_start == len(pieces[job.item]):
                yield job.item, views[row, :, : len(job.ids)]
                continue
            cut = pieces[job.item]
            whole, left = waiting.pop(job.item, (None, len(cut.windows)))
            if whole is None:
                whole = np.empty((len(layers), len(cut), views.shape[-1]), np.float32)
            whole[:, job.keep_start : job.keep_stop] = views[
                row, :, job.keep_start - job.start : job.keep_stop - job.start
            ]
            if left == 1:
                yield job.item, whole
            else:
                waiting[job.item] = (whole, left - 1)


def _views(
    stack: Stack, jobs: list[Job], layers: Sequence[int], padding: int, pieces: Sequence[Pieces], at: tuple[int, int]
) -> np.ndarray:
    """Views fp32 [B, L, T, D] of one batch; right-padded where lengths differ. `at`: first position and segment."""
    device = next(stack.parameters()).device
    lengths = [len(job.ids) for job in jobs]
    longest = max(lengths)
    ids = np.full((len(jobs), longest), padding, np.int64)
    segments = np.full_like(ids, at[1]) if at[1] or any(job.segments is not None for job in jobs) else None
    for row, job in enumerate(jobs):
        ids[row, : lengths[row]] = job.ids
        if segments is not None and job.segments is not None:
            segments[row, : lengths[row]] = job.segments
    mask = None
    if min(lengths) < longest:
        mask = torch.arange(longest, device=device)[None, :] < torch.tensor(lengths, device=device)[:, None]
    positions = torch.arange(at[0], at[0] + longest, device=device)[None]
    shown = None if segments is None else torch.from_numpy(segments).to(device)
    first = stack.place(stack.lookup(torch.from_numpy(ids).to(device)), positions, shown)
    views = [first, *stack.run(first, mask, 0, max(layers), positions=positions)]
    _check(stack, views, lengths, jobs, pieces)
    return torch.stack([views[layer].float() for layer in layers], dim=1).cpu().numpy()


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
