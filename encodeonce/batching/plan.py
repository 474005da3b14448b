"""Which items share a batch."""

import numpy as np
from jaxtyping import Int

__all__ = ["planned"]


def planned(n: int, size: int, order: np.random.Generator | None) -> list[Int[np.ndarray, " B"]]:
    """Which of `n` items go into which batch; ceil(n / size) batches, all of `size` items but the last.

    Drawn from `order`, or as they stand where it is None. Never by length: a packed batch needs no items of like
    length, and buckets cost accuracy where steps are few (docs/decisions.md).
    """
    items = np.arange(n) if order is None else order.permutation(n)
    return [items[start : start + size] for start in range(0, n, size)]
