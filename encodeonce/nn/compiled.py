"""C sources of this room as shared libraries: built once by the compiler at hand, kept under a hash of what made them.

Raises nothing of its own: `library` returns why there is none, and whoever asked goes another way and says so.
"""

import atexit
import ctypes
import functools
import hashlib
import logging
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

__all__ = ["library", "private_folder", "processor_flags"]

log = logging.getLogger("encodeonce")

SECONDS = 120
"""What a compiler may take."""


@functools.cache
def processor_flags() -> str:
    """What this processor can do, as the kernel lists it; empty where it does not."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2] for line in lines if line.startswith(("flags", "Features"))), "")


def library(source: Path, flags: tuple[str, ...], more: tuple[Path, ...] = ()) -> ctypes.CDLL | str:
    """The library of a C file, and of `more` C files, compiled where no earlier process has left it; or why there is
    none. A file may include headers that lie beside it."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if os.name != "posix" or not compiler:
        return "there is no C compiler (cc, gcc or clang)"
    try:
        path = _built(source, compiler.split(), flags, more)
        try:
            return ctypes.CDLL(str(path))
        except OSError:  # left damaged, by a full disk or a power cut
            path.unlink()
            return ctypes.CDLL(str(_built(source, compiler.split(), flags, more)))
    except subprocess.SubprocessError as problem:
        said = (getattr(problem, "stderr", "") or str(problem)).strip().splitlines()
        return f"{compiler} cannot build {source.name}: {said[0] if said else problem}"
    except OSError as problem:
        return f"{source.name} cannot be built or loaded: {problem}"


def _built(source: Path, compiler: list[str], flags: tuple[str, ...], more: tuple[Path, ...]) -> Path:
    # the processor is part of the name: machines that differ may share a cache folder, and flags may say "native"
    sources = [source, *more]
    texts = [path.read_bytes() for path in (*sources, *sorted(source.parent.glob("*.h")))]
    made_of = [*texts, *(word.encode() for word in (*compiler, *flags, processor_flags()))]
    folder = private_folder()
    path = folder / f"{source.stem}-{hashlib.sha256(bytes(1).join(made_of)).hexdigest()[:20]}.so"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            fresh = Path(scratch) / path.name
            command = [*compiler, *flags, "-shared", "-fPIC", "-o", str(fresh), *map(str, sources), "-lm"]
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS)
            os.replace(fresh, path)
    return path


def private_folder() -> Path:
    """The user's cache folder where only the user can write to it, else a temporary one that ends with the process and
    is said: its files are run."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(base) / "encodeonce"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
        if found.st_uid == os.getuid() and not found.st_mode & 0o022 and os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return _passing(folder)


@functools.cache
def _passing(folder: Path) -> Path:
    """A temporary folder in its place, one a process."""
    log.warning(
        "%s is no folder that only you can write to: every process builds kernels and chooses products anew. Set "
        "XDG_CACHE_HOME to one.",
        folder,
    )
    own = Path(tempfile.mkdtemp(prefix="encodeonce-"))
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    return own
