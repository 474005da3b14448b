"""GELU (the exact one, x Phi(x); Hendrycks and Gimpel 2016) of a frozen encoder through the compiled kernel."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from .frozen_kernel import gelu

__all__ = ["FrozenGelu"]


class FrozenGelu(nn.Module):
    """Stands where a GELU stood, for inference in fp32; other types go to torch."""

    def forward(self, x: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        if x.dtype != torch.float32 or x.numel() == 0 or (x.requires_grad and torch.is_grad_enabled()):
            return functional.gelu(x)
        return gelu(x.detach().contiguous())
