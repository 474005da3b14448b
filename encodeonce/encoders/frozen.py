"""The one place where the frozen copy that encodes a corpus is made faster than the model it was loaded as.

Axes: B items   T pieces   I, O widths in and out
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .stack import Stack

__all__ = ["Compute", "quicken"]

Compute = Literal["fp32", "bf16"]


class Bf16Linear(nn.Module):
    """y = x W + b with bf16 factors and fp32 in and out, for a weight that will never change."""

    def __init__(self, weight: Float[Tensor, "O I"], bias: Float[Tensor, " O"] | None) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.to(torch.bfloat16), requires_grad=False)
        self.bias = None if bias is None else nn.Parameter(bias.to(torch.bfloat16), requires_grad=False)

    def forward(self, x: Float[Tensor, "*B I"]) -> Float[Tensor, "*B O"]:
        return nn.functional.linear(x.to(torch.bfloat16), self.weight, self.bias).float()


def quicken(stack: Stack, compute: Compute) -> Stack:
    """Replaces, in place, every linear map inside the blocks by one made for a weight that never changes.

    "fp32" keeps relative errors below 1e-5 of the plain model; "bf16" has bf16 factors, while norms, residuals and
    attention stay fp32 (relative error near 4e-3).
    """
    if compute == "fp32":
        return stack
    for block in dict.fromkeys(stack.blocks):
        for parent in list(block.modules()):
            for name, child in list(parent.named_children()):
                found = _matrix(child)
                if found is not None:
                    setattr(parent, name, Bf16Linear(*found))
    return stack


def _matrix(module: nn.Module) -> tuple[Tensor, Tensor | None] | None:
    """Weight [O, I] and bias of a linear map; None for other modules."""
    from transformers.pytorch_utils import Conv1D

    if isinstance(module, Conv1D):
        return module.weight.t().contiguous(), module.bias
    if isinstance(module, nn.Linear):
        return module.weight, module.bias
    return None
