"""Fusion (Basirat 2024, baseline after Cao et al. 2022; A-08): one trained query meets every view of every row.

Axes: L views   P rows   R chosen rows   D width
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..errors import ConfigError
from ..nn.dropout import Dropout
from ..nn.mixing import mix
from ..nn.packed import Packed
from ..nn.precision import at_least_fp32
from . import Adapter

__all__ = ["Fusion"]


class Fusion(Adapter):
    """out_r = sum_i A[r, i] B[i, r] with A[r, :] = softmax_i <Q, B[i, r]>; Q starts at 0, hence at the layer mean.

    `reference=True` is what the authors' withdrawn code does: LayerNorm over the (D, L) plane of every row with its own
    gains and biases, dropout 0.15, the sum over the normed and dropped views, a GELU at the end, Q starting at ones.
    """

    def __init__(self, width: int, n_views: int, reference: bool = False) -> None:
        super().__init__()
        self.reference = reference
        self.n_views = n_views
        self.query = nn.Parameter(torch.ones(width) if reference else torch.zeros(width))
        if reference:
            self.norm = nn.LayerNorm([width, n_views])
            self.dropout = Dropout(0.15)

    def forward(self, batch: Packed, rows: Int[Tensor, " R"] | None = None) -> Float[Tensor, "R D"]:
        """Mixture of the chosen rows, fp32. ConfigError if the batch has another number of views."""
        views = self._views(batch, rows)
        mixed = mix(self._weights(views), views)
        return nn.functional.gelu(mixed) if self.reference else mixed

    def layer_weights(self, batch: Packed, rows: Int[Tensor, " R"] | None = None) -> Float[Tensor, "R L"]:
        """A of the chosen rows."""
        return self._weights(self._views(batch, rows))

    def _views(self, batch: Packed, rows: Int[Tensor, " R"] | None) -> Float[Tensor, "L R D"]:
        if batch.views.shape[0] != self.n_views:
            raise ConfigError(
                f"this adapter mixes {self.n_views} views and the batch has {batch.views.shape[0]}: "
                "read the layers it was made for, or make it with n_views of the batch."
            )
        views = at_least_fp32(batch.views if rows is None else batch.views.index_select(1, rows))
        if not self.reference:
            return views
        normed_RDL = self.norm(views.permute(1, 2, 0))
        return self.dropout(normed_RDL).permute(2, 0, 1)

    def _weights(self, views: Float[Tensor, "L R D"]) -> Float[Tensor, "R L"]:
        return torch.softmax((views @ self.query).T, dim=-1)
