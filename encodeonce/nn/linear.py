"""A linear map whose products may run in bf16, with fp32 weights, sums, input and output.

Axes: N rows   I input width   O output width
"""

import functools
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..errors import ConfigError
from .step_kernel import usable

__all__ = ["COMPUTE", "Linear", "fastest_compute", "has_bf16_units", "product16", "rounded_rows"]

COMPUTE = ("fp32", "bf16")
"""Number types of matrix products; weights, gradients and optimiser states are fp32 in both."""

ROWS = 64


@functools.cache
def has_bf16_units() -> bool:
    """Whether this processor has instructions for bf16: AMX (a product up to some five times faster than fp32's) or
    AVX-512 BF16 (two times)."""
    units = (getattr(torch.cpu, name, None) for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported"))
    return any(unit is not None and unit() for unit in units)


def fastest_compute(live: bool = False) -> str:
    """What to choose here: bf16 where the processor has instructions for it, and for blocks that are trained (`live`)
    also where their kernels are compiled: the products take as long as in fp32 then, what lies between them less."""
    return "bf16" if has_bf16_units() or (live and usable()) else "fp32"


def product16(x: Tensor, y: Tensor) -> Tensor:
    """x y, [N, I] by [I, O], of bf16 operands with fp32 sums, rounded to bf16; other types are torch's.

    On a processor without instructions for bf16 torch's own product is far slower than fp32's: there the same rounded
    values are multiplied in fp32, so that "bf16" means one arithmetic everywhere, up to the order of the sums.
    """
    if x.dtype != torch.bfloat16 or x.device.type != "cpu" or has_bf16_units():
        return torch.mm(x, y)
    return torch.mm(x.float(), y.float()).bfloat16()


def rounded_rows(like: Tensor, width: int, fill: bool = False) -> Tensor:
    """bf16 memory for as many rows as `like` has, then zero rows up to a multiple of ROWS; `fill` copies the rows.

    oneDNN builds a kernel for every new shape, which costs milliseconds, and a packed batch has nearly always a new
    number of rows.
    """
    n_rows = len(like)
    rounded = like.new_empty(-(-n_rows // ROWS) * ROWS, width, dtype=torch.bfloat16)
    rounded[n_rows:] = 0
    if fill:
        rounded[:n_rows] = like
    return rounded


class _Bf16Linear(torch.autograd.Function):
    """x W^T + b with bf16 operands: each of the three products of a training step reads rounded copies."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        x16, weight16 = rounded_rows(x, x.shape[1], fill=True), weight.bfloat16()
        ctx.save_for_backward(x16, weight16)
        return product16(x16, weight16.T)[: len(x)].float().add_(bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        x16, weight16 = ctx.saved_tensors
        slope16 = rounded_rows(gradients[0], gradients[0].shape[1], fill=True)
        to_x = product16(slope16, weight16)[: len(gradients[0])].float() if ctx.needs_input_grad[0] else None
        return to_x, product16(slope16.T, x16).float(), gradients[0].sum(0)


class Linear(nn.Linear):
    """torch's Linear with its initialisation; `compute="bf16"` rounds the operands of its matrix products to bf16."""

    def __init__(self, in_width: int, out_width: int, compute: str = "fp32") -> None:
        super().__init__(in_width, out_width)
        if compute not in COMPUTE:
            raise ConfigError(f"compute={compute!r} is unknown. There is: {', '.join(COMPUTE)}.")
        self.compute = compute

    def forward(self, x: Float[Tensor, "N I"]) -> Float[Tensor, "N O"]:
        """x W^T + b."""
        if self.compute == "bf16":
            return _Bf16Linear.apply(x, self.weight, self.bias)
        return super().forward(x)
