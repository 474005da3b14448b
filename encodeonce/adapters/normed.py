"""A parameter-free LayerNorm of every view before an adapter (`pre_norm_layers`; A-01).

Axes: L views   P rows   R chosen rows   D width
"""

from dataclasses import replace

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import layer_norm

from ..nn.packed import Packed
from ..nn.precision import at_least_fp32
from . import Adapter

__all__ = ["Normed"]


class Normed(Adapter):
    """For encoders whose views are a raw residual stream (GPT-2, ModernBERT, T5) and therefore differ in scale."""

    def __init__(self, adapter: Adapter) -> None:
        super().__init__()
        self.adapter = adapter

    def forward(self, batch: Packed, rows: Int[Tensor, " R"] | None = None) -> Float[Tensor, "R D"]:
        """The wrapped adapter's output on the normed views."""
        return self.adapter(self._normed(batch), rows)

    def layer_weights(self, batch: Packed, rows: Int[Tensor, " R"] | None = None) -> Float[Tensor, "R L"]:
        """The wrapped adapter's weights on the normed views."""
        return self.adapter.layer_weights(self._normed(batch), rows)

    @staticmethod
    def _normed(batch: Packed) -> Packed:
        views = at_least_fp32(batch.views)
        return replace(batch, views=layer_norm(views, views.shape[-1:]))
