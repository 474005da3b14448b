"""Layer norm of a frozen encoder through the compiled kernel.

Axes: ... any leading axes   D width
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from .frozen_kernel import norm

__all__ = ["FrozenNorm"]


class FrozenNorm(nn.Module):
    """Stands where an `nn.LayerNorm` over the last axis stood, for inference in fp32; other types go to torch."""

    weight: Tensor | None
    bias: Tensor | None

    def __init__(self, replaced: nn.LayerNorm) -> None:
        super().__init__()
        self.normalized_shape, self.eps = replaced.normalized_shape, replaced.eps
        self.register_buffer("weight", None if replaced.weight is None else replaced.weight.detach().contiguous())
        self.register_buffer("bias", None if replaced.bias is None else replaced.bias.detach().contiguous())

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
        types = {each.dtype for each in (x, self.weight, self.bias) if isinstance(each, Tensor)}
        if types != {torch.float32} or x.numel() == 0 or (x.requires_grad and torch.is_grad_enabled()):
            return functional.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
        rows = x.detach().reshape(-1, x.shape[-1]).contiguous()
        return norm(rows, self.weight, self.bias, self.eps).view(x.shape)
