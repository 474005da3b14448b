"""Which items share a batch: so many of them, or as many as hold so many pieces.

Axes: N items   B items of a batch   K batches
"""

import numpy as np
from jaxtyping import Int

from ..errors import ConfigError

__all__ = ["count_by_pieces", "planned", "planned_by_pieces"]


def planned(n: int, size: int, order: np.random.Generator | None) -> list[Int[np.ndarray, " B"]]:
    """Which of `n` items go into which batch; ceil(n / size) batches, all of `size` items but the last.

    Drawn from `order`, or as they stand where it is None. Never by length: a packed batch needs no items of like
    length, and buckets cost accuracy where steps are few (docs/decisions.md).
    """
    items = np.arange(n) if order is None else order.permutation(n)
    return [items[start : start + size] for start in range(0, n, size)]


def count_by_pieces(lengths: Int[np.ndarray, " N"], pieces: int) -> int:
    """How many batches `planned_by_pieces` makes: ceil(all pieces / `pieces`), and never more than items."""
    if pieces < 1:
        raise ConfigError(f"a batch of {pieces} pieces must have at least 1.")
    return min(len(lengths), -(-int(lengths.sum()) // pieces))


def planned_by_pieces(
    lengths: Int[np.ndarray, " N"], pieces: int, order: np.random.Generator
) -> list[Int[np.ndarray, " B"]]:
    """Batches of equal shares of all pieces, about `pieces` each, half an item more or less at both ends.

    Drawn from `order`; the number of batches is the same in every epoch.
    """
    count = count_by_pieces(lengths, pieces)
    items = order.permutation(len(lengths))
    until = np.cumsum(lengths[items])
    share = np.arange(1, count) * (until[-1] / count)
    ends = np.searchsorted(until - lengths[items] / 2, share)
    step = np.arange(count - 1)
    ends = np.maximum(np.maximum.accumulate(ends - step), 1) + step  # no batch is empty, nor the rest for those to come
    return np.split(items, np.minimum(ends, len(items) - count + 1 + step))
