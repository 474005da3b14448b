"""Rows of a packed batch as one block an item, for attention inside items.

Axes: B items   N rows of the longest item   M chosen rows of the item with most   P rows   R chosen rows
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

__all__ = ["ItemBlocks"]


@dataclass(frozen=True)
class ItemBlocks:
    """Where each block place reads the row axis, and back.

    A place past an item's end repeats the item's last row, so nothing of another item can leak into it; `real` says
    which places are the item's own. The padding is that between the items of one batch only.
    """

    keys: Int[Tensor, "B N"]
    real: Bool[Tensor, "B N"]
    queries: Int[Tensor, "B M"]
    back: Int[Tensor, " R"]

    @classmethod
    def of(cls, lengths: tuple[int, ...], rows: Int[Tensor, " R"] | None, device: torch.device) -> "ItemBlocks":
        """Blocks of all rows as keys and of the chosen rows (None: all) as queries."""
        counts = np.asarray(lengths, dtype=np.int64)
        starts = np.cumsum(counts) - counts
        place = np.arange(counts.max(initial=0))
        keys = starts[:, None] + np.minimum(place, counts[:, None] - 1)
        real = place < counts[:, None]
        if rows is None:
            queries, back = keys, np.flatnonzero(real)
        else:
            queries, back = _chosen(rows.cpu().numpy(), starts, counts)
        tensors = (torch.from_numpy(array).to(device) for array in (keys, real, queries, back))
        return cls(*tensors)


def _chosen(rows: np.ndarray, starts: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Blocks of chosen rows in any order, and where in the flattened blocks each of them went."""
    owner = np.searchsorted(starts, rows, side="right") - 1
    chosen = np.bincount(owner, minlength=len(starts))
    order = np.argsort(owner, kind="stable")
    rank = np.empty(len(rows), dtype=np.int64)
    rank[order] = np.arange(len(rows)) - np.repeat(np.cumsum(chosen) - chosen, chosen)
    widest = int(chosen.max(initial=0))
    queries = np.repeat(starts[:, None], widest, axis=1)
    queries[owner, rank] = rows
    return queries, owner * widest + rank
