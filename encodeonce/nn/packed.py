"""A minibatch without padding: the rows of all its items laid end to end.

Axes: L views   P rows of all items together   D width   B items   R chosen rows   K neighbours   E their width
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..errors import ConfigError
from .precision import at_least_fp32
from .segments import segment_means
from .step_kernel import call, usable

__all__ = ["Packed"]


@dataclass(frozen=True)
class Packed:
    """Views of B items: item b owns rows `starts[b] : starts[b] + lengths[b]` of the row axis.

    `views` may be the storage type (fp16, bf16) or fp32; whoever needs fp32 arithmetic casts at the entrance.
    `lengths` is host memory on purpose: loops over items never wait for a device.
    The means are computed at first use and kept, so that several adapters reading one batch share them.
    `ids` are the rows' piece ids where a method runs the embeddings itself; it may then read no view at all (L = 0).
    `segments` tell the texts of pairs apart, for those embeddings (None: there is no pair). `near` are vectors
    that were retrieved for each item, nearest first, where a method reads any; `own[b]` are the rows of the corpus that
    item b may not get where a method searches itself, () where it may get any.
    """

    views: Float[Tensor, "L P D"]
    lengths: tuple[int, ...]
    ids: Int[Tensor, " P"] | None = None
    segments: Int[Tensor, " P"] | None = None
    near: Float[Tensor, "B K E"] | None = None
    own: Sequence[Sequence[int]] = ()

    def __post_init__(self) -> None:
        if sum(self.lengths) != self.views.shape[1]:
            raise ConfigError(f"lengths sum to {sum(self.lengths)} but there are {self.views.shape[1]} rows.")
        if min(self.lengths, default=1) < 1:
            raise ConfigError(f"every item needs at least one row; lengths are {self.lengths}.")

    @property
    def starts(self) -> np.ndarray:
        """Int [B]: the first row of each item."""
        return np.concatenate([[0], np.cumsum(self.lengths[:-1])]).astype(np.int64)

    @cached_property
    def item(self) -> Int[Tensor, " P"]:
        """The item each row belongs to."""
        owner = np.repeat(np.arange(len(self.lengths)), self.lengths)
        return torch.from_numpy(owner).to(self.views.device)

    @property
    def layer_mean(self) -> Float[Tensor, "P D"]:
        """Mean over the views of every row, fp32."""
        return self._means[0]

    @property
    def token_means(self) -> Float[Tensor, "B L D"]:
        """Mean over the rows of every item, one a view, fp32: the padded form's masked mean."""
        return self._means[1]

    @cached_property
    def _means(self) -> tuple[Tensor, Tensor]:
        if not usable(self.views) or self.views.requires_grad:
            views = at_least_fp32(self.views)
            return views.mean(0), segment_means(views, self.lengths).transpose(0, 1)
        n_views, n_rows, width = self.views.shape
        layer_mean = self.views.new_empty(n_rows, width)
        token_means = self.views.new_empty(len(self.lengths), n_views, width)
        lengths = torch.tensor(self.lengths)
        sizes = len(self.lengths), n_views, n_rows, width
        call("view_means", self.views, lengths, *sizes, layer_mean, token_means)
        return layer_mean, token_means

    @classmethod
    def of(cls, items: Sequence[Float[Tensor, "L _ D"]]) -> "Packed":
        """Lay items [L, T, D], each of its own length T, end to end."""
        return cls(torch.cat(list(items), dim=1), tuple(item.shape[1] for item in items))
