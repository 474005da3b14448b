"""Ranking schemes as weights over the neighbours: each fused module adds sum_i weight_i v_i (ReFusion, eqs. 5-10).

Axes: M modules   K neighbours, nearest first   D width
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid

__all__ = ["kept", "mask_weights", "ranks", "released_weights"]


def ranks(rank: Float[Tensor, "M K"], *, convex: bool) -> Float[Tensor, "M K"]:
    """softmax(rank) / K: the paper divides once more although the weights sum to 1 (eqs. 5-6); `convex` does not."""
    weights = rank.softmax(-1)
    return weights if convex else weights / rank.shape[-1]


def kept(
    chain: Float[Tensor, "M J D"], *, temperature: float = 1.0, noise: Float[Tensor, "M K D"] | None = None
) -> Float[Tensor, "M K D"]:
    """How much of each neighbour's feature is kept: 1 for the nearest, never more for a farther one (eqs. 7-8).

    `chain` [M, K-1, D] are logits of going on from a rank to the next. Without noise, as in evaluation, v_i is the
    chance that the chain reaches rank i, prod_{m<i} sigmoid(chain_m), exactly. With standard Gumbel `noise` the last
    kept rank is drawn by a softmax over ranks at `temperature`, and v_i = sum_{j>=i} c_j.
    """
    on = logsigmoid(chain)
    start = torch.zeros_like(chain[:, :1]) if chain.shape[1] else chain.new_zeros(len(chain), 1, chain.shape[2])
    reached = torch.cat([start, on.cumsum(1)], dim=1)
    if noise is None:
        return reached.exp()
    stops = torch.cat([logsigmoid(-chain), start], dim=1)
    last = ((reached + stops + noise) / temperature).softmax(1)
    return last.flip(1).cumsum(1).flip(1)


def mask_weights(mask: Float[Tensor, "M K D"], *, convex: bool) -> Float[Tensor, "M K D"]:
    """The ordered mask over K (eq. 10), or over what it keeps."""
    return mask / (mask.sum(1, keepdim=True) if convex else mask.shape[1])


def released_weights(
    chain: Float[Tensor, "M K D"], *, temperature: float, noise: Float[Tensor, "M K D"]
) -> Float[Tensor, "M K D"]:
    """What the released code computes in its stead (spec B3): probabilities as logits, a softmax over features instead
    of ranks, noise in evaluation too; over K."""
    going_on = chain.clamp(-5, 5).sigmoid()
    chance = going_on.cumprod(1) * (1 - going_on)
    drawn = ((chance + noise) / temperature).softmax(-1)
    return drawn.cumsum(1).flip(1) / chain.shape[1]


def gumbel(like: Float[Tensor, "M K D"]) -> Float[Tensor, "M K D"]:
    """Standard Gumbel noise -log(-log(u)) from torch's generator. It is finite: a u of 0 (one draw in 2^24) stands for
    all below that, since -inf for every rank, and there may be one alone, would leave a softmax nothing to draw."""
    return -torch.rand_like(like).clamp_(min=2.0**-25).log_().neg_().log_()
