"""Encoded items that already lie end to end, read as a store is read; without a copy where all are asked for.

Axes: L views   P rows of all items   D width
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import ConfigError
from ..nn.packed import Packed
from ..types import Pieces, Spec
from ._held import Held

__all__ = ["LaidOut"]


class LaidOut(Held):
    """`views` [L, P, D] are those of `pieces` in that order, of the Spec's layers. An `examples.Source`."""

    absent = "no encoding of the item with key {}."

    def __init__(self, spec: Spec, pieces: Sequence[Pieces], views: Float[Tensor, "L P D"]) -> None:
        super().__init__(spec, [item.key for item in pieces], [item.word for item in pieces])
        self._views = views
        self._ends = np.cumsum([len(item) for item in pieces])

    def batch(
        self,
        index: np.ndarray,
        layers: Sequence[int] | None = None,
        *,
        dtype: torch.dtype | None = torch.float32,
        out: Tensor | None = None,
    ) -> Packed:
        """The items end to end, [L, P, D]; `out` is left alone. ConfigError for other layers than all."""
        if layers is not None and tuple(layers) != tuple(self.spec.layers):
            raise ConfigError(f"views {list(layers)} asked for; views {list(self.spec.layers)} are here.")
        lengths = self.rows(index)
        views = self._views
        if not np.array_equal(index, np.arange(len(self._ends))):
            starts = self._ends[index] - lengths
            rows = np.repeat(starts - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
            views = views.index_select(1, torch.from_numpy(rows))
        return Packed(views if dtype is None else views.to(dtype), tuple(lengths.tolist()))
