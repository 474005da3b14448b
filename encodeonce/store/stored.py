"""The vectors of a store that keeps one row an item, numbered in the caller's order: what a search reads.

Axes: N items   D width
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from ..errors import ConfigError
from .reader import Store

__all__ = ["Stored"]


class Stored:
    """Row i is the vector of `keys[i]`; fp32 whatever the stored type. `layer`: which view (default: the last read).

    Raises NotStored for a key that is missing, ConfigError where an item has several rows.
    """

    def __init__(self, store: Store, keys: Sequence[str], layer: int | None = None) -> None:
        self.store = store
        self.index = store.index(keys)
        self.layer = store.layers[-1] if layer is None else layer
        rows = store.rows(self.index)
        several = np.flatnonzero(rows != 1)
        if len(several):
            raise ConfigError(
                f"{store.path} keeps {rows[several[0]]} rows for item {several[0]} (unit={store.spec.unit!r}); a search"
                " needs one vector an item. Encode the texts pooled: unit='text'."
            )

    @property
    def shape(self) -> tuple[int, int]:
        """(N, D)."""
        return len(self.index), self.store.spec.width

    def __getitem__(self, rows: slice | np.ndarray) -> Float[np.ndarray, "n D"]:
        """These rows, copied."""
        return self.store.batch(self.index[rows], [self.layer]).views[0].numpy()
