"""Attention of every row over the views of its encoder (Basirat 2024, aggregation block; A2).

Axes: L views   B items   R chosen rows   D width   H heads   W head width
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from .projections import Projection

__all__ = ["LayerAttention"]


class LayerAttention(nn.Module):
    """Row r reads view i with weight `mean over heads of softmax_i(<q_r, k_i> / sqrt(W))`.

    q_r is the mean over the views of row r and k_i the mean over the item's rows of view i, both projected twice: the
    paper feeds D x K matrices to a multi-head attention, and that has K x K projections of its own (A13, row 3). Its
    value and output projections never reach the result and do not exist here (A-06). Both key biases add one number to
    all views before the softmax, hence change nothing; they are kept for the parameter count.
    """

    def __init__(self, width: int, key_width: int = 16, n_heads: int = 2) -> None:
        super().__init__()
        self.query = Projection(width, key_width, n_heads)
        self.key = Projection(width, key_width, n_heads)

    def forward(
        self, layer_mean: Float[Tensor, "R D"], token_means: Float[Tensor, "B L D"], item: Int[Tensor, " R"]
    ) -> Float[Tensor, "R L"]:
        """Weights of the views for each row; every line sums to 1."""
        query_RHW = self.query(layer_mean)
        key_RLHW = self.key(token_means).index_select(0, item)
        scores_RLH = (query_RHW.unsqueeze(1) * key_RLHW).sum(-1) / math.sqrt(query_RHW.shape[-1])
        return torch.softmax(scores_RLH, dim=1).mean(-1)
