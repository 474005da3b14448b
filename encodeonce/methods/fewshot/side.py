"""A second row for every item, to be added to its own: what is retrieved for it, and the controls of retrieval.

    neighbours  the mean of the k nearest unlabelled rows (late fusion)
    random      the mean of k unlabelled rows drawn for each item
    shuffled    the neighbours of another item, of whatever class
    constant    the mean of all unlabelled rows
    components  the item's own row as the first k principal components of the unlabelled rows show it: no retrieval

If the last four do as well as the first, what was retrieved is not what helps (spec B11).

Axes: N items   M unlabelled items   F features   K neighbours
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from ...errors import ConfigError
from ...nn.exchange import exchanged
from ...resolve import nearest
from ...store.search import Search

__all__ = ["SIDES", "side_rows"]

SIDES = ("neighbours", "random", "shuffled", "constant", "components")


def side_rows(
    kind: str,
    rows: Float[np.ndarray, "N F"],
    corpus: Float[np.ndarray, "M F"],
    k: int = 64,
    *,
    exclude: Sequence[Sequence[int]] | None = None,
    seed: int = 0,
) -> Float[np.ndarray, "N F"]:
    """A side row for each of `rows`, made from `corpus`; every row by itself but for "shuffled".

    Nearness is the cosine. `exclude[n]` are corpus rows that item n may not get: its own copies (in a mean of all, and
    in components, they stay). A random draw depends on the seed, the item's place and its copies alone. Raises
    TooFewVectors where fewer than k rows are left for an item, ConfigError for an unknown kind, a k out of range, or a
    single row whose neighbours are to be another's.
    """
    if kind not in SIDES:
        raise ConfigError(f"side={kind!r} is not known. There is: {', '.join(SIDES)}.{nearest(kind, list(SIDES))}")
    if not len(corpus) or k < 1:
        raise ConfigError(f"k={k} of {len(corpus)} unlabelled rows: both must be at least 1.")
    if kind == "constant":
        return np.repeat(corpus.mean(0, keepdims=True), len(rows), axis=0)
    if kind == "components":
        return _components(rows, corpus, k)
    if kind == "shuffled" and len(rows) == 1:
        raise ConfigError("side='shuffled' gives a text the neighbours of another; give two texts or more at once.")
    left_out = [()] * len(rows) if exclude is None else exclude
    if kind == "random":
        ids = _random(len(corpus), k, left_out, seed)
    elif kind == "shuffled":
        others = exchanged(len(rows), seed)
        ids = _nearest(rows[others], corpus, k, [[*left_out[o], *own] for o, own in zip(others, left_out, strict=True)])
    else:
        ids = _nearest(rows, corpus, k, left_out)
    return np.stack([corpus[own].mean(0) for own in ids]) if len(ids) else np.zeros_like(rows)


def _nearest(
    rows: Float[np.ndarray, "N F"], corpus: Float[np.ndarray, "M F"], k: int, exclude: Sequence[Sequence[int]]
) -> Int[np.ndarray, "N K"]:
    return Search(corpus, metric="cosine").find(rows, k, exclude=exclude).ids


def _random(m: int, k: int, exclude: Sequence[Sequence[int]], seed: int) -> Int[np.ndarray, "N K"]:
    most = max(len(set(own)) for own in exclude)
    if k > m - most:
        raise ConfigError(f"k={k} different rows cannot be drawn from {m - most}.")
    every = np.arange(m)
    rows = [np.setdiff1d(every, own) if len(own) else every for own in exclude]
    return np.stack(
        [np.random.default_rng((seed, place)).choice(own, k, replace=False) for place, own in enumerate(rows)]
    )


def _components(rows: Float[np.ndarray, "N F"], corpus: Float[np.ndarray, "M F"], k: int) -> Float[np.ndarray, "N F"]:
    mean = corpus.mean(0)
    _, _, directions = np.linalg.svd(corpus - mean, full_matrices=False)
    kept = directions[:k]
    shown: np.ndarray = mean + (rows - mean) @ kept.T @ kept
    return shown
