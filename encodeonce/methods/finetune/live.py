"""Trained blocks as an adapter: over piece ids, over one stored view, or over a mix of all of them.

Axes: L views   P rows of all items   R chosen rows   D width
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ...adapters import Adapter
from ...encoders.live import LiveBlocks
from ...errors import ConfigError
from ...nn.packed import Packed
from ...nn.precision import at_least_fp32

__all__ = ["Live"]


class Live(Adapter):
    """`blocks` run over what is below: view 0 made of the batch's piece ids where it has no view; its only view; or,
    with `mix`, that adapter's output, which `residual` adds to what the blocks make of it.
    """

    def __init__(self, blocks: LiveBlocks, mix: Adapter | None = None, residual: bool = True) -> None:
        super().__init__()
        self.blocks = blocks
        self.mix = mix
        self.residual = residual

    def forward(self, batch: Packed, rows: Int[Tensor, " R"] | None = None) -> Float[Tensor, "R D"]:
        """The chosen rows, fp32. ConfigError where the batch has neither piece ids nor the views that are asked for."""
        below = self.below(batch)
        above: Tensor = self.blocks(below, batch.lengths, rows)
        if self.mix is None or not self.residual:
            return above
        return above + (below if rows is None else below.index_select(0, rows))

    def layer_weights(self, batch: Packed, rows: Int[Tensor, " R"] | None = None) -> Float[Tensor, "R L"]:
        """The mix's weights; 1 for the only view where there is no mix."""
        if self.mix is not None:
            return self.mix.layer_weights(batch, rows)
        n_rows = sum(batch.lengths) if rows is None else len(rows)
        return torch.ones(n_rows, batch.views.shape[0], device=batch.views.device)

    def below(self, batch: Packed) -> Float[Tensor, "P D"]:
        """What the blocks are given."""
        if self.mix is not None:
            return self.mix(batch)
        n_views = batch.views.shape[0]
        if n_views == 1:
            return at_least_fp32(batch.views[0])
        if n_views or batch.ids is None:
            raise ConfigError(f"live blocks read one view, or piece ids and no view; the batch has {n_views} views.")
        return self.blocks.enter(batch.ids, batch.lengths, batch.segments)
