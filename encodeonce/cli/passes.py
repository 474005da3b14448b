"""How long the frozen encoder takes for a batch: what predicting costs beside the store, and what training saves."""

import statistics
import time
from collections.abc import Sequence

import numpy as np

from ..encoders.pretrained import Pretrained
from ..types import Document

__all__ = ["pass_seconds"]

SAMPLED = 8
"""Batches that are timed, after one that is not."""


def pass_seconds(
    model: Pretrained, documents: Sequence[Document], layers: Sequence[int], size: int, seed: int = 0
) -> float:
    """Median wall seconds of the encoder's pass over `size` documents, as encoding takes them, cutting them left out.

    Batches are drawn at random from the documents. One that the machine held up spoils nothing.
    """
    order = np.random.default_rng(seed).permutation(len(documents))
    chosen = [order[start : start + size] for start in range(0, len(order), size)][: SAMPLED + 1]
    taken = []
    for batch in chosen if len(chosen) > 1 else 2 * chosen:
        pieces = model.cut([documents[i] for i in batch])
        began = time.perf_counter()
        for _ in model.encode(pieces, list(layers)):
            pass
        taken.append((time.perf_counter() - began) * size / len(batch))
    return statistics.median(taken[1:])
