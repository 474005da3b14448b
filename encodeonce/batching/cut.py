"""Items as piece ids, read as a store is read: for methods that run the embeddings themselves.

Axes: N items   T rows of one item (pieces)   P rows of a batch
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..errors import ConfigError, NotStored
from ..nn.packed import Packed
from ..types import Pieces, Spec

__all__ = ["Cut"]


class Cut:
    """`pieces` of a tokenizer; nothing is encoded, no view can be read. An `examples.Source`."""

    def __init__(self, spec: Spec, pieces: Sequence[Pieces]) -> None:
        self.spec = spec
        self._places = {item.key: place for place, item in enumerate(pieces)}
        self._ids = [torch.from_numpy(item.ids.astype(np.int64)) for item in pieces]
        self._segments = [item.segments for item in pieces]
        self._words = [item.word for item in pieces]

    def index(self, keys: Sequence[str]) -> np.ndarray:
        """Int64 [N]: where each key is. NotStored names the first that is missing."""
        absent = next((key for key in keys if key not in self._places), None)
        if absent is not None:
            raise NotStored(f"no pieces of the item with key {absent}: cut its document too.")
        return np.array([self._places[key] for key in keys], dtype=np.int64)

    def rows(self, index: np.ndarray) -> np.ndarray:
        """Int64 [N]: rows of each item."""
        return np.array([len(self._ids[i]) for i in index], dtype=np.int64)

    def word(self, position: int) -> np.ndarray:
        """Int32 [T]: the word of each row, -1 for special pieces."""
        return self._words[position]

    def batch(
        self,
        index: np.ndarray,
        layers: Sequence[int] | None = None,
        *,
        dtype: torch.dtype | None = torch.float32,
        out: Tensor | None = None,
    ) -> Packed:
        """The items' ids end to end, and no view. ConfigError where views are asked for."""
        if layers:
            raise ConfigError(f"views {list(layers)} cannot be read from piece ids: read them from a store.")
        ids = torch.cat([self._ids[i] for i in index])
        lengths = tuple(len(self._ids[i]) for i in index)
        return Packed(torch.empty(0, len(ids), self.spec.width, dtype=dtype), lengths, ids, self._segments_of(index))

    def _segments_of(self, index: np.ndarray) -> Tensor | None:
        found = [self._segments[i] for i in index]
        if all(one is None for one in found):
            return None
        known = [np.zeros(len(self._ids[i])) if one is None else one for i, one in zip(index, found, strict=True)]
        return torch.from_numpy(np.concatenate(known).astype(np.int64))

    def prefetch(self, index: np.ndarray, layers: Sequence[int] | None = None) -> None:
        """Nothing to fetch."""
