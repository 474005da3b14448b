"""Which items share a batch."""

import numpy as np
from jaxtyping import Int

__all__ = ["planned"]

POOL = 4
"""Batches in a bucketing pool: items are sorted by length among POOL x size neighbours of the shuffled order.

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
