"""Where half-precision input becomes fp32: once, at a block's entrance."""

import torch
from torch import Tensor

__all__ = ["at_least_fp32"]


def at_least_fp32(values: Tensor) -> Tensor:
    """fp16 and bf16 become fp32; fp32 and fp64 pass untouched."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
