"""The compiled product of a scan, `scan_kernel.c`: rows of bytes against queries of two bytes a coordinate.

Where there is no compiler `usable` says no, and the scan multiplies in torch.

Axes: n rows   Q queries   D width, a multiple of `STEP`
"""

import ctypes
import functools
import logging
from pathlib import Path

import torch
from jaxtyping import Float, Int8, Int16
from torch import Tensor

from ..nn.compiled import library
from ..nn.sharing import shared_out
from ..nn.step_kernel import FLAGS

__all__ = ["STEP", "products", "usable"]

log = logging.getLogger("encodeonce")

SOURCE = Path(__file__).with_name("scan_kernel.c")
STEP = 16
"""Coordinates that are read at a time."""
ROWS_A_THREAD = 1 << 12


def usable() -> bool:
    """Whether there is a kernel here."""
    return _library() is not None


def products(
    rows: Int8[Tensor, "n D"], queries: Int16[Tensor, "Q D"], unit: Float[Tensor, " n"], asked: Float[Tensor, " Q"]
) -> Float[Tensor, "Q n"]:
    """Inner products times the units of both sides. D times the largest product of two coordinates must fit int32."""
    loaded = _library()
    assert loaded is not None
    assert all(x.is_contiguous() for x in (rows, queries, unit, asked))
    n, n_queries, width = len(rows), len(queries), rows.shape[1]
    out = torch.empty(n_queries, n)

    def multiply(first: int, number: int) -> None:
        row, one, made = rows.data_ptr() + first * width, unit.data_ptr() + 4 * first, out.data_ptr() + 4 * first
        loaded.scan_products(row, queries.data_ptr(), one, asked.data_ptr(), number, n_queries, width, made, n)

    shared_out(n, ROWS_A_THREAD, multiply)
    return out


@functools.cache
def _library() -> ctypes.CDLL | None:
    """The loaded library, or None after a line in the log that says why."""
    found = library(SOURCE, FLAGS)
    if isinstance(found, str):
        log.info("vectors are searched without the compiled kernel: %s", found)
        return None
    found.scan_products.restype = None
    found.scan_products.argtypes = [*[ctypes.c_void_p] * 4, *[ctypes.c_long] * 3, ctypes.c_void_p, ctypes.c_long]
    return found
