"""Rows of an encoder's views, rounded as a store would keep them: in one pass where there is a compiled kernel.

Axes: M rows there are   N rows chosen   D width
"""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from .frozen_kernel import kernel, rows

__all__ = ["copy_rows"]


def copy_rows(
    x: Float[Tensor, "M D"], chosen: Int64[Tensor, " N"], rounded: torch.dtype, out: Float[Tensor, "N D"]
) -> None:
    """out = x[chosen] with values rounded to that type and back."""
    if not len(chosen):
        return
    on_cpu = all(each.device.type == "cpu" and each.is_contiguous() for each in (x, chosen, out))
    if on_cpu and x.dtype == out.dtype == torch.float32 and not isinstance(kernel(), str):
        rows(x.detach(), chosen, rounded, out)
    else:
        out.copy_(x.index_select(0, chosen).to(rounded))
