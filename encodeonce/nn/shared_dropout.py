"""Dropout for sentences: of whole rows, or of the same features in all rows of an item (spec A8).

Axes: R rows of all items, end to end   D width   B items
"""

import torch
from jaxtyping import Float
from torch import Tensor

from .dropout import Dropout

__all__ = ["RowDropout", "SharedDropout"]


class SharedDropout(Dropout):
    """Inverted dropout with one mask for all rows of an item; identity in eval mode."""

    def forward(self, x: Float[Tensor, "R D"], lengths: tuple[int, ...]) -> Float[Tensor, "R D"]:  # type: ignore[override]
        """x, `lengths[b]` neighbouring rows of it being item b's."""
        factors = self.factors(len(lengths), x.shape[1])
        if factors is None:
            return x
        owner = torch.repeat_interleave(torch.tensor(lengths, dtype=torch.int64, device=x.device))
        return x * factors.to(x).index_select(0, owner)


class RowDropout(Dropout):
    """Whole rows become zero; those that stay are not scaled up (A8: a single input); identity in eval mode."""

    def forward(self, x: Float[Tensor, "R D"]) -> Float[Tensor, "R D"]:
        """x times 0 or 1 a row."""
        factors = self.factors(len(x), 1)
        return x if factors is None else x * (factors > 0).to(x)
