"""Cutting an item that is longer than the encoder's window into overlapping windows; nothing is ever cut off.

A window holds whole words, with the special pieces put around each; each word's vectors come from the window in which
it stands most central.
"""

import numpy as np

from ..errors import ConfigError

__all__ = ["Window", "plan", "room_for"]

Window = tuple[int, int, int, int]


def room_for(window: int, overlap: int, special: int) -> int:
    """Pieces of words in one window; ConfigError with the numbers where the overlap leaves no way forward."""
    room = window - special
    if room < 1:
        raise ConfigError(
            f"window={window} leaves no room beside {special} special pieces; give at least {special + 1}."
        )
    if not 0 <= overlap < room:
        raise ConfigError(
            f"overlap={overlap} must be at least 0 and less than the room for words, {room}"
            f" (window={window} less {special} special pieces)."
        )
    return room


def plan(word: np.ndarray, before: int, after: int, window: int, overlap: int) -> tuple[Window, ...]:
    """Windows `(start, stop, keep_start, keep_stop)` over the rows of one item; see `Pieces`.

    `word` int [T] is the word of every row, `before` and `after` the number of special rows at its ends. Two windows
    share at most `overlap` rows, save the last, which reaches back until it is full. A word longer than a window is cut
    into parts of half a window. Raises ConfigError where overlap >= room.
    """
    room = room_for(window, overlap, before + after)
    rows, body = len(word), len(word) - before - after
    if body <= room:
        return ((before, rows - after, 0, rows),)
    edges = _edges(word[before : rows - after], room)
    starts, stops = _spans(edges, room, overlap)
    owner = _owners(edges, starts, stops)
    own, first = np.unique(owner, return_index=True)
    windows: list[Window] = []
    for k, unit, end in zip(own, first, [*first[1:], len(owner)], strict=True):
        keep_start, keep_stop = edges[unit] + before, edges[end] + before
        windows.append((int(starts[k]) + before, int(stops[k]) + before, int(keep_start), int(keep_stop)))
    windows[0] = (*windows[0][:2], 0, windows[0][3])
    windows[-1] = (*windows[-1][:3], rows)
    return tuple(windows)


def _edges(word: np.ndarray, room: int) -> np.ndarray:
    """Rows at which a window may begin or end: word starts, and places inside words longer than `room`."""
    starts = np.flatnonzero(np.diff(word, prepend=word[0] - 1)).tolist()
    edges: list[int] = []
    part = max(1, room // 2)
    for start, stop in zip(starts, [*starts[1:], len(word)], strict=True):
        edges.extend(range(start, stop, part) if stop - start > room else (start,))
    return np.array([*edges, len(word)])


def _spans(edges: np.ndarray, room: int, overlap: int) -> tuple[np.ndarray, np.ndarray]:
    """Start and stop of each window: as full as whole words allow, each beginning at most `overlap` rows back."""
    total, spans, start = edges[-1], [], 0
    while True:
        stop = edges[np.searchsorted(edges, start + room, side="right") - 1]
        if stop == total:
            spans.append((edges[np.searchsorted(edges, total - room)], total))
            break
        spans.append((start, stop))
        start = max(edges[np.searchsorted(edges, stop - overlap)], edges[np.searchsorted(edges, start, side="right")])
    return np.array([span[0] for span in spans]), np.array([span[1] for span in spans])


def _owners(edges: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """The window whose middle is nearest to each unit between two edges, of those that hold it whole; they ascend.

    Windows ascend at both ends, so those that hold a unit are neighbours, and no table of units by windows is needed.
    """
    middles, centres = (starts + stops) / 2, (edges[:-1] + edges[1:]) / 2
    after = np.clip(np.searchsorted(middles, centres), 1, len(middles) - 1)
    nearest = after - (centres - middles[after - 1] <= middles[after] - centres)
    return np.clip(nearest, np.searchsorted(stops, edges[1:]), np.searchsorted(starts, edges[:-1], side="right") - 1)
