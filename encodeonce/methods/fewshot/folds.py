"""Parts of a cross-validation over a handful of items.   Axes: N items"""

from collections.abc import Hashable, Sequence

import numpy as np
from jaxtyping import Int

__all__ = ["folds_of"]


def folds_of(
    keys: Sequence[Hashable], classes: Int[np.ndarray, " N"], folds: int, seed: int = 0
) -> Int[np.ndarray, " N"]:
    """The fold of each item: classes spread evenly, items with the same key together.

    Keys that stand under several classes are dealt first, and every key to a fold that holds fewest of its classes':
    else all of a class could lie in one fold, and be missing from training where that is held out.
    """
    under: dict[Hashable, set[int]] = {}
    for key, label in zip(keys, classes.tolist(), strict=True):
        under.setdefault(key, set()).add(label)
    held = {label: [0] * folds for label in np.unique(classes).tolist()}
    fold: dict[Hashable, int] = {}
    order = np.random.default_rng(seed).permutation(len(keys))
    turn = 0
    for label in held:
        own = dict.fromkeys(keys[place] for place in order[classes[order] == label])
        for key in sorted(own, key=lambda one: len(under[one]) == 1):
            if key in fold:
                continue
            least = [sum(held[one][part] for one in under[key]) for part in range(folds)]
            fold[key] = min(range(folds), key=lambda part: (least[part], (part - turn) % folds))
            turn = fold[key] + 1
            for one in under[key]:
                held[one][fold[key]] += 1
    return np.array([fold[key] for key in keys])
