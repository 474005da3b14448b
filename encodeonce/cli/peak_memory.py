"""How much memory a piece of work adds to the process: its own pages, not those of mapped files such as the store's."""

import ctypes
import ctypes.util
import gc
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Peak", "measured_peak"]

log = logging.getLogger("encodeonce")

EVERY = 0.01
"""Seconds between two looks."""

STATM = Path("/proc/self/statm")


class Peak:
    """`mb` is the peak above what was held at the start, in 10^6 bytes; None where the system does not say."""

    def __init__(self) -> None:
        self.mb: float | None = None


@contextmanager
def measured_peak() -> Iterator[Peak]:
    """The peak of what runs inside: of the process's anonymous pages (Linux), which a thread looks at every 10 ms.

    Memory that is held for less may be missed. Training takes none of a GPU, which only runs the frozen encoder.
    """
    peak = Peak()
    _give_back()
    base = _own_bytes()
    if base is None:
        log.debug("this system does not say how much memory a process has of its own")
        yield peak
        return
    highest, stop = [base], threading.Event()

    def look() -> None:
        while not stop.wait(EVERY):
            highest[0] = max(highest[0], _own_bytes() or 0)

    watcher = threading.Thread(target=look, name="peak memory", daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        stop.set()
        watcher.join()
        peak.mb = (max(highest[0], _own_bytes() or 0) - base) / 1e6


def _own_bytes() -> int | None:
    """Resident pages that are no file's."""
    try:
        _, resident, shared, *_ = STATM.read_text().split()
    except (OSError, ValueError):
        return None
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


def _give_back() -> None:
    """Let the system have what is free but still held, so that it is counted where it is used again."""
    gc.collect()
    name = ctypes.util.find_library("c")
    trim = getattr(ctypes.CDLL(name), "malloc_trim", None) if name else None
    if trim is not None:
        trim(0)
