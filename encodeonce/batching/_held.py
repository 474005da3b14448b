"""Items held in memory and found by key: what sources beside the store share.

Axes: N items   T rows of one item (pieces)
"""

from collections.abc import Sequence

import numpy as np

from ..errors import NotStored
from ..types import Spec

__all__ = ["Held"]


class Held:
    """An `examples.Source` but for `batch`. `keys` and `words` [T] are the items', in the same order; `absent` is what
    is said of an unknown key."""

    absent: str

    def __init__(self, spec: Spec, keys: Sequence[str], words: Sequence[np.ndarray]) -> None:
        self.spec = spec
        self._places = {key: place for place, key in enumerate(keys)}
        self._words = list(words)

    def index(self, keys: Sequence[str]) -> np.ndarray:
        """Int64 [N]: where each key is. NotStored names the first that is missing."""
        absent = next((key for key in keys if key not in self._places), None)
        if absent is not None:
            raise NotStored(self.absent.format(absent))
        return np.array([self._places[key] for key in keys], dtype=np.int64)

    def rows(self, index: np.ndarray) -> np.ndarray:
        """Int64 [N]: rows of each item."""
        return np.array([len(self._words[i]) for i in index], dtype=np.int64)

    def word(self, position: int) -> np.ndarray:
        """Int32 [T]: the word of each row, -1 for special pieces."""
        return self._words[position]

    def prefetch(self, index: np.ndarray, layers: Sequence[int] | None = None) -> None:
        """Nothing to fetch."""
