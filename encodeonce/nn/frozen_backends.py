"""Ways to multiply by a weight that never changes: what is known before the first call is prepared once.

    plain         torch's own fp32 product
    onednn        fp32 through oneDNN, the weight laid out for it once
    bf16x3        fp32 to about 5e-6 by three bfloat16 products with fp32 sums: x = x1 + x2 and W = W1 + W2, where x1
                  is x rounded to bfloat16 and x2 what is left; x W = x1 W1 + x2 W1 + x1 W2, and x2 W2 (2^-18 of it)
                  is left out (Henry, Tang, Heinecke: "Leveraging the bfloat16 Artificial Intelligence Datatype for
                  Higher-Precision Computations", ARITH 2019)
    bf16x3_mkl    the same through MKL, where there is no compiler for the kernel
    bf16          one bfloat16 product with fp32 sums, bf16_mkl the same through MKL
    bf16_onednn   one bfloat16 product, its result rounded to bfloat16

Nothing here reads or sets a global switch of torch.

Axes: M rows   I inputs   O outputs
"""

import ctypes
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from .frozen_kernel import laid_out, no_matrix_unit, product

__all__ = ["Backend", "Bf16", "Bf16Mkl", "Bf16OneDnn", "Bf16x3", "Bf16x3Mkl", "OneDnn", "Plain"]

ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE = 101, 111, 112
"""CBLAS constants."""
TYPICAL_ROWS = 512
"""The number of rows oneDNN is told to expect when it lays out a weight; any number may follow."""
ROWS_AT_ONCE = 1024
"""Split inputs are made for this many rows at a time, so that they stay in the cache."""


class Backend(ABC):
    """One way to multiply. `pack` is called once a weight, `multiply` once a batch."""

    name: str
    tolerance: float
    """Largest relative error (Frobenius norm) a product may have against float64."""
    takes = torch.float32
    """What rows are converted to before a product."""
    compiled = False
    """Whether the kernel multiplies, so that norms and activations between the products go through it too."""

    @abstractmethod
    def missing(self) -> str:
        """Why this cannot run here; empty where it can."""

    @abstractmethod
    def pack(self, weight: Float[Tensor, "O I"], bias: Float[Tensor, " O"] | None) -> Any:
        """What `multiply` needs of a weight."""

    @abstractmethod
    def multiply(self, x: Float[Tensor, "M I"], packed: Any, activate: bool = False) -> Float[Tensor, "M O"]:
        """x W^T + b for contiguous rows of the type it `takes`, at least one, in that type; `activate`: GELU (the exact
        one) of it."""


def _activated(y: Float[Tensor, "M O"], activate: bool) -> Float[Tensor, "M O"]:
    return functional.gelu(y) if activate else y


class Plain(Backend):
    """torch's own product: always there, and the measure for the others."""

    name = "plain"
    tolerance = 1e-5

    def missing(self) -> str:
        return ""

    def pack(self, weight: Float[Tensor, "O I"], bias: Float[Tensor, " O"] | None) -> Any:
        return weight, bias

    def multiply(self, x: Float[Tensor, "M I"], packed: Any, activate: bool = False) -> Float[Tensor, "M O"]:
        return _activated(functional.linear(x, *packed), activate)


def _missing_onednn() -> str:
    if not torch.backends.mkldnn.is_available():
        return "this torch is built without oneDNN"
    names = ("_linear_pointwise", "_reorder_linear_weight")
    absent = [name for name in names if not hasattr(torch.ops.mkldnn, name)]
    return f"this torch has no operator mkldnn.{absent[0]}" if absent else ""


class OneDnn(Backend):
    """fp32 through oneDNN: up to a fifth faster than torch's default on AMD, the same on Intel."""

    name = "onednn"
    tolerance = 1e-5

    def missing(self) -> str:
        return _missing_onednn()

    def pack(self, weight: Float[Tensor, "O I"], bias: Float[Tensor, " O"] | None) -> Any:
        return torch.ops.mkldnn._reorder_linear_weight(weight, TYPICAL_ROWS), bias

    def multiply(self, x: Float[Tensor, "M I"], packed: Any, activate: bool = False) -> Float[Tensor, "M O"]:
        return torch.ops.mkldnn._linear_pointwise(x, *packed, "gelu" if activate else "none", [], "none")


class Bf16OneDnn(Backend):
    """bfloat16 through oneDNN; the result is rounded to bfloat16 too."""

    name = "bf16_onednn"
    tolerance = 1e-2
    takes = torch.bfloat16

    def missing(self) -> str:
        absent = _missing_onednn()
        if not absent and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            absent = "oneDNN has no bfloat16 on this processor (it takes AVX-512 or AVX-NE-CONVERT)"
        return absent

    def pack(self, weight: Float[Tensor, "O I"], bias: Float[Tensor, " O"] | None) -> Any:
        packed = torch.ops.mkldnn._reorder_linear_weight(weight.bfloat16(), TYPICAL_ROWS)
        return packed, None if bias is None else bias.bfloat16()

    def multiply(self, x: Float[Tensor, "M I"], packed: Any, activate: bool = False) -> Float[Tensor, "M O"]:
        return torch.ops.mkldnn._linear_pointwise(x, *packed, "gelu" if activate else "none", [], "none")


@functools.cache
def _bf16_product() -> Callable[..., None] | str:
    """MKL's documented `cblas_gemm_bf16bf16f32`, which torch's library carries and exports, or why it is not there.

    bfloat16 times bfloat16 into fp32 is what torch's own operators do not offer on a CPU.
    """
    for path in sorted((Path(torch.__file__).parent / "lib").glob("*torch_cpu*")):
        try:
            function = ctypes.CDLL(str(path)).cblas_gemm_bf16bf16f32
        except (OSError, AttributeError):
            continue
        whole, real, address = ctypes.c_int, ctypes.c_float, ctypes.c_void_p
        function.argtypes = [
            *(whole,) * 6, real, address, whole, address, whole, real, address, whole
        ]  # fmt: skip
        function.restype = None
        return function
    return "this torch's library exports no cblas_gemm_bf16bf16f32 (a build without MKL)"


def _accumulate(y: Float[Tensor, "M O"], x: Tensor, weight: Tensor) -> None:
    """y += x W^T for bfloat16 x [M, I] (rows may be apart) and W [O, I]."""
    multiply = _bf16_product()
    assert not isinstance(multiply, str)
    rows, inputs = x.shape
    outputs = weight.shape[0]
    multiply(
        ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE, rows, outputs, inputs,
        1.0, x.data_ptr(), x.stride(0), weight.data_ptr(), weight.stride(0), 1.0, y.data_ptr(), y.stride(0),
    )  # fmt: skip


def _filled(x: Float[Tensor, "M I"], weight: Tensor, bias: Float[Tensor, " O"] | None) -> Float[Tensor, "M O"]:
    """An output to accumulate into: the bias in every row, or zeros."""
    y = x.new_empty(len(x), len(weight))
    return y.zero_() if bias is None else y.copy_(bias.expand_as(y))


def _rounded(x: Tensor) -> tuple[Tensor, Tensor]:
    """x = high + low up to 2^-18 of x, both bfloat16."""
    high = x.to(torch.bfloat16)
    return high, torch.sub(x, high).to(torch.bfloat16)


class _Tiled(Backend):
    """Weights laid out for the compiled kernel (AMX), as the sum of `parts` bfloat16 matrices."""

    parts: int
    compiled = True

    def missing(self) -> str:
        return no_matrix_unit()

    def pack(self, weight: Float[Tensor, "O I"], bias: Float[Tensor, " O"] | None) -> Any:
        return laid_out(weight, self.parts), bias, len(weight)

    def multiply(self, x: Float[Tensor, "M I"], packed: Any, activate: bool = False) -> Float[Tensor, "M O"]:
        tiles, bias, outputs = packed
        return product(x, tiles, bias, outputs, activate)


class Bf16x3(_Tiled):
    """fp32 by three bfloat16 products in one pass."""

    name = "bf16x3"
    tolerance = 1e-5
    parts = 2


class Bf16(_Tiled):
    """One bfloat16 product with fp32 sums, fp32 in and out."""

    name = "bf16"
    tolerance = 1e-2
    parts = 1


class Bf16x3Mkl(Backend):
    """fp32 by three bfloat16 products: for processors whose bfloat16 unit is more than three times as fast (AMX)."""

    name = "bf16x3_mkl"
    tolerance = 1e-5

    def missing(self) -> str:
        found = _bf16_product()
        return found if isinstance(found, str) else ""

    def pack(self, weight: Float[Tensor, "O I"], bias: Float[Tensor, " O"] | None) -> Any:
        high, low = _rounded(weight)
        return torch.cat([high, low, high], dim=1), bias

    def multiply(self, x: Float[Tensor, "M I"], packed: Any, activate: bool = False) -> Float[Tensor, "M O"]:
        weight, bias = packed
        y = _filled(x, weight, bias)
        for rows, out in zip(x.split(ROWS_AT_ONCE), y.split(ROWS_AT_ONCE), strict=True):
            high, low = _rounded(rows)
            _accumulate(out, torch.cat([high, high, low], dim=1), weight)
        return _activated(y, activate)


class Bf16Mkl(Backend):
    """One bfloat16 product with fp32 sums and an fp32 result."""

    name = "bf16_mkl"
    tolerance = 1e-2

    def missing(self) -> str:
        found = _bf16_product()
        return found if isinstance(found, str) else ""

    def pack(self, weight: Float[Tensor, "O I"], bias: Float[Tensor, " O"] | None) -> Any:
        return weight.to(torch.bfloat16).contiguous(), bias

    def multiply(self, x: Float[Tensor, "M I"], packed: Any, activate: bool = False) -> Float[Tensor, "M O"]:
        weight, bias = packed
        y = _filled(x, weight, bias)
        _accumulate(y, x.to(torch.bfloat16), weight)
        return _activated(y, activate)
