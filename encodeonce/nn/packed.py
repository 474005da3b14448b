"""A minibatch without padding: the rows of all its items laid end to end.

Axes: L views   P rows of all items together   D width   B items   R chosen rows
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import ConfigError

__all__ = ["Packed"]


@dataclass(frozen=True)
class Packed:
    """Views of B items: item b owns rows `starts[b] : starts[b] + lengths[b]` of the row axis.

    `views` may be the storage type (fp16, bf16) or fp32; whoever needs fp32 arithmetic casts at the entrance.
    `lengths` is host memory on purpose: loops over items never wait for a device.
    """

    views: Float[Tensor, "L P D"]
    lengths: tuple[int, ...]

    def __post_init__(self) -> None:
        if sum(self.lengths) != self.views.shape[1]:
            raise ConfigError(f"lengths sum to {sum(self.lengths)} but there are {self.views.shape[1]} rows.")
        if min(self.lengths, default=1) < 1:
            raise ConfigError(f"every item needs at least one row; lengths are {self.lengths}.")

    @property
    def starts(self) -> np.ndarray:
        """Int [B]: the first row of each item."""
        return np.concatenate([[0], np.cumsum(self.lengths[:-1])]).astype(np.int64)

    @classmethod
    def of(cls, items: Sequence[Float[Tensor, "L T D"]]) -> "Packed":
        """Lay items [L, T, D] of any lengths end to end."""
        return cls(torch.cat(list(items), dim=1), tuple(item.shape[1] for item in items))
