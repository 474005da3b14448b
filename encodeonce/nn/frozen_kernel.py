"""The compiled part of a frozen encoder: `frozen_kernel.c`, built once by the machine's own C compiler and kept.

Attention, layer norm and GELU need Linux on x86-64, AVX-512 and a C compiler, products need AMX bfloat16 too. Without
them the reason is given, and torch's own remain. The library lies in the user's cache folder under the hash of what
made it.

Axes: M rows   I inputs   O outputs   B items   H heads   T queries   S keys   D depth of a head
"""

import ctypes
import functools
import platform
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from jaxtyping import BFloat16, Float
from torch import Tensor

from .compiled import library, processor_flags
from .sharing import shared_out

__all__ = ["attention", "gelu", "kernel", "laid_out", "no_matrix_unit", "norm", "product"]

SOURCE = Path(__file__).with_name("frozen_kernel.c")
FLAGS = ("-O3",)
TILE = 32
"""Inputs in a tile, and outputs in a block of two tiles: weights are filled up with zeros to multiples of it."""
ROWS_A_THREAD = 64
"""Fewer rows than this are not worth a thread."""
NUMBERS_A_THREAD = 1 << 16
VECTOR_FLAGS = ("avx512f", "avx512bw", "avx512vl", "avx512dq", "fma")
"""What all of the kernel but its products is compiled for."""


@functools.cache
def kernel() -> ctypes.CDLL | str:
    """The loaded library, or why there is none."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return f"the kernel needs Linux on x86-64, this is {sys.platform} on {platform.machine()}"
    absent = [flag for flag in VECTOR_FLAGS if flag not in processor_flags().split()]
    if absent:
        return f"this processor has no {absent[0]}"
    found = library(SOURCE, FLAGS)
    if isinstance(found, str):
        return found
    whole, long, real, address = ctypes.c_int, ctypes.c_long, ctypes.c_float, ctypes.c_void_p
    found.frozen_product.argtypes = [*(address,) * 4, *(long,) * 3, whole, whole]
    found.frozen_attention.argtypes = [*(address,) * 5, long, address, address, real, whole]
    found.frozen_gelu.argtypes = [address, address, long]
    found.frozen_norm.argtypes = [*(address,) * 3, real, address, long, long]
    found.frozen_gelu.restype = found.frozen_norm.restype = None
    return found


@functools.cache
def no_matrix_unit() -> str:
    """Why the library cannot multiply; empty where it can."""
    found = kernel()
    if isinstance(found, str):
        return found
    refused = {1: "this processor has no AMX bfloat16 unit", 2: "the operating system does not allow AMX"}
    return refused.get(found.frozen_ready(), "")


def laid_out(weight: Float[Tensor, "O I"], parts: int) -> BFloat16[Tensor, "groups blocks parts 16 16 2"]:
    """A weight in tiles: its value rounded to bfloat16 and, with `parts` 2, what the rounding left, rounded too."""
    outputs, inputs = weight.shape
    filled = weight.new_zeros(-(-outputs // TILE) * TILE, -(-inputs // TILE) * TILE)
    filled[:outputs, :inputs] = weight
    rounded = [filled.to(torch.bfloat16)]
    if parts == 2:
        rounded.append((filled - rounded[0].float()).to(torch.bfloat16))
    tiles = [each.view(len(filled) // 16, 16, -1, 16, 2).permute(0, 2, 3, 1, 4) for each in rounded]
    return torch.stack(tiles, dim=2).contiguous()


def _library() -> ctypes.CDLL:
    library = kernel()
    assert isinstance(library, ctypes.CDLL)
    return library


def _shared_out(size: int, at_least: int, work: Callable[[int, int], int | None]) -> None:
    if any(shared_out(size, at_least, work)):
        raise MemoryError("no memory for the working space of a frozen encoder's kernel")


def _at(x: Tensor | None) -> int | None:
    return None if x is None else x.data_ptr()


def product(
    x: Float[Tensor, "M I"],
    tiles: BFloat16[Tensor, "groups blocks parts 16 16 2"],
    bias: Float[Tensor, " O"] | None,
    outputs: int,
    activate: bool = False,
) -> Float[Tensor, "M O"]:
    """x W^T + b for contiguous fp32 rows, `activate`: through GELU. How rows are shared out changes no bit of a row."""
    library, inputs, parts = _library(), x.shape[1], tiles.shape[2]
    y = x.new_empty(len(x), outputs)

    def multiply(first: int, rows: int) -> int:
        x_at, y_at = x.data_ptr() + 4 * first * inputs, y.data_ptr() + 4 * first * outputs
        return library.frozen_product(
            x_at, tiles.data_ptr(), _at(bias), y_at, rows, inputs, outputs, parts, int(activate)
        )

    _shared_out(len(x), ROWS_A_THREAD, multiply)
    return y


def attention(
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B H S D"],
    v: Float[Tensor, "B H S D"],
    mask: Float[Tensor, "#B #H #T S"] | None,
    scale: float,
) -> Float[Tensor, "B T H D"]:
    """softmax(scale q k^T + mask) v, computed in fp32, for q, k and v in fp32 or all in bfloat16, a row's depths next
    to each other in memory, D a multiple of 16."""
    library, half = _library(), q.dtype == torch.bfloat16
    items, heads, queries, depth = q.shape
    y = q.new_empty(items, queries, heads, depth)
    shape = (ctypes.c_long * 4)(heads, queries, k.shape[2], depth)
    between = [0, 0, 0] if mask is None else mask.expand(items, heads, queries, -1).stride()[:3]
    strides = (ctypes.c_long * 12)(*q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *between)

    def attend(first: int, number: int) -> int:
        starts = [each.data_ptr() + each.element_size() * first * each.stride(0) for each in (q, k, v)]
        mask_at = None if mask is None else mask.data_ptr() + 4 * first * between[0]
        y_at = y.data_ptr() + y.element_size() * first * y.stride(0)
        return library.frozen_attention(*starts, mask_at, y_at, number, shape, strides, scale, int(half))

    _shared_out(items, 1, attend)
    return y


def gelu(x: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """x Phi(x) for contiguous fp32, to 1e-7 (Abramowitz and Stegun 7.1.26 for the tail)."""
    library, y = _library(), torch.empty_like(x)

    def activate(first: int, size: int) -> None:
        library.frozen_gelu(x.data_ptr() + 4 * first, y.data_ptr() + 4 * first, size)

    _shared_out(x.numel(), NUMBERS_A_THREAD, activate)
    return y


def norm(
    x: Float[Tensor, "M D"], scale: Float[Tensor, " D"] | None, shift: Float[Tensor, " D"] | None, epsilon: float
) -> Float[Tensor, "M D"]:
    """Layer norm of contiguous fp32 rows."""
    library, y = _library(), torch.empty_like(x)
    step = 4 * x.shape[1]

    def normalise(first: int, rows: int) -> None:
        x_at, y_at = x.data_ptr() + step * first, y.data_ptr() + step * first
        library.frozen_norm(x_at, _at(scale), _at(shift), epsilon, y_at, rows, x.shape[1])

    _shared_out(len(x), ROWS_A_THREAD, normalise)
    return y
