"""Linear (Basirat 2024, baseline; A-07): one trained weight a view, the same for every row.

Axes: L views   P rows   R chosen rows   D width
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..errors import ConfigError
from ..nn.packed import Packed
from ..nn.precision import at_least_fp32
from . import Adapter

__all__ = ["Linear"]


class Linear(Adapter):
    """out = c sum_i softmax(alpha)_i B_i, over all views of the batch; no layer dropout.

    alpha starts at 0 and c at 1, so the first output is the layer mean.
    """

    def __init__(self, n_views: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.zeros(n_views))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, batch: Packed, rows: Int[Tensor, " R"] | None = None) -> Float[Tensor, "R D"]:
        """Scaled mixture of the chosen rows, fp32. ConfigError if the batch has another number of views."""
        weights = self._weights(batch)
        views = at_least_fp32(batch.views if rows is None else batch.views.index_select(1, rows))
        return self.scale * torch.tensordot(weights, views, 1)

    def layer_weights(self, batch: Packed, rows: Int[Tensor, " R"] | None = None) -> Float[Tensor, "R L"]:
        """softmax(alpha), once a row."""
        weights = self._weights(batch)
        return weights.expand(batch.views.shape[1] if rows is None else len(rows), -1)

    def _weights(self, batch: Packed) -> Float[Tensor, " L"]:
        if batch.views.shape[0] != len(self.alpha):
            raise ConfigError(
                f"this adapter mixes {len(self.alpha)} views and the batch has {batch.views.shape[0]}: "
                "read the layers it was made for, or make it with n_views of the batch."
            )
        return torch.softmax(self.alpha, 0)
