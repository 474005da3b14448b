"""Encoded items held in memory, read as a store is: what training steps are tried on before anything is stored.

Axes: L views   T rows of one item   P rows of a batch   D width   N items
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..nn.packed import Packed
from ..types import Encoding, Spec
from ._held import Held

__all__ = ["Encodings"]


class Encodings(Held):
    """`encodings` hold states [L, T, D] of the Spec's layers, in the order of `spec.layers`. An `examples.Source`."""

    absent = "no encoding of the item with key {}."

    def __init__(self, spec: Spec, encodings: Sequence[Encoding]) -> None:
        keys, words = [item.key for item in encodings], [np.asarray(item.word) for item in encodings]
        super().__init__(spec, keys, words)
        self._states = [torch.from_numpy(np.asarray(item.states)) for item in encodings]

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
