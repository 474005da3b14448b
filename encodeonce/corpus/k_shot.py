"""k examples a label for training and k more for dev, drawn as LM-BFF draws them (Gao et al. 2021; spec B9)."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from ..errors import ConfigError, DataError

__all__ = ["SEEDS", "k_shot"]

SEEDS = (13, 21, 42, 87, 100)
"""The five seeds of the published samples."""

T = TypeVar("T")


def k_shot(
    items: Sequence[T], labels: Sequence[str], k: int = 16, seed: int = SEEDS[0]
) -> tuple[list[tuple[T, str]], list[tuple[T, str]]]:
    """(train, dev): for each label `k` items with their label, no item in both; the same ones for the same order.

    NumPy's legacy generator of this seed shuffles the items; labels come in the order in which the shuffled list first
    has them, and of each the first k are train, the next k dev. Seed 13 shuffles 0 ... 9 into 3 5 6 1 4 7 8 9 0 2.
    Raises DataError naming a label with fewer than 2k items and where items and labels are not as many, ConfigError for
    a k below 1 and a seed that the generator does not take.
    """
    if k < 1:
        raise ConfigError(f"k={k} must be at least 1.")
    if not 0 <= seed < 2**32:
        raise ConfigError(f"seed={seed} must be 0 or more and less than 2**32, which NumPy's legacy generator takes.")
    if len(items) != len(labels):
        raise DataError(f"{len(items)} items and {len(labels)} labels: give every item one label.")
    shuffled = list(zip(items, labels, strict=True))
    np.random.RandomState(seed).shuffle(shuffled)  # type: ignore[arg-type]
    by_label: dict[str, list[tuple[T, str]]] = {}
    for item in shuffled:
        by_label.setdefault(item[1], []).append(item)
    short = {label: len(found) for label, found in by_label.items() if len(found) < 2 * k}
    if short or not by_label:
        raise DataError(
            f"k={k} needs {2 * k} items of every label, half for train and half for dev; there are "
            f"{', '.join(f'{count} of {label!r}' for label, count in sorted(short.items())) or 'no items'}."
        )
    train = [item for found in by_label.values() for item in found[:k]]
    return train, [item for found in by_label.values() for item in found[k : 2 * k]]
