"""The compiled part of a table of pairs, `pair_kernel.c`: a cell in one pass, where tensor operations take eight.

Where there is no compiler `usable` says no, and tensor operations do the same.

Axes: I row words   J column words   N = I J cells   U width
"""

import ctypes
import functools
import logging
import platform
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from .compiled import library
from .step_kernel import FLAGS, WIDE

__all__ = ["features", "slopes", "usable"]

log = logging.getLogger("encodeonce")

SOURCE = Path(__file__).with_name("pair_kernel.c")
SIMD = "-fopenmp-simd"


def usable(*tensors: Tensor) -> bool:
    """Whether there is a kernel and it can take these: fp32 in host memory."""
    return all(x.dtype == torch.float32 and x.device.type == "cpu" for x in tensors) and _library() is not None


def features(
    left: Float[Tensor, "I U"],
    right: Float[Tensor, "J U"],
    gain: Float[Tensor, " U"],
    shift: Float[Tensor, " U"],
    mask: Float[Tensor, "N U"] | None,
    eps: float,
) -> tuple[Float[Tensor, "N U"], Float[Tensor, " N"], Float[Tensor, " N"]]:
    """ELU(mask * LN(left_i + right_j)), and each cell's mean and inverse deviation."""
    rows, columns, width = len(left), len(right), left.shape[1]
    out = left.new_empty(rows * columns, width)
    mean, spread = left.new_empty(2, rows * columns)
    sizes = map(ctypes.c_long, (rows, columns, width))
    _call("pair_features", left, right, gain, shift, mask, ctypes.c_float(eps), *sizes, out, mean, spread)
    return out, mean, spread


def slopes(
    slope: Float[Tensor, "N U"],
    left: Float[Tensor, "I U"],
    right: Float[Tensor, "J U"],
    gain: Float[Tensor, " U"],
    mask: Float[Tensor, "N U"] | None,
    made: tuple[Float[Tensor, "N U"], Float[Tensor, " N"], Float[Tensor, " N"]],
    into: tuple[Float[Tensor, "I U"], Float[Tensor, "J U"], Float[Tensor, " U"], Float[Tensor, " U"]],
) -> None:
    """Adds to `into`, the gradients of left, right, gain and shift.

    `slope` is that of `made[0]` and is spoilt; `made` is what `features` gave.
    """
    sizes = map(ctypes.c_long, (len(left), len(right), left.shape[1]))
    _call("pair_slopes", slope, left, right, gain, mask, *made, *sizes, *into)


def _call(name: str, *arguments: Tensor | ctypes.c_long | ctypes.c_float | None) -> None:
    loaded = _library()
    assert loaded is not None
    for argument in arguments:
        assert not isinstance(argument, Tensor) or argument.is_contiguous()
    getattr(loaded, name)(*(ctypes.c_void_p(a.data_ptr()) if isinstance(a, Tensor) else a for a in arguments))


@functools.cache
def _library() -> ctypes.CDLL | None:
    """The loaded library, or None after a line in the log that says why."""
    found = library(SOURCE, (*FLAGS, WIDE, SIMD) if platform.machine() == "x86_64" else (*FLAGS, SIMD))
    if isinstance(found, str):
        log.info("tables of pairs run without the compiled kernel: %s", found)
        return None
    for name in ("pair_features", "pair_slopes"):
        getattr(found, name).restype = None
    return found
