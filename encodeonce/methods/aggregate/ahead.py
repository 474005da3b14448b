"""An iterator run one step ahead by a background thread, so that reading and computing overlap."""

import queue
import threading
from collections.abc import Iterator
from typing import Any, TypeVar

__all__ = ["ahead"]

T = TypeVar("T")
PATIENCE_S = 0.1


class _End:
    """Last thing in the queue: why the iterator ended."""

    def __init__(self, problem: BaseException | None = None) -> None:
        self.problem = problem


def ahead(values: Iterator[T], depth: int = 1) -> Iterator[T]:
    """The same values, at most `depth` of them waiting. `depth` 0 reads in the caller's thread.

    An exception is raised where the value it prevented would have come. The thread ends with the iterator, also when
    that is dropped or closed half-way.
    """
    if depth == 0:
        yield from values
        return
    waiting: queue.Queue[Any] = queue.Queue(maxsize=depth)
    stop = threading.Event()
    thread = threading.Thread(target=_fill, args=(values, waiting, stop), name="encodeonce-ahead", daemon=True)
    thread.start()
    try:
        while True:
            value = waiting.get()
            if isinstance(value, _End):
                if value.problem is not None:
                    raise value.problem
                return
            yield value
            del value  # so that the buffers of a batch are free as soon as its reader lets go of it
    finally:
        stop.set()
        thread.join()


def _fill(values: Iterator[Any], waiting: "queue.Queue[Any]", stop: threading.Event) -> None:
    try:
        for value in values:
            if not _put(value, waiting, stop):
                return
            del value
        _put(_End(), waiting, stop)
    except BaseException as problem:  # handed to the reader, which raises it
        _put(_End(problem), waiting, stop)


def _put(value: Any, waiting: "queue.Queue[Any]", stop: threading.Event) -> bool:
    while not stop.is_set():
        try:
            waiting.put(value, timeout=PATIENCE_S)
            return True
        except queue.Full:
            continue
    return False
