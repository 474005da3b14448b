"""Which items share a batch: so many of them, or as many as hold so many pieces.

Axes: N items   B items of a batch   K batches
"""

import numpy as np
from jaxtyping import Int

from ..errors import ConfigError

__all__ = ["count_by_pieces", "planned", "planned_by_pieces"]

POOL = 4
"""Batches in a bucketing pool: items are sorted by length among so many batches' neighbours of the shuffled order.

Enough to keep padding low where tensors are padded (no compiled kernel), and little enough that the longest batch,
which sets the peak memory, stays within about twice the mean one.
"""


def planned(
    lengths: Int[np.ndarray, " N"], size: int, order: np.random.Generator | None
) -> list[Int[np.ndarray, " B"]]:
    """Which items go into which batch; ceil(N / size) batches, all of `size` items but one.

    In length buckets in an order drawn from `order`, or as they stand where it is None.
    """
    n = len(lengths)
    if order is None:
        return [np.arange(start, min(start + size, n)) for start in range(0, n, size)]
    shuffled = order.permutation(n)
    batches = []
    for start in range(0, n, POOL * size):
        pool = shuffled[start : start + POOL * size]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        batches += [pool[at : at + size] for at in range(0, len(pool), size)]
    return [batches[i] for i in order.permutation(len(batches))]


def count_by_pieces(lengths: Int[np.ndarray, " N"], pieces: int) -> int:
    """How many batches `planned_by_pieces` makes: ceil(all pieces / `pieces`), and never more than items."""
    if pieces < 1:
        raise ConfigError(f"a batch of {pieces} pieces must have at least 1.")
    return min(len(lengths), -(-int(lengths.sum()) // pieces))


def planned_by_pieces(
    lengths: Int[np.ndarray, " N"], pieces: int, order: np.random.Generator
) -> list[Int[np.ndarray, " B"]]:
    """The same number of batches in every epoch, each of about `pieces` pieces: no more than the longest item off.

    In length buckets in an order drawn from `order`: many short items or few long ones share a batch.
    """
    count = count_by_pieces(lengths, pieces)
    shuffled = order.permutation(len(lengths))
    ends = _ends(lengths[shuffled], count)
    batches, start = [], 0
    for first in range(0, count, POOL):
        last = min(first + POOL, count)
        pool = shuffled[start : ends[last - 1]]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        batches += np.split(pool, _ends(lengths[pool], last - first)[:-1])
        start = ends[last - 1]
    return [batches[i] for i in order.permutation(count)]


def _ends(lengths: Int[np.ndarray, " N"], count: int) -> Int[np.ndarray, " K"]:
    """Where runs of neighbours end that hold equal shares of the pieces; none is empty."""
    until = np.cumsum(lengths)
    share = np.arange(1, count + 1) * (until[-1] / count)
    ends = np.searchsorted(until - lengths / 2, share)
    step = np.arange(count)
    at_least = np.maximum.accumulate(ends - step) + step  # one item more than the run before
    return np.minimum(np.maximum(at_least, step + 1), len(lengths) - count + 1 + step)
