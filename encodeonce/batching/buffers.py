"""Memory for a batch's views, used again when the batch is garbage. Fresh memory costs a page fault every 4 KiB."""

import weakref
from collections import deque
from collections.abc import Callable
from math import prod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["Buffers"]

SPARE = 1.1
"""A new buffer is this much larger than asked for, so that the next, slightly longer batch fits too."""


class Buffers:
    """`take(shape)` gives a tensor of that shape and `hold(owner)`, which ties its memory to the life of `owner`."""

    def __init__(self) -> None:
        self._free: deque[Tensor] = deque()

    def take(self, shape: tuple[int, int, int]) -> tuple[Float[Tensor, "L P D"], Callable[[Any], None]]:
        """fp32, not initialised. Memory whose `hold` is never called is simply given back to the system."""
        needed = prod(shape)
        memory = self._free.popleft() if self._free else None
        if memory is None or memory.numel() < needed:
            memory = torch.empty(int(needed * SPARE))
        kept = memory

        def hold(owner: Any) -> None:
            weakref.finalize(owner, self._free.append, kept).atexit = False

        return kept[:needed].view(shape), hold
