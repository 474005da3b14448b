"""The compiled part of a training step: `step_kernel.c`, built once by the machine's own C compiler and kept.

Where there is no compiler `usable` says no, and tensor operations do the same in more passes. The library lies in the
user's cache folder under the hash of its source, the compiler and the processor.

Axes: see `step_kernel.c`
"""

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

__all__ = ["call", "usable"]

log = logging.getLogger("encodeonce")

SOURCE = Path(__file__).with_name("step_kernel.c")
FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
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
)
"""Functions that return nothing; the others return 1 where they found no memory."""


def usable(*tensors: Tensor) -> bool:
    """Whether there is a kernel and it can take these: contiguous fp32 in host memory, widths multiples of 16."""
    fits = all(
        x.dtype == torch.float32 and x.device.type == "cpu" and x.is_contiguous() and x.shape[-1] % LANES == 0
        for x in tensors
    )
    return fits and all(x.numel() for x in tensors) and _library() is not None


def call(name: str, *arguments: Tensor | int | float | None) -> None:
    """Run one function of the library; tensors go as addresses, None as 0. MemoryError where it finds no memory."""
    library = _library()
    assert library is not None
    if getattr(library, name)(*map(_passed, arguments)):
        raise MemoryError(f"no memory for the working space of {name}")


def _passed(argument: Tensor | int | float | None) -> Any:
    if isinstance(argument, Tensor):
        return ctypes.c_void_p(argument.data_ptr())
    if isinstance(argument, float):
        return ctypes.c_float(argument)
    return ctypes.c_void_p() if argument is None else ctypes.c_long(argument)


@functools.cache
def _library() -> ctypes.CDLL | None:
    """The loaded library, or None after a line in the log that says why."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler or os.name != "posix":
        log.info("training steps run without the compiled kernel: no C compiler (cc, gcc or clang) was found")
        return None
    wide = (WIDE,) if platform.machine() == "x86_64" else ()
    try:
        library = ctypes.CDLL(str(_built(compiler.split(), (*FLAGS, *wide))))
    except (OSError, subprocess.SubprocessError) as problem:
        log.info("training steps run without the compiled kernel: %s", problem)
        return None
    for name in VOID:
        getattr(library, name).restype = None
    return library


def _built(compiler: list[str], flags: tuple[str, ...]) -> Path:
    """The shared library, compiled where no earlier process has left it."""
    made_of = [SOURCE.read_bytes(), *(word.encode() for word in (*compiler, *flags)), _processor()]
    folder = _private_folder()
    path = folder / f"step-{hashlib.sha256(b'|'.join(made_of)).hexdigest()[:20]}.so"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            fresh = Path(scratch) / path.name
            command = [*compiler, *flags, "-o", str(fresh), str(SOURCE), "-lm"]
            subprocess.run(command, check=True, capture_output=True, timeout=120)
            os.replace(fresh, path)
    return path


def _processor() -> bytes:
    """What `-march=native` depends on: a cache folder may be shared by machines that differ."""
    try:
        lines = Path("/proc/cpuinfo").read_bytes().splitlines()
    except OSError:
        return platform.processor().encode()
    return next((line for line in lines if line.startswith((b"flags", b"Features"))), b"")


def _private_folder() -> Path:
    """A cache folder that nobody else can write to, for a library is code; a temporary one where there is none."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "encodeonce"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        if status.st_uid == os.getuid() and not status.st_mode & 0o022 and os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="encodeonce-"))
