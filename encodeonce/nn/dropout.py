"""Dropout whose masks are cut from a pool drawn once, because drawing bits costs more than multiplying by them.

The pool is a constant: the same in every process, for a rate and a size. What is random is where in it a mask begins,
and that number comes from torch's global generator, so the generator's state is all a checkpoint has to keep.
"""

from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float, Int16
from torch import Tensor, nn

from ..errors import ConfigError

__all__ = ["Dropout"]

SMALLEST_POOL = 1 << 21
WORD = 16


@lru_cache(maxsize=8)
def _words(rate: float, size: int) -> Int16[Tensor, " words"]:
    """`size` bits, lowest first: 0 with probability `rate`, else 1."""
    generator = torch.Generator().manual_seed(size)
    kept = torch.rand(size, generator=generator) >= rate
    return torch.from_numpy(np.packbits(kept.numpy(), bitorder="little").view("<i2"))


@lru_cache(maxsize=8)
def _factors(rate: float, size: int) -> Float[Tensor, " size"]:
    """The same bits as fp32 factors, 0 or 1 / (1 - rate)."""
    bits = np.unpackbits(_words(rate, size).numpy().view(np.uint8), bitorder="little")
    return torch.from_numpy(bits) / (1 - rate)


class Dropout(nn.Module):
    """Inverted dropout, identity in eval mode; ConfigError for a rate outside [0, 1)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        if not 0 <= rate < 1:
            raise ConfigError(f"dropout={rate} must lie in [0, 1); 0 switches it off.")
        self.rate = rate

    @property
    def active(self) -> bool:
        """Whether anything is dropped now."""
        return self.training and self.rate > 0

    @property
    def scale(self) -> float:
        """What a kept value is multiplied by now."""
        return 1 / (1 - self.rate) if self.active else 1.0

    def kept(self, *shape: int) -> Int16[Tensor, " words"]:
        """The mask as bits, 1 where a value is kept, 16 to a word; the number of values must be a multiple of 16."""
        n_words = torch.Size(shape).numel() // WORD
        if not self.active:
            return torch.full((n_words,), -1, dtype=torch.int16)
        size, start = self._place(n_words * WORD)
        return _words(self.rate, size)[start // WORD : start // WORD + n_words]

    def factors(self, *shape: int) -> Float[Tensor, "..."] | None:
        """The mask as fp32 factors, 0 or 1 / (1 - rate), a view of the pool; None where nothing is dropped now."""
        if not self.active:
            return None
        needed = torch.Size(shape).numel()
        size, start = self._place(needed)
        return _factors(self.rate, size)[start : start + needed].view(shape)

    def forward(self, x: Tensor) -> Tensor:
        """x times a mask in training, x itself otherwise."""
        factors = self.factors(*x.shape)
        return x if factors is None else x * factors.to(x)

    @staticmethod
    def _place(needed: int) -> tuple[int, int]:
        """A pool's size and the mask's first bit in it, chosen by the global generator."""
        size = max(SMALLEST_POOL, 4 << max(needed - 1, 0).bit_length())
        return size, WORD * int(torch.randint((size - needed) // WORD, ()))

    def extra_repr(self) -> str:
        return f"rate={self.rate}"
