"""Finding many keys among many: a sorted array of the first eight bytes, then the whole key compared.

Axes: N stored keys   B keys asked for
"""

import numpy as np

__all__ = ["Lookup"]


class Lookup:
    """16 bytes an item beside the keys; no Python object an item."""

    def __init__(self, keys: np.ndarray, there: np.ndarray | None = None) -> None:
        """`keys` uint8 [N, 32]; of equal ones the first is found. Only those that are `there`, bool [N], are."""
        self.keys = np.ascontiguousarray(keys)
        heads = prefix(self.keys)
        order = np.argsort(heads, kind="stable")
        self.order = order if there is None else order[there[order]]
        self.heads = heads[self.order]
        self.distinct = self.count_distinct()

    def count_distinct(self) -> int:
        """Different keys; only neighbours with the same head need a closer look."""
        same = np.flatnonzero(self.heads[1:] == self.heads[:-1])
        if not len(same):
            return len(self.heads)
        close = np.unique(np.concatenate([same, same + 1]))
        twins = {self.keys[position].tobytes() for position in self.order[close]}
        return len(self.heads) - len(close) + len(twins)

    def find(self, keys: np.ndarray) -> np.ndarray:
        """Position of each of `keys` uint8 [B, 32] as int64 [B]; -1 where it is not stored."""
        heads = prefix(keys)
        place = np.searchsorted(self.heads, heads)
        found = np.full(len(keys), -1, np.int64)
        open_ = np.arange(len(keys))
        while len(open_):
            here = place[open_]
            inside = here < len(self.heads)
            open_, here = open_[inside], here[inside]
            alike = self.heads[here] == heads[open_]
            open_, here = open_[alike], here[alike]
            position = self.order[here]
            equal = (self.keys[position] == keys[open_]).all(1)
            found[open_[equal]] = position[equal]
            open_ = open_[~equal]
            place[open_] += 1
        return found


def prefix(keys: np.ndarray) -> np.ndarray:
    """The first eight bytes of each key as a number."""
    return np.ascontiguousarray(keys[:, :8]).view(">u8").reshape(-1).astype(np.uint64)
