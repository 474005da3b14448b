"""Attention of every row over the views of its encoder (Basirat 2024, aggregation block; A2).

Axes: L views   B items   P rows   R chosen rows   D width   H heads   W head width
"""

import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from .mixing import mix
from .packed import Packed
from .projections import Projection
from .step_kernel import call, plain, usable

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

    def forward(self, batch: Packed, rows: Int[Tensor, " R"] | None = None) -> Float[Tensor, "R D"]:
        """The chosen rows' views (None: all rows'), mixed by `weights`; other rows are read for the means only."""
        if usable(batch.views) and not batch.views.requires_grad and (rows is None or len(rows)):
            query, key = self.query(_chosen(batch.layer_mean, rows)), self.key(batch.token_means)
            at = None if rows is None else rows.to(torch.int64).contiguous()
            return _Mix.apply(plain(query), plain(key), batch.views, at, _chosen(batch.item, at))
        views = batch.views if rows is None else batch.views.index_select(1, rows)
        return mix(self.weights(batch, rows), views)

    def weights(self, batch: Packed, rows: Int[Tensor, " R"] | None = None) -> Float[Tensor, "R L"]:
        """Weights of the views for each chosen row; every line sums to 1."""
        query_RHW = self.query(_chosen(batch.layer_mean, rows))
        key_RLHW = self.key(batch.token_means).index_select(0, _chosen(batch.item, rows))
        scores_RLH = (query_RHW.unsqueeze(1) * key_RLHW).sum(-1) / math.sqrt(query_RHW.shape[-1])
        return torch.softmax(scores_RLH, dim=1).mean(-1)


def _chosen(x: Tensor, rows: Tensor | None) -> Tensor:
    return x if rows is None else x.index_select(0, rows)


class _Mix(torch.autograd.Function):
    """Weights and mixture by the compiled kernel, in one pass over the views; these are read, not trained through."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, views: Tensor, rows: Tensor | None, owner: Tensor) -> Tensor:
        n_views, n_rows, width = views.shape
        n_chosen, n_heads, head_width = query.shape
        sizes = n_chosen, n_views, n_rows, width, n_heads, head_width, head_width**-0.5
        probabilities = query.new_empty(n_chosen, n_heads, n_views)
        mixed = views.new_empty(n_chosen, width)
        call("mix_views", query, key, views, rows, owner, *sizes, probabilities, mixed)
        ctx.save_for_backward(query, key, views, rows, owner, probabilities)
        ctx.sizes = sizes
        return mixed

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        *inputs, probabilities = ctx.saved_tensors
        to_query, to_key = torch.zeros_like(inputs[0]), torch.zeros_like(inputs[1])
        call("mix_views_slope", slopes[0].contiguous(), *inputs, *ctx.sizes, probabilities, to_query, to_key)
        return to_query, to_key, None, None, None
