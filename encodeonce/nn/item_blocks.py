"""Rows of a packed batch as one block an item, for attention inside items.

Axes: B items   N rows of the longest item   M chosen rows of the item with most   P rows   R chosen rows   K width
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

__all__ = ["ItemBlocks"]


@dataclass(frozen=True)
class ItemBlocks:
    """All rows of every item as keys, the chosen rows (None: all) as queries.

    A block place past an item's end repeats one of the item's own rows, so nothing of another item can leak into it.
    The padding is that between the items of one batch only, and none where the compiled kernel works.
    """

    lengths: tuple[int, ...]
    rows: Int[Tensor, " R"] | None

    @cached_property
    def chosen(self) -> Int[np.ndarray, " B"]:
        """How many chosen rows each item has."""
        if self.rows is None:
            return np.asarray(self.lengths, dtype=np.int64)
        return np.bincount(self._owner, minlength=len(self.lengths))

    @cached_property
    def in_order(self) -> bool:
        """Whether chosen rows of earlier items come first."""
        return self.rows is None or bool((np.diff(self._owner) >= 0).all())

    @cached_property
    def even(self) -> bool:
        """Whether all items have as many rows: blocks are then the rows as they lie."""
        return len(set(self.lengths)) == 1

    @cached_property
    def keys(self) -> Int[np.ndarray, "B N"]:
        """The row at each key place."""
        counts = np.asarray(self.lengths, dtype=np.int64)
        place = np.minimum(np.arange(counts.max(initial=0)), counts[:, None] - 1)
        return self._starts[:, None] + place

    @cached_property
    def real(self) -> Bool[np.ndarray, "B N"]:
        """Which key places are the item's own."""
        return np.arange(self.keys.shape[1]) < np.asarray(self.lengths)[:, None]

    @cached_property
    def back(self) -> Int[np.ndarray, " R"]:
        """Where each chosen row lies in the flattened query blocks."""
        if self.rows is None:
            return np.flatnonzero(self.real)
        order = np.argsort(self._owner, kind="stable")
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order)) - np.repeat(np.cumsum(self.chosen) - self.chosen, self.chosen)
        return self._owner * self.chosen.max(initial=0) + rank

    @cached_property
    def queries(self) -> Int[np.ndarray, "B M"]:
        """The row at each query place."""
        if self.rows is None:
            return self.keys
        flat = np.repeat(self._starts, self.chosen.max(initial=0))
        flat[self.back] = self.rows.cpu().numpy()
        return flat.reshape(len(self.lengths), -1)

    def rows_of(self, x: Float[Tensor, "P K"]) -> Float[Tensor, "R K"]:
        """The chosen rows of x."""
        return x if self.rows is None else x.index_select(0, self.rows)

    def keys_of(self, x: Float[Tensor, "P K"]) -> Float[Tensor, "B N K"]:
        """All rows of x, one block an item; the memory of x where items are even."""
        if self.even:
            return x.unflatten(0, (len(self.lengths), -1))
        return _picked(x, self.keys.ravel()).unflatten(0, self.keys.shape)

    def queries_of(self, x: Float[Tensor, "P K"]) -> Float[Tensor, "B M K"]:
        """The chosen rows of x, one block an item."""
        return _picked(x, self.queries.ravel()).unflatten(0, self.queries.shape)

    def out_of(self, blocks: Float[Tensor, "B M K"]) -> Float[Tensor, "R K"]:
        """The chosen rows out of query blocks; their memory where these are all rows of even items."""
        if self.rows is None and self.even:
            return blocks.flatten(0, 1)
        return _picked(blocks.flatten(0, 1), self.back)

    @cached_property
    def _starts(self) -> Int[np.ndarray, " B"]:
        counts = np.asarray(self.lengths, dtype=np.int64)
        return np.cumsum(counts) - counts

    @cached_property
    def _owner(self) -> Int[np.ndarray, " R"]:
        assert self.rows is not None
        return np.searchsorted(self._starts, self.rows.cpu().numpy(), side="right") - 1


def _picked(x: Float[Tensor, "P K"], rows: Int[np.ndarray, " R"]) -> Float[Tensor, "R K"]:
    return x.index_select(0, torch.from_numpy(rows).to(x.device))
