"""Items as piece ids, read as a store is read: for methods that run the embeddings themselves.

Axes: N items   T rows of one item (pieces)   P rows of a batch
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..errors import ConfigError
from ..nn.packed import Packed
from ..types import Pieces, Spec
from ._held import Held

__all__ = ["Cut"]


class Cut(Held):
    """`pieces` of a tokenizer; nothing is encoded, no view can be read. An `examples.Source`."""

    absent = "no pieces of the item with key {}: cut its document too."

    def __init__(self, spec: Spec, pieces: Sequence[Pieces]) -> None:
        super().__init__(spec, [item.key for item in pieces], [item.word for item in pieces])
        self._ids = [torch.from_numpy(item.ids.astype(np.int64)) for item in pieces]
        self._segments = [item.segments for item in pieces]

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
