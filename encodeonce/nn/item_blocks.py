"""Rows of a packed batch as one block an item, for attention inside items.

Axes: B items   N rows of the longest item   M chosen rows of the item with most   P rows   R chosen rows   K width
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

__all__ = ["ItemBlocks"]


@dataclass(frozen=True)
class ItemBlocks:
    """Where each block place reads the row axis, and where each chosen row lies in the flattened query blocks.

    A place past an item's end repeats one of the item's own rows, so nothing of another item can leak into it; `real`
    says which key places are the item's own. The padding is that between the items of one batch only.
    """

    lengths: tuple[int, ...]
    keys: Int[Tensor, "B N"]
    real: Bool[Tensor, "B N"]
    queries: Int[Tensor, "B M"]
    back: Int[Tensor, " R"]
    chosen: tuple[int, ...]
    in_order: bool

    @classmethod
    def of(cls, lengths: tuple[int, ...], rows: Int[Tensor, " R"] | None, device: torch.device) -> "ItemBlocks":
        """Blocks of all rows as keys and of the chosen rows (None: all) as queries."""
        counts = np.asarray(lengths, dtype=np.int64)
        starts = np.cumsum(counts) - counts
        place = np.arange(counts.max(initial=0))
        keys = starts[:, None] + np.minimum(place, counts[:, None] - 1)
        real = place < counts[:, None]
        if rows is None:
            queries, back, chosen, in_order = keys, np.flatnonzero(real), counts, True
        else:
            queries, back, chosen, in_order = _chosen(rows.cpu().numpy(), starts)
        keys_, real_, queries_, back_ = (torch.from_numpy(a).to(device) for a in (keys, real, queries, back))
        return cls(lengths, keys_, real_, queries_, back_, tuple(chosen.tolist()), in_order)

    def queries_of(self, x: Float[Tensor, "P K"]) -> Float[Tensor, "B M K"]:
        """The chosen rows of x, one block an item."""
        return x.index_select(0, self.queries.flatten()).unflatten(0, self.queries.shape)

    def keys_of(self, x: Float[Tensor, "P K"]) -> Float[Tensor, "B N K"]:
        """All rows of x, one block an item."""
        return x.index_select(0, self.keys.flatten()).unflatten(0, self.keys.shape)

    def rows_of(self, blocks: Float[Tensor, "B M K"]) -> Float[Tensor, "R K"]:
        """The chosen rows out of query blocks."""
        return blocks.flatten(0, 1).index_select(0, self.back)


def _chosen(rows: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
    """Blocks of chosen rows, each one's place in the flattened blocks, rows an item, whether items come in order."""
    owner = np.searchsorted(starts, rows, side="right") - 1
    chosen = np.bincount(owner, minlength=len(starts))
    order = np.argsort(owner, kind="stable")
    rank = np.empty(len(rows), dtype=np.int64)
    rank[order] = np.arange(len(rows)) - np.repeat(np.cumsum(chosen) - chosen, chosen)
    widest = int(chosen.max(initial=0))
    queries = np.repeat(starts[:, None], widest, axis=1)
    queries[owner, rank] = rows
    return queries, owner * widest + rank, chosen, bool((np.diff(owner) >= 0).all())
