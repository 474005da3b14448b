"""Two linear maps in a row, read as heads: what a reduced multi-head attention does to its queries or keys.

Axes: D width   K key width   H heads   W = K/H   N any leading axes
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..errors import ConfigError

__all__ = ["Projection", "check_heads", "stacked_xavier_"]


def check_heads(key_width: int, n_heads: int) -> None:
    """ConfigError unless the key width divides into `n_heads` equal heads."""
    if n_heads < 1 or key_width < 1 or key_width % n_heads:
        raise ConfigError(
            f"key_width={key_width} cannot be cut into n_heads={n_heads} equal heads; use, for example, 16 and 2."
        )


@torch.no_grad()
def stacked_xavier_(weight: Tensor) -> None:
    """Xavier uniform as if `weight` (K x K) were one third of a stacked 3K x K matrix: bound sqrt(6 / 4K) (A5)."""
    bound = math.sqrt(6 / (4 * weight.shape[1]))
    nn.init.uniform_(weight, -bound, bound)


class Projection(nn.Module):
    """x -> (x W + b) U + u, split into heads.

    `reduce` (W, b) keeps torch's default initialisation unless its owner changes it; `within` (U, u) starts as a
    multi-head attention's stacked input projection does, with zero bias (A5).
    """

    def __init__(self, width: int, key_width: int, n_heads: int) -> None:
        super().__init__()
        check_heads(key_width, n_heads)
        self.n_heads = n_heads
        self.reduce = nn.Linear(width, key_width)
        self.within = nn.Linear(key_width, key_width)
        stacked_xavier_(self.within.weight)
        nn.init.zeros_(self.within.bias)

    def forward(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N H W"]:
        """Heads of the projected vectors."""
        return self.within(self.reduce(x)).unflatten(-1, (self.n_heads, -1))
