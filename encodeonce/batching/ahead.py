"""An iterator run one step ahead by a background thread, so that reading and computing overlap."""

import queue
import threading
from collections.abc import Iterator
from typing import Any, TypeVar

__all__ = ["ahead"]

T = TypeVar("T")


class _End:
    """Last thing in the queue: why the iterator ended."""

    def __init__(self, problem: BaseException | None = None) -> None:
        self.problem = problem


def ahead(values: Iterator[T], depth: int = 1) -> Iterator[T]:
    """The same values, at most `depth` of them read before they are asked for. 0 reads in the caller's thread.

    An exception is raised where the value it prevented would have come. The thread ends with the iterator, also when
    that is dropped or closed half-way.
    """
    if depth == 0:
        yield from values
        return
    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
    room, stop = threading.Semaphore(depth), threading.Event()
    arguments = (values, waiting, room, stop)
    thread = threading.Thread(target=_fill, args=arguments, name="encodeonce-ahead", daemon=True)
    thread.start()
    try:
        while True:
            value = waiting.get()
            if isinstance(value, _End):
                if value.problem is not None:
                    raise value.problem
                return
            room.release()
            yield value
            del value  # so that the memory of a batch is free as soon as its reader lets go of it
    finally:
        stop.set()
        room.release()
        thread.join()


def _fill(
    values: Iterator[Any], waiting: "queue.SimpleQueue[Any]", room: threading.Semaphore, stop: threading.Event
) -> None:
    """Room is asked for before a value is read: a value in hand is memory too."""
    try:
        end = _End()
        while room.acquire() and not stop.is_set():
            value = next(values, end)
            waiting.put(value)
            if value is end:
                return
            del value  # it is its reader's alone
    except BaseException as problem:  # handed to the reader, which raises it
        waiting.put(_End(problem))
