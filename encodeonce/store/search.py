"""The k nearest of stored vectors: exactly, or through an approximate index that only proposes.

Candidates come from one pass over all rows (`scan`) or from faiss (`approximate`); every one is then scored in fp64
against the vector itself, so scores are exact in both cases and equal rows have equal scores. Ties go to the lower id.

Axes: N rows   D width   Q queries   K neighbours
"""

import logging
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from ..errors import ConfigError, NonFinite, TooFewVectors
from ..resolve import nearest
from ..types import Corpus, Neighbours
from .approximate import KINDS, Approximate, kind_for
from .scan import Scan

__all__ = ["METRICS", "Rows", "Search", "check_search"]

log = logging.getLogger("encodeonce")

METRICS = ("l2", "ip", "cosine")
MEMORY = 4 << 30
BLOCK = 1 << 15
LONGEST = 2.0**61
"""Length of a vector up to which squared distances and inner products are numbers in fp32, on the way to them too."""


@runtime_checkable
class Rows(Protocol):
    """What can be searched: an array or a tensor [N, D] (fp32, fp16, bf16; mapped or in memory), or `Stored`."""

    @property
    def shape(self) -> Sequence[int]:
        """(N, D)."""

    def __getitem__(self, rows: slice | np.ndarray) -> "np.ndarray | Tensor":
        """These rows."""


class Search:
    """Nearest rows by squared distance ("l2"), inner product ("ip") or angle ("cosine").

    `kind` is "exact" (one pass over all rows), a faiss index ("flat", "ivf", "hnsw", "ivfpq"; extra `search`), or
    "auto": exact up to 200,000 rows, beyond that the index that fits (`approximate.kind_for`). Copies of the rows may
    take `memory` bytes; where they do not fit, rows are read and converted block by block at each search. A vector of
    length 0 has cosine 0 with everything. The caller's arrays are never changed. `corpus` says what the rows are
    vectors of, where that is known, to whoever keeps what was found among them.

    Raises ConfigError for what is no [N, D] array or an unknown word, NonFinite for a row with inf or NaN, and but for
    cosines for one that is so long (`LONGEST`) that scores would not fit fp32.
    """

    def __init__(
        self,
        rows: Rows,
        metric: str = "l2",
        kind: str = "exact",
        *,
        corpus: Corpus | None = None,
        memory: int = MEMORY,
        seed: int = 0,
    ) -> None:
        check_search(metric, kind)
        if len(rows.shape) != 2 or rows.shape[1] < 1:
            raise ConfigError(f"rows of shape {tuple(rows.shape)} cannot be searched; give [N, D] with D at least 1.")
        self.metric, self.corpus, self.memory, self.seed = metric, corpus, memory, seed
        self.shape = int(rows.shape[0]), int(rows.shape[1])
        self.kind = kind_for(self.shape, memory) if kind == "auto" else kind
        self.rows = self._held(rows)

    def __len__(self) -> int:
        return self.shape[0]

    def __getstate__(self) -> dict[str, Any]:
        """What is made of the rows at the first search is made again: products and indices are not pickled."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_scan", "_approximate")}

    @property
    def width(self) -> int:
        """D."""
        return self.shape[1]

    def vectors(self, ids: Int[np.ndarray, "..."]) -> Float[np.ndarray, "... D"]:
        """The rows themselves, fp32."""
        return fp32(self.rows[np.asarray(ids, np.int64).reshape(-1)]).reshape(*ids.shape, self.width)

    def find(
        self,
        queries: Float[np.ndarray, "Q D"] | Float[Tensor, "Q D"],
        k: int,
        *,
        exclude: Sequence[Sequence[int]] | None = None,
        allow_fewer: bool = False,
    ) -> Neighbours:
        """The k nearest rows of each query, nearest first. `exclude[q]` are ids that query q may not get.

        Raises TooFewVectors where fewer than k are left for a query; with `allow_fewer` all queries then get as many as
        the poorest of them has. Raises ConfigError for queries of another width, NonFinite as for rows.
        """
        asked = fp32(queries)
        if asked.ndim != 2 or asked.shape[1] != self.width:
            raise ConfigError(
                f"queries have shape {asked.shape}; the rows searched are {self.width} wide: give [Q, D]."
            )
        self._refuse(asked, "query", 0)
        left_out = None if exclude is None else [self._excluded(ids) for ids in exclude]
        if left_out is not None and len(left_out) != len(asked):
            raise ConfigError(f"exclude has {len(left_out)} lists for {len(asked)} queries; give one each.")
        k = self._reachable(k, left_out, allow_fewer)
        if not len(asked) or not k:
            return Neighbours(np.empty((len(asked), k), np.int64), np.empty((len(asked), k), np.float32))
        proposed = self._proposed(self._compared(asked), k, left_out)
        pairs = [self._ranked(query, ids, k) for query, ids in zip(asked, proposed, strict=True)]
        return Neighbours(np.stack([ids for ids, _ in pairs]), np.stack([scores for _, scores in pairs]))

    def _held(self, rows: Rows) -> Rows:
        """The rows in memory where they are read from elsewhere and fit; refused where one is not finite."""
        n, width = self.shape
        keep = not isinstance(rows, (np.ndarray, Tensor)) and 4 * n * width <= self.memory
        held = np.empty((n, width), np.float32) if keep else None
        for start in range(0, n, BLOCK):
            block = fp32(rows[start : start + BLOCK])
            self._refuse(block, "row", start)
            if held is not None:
                held[start : start + BLOCK] = block
        return rows if held is None else held

    def _refuse(self, rows: Float[np.ndarray, "n D"], what: str, first: int) -> None:
        """NonFinite where a vector cannot be compared; `first` is the number of the first one."""
        wrong = np.flatnonzero(~np.isfinite(rows).all(1))
        if len(wrong):
            raise NonFinite(f"{what} {first + wrong[0]} holds inf or NaN; leave it out, or encode it again in fp32.")
        if self.metric == "cosine" or np.abs(rows).max(initial=0) * self.width**0.5 <= LONGEST:
            return
        lengths = np.linalg.norm(rows.astype(np.float64), axis=1)
        if lengths.max() > LONGEST:
            at = int(np.argmax(lengths > LONGEST))
            raise NonFinite(
                f"{what} {first + at} is {lengths[at]:.3g} long; beyond {LONGEST:.3g} its scores by {self.metric!r} do "
                "not fit fp32. Multiply rows and queries by one small number, which changes no order, or search by "
                "metric='cosine'."
            )

    def _excluded(self, ids: Sequence[int]) -> np.ndarray:
        unique = np.unique(np.asarray(ids, np.int64))
        if len(unique) and (unique[0] < 0 or unique[-1] >= len(self)):
            raise ConfigError(f"exclude names row {unique[0] if unique[0] < 0 else unique[-1]} of {len(self)}.")
        return unique

    def _reachable(self, k: int, left_out: list[np.ndarray] | None, allow_fewer: bool) -> int:
        """How many neighbours every query can be given."""
        if k < 1:
            raise ConfigError(f"k={k} must be at least 1.")
        most = max((len(ids) for ids in left_out), default=0) if left_out is not None else 0
        left = len(self) - most
        if k <= left:
            return k
        if not allow_fewer:
            raise TooFewVectors(
                f"{k} neighbours asked for, but there are {len(self)} vectors and up to {most} of them are excluded for"
                f" a query. Ask for at most {left}, add texts, or say allow_fewer=True."
            )
        log.warning(
            "%d neighbours asked for, %d found: there are only %d vectors, %d excluded", k, left, len(self), most
        )
        return left

    def _proposed(self, queries: np.ndarray, k: int, left_out: list[np.ndarray] | None) -> list[np.ndarray]:
        """Candidates of every query; those that an approximate index gives too few for are scanned."""
        if self.kind == "exact":
            return self._scan.candidates(queries, k, left_out)
        found = self._approximate.candidates(queries, k, left_out)
        short = [number for number, ids in enumerate(found) if len(ids) < k]
        if short:
            log.warning(
                "%s: %d of %d queries had too few hits and are searched exactly", self.kind, len(short), len(found)
            )
            again = self._scan.candidates(queries[short], k, left_out and [left_out[number] for number in short])
            for number, ids in zip(short, again, strict=True):
                found[number] = ids
        return found

    def _ranked(self, query: np.ndarray, ids: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k best of the candidates by exact score, then by id."""
        rows, asked = fp32(self.rows[ids]).astype(np.float64), query.astype(np.float64)
        if self.metric == "l2":
            scores = np.square(rows - asked).sum(1)
        else:
            scores = (rows * asked).sum(1)
        if self.metric == "cosine":
            lengths = np.sqrt(np.square(rows).sum(1) * np.square(asked).sum())
            scores = np.divide(scores, lengths, out=np.zeros_like(scores), where=lengths > 0).clip(-1, 1)
        order = np.lexsort((ids, scores if self.metric == "l2" else -scores))[:k]
        return ids[order], scores[order].astype(np.float32)

    def _compared(self, queries: Float[np.ndarray, "Q D"]) -> Float[np.ndarray, "Q D"]:
        """Queries as they are compared with rows from `_read`."""
        if self.metric == "l2":
            return queries - self._centre
        return unit(queries) if self.metric == "cosine" else queries

    def _read(self, rows: slice) -> Float[np.ndarray, "n D"]:
        """A block as it is compared: of unit length for cosines, and less the mean of all rows.

        That changes no order (a query's products all move by one amount) and leaves what tells rows apart: vectors of
        encoders share a direction, which drowns rounded products and the cells of an index.
        """
        return self._uncentred(rows) - self._centre

    def _uncentred(self, rows: slice) -> Float[np.ndarray, "n D"]:
        block = fp32(self.rows[rows])
        return unit(block) if self.metric == "cosine" else block

    @cached_property
    def _centre(self) -> Float[np.ndarray, " D"]:
        starts = range(0, len(self), BLOCK)
        total = sum(self._uncentred(slice(start, start + BLOCK)).sum(0, dtype=np.float64) for start in starts)
        return np.asarray(total / len(self), np.float32)

    @cached_property
    def _scan(self) -> Scan:
        # scaling to length 1 is off by a few units in the last place of 1, however short what is left after centring
        off = 2.0**-21 if self.metric == "cosine" else 0.0
        return Scan(self._read, self.shape, squared=self.metric == "l2", memory=self.memory, off=off)

    @cached_property
    def _approximate(self) -> Approximate:
        return Approximate(self._read, self.shape, self.kind, squared=self.metric == "l2", seed=self.seed)


def check_search(metric: str, kind: str) -> None:
    """ConfigError for a metric or a kind that `Search` does not know."""
    for name, value, known in (("metric", metric, list(METRICS)), ("kind", kind, ["exact", "auto", *KINDS])):
        if value not in known:
            raise ConfigError(f"{name}={value!r} is none of {', '.join(known)}.{nearest(value, known)}")


def fp32(rows: "np.ndarray | Tensor") -> np.ndarray:
    """As a contiguous array of fp32; the same memory where it is one already."""
    values = rows.detach().cpu().float().numpy() if isinstance(rows, Tensor) else rows
    return np.ascontiguousarray(values, dtype=np.float32)


def unit(rows: Float[np.ndarray, "n D"]) -> Float[np.ndarray, "n D"]:
    """Each row divided by its length; rows of length 0 stay."""
    largest = np.abs(rows).max(1, keepdims=True, initial=0)
    scaled = np.divide(rows, largest, out=np.zeros_like(rows), where=largest > 0)
    lengths = np.linalg.norm(scaled, axis=1, keepdims=True)
    return np.divide(scaled, lengths, out=np.zeros_like(rows), where=lengths > 0)
