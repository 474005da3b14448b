"""Encoded items held in memory, read as a store is: what a predictor uses for texts that no store holds.

Axes: L views   T rows of one item   P rows of a batch   D width   N items
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..errors import NotStored
from ..nn.packed import Packed
from ..types import Encoding, Spec

__all__ = ["Memory"]


class Memory:
    """`encodings` hold states [L, T, D] of the Spec's layers, in the order of `spec.layers`. An `examples.Source`."""

    def __init__(self, spec: Spec, encodings: Sequence[Encoding]) -> None:
        self.spec = spec
        self._places = {encoding.key: place for place, encoding in enumerate(encodings)}
        self._states = [torch.from_numpy(np.asarray(encoding.states)) for encoding in encodings]
        self._words = [np.asarray(encoding.word) for encoding in encodings]

    def index(self, keys: Sequence[str]) -> np.ndarray:
        """Int64 [N]: where each key is. NotStored names the first that is missing."""
        absent = next((key for key in keys if key not in self._places), None)
        if absent is not None:
            raise NotStored(f"no encoding of the item with key {absent}.")
        return np.array([self._places[key] for key in keys], dtype=np.int64)

    def rows(self, index: np.ndarray) -> np.ndarray:
        """Int64 [N]: rows of each item."""
        return np.array([self._states[i].shape[1] for i in index], dtype=np.int64)

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
        """The items end to end, [l, P, D] of the chosen layers; in `out` where it is given."""
        chosen = self.spec.layers if layers is None else tuple(layers)
        places = [self.spec.layers.index(layer) for layer in chosen]
        neighbours = places == list(range(places[0], places[-1] + 1))
        picked = slice(places[0], places[-1] + 1) if neighbours else places  # a slice is no copy
        items = [self._states[i][picked] for i in index]
        lengths = tuple(item.shape[1] for item in items)
        shape = len(places), sum(lengths), self.spec.width
        kind = dtype or items[0].dtype
        views = torch.empty(shape, dtype=kind) if out is None else out.view(-1)[: math.prod(shape)].view(shape)
        start = 0
        for item, length in zip(items, lengths, strict=True):
            views[:, start : start + length].copy_(item)
            start += length
        return Packed(views, lengths)

    def prefetch(self, index: np.ndarray, layers: Sequence[int] | None = None) -> None:
        """Nothing to fetch."""
