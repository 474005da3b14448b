"""Dropout whose masks are cut from a pool drawn once, because drawing bits costs more than multiplying by them.

The pool is a constant: the same in every process, for a rate and a size. What is random is where in it a mask begins,
and that number comes from torch's global generator, so the generator's state is all a checkpoint has to keep.
"""

from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..errors import ConfigError

__all__ = ["Dropout"]

SMALLEST_POOL = 1 << 21


@lru_cache(maxsize=8)
def _pool(rate: float, size: int) -> Float[Tensor, " size"]:
    """`size` factors, 0 with probability `rate` and 1 / (1 - rate) otherwise."""
    generator = torch.Generator().manual_seed(size)
    kept = torch.rand(size, generator=generator) >= rate
    return kept / (1 - rate)


class Dropout(nn.Module):
    """Inverted dropout, identity in eval mode; ConfigError for a rate outside [0, 1)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        if not 0 <= rate < 1:
            raise ConfigError(f"dropout={rate} must lie in [0, 1); 0 switches it off.")
        self.rate = rate

    def factors(self, like: Tensor) -> Tensor:
        """A mask of `like`'s shape, type and device, from a place in the pool that the global generator chooses."""
        needed = like.numel()
        size = max(SMALLEST_POOL, 4 << max(needed - 1, 0).bit_length())
        start = int(torch.randint(size - needed, ()))
        return _pool(self.rate, size)[start : start + needed].view(like.shape).to(like)

    def forward(self, x: Tensor) -> Tensor:
        """x times a mask in training, x itself otherwise."""
        return x * self.factors(x) if self.training and self.rate else x

    def extra_repr(self) -> str:
        return f"rate={self.rate}"
