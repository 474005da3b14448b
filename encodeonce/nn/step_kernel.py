"""The compiled part of a training step: two C files, built once by the machine's own C compiler and kept.

Where there is no compiler `usable` says no, and tensor operations do the same in more passes. The library lies in the
user's cache folder under the hash of its sources, the compiler and the processor.

Axes: see the C files
"""

import ctypes
import functools
import logging
import platform
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .compiled import library

__all__ = ["LANES", "call", "plain", "usable"]

log = logging.getLogger("encodeonce")

SOURCE = Path(__file__).with_name("step_kernel.c")
MORE = (SOURCE.with_name("block_kernel.c"),)
FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math")
WIDE = "-mprefer-vector-width=512"
LANES = 16
VOID = (
    "view_means",
    "mix_views",
    "mix_views_slope",
    "norm16",
    "norm16_slope",
    "feed",
    "feed_slope",
    "drop16",
    "drop16_slope",
    "tanh16",
    "tanh16_slope",
    "add_norm",
    "add_norm_slope",
    "gelu16",
    "gelu16_slope",
)
"""Functions that return nothing; the others return 1 where they found no memory."""


def usable(*tensors: Tensor) -> bool:
    """Whether there is a kernel and it can take these: contiguous fp32 in host memory, widths multiples of 16."""
    fits = all(
        x.dtype == torch.float32 and x.device.type == "cpu" and x.is_contiguous() and x.shape[-1] % LANES == 0
        for x in tensors
    )
    return fits and all(x.numel() for x in tensors) and _library() is not None


def plain(x: Tensor) -> Tensor:
    """As the library reads it, fp32 and contiguous: under `torch.autocast` projections come out in bf16."""
    return x.float().contiguous()


def call(name: str, *arguments: Tensor | int | float | None) -> None:
    """Run one function of the library; tensors go as addresses, None as 0. MemoryError where it finds no memory."""
    loaded = _library()
    assert loaded is not None
    if getattr(loaded, name)(*map(_passed, arguments)):
        raise MemoryError(f"no memory for the working space of {name}")


def _passed(argument: Tensor | int | float | None) -> Any:
    if isinstance(argument, Tensor):
        assert argument.is_contiguous(), "the library reads memory in order"
        return ctypes.c_void_p(argument.data_ptr())
    if isinstance(argument, float):
        return ctypes.c_float(argument)
    return ctypes.c_void_p() if argument is None else ctypes.c_long(argument)


@functools.cache
def _library() -> ctypes.CDLL | None:
    """The loaded library, or None after a line in the log that says why."""
    found = library(SOURCE, (*FLAGS, WIDE) if platform.machine() == "x86_64" else FLAGS, MORE)
    if isinstance(found, str):
        log.info("training steps run without the compiled kernel: %s", found)
        return None
    for name in VOID:
        getattr(found, name).restype = None
    return found
