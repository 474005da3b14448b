"""Work of compiled kernels, which let go of Python's lock, shared out over torch's threads."""

import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

__all__ = ["shared_out"]


def shared_out(size: int, at_least: int, work: Callable[[int, int], int | None]) -> list[int | None]:
    """What work(first, number) gives over 0 ... size-1 in parts of at least `at_least`, one a thread of torch's."""
    threads = min(torch.get_num_threads(), max(1, size // at_least))
    share = -(-size // threads // at_least) * at_least
    parts = [(first, min(share, size - first)) for first in range(0, size, share)]
    if len(parts) == 1:
        return [work(*parts[0])]
    return list(_pool(os.getpid(), threads).map(lambda part: work(*part), parts))


@functools.cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Threads of this process: a forked child has none of its parent's."""
    return ThreadPoolExecutor(threads, thread_name_prefix="encodeonce-kernel")
