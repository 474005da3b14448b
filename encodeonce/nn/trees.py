"""Dependency trees as head lists: what is one, what is wrong with one, and scores made safe for a decoder.

`heads[i]` is the head of word i + 1, words counted from 1, and 0 is the root above the sentence.

Axes: n words   h heads (n + 1: the root, then the words)
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Float64

from ..errors import ConfigError

__all__ = ["cycle_of", "is_projective", "is_tree", "roots_of", "safe_scores"]

LARGEST = 1e250
"""Scores beyond it are scaled down, so that no sum or difference of them overflows."""


def roots_of(heads: Sequence[int]) -> list[int]:
    """The words whose head is the root, counted from 1."""
    return [word for word, head in enumerate(heads, 1) if head == 0]


def cycle_of(heads: Sequence[int]) -> list[int]:
    """The words of one cycle in the order word, its head, that one's head ...; empty where all words reach the root."""
    reaches = [True] + [False] * len(heads)
    for start in range(1, len(heads) + 1):
        path: list[int] = []
        place: dict[int, int] = {}
        word = start
        while not reaches[word] and word not in place:
            place[word] = len(path)
            path.append(word)
            word = heads[word - 1]
        if not reaches[word]:
            return path[place[word] :]
        for passed in path:
            reaches[passed] = True
    return []


def is_tree(heads: Sequence[int]) -> bool:
    """Whether exactly one word hangs on the root and every word reaches it; a sentence of no words is no tree."""
    return len(roots_of(heads)) == 1 and not cycle_of(heads)


def is_projective(heads: Sequence[int]) -> bool:
    """Whether no two arcs cross, drawn above the sentence with the root at its left end."""
    arcs = [(min(word, head), max(word, head)) for word, head in enumerate(heads, 1)]
    return not any(a < c < b < d for a, b in arcs for c, d in arcs)


def safe_scores(scores: Float[np.ndarray, "n h"]) -> Float64[np.ndarray, "n h"]:
    """Scores whose best tree is the same and in which every number is finite.

    -inf forbids an arc: it becomes so low that any tree with fewer forbidden arcs is better. Raises ConfigError naming
    word and head of a NaN or +inf, and where the axes do not fit.
    """
    n, n_heads = scores.shape
    if n_heads != n + 1:
        raise ConfigError(f"arc scores of shape {scores.shape}: {n} words have {n + 1} possible heads, the root first.")
    safe = scores.astype(np.float64)
    low, high = float(safe.min(initial=0.0)), float(safe.max(initial=0.0))
    if low != low or high == np.inf:
        word, head = (int(at) for at in np.argwhere(np.isnan(safe) | (safe == np.inf))[0])
        raise ConfigError(
            f"the score of head {head} for word {word + 1} is {safe[word, head]}; a tree needs numbers below +inf. "
            "Parameters of a run that diverged give such scores: train it again with a lower learning_rate."
        )
    if low == -np.inf:
        forbidden = np.isneginf(safe)
        low = float(safe.min(where=~forbidden, initial=0.0))
    else:
        forbidden = None
    if max(high, -low) > LARGEST:
        safe, low, high = safe * 2.0**-256, low * 2.0**-256, high * 2.0**-256
    if forbidden is not None:
        safe[forbidden] = low - (n + 1) * (high - low + 1)
    return safe
