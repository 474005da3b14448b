"""Approximate indices of faiss (Johnson et al. 2019), which propose rows for a search to score exactly.

Sizes follow faiss's own rules: a coarse cell wants 39 training rows or more, a product quantizer's 256 centroids as
many each; below that an index is refused. Absent hits (id -1; case RETR-1) are dropped, and a search that comes home
with too few is repeated with more effort.

Axes: N rows   n rows of a block   D width   Q queries   K neighbours
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from ..errors import ConfigError, MissingExtra

__all__ = ["KINDS", "Approximate", "kind_for"]

KINDS = ("flat", "ivf", "hnsw", "ivfpq")
BLOCK = 1 << 15
PER_CENTROID = 39
"""Training rows that faiss asks for a centroid."""
ENOUGH = 256
"""Training rows a centroid beyond which more change nothing."""
CENTROIDS = 256
"""Of one sub-space of a product quantizer: a byte."""
OVERFETCH = 8
"""Candidates for each asked neighbour where the index keeps a lossy form of the rows."""


def kind_for(shape: tuple[int, int], memory: int) -> str:
    """Exact up to 200,000 rows, a graph up to 2 million, cells beyond; lossy cells where fp32 rows do not fit."""
    n, width = shape
    if n <= 200_000:
        return "exact"
    if 4 * n * (width + 64) > memory:
        return "ivfpq"
    return "hnsw" if n <= 2_000_000 else "ivf"


class Approximate:
    """A built index. `read` and `squared` as in `Scan`; `kind` one of KINDS. Training rows are drawn by `seed`.

    Raises MissingExtra without faiss, ConfigError where there are too few rows to train on.
    """

    def __init__(
        self,
        read: Callable[[slice], Float[np.ndarray, "n D"]],
        shape: tuple[int, int],
        kind: str,
        *,
        squared: bool,
        seed: int = 0,
    ) -> None:
        faiss = _faiss()
        self.kind, (self.n, self.width) = kind, shape
        metric = faiss.METRIC_L2 if squared else faiss.METRIC_INNER_PRODUCT
        self.cells = _cells(self.n, kind)
        self.index = self._made(faiss, metric)
        if self.cells:
            self.index.train(self._sample(read, seed))
        for start in range(0, self.n, BLOCK):
            self.index.add(read(slice(start, start + BLOCK)))

    def candidates(
        self, queries: Float[np.ndarray, "Q D"], k: int, exclude: Sequence[np.ndarray] | None = None
    ) -> list[np.ndarray]:
        """For each query the ids, ascending, that the index proposes; fewer than k only where it can find no more."""
        none = np.empty(0, np.int64)
        left_out = exclude if exclude is not None else [none] * len(queries)
        most = max((len(ids) for ids in left_out), default=0)
        asked = min(self.n, (k + most) * (OVERFETCH if self.kind == "ivfpq" else 1))
        found: list[np.ndarray] = [none] * len(queries)
        wanted = np.arange(len(queries))
        for effort in self._efforts(asked):
            self._try_harder(effort)
            _, ids = self.index.search(np.ascontiguousarray(queries[wanted]), asked)
            for number, hits in zip(wanted.tolist(), ids, strict=True):
                found[number] = np.setdiff1d(hits[hits >= 0], left_out[number])
            wanted = np.array([number for number in wanted.tolist() if len(found[number]) < k], np.int64)
            if not len(wanted):
                break
        return found

    def _made(self, faiss: Any, metric: int) -> Any:
        if self.kind == "flat":
            return faiss.IndexFlat(self.width, metric)
        if self.kind == "hnsw":
            index = faiss.IndexHNSWFlat(self.width, 32, metric)
            index.hnsw.efConstruction = 100
            return index
        coarse = faiss.IndexFlat(self.width, metric)
        if self.kind == "ivf":
            index = faiss.IndexIVFFlat(coarse, self.width, self.cells, metric)
        else:
            index = faiss.IndexIVFPQ(coarse, self.width, self.cells, _parts(self.width), 8, metric)
        index.own_fields = True
        coarse.this.disown()
        return index

    def _sample(self, read: Callable[[slice], np.ndarray], seed: int) -> Float[np.ndarray, "n D"]:
        """Enough rows to train on, drawn over the whole corpus."""
        centroids = max(self.cells, CENTROIDS if self.kind == "ivfpq" else 0)
        size = min(self.n, ENOUGH * centroids)
        chosen = np.sort(np.random.default_rng(seed).permutation(self.n)[:size])
        parts = []
        for start in range(0, self.n, BLOCK):
            own = chosen[(chosen >= start) & (chosen < start + BLOCK)] - start
            if len(own):
                parts.append(read(slice(start, start + BLOCK))[own])
        return np.concatenate(parts)

    def _efforts(self, asked: int) -> list[int]:
        """What is tried in turn: cells visited, or the length of the graph search's queue."""
        if self.kind == "flat":
            return [0]
        first, last = (max(16, self.cells // 8), self.cells) if self.cells else (max(128, 2 * asked), self.n)
        return _doubled(min(first, last), last)

    def _try_harder(self, effort: int) -> None:
        if self.cells:
            self.index.nprobe = effort
        elif self.kind == "hnsw":
            self.index.hnsw.efSearch = effort


def _doubled(first: int, last: int) -> list[int]:
    values = [first]
    while values[-1] < last:
        values.append(min(last, 2 * values[-1]))
    return values


def _cells(n: int, kind: str) -> int:
    """Coarse cells: 4 sqrt(N), as far as there are rows to train them; 0 for indices without."""
    if kind in ("flat", "hnsw"):
        return 0
    needed = PER_CENTROID * (CENTROIDS if kind == "ivfpq" else 1)
    if n < needed:
        raise ConfigError(
            f"kind={kind!r} needs at least {needed:,} rows to train on; there are {n:,}. Use 'exact', or 'hnsw'."
        )
    return max(1, min(n // PER_CENTROID, round(4 * math.sqrt(n))))


def _parts(width: int) -> int:
    """Sub-spaces of a product quantizer: the most that divide the width into six or more dimensions each."""
    return max(part for part in range(1, max(1, width // 6) + 1) if width % part == 0)


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise MissingExtra(
            "Approximate search needs faiss. Install it with: pip install 'encodeonce[search]'"
        ) from None
    return faiss
