"""A source of items that brings the neighbours of each along.

Axes: N items   B items of a batch   K neighbours   D width
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ...batching import Source
from ...errors import NotStored
from ...nn.packed import Packed
from .near import Near

__all__ = ["Retrieved"]


class Retrieved:
    """`source` with the vectors of `near` at its batches; a `Source` itself. Ids are kept, vectors are read a batch."""

    def __init__(self, source: Source, near: Near) -> None:
        self.source, self.near = source, near
        self.spec = source.spec
        self._rows: dict[str, int] = {key: row for row, key in reversed(list(enumerate(near.keys)))}
        index = source.index(list(self._rows))
        self._near = dict(zip(index.tolist(), self._rows.values(), strict=True))

    def index(self, keys: Sequence[str]) -> np.ndarray:
        """Int64 [N]. NotStored for an item without neighbours."""
        without = next((key for key in keys if key not in self._rows), None)
        if without is not None:
            raise NotStored(f"no neighbours of the item with key {without}: retrieve for its document too.")
        return self.source.index(keys)

    def rows(self, index: np.ndarray) -> np.ndarray:
        """Rows of each item."""
        return self.source.rows(index)

    def word(self, position: int) -> np.ndarray:
        """The word of each row of one item."""
        return self.source.word(position)

    def prefetch(self, index: np.ndarray, layers: Sequence[int] | None = None) -> None:
        """A hint that these items are read next."""
        self.source.prefetch(index, layers)

    def batch(
        self,
        index: np.ndarray,
        layers: Sequence[int] | None = None,
        *,
        dtype: torch.dtype | None = torch.float32,
        out: Tensor | None = None,
    ) -> Packed:
        """The source's batch with `near` [B K D], and each item's own rows."""
        items = np.array([self._near[i] for i in np.asarray(index).tolist()], np.int64)
        near: Float[np.ndarray, "B K D"] = self.near.vectors(items)
        own = [self.near.own[i] for i in items] if self.near.own else ()
        return replace(self.source.batch(index, layers, dtype=dtype, out=out), near=torch.from_numpy(near), own=own)

    def fingerprint(self) -> dict[str, str]:
        """What a resumed run compares beside items and Spec."""
        return {"neighbours": self.near.mark}
