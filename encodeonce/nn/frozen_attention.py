"""Attention of a frozen encoder through the compiled kernel, which is made for the short sequences of sentences.

Axes: B items   H heads   T queries   S keys   D depth of a head
"""

import torch
from jaxtyping import Float
from torch import Tensor

from .frozen_kernel import attention, kernel

__all__ = ["attend", "attends"]

LONGEST = 128
"""Beyond this many keys torch's blocked attention is at least as fast."""
TYPES = ({torch.float32}, {torch.bfloat16})
"""Of q, k and v."""


def attends(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> bool:
    """Whether `attend` can take these: fp32 (or q, k and v in bfloat16) in host memory, shapes alike but for T and S,
    no gradient asked for."""
    if isinstance(kernel(), str) or q.numel() == 0 or not 0 < k.shape[2] <= LONGEST:
        return False
    given = [q, k, v] if mask is None else [q, k, v, mask]
    if any(each.device.type != "cpu" or each.stride(-1) != 1 for each in given):
        return False
    if {q.dtype, k.dtype, v.dtype} not in TYPES or (mask is not None and mask.dtype != torch.float32):
        return False
    if torch.is_grad_enabled() and any(each.requires_grad for each in given):
        return False
    alike = k.shape == v.shape and q.shape[:2] == k.shape[:2] and q.shape[3] == k.shape[3] and q.shape[3] % 16 == 0
    return alike and (mask is None or (mask.dim() == 4 and mask.shape[3] == k.shape[2]))


def attend(
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B H S D"],
    v: Float[Tensor, "B H S D"],
    mask: Float[Tensor, "#B #H #T S"] | None = None,
    scale: float | None = None,
) -> Float[Tensor, "B T H D"]:
    """softmax(scale q k^T + mask) v in the type of q, heads behind queries, as the product that follows wants them.

    `scale` defaults to 1 / sqrt D. Ask `attends` first.
    """
    return attention(q, k, v, mask, q.shape[-1] ** -0.5 if scale is None else scale)
