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
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from ...errors import ConfigError
from ...nn.exchange import exchanged
from ...resolve import nearest
from ...store.search import Search

__all__ = ["SIDES", "Side"]

SIDES = ("neighbours", "random", "shuffled", "constant", "components")


class Side:
    """Side rows of one kind from `corpus` [M F]. What they are made of (a search, components) is prepared once.

    Nearness is the cosine. Raises ConfigError for an unknown kind and a k out of range.
    """

    def __init__(self, kind: str, corpus: Float[np.ndarray, "M F"], k: int = 64) -> None:
        if kind not in SIDES:
            raise ConfigError(f"side={kind!r} is not known. There is: {', '.join(SIDES)}.{nearest(kind, list(SIDES))}")
        if not len(corpus) or k < 1:
            raise ConfigError(f"k={k} of {len(corpus)} unlabelled rows: both must be at least 1.")
        self.kind, self.corpus, self.k = kind, corpus, k

    def rows(
        self,
        rows: Float[np.ndarray, "N F"],
        *,
        exclude: Sequence[Sequence[int]] | None = None,
        seed: int = 0,
    ) -> Float[np.ndarray, "N F"]:
        """A side row for each of `rows`, every one by itself but for "shuffled".

        `exclude[n]` are corpus rows that item n may not get: its own copies (in a mean of all, and in components, they
        stay). A random draw depends on the seed, the item's place and its copies alone. Raises TooFewVectors where
        fewer than k rows are left for an item, ConfigError for a single row whose neighbours are to be another's.
        """
        corpus, k = self.corpus, self.k
        if self.kind == "constant":
            return np.repeat(corpus.mean(0, keepdims=True), len(rows), axis=0)
        if self.kind == "components":
            mean, kept = self._components
            shown: np.ndarray = mean + (rows - mean) @ kept.T @ kept
            return shown
        if self.kind == "shuffled" and len(rows) == 1:
            raise ConfigError("side='shuffled' gives a text the neighbours of another; give two texts or more at once.")
        left_out = [()] * len(rows) if exclude is None else exclude
        if self.kind == "random":
            ids = _random(len(corpus), k, left_out, seed)
        elif self.kind == "shuffled":
            others = exchanged(len(rows), seed)
            both = [[*left_out[o], *own] for o, own in zip(others, left_out, strict=True)]
            ids = self._search.find(rows[others], k, exclude=both).ids
        else:
            ids = self._search.find(rows, k, exclude=left_out).ids
        return np.stack([corpus[own].mean(0) for own in ids]) if len(ids) else np.zeros_like(rows)

    @cached_property
    def _search(self) -> Search:
        return Search(self.corpus, metric="cosine")

    @cached_property
    def _components(self) -> tuple[Float[np.ndarray, " F"], Float[np.ndarray, "K F"]]:
        """The corpus's mean and its first k directions."""
        mean = self.corpus.mean(0)
        _, _, directions = np.linalg.svd(self.corpus - mean, full_matrices=False)
        return mean, directions[: self.k]


def _random(m: int, k: int, exclude: Sequence[Sequence[int]], seed: int) -> Int[np.ndarray, "N K"]:
    most = max(len(set(own)) for own in exclude)
    if k > m - most:
        raise ConfigError(f"k={k} different rows cannot be drawn from {m - most}.")
    every = np.arange(m)
    rows = [np.setdiff1d(every, own) if len(own) else every for own in exclude]
    return np.stack(
        [np.random.default_rng((seed, place)).choice(own, k, replace=False) for place, own in enumerate(rows)]
    )
