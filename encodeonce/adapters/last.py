"""Frozen (Basirat 2024, baseline): the last view as it is.

Axes: L views   P rows   R chosen rows   D width
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..nn.packed import Packed
from ..nn.precision import at_least_fp32
from . import Adapter

__all__ = ["Last"]


class Last(Adapter):
    """out = B_L. Nothing is trained; the store needs the last view only."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, batch: Packed, rows: Int[Tensor, " R"] | None = None) -> Float[Tensor, "R D"]:
        """The last view of the chosen rows, fp32."""
        last = batch.views[-1]
        return at_least_fp32(last if rows is None else last.index_select(0, rows))

    def layer_weights(self, batch: Packed, rows: Int[Tensor, " R"] | None = None) -> Float[Tensor, "R L"]:
        """1 for the last view, 0 for the others."""
        n_views, n_rows = batch.views.shape[:2]
        weights = torch.zeros(n_rows if rows is None else len(rows), n_views, device=batch.views.device)
        weights[:, -1] = 1
        return weights
