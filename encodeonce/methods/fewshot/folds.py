"""Parts of a cross-validation over a handful of items.   Axes: N items"""

from collections.abc import Hashable, Sequence

import numpy as np
from jaxtyping import Int

__all__ = ["folds_of"]


def folds_of(
    keys: Sequence[Hashable], classes: Int[np.ndarray, " N"], folds: int, seed: int = 0
) -> Int[np.ndarray, " N"]:
    """The fold of each item: classes spread evenly, items with the same key together."""
    fold: dict[Hashable, int] = {}
    order = np.random.default_rng(seed).permutation(len(keys))
    turn = 0
    for label in np.unique(classes):
        for place in order[classes[order] == label]:
            if keys[place] not in fold:
                fold[keys[place]] = turn % folds
                turn += 1
    return np.array([fold[key] for key in keys])
