"""Which rows can be among the k nearest of a query: one pass over all of them, nothing missed.

The pass multiplies in bfloat16, which halves the memory that one query has to read, and knows how far each product can
be off: with x the row, q the query and x', q' their rounded forms, |qx - q'x'| <= |q||x-x'| + |q-q'||x'| (Cauchy and
Schwarz), and the product itself is rounded once more. A row stays a candidate unless k others are certainly nearer; the
caller scores the few that stay exactly. Rows should come centred, so that lengths, and with them the bound, are small.

Axes: N rows   n rows of a block   D width   Q queries   K neighbours
"""

import functools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["Scan"]

SCORES = 8 << 20
"""Numbers of one block of scores [Q, n]; a block of queries is scored against a block of rows at a time."""
ROWS = 1 << 15
"""Rows read at a time while nothing is held."""
QUERIES = 64

Block = tuple[int, Tensor, Tensor, Tensor]
"""First row, rounded rows [n D], norms of the rows as they were [n], how far each is from its rounded form [n]."""


class Scan:
    """`read(rows)` gives fp32 rows as they are compared. `squared`: by distance, not by inner product. The rounded rows
    are held where they fit `memory` bytes, and made anew for each search where not. `off` is how far each row may be
    from the true one before it is rounded here."""

    def __init__(
        self,
        read: Callable[[slice], Float[np.ndarray, "n D"]],
        shape: tuple[int, int],
        *,
        squared: bool,
        memory: int,
        off: float,
    ) -> None:
        self.read, self.shape, self.squared, self.off = read, shape, squared, off
        self.half = torch.bfloat16 if accumulates_in_fp32() else torch.float32
        size = 2 if self.half == torch.bfloat16 else 4
        self.held = list(self._rounded()) if shape[0] * (shape[1] * size + 8) <= memory else None

    def candidates(
        self, queries: Float[np.ndarray, "Q D"], k: int, exclude: Sequence[np.ndarray] | None = None
    ) -> list[np.ndarray]:
        """For each query the ids, ascending, of at least its k nearest rows that are not excluded."""
        found = []
        for first in range(0, len(queries), QUERIES):
            part = torch.from_numpy(np.ascontiguousarray(queries[first : first + QUERIES]))
            left_out = None if exclude is None else exclude[first : first + QUERIES]
            found += self._candidates(part, k, left_out)
        return found

    def _candidates(
        self, queries: Float[Tensor, "Q D"], k: int, exclude: Sequence[np.ndarray] | None
    ) -> list[np.ndarray]:
        rounded = queries.to(self.half)
        away = (queries - rounded.float()).norm(dim=1, keepdim=True)
        length = queries.norm(dim=1, keepdim=True)
        slack = (self.shape[1] + 8) * 2.0**-24
        output = 2.0**-8 if self.half == torch.bfloat16 else 0.0
        margin = 1 + 2.0**-6  # rounded vectors are longer than their own by up to 2^-8 each
        nearest = torch.full((len(queries), k), -torch.inf)
        kept: list[tuple[Tensor, Tensor, Tensor]] = []
        for start, rows, norms, off in self._cut(len(queries)):
            scores = products(rounded, rows).float()
            error = margin * (length * (off + self.off) + (away + (output + slack) * length) * norms)
            if self.squared:
                scores -= norms.square() / 2
                error += slack * norms.square()
            most, least = scores + error, scores.sub_(error)
            for number, left_out in enumerate(exclude or ()):
                own = left_out[(left_out >= start) & (left_out < start + len(rows))] - start
                most[number, own] = least[number, own] = -torch.inf
            best = least.topk(min(k, len(rows)), dim=1, sorted=False).values
            nearest = torch.cat([nearest, best], dim=1).topk(k, dim=1, sorted=False).values
            query, row = (most >= nearest.amin(1, keepdim=True)).nonzero(as_tuple=True)
            real = most[query, row] > -torch.inf
            kept.append((query[real], row[real] + start, most[query, row][real]))
        query, ids, most = (torch.cat(parts) for parts in zip(*kept, strict=True))
        near = most >= nearest.amin(1)[query]
        query, ids = query[near], ids[near]
        return [ids[query == number].numpy() for number in range(len(queries))]

    def _cut(self, n_queries: int) -> Iterator[Block]:
        """The rounded rows in blocks whose scores fit."""
        size = max(1024, SCORES // n_queries)
        for start, rows, norms, off in self._rounded() if self.held is None else self.held:
            for first in range(0, len(rows), size):
                part = slice(first, first + size)
                yield start + first, rows[part], norms[part], off[part]

    def _rounded(self) -> Iterator[Block]:
        for start in range(0, self.shape[0], ROWS):
            rows = torch.from_numpy(self.read(slice(start, start + ROWS)))
            rounded = rows.to(self.half)
            yield start, rounded, rows.norm(dim=1), (rows - rounded.float()).norm(dim=1)


def products(queries: Float[Tensor, "Q D"], rows: Float[Tensor, "n D"]) -> Float[Tensor, "Q n"]:
    """Each query with each row. A single query goes as a vector: half the time of a product of one row."""
    return rows.mv(queries[0])[None] if len(queries) == 1 else queries @ rows.T


@functools.cache
def accumulates_in_fp32() -> bool:
    """Whether this machine's bfloat16 products keep their sums in fp32: in bfloat16 a sum of ones stops at 256."""
    ones = torch.ones(2, 1024, dtype=torch.bfloat16)
    return all(bool((products(asked, ones) == 1024).all()) for asked in (ones, ones[:1]))
