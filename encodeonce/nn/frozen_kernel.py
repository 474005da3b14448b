"""The compiled part of frozen products: `frozen_kernel.c`, built once by the machine's own C compiler and kept.

Without Linux on x86-64, a processor with AMX bfloat16 and a C compiler there is no kernel, the reason is given, and the
other back ends remain. The library lies in the user's cache folder under the hash of what made it.

Axes: M rows   I inputs   O outputs
"""

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from jaxtyping import BFloat16, Float
from torch import Tensor

__all__ = ["gelu", "kernel", "laid_out", "product"]

SOURCE = Path(__file__).with_name("frozen_kernel.c")
FLAGS = ("-O3", "-shared", "-fPIC")
TILE = 32
"""Inputs in a tile, and outputs in a block of two tiles: weights are filled up with zeros to multiples of it."""
ROWS_A_THREAD = 64
"""Fewer rows than this are not worth a thread."""


@functools.cache
def kernel() -> ctypes.CDLL | str:
    """The loaded library, or why there is none."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return f"the kernel needs Linux on x86-64, this is {sys.platform} on {platform.machine()}"
    if "amx_bf16" not in _processor_flags():
        return "this processor has no AMX bfloat16 unit"
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        return "there is no C compiler (cc, gcc or clang)"
    try:
        library = ctypes.CDLL(str(_built(compiler)))
    except subprocess.SubprocessError as problem:
        said = getattr(problem, "stderr", "") or str(problem)
        return f"{compiler} cannot build the kernel: {said.strip().splitlines()[0]}"
    except OSError as problem:
        return f"the kernel cannot be built or loaded: {problem}"
    long, address = ctypes.c_long, ctypes.c_void_p
    library.frozen_product.argtypes = [*(address,) * 4, *(long,) * 3, ctypes.c_int]
    library.frozen_gelu.argtypes = [address, address, long]
    library.frozen_gelu.restype = None
    refused = {1: "this processor has no AMX bfloat16 unit", 2: "the operating system does not allow AMX"}
    return refused.get(library.frozen_ready(), library)


def _processor_flags() -> frozenset[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line.partition(":")[2] for line in lines if line.startswith("flags")), "").split())


def _built(compiler: str) -> Path:
    """The shared library, compiled where no earlier process has left it."""
    source = SOURCE.read_bytes()
    digest = hashlib.sha256(b"\0".join([source, compiler.encode(), *(flag.encode() for flag in FLAGS)])).hexdigest()
    folder = _private_folder()
    path = folder / f"frozen-{digest[:20]}.so"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            fresh = Path(scratch) / path.name
            command = [*compiler.split(), *FLAGS, "-o", str(fresh), str(SOURCE)]
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
            os.replace(fresh, path)
    return path


def _private_folder() -> Path:
    """The user's cache folder where only the user can write to it, else a fresh temporary one: its files are run."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(base) / "encodeonce"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
        if found.st_uid == os.getuid() and not found.st_mode & 0o022 and os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="encodeonce-"))


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


def product(
    x: Float[Tensor, "M I"],
    tiles: BFloat16[Tensor, "groups blocks parts 16 16 2"],
    bias: Float[Tensor, " O"] | None,
    outputs: int,
) -> Float[Tensor, "M O"]:
    """x W^T + b; rows are shared out over torch's threads, which changes no bit of any row."""
    library = kernel()
    assert isinstance(library, ctypes.CDLL)
    y = x.new_empty(len(x), outputs)
    inputs, parts = x.shape[1], tiles.shape[2]

    def multiply(first: int, rows: int) -> int:
        x_at, y_at = x.data_ptr() + 4 * first * inputs, y.data_ptr() + 4 * first * outputs
        b_at = None if bias is None else bias.data_ptr()
        return library.frozen_product(x_at, tiles.data_ptr(), b_at, y_at, rows, inputs, outputs, parts)

    threads = min(torch.get_num_threads(), max(1, len(x) // ROWS_A_THREAD))
    if threads == 1:
        failed = multiply(0, len(x))
    else:
        share = -(-len(x) // threads // TILE) * TILE
        firsts = range(0, len(x), share)
        failed = max(_pool(os.getpid(), threads).map(lambda first: multiply(first, min(share, len(x) - first)), firsts))
    if failed:
        raise MemoryError("no memory for the split rows of a frozen product")
    return y


@functools.cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Threads of this process: a forked child has none of its parent's."""
    return ThreadPoolExecutor(threads, thread_name_prefix="encodeonce-product")


def gelu(x: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """x Phi(x) for contiguous fp32, to 1e-7 (Abramowitz and Stegun 7.1.26 for the tail)."""
    library = kernel()
    assert isinstance(library, ctypes.CDLL)
    y = torch.empty_like(x)
    library.frozen_gelu(x.data_ptr(), y.data_ptr(), x.numel())
    return y
