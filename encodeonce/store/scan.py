"""Which rows can be among the k nearest of a query: one pass over all of them, nothing missed.

The pass multiplies in bfloat16, which halves the memory that one query has to read, and knows how far each product can
be off: with x the row, q the query and x', q' their rounded forms, |qx - q'x'| <= |q||x-x'| + |q-q'||x'| (Cauchy and
Schwarz), and the product itself is rounded once more. A row stays a candidate unless k others are certainly nearer; the
caller scores the few that stay exactly. Rows should come centred, so that lengths, and with them the bound, are small.

Axes: N rows   n rows of a block   D width   Q queries   K neighbours
"""

import functools
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["Scan"]

ROWS = 1 << 15
"""Rows read and scored at a time."""
QUERIES = 64
TRIAL = 1 << 14, 384
"""Rows and width of what forms are timed on: a few milliseconds a product."""
LOST = 2.0**-74
"""Length of a coordinate whose square is no number of fp32 any more, and so is missing in a norm."""
LEAST = 2.0**-126
"""Products up to which processors may take for 0."""

Product = Callable[[Float[Tensor, "Q D"]], Float[Tensor, "Q n"]]
"""Inner products of queries with the rows of a block."""
Block = tuple[int, Product, Tensor, Tensor]
"""First row, product, norms of the rows as they were [n], how far each is from its rounded form [n]."""


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
        forms = accumulating_forms()
        self.half, self.form = (torch.bfloat16, forms[0]) if forms else (torch.float32, plain)
        size = 2 if self.half == torch.bfloat16 else 4
        fits = shape[0] * (shape[1] * size + 8) <= memory
        self.held = list(self._rounded(fastest_form())) if fits else None

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
        lost = self.shape[1] ** 0.5 * LOST
        away = (queries - rounded.float()).norm(dim=1, keepdim=True) + lost
        length = queries.norm(dim=1, keepdim=True) + lost
        slack = (self.shape[1] + 8) * 2.0**-24
        output = 2.0**-8 if self.half == torch.bfloat16 else 0.0
        margin = 1 + 2.0**-6  # rounded vectors are longer than their own by up to 2^-8 each
        nearest = torch.full((len(queries), k), -torch.inf)
        kept: list[tuple[Tensor, Tensor, Tensor]] = []
        for start, product, norms, off in self._rounded(self.form) if self.held is None else self.held:
            scores = product(rounded).float()
            error = margin * (length * (off + self.off + lost) + (away + (output + slack) * length) * (norms + lost))
            error += (self.shape[1] + 8) * LEAST
            if self.squared:
                scores -= norms.square() / 2
                error += slack * norms.square()
            most, least = scores + error, scores.sub_(error)
            for number, left_out in enumerate(exclude or ()):
                own = left_out[(left_out >= start) & (left_out < start + len(norms))] - start
                most[number, own] = least[number, own] = -torch.inf
            best = least.topk(min(k, len(norms)), dim=1, sorted=False).values
            nearest = torch.cat([nearest, best], dim=1).topk(k, dim=1, sorted=False).values
            query, row = (most >= nearest.amin(1, keepdim=True)).nonzero(as_tuple=True)
            real = most[query, row] > -torch.inf
            kept.append((query[real], row[real] + start, most[query, row][real]))
        query, ids, most = (torch.cat(parts) for parts in zip(*kept, strict=True))
        near = most >= nearest.amin(1)[query]
        query, ids = query[near], ids[near]
        return [ids[query == number].numpy() for number in range(len(queries))]

    def _rounded(self, form: Callable[[Tensor], Product]) -> Iterator[Block]:
        for start in range(0, self.shape[0], ROWS):
            rows = torch.from_numpy(self.read(slice(start, start + ROWS)))
            rounded = rows.to(self.half)
            yield start, form(rounded), rows.norm(dim=1), (rows - rounded.float()).norm(dim=1)


def plain(rows: Float[Tensor, "n D"]) -> Product:
    """torch's own products. A single query goes as a vector: half the time of a product of one row."""

    def product(queries: Tensor) -> Tensor:
        if len(queries) > 1:
            return queries @ rows.T
        if rows.dtype == torch.float32:  # as fast as memory on every processor, MKL's is not
            return torch.from_numpy(np.einsum("nd,d->n", rows.numpy(), queries[0].numpy()))[None]
        return rows.mv(queries[0])[None]

    return product


def laid_out(rows: Float[Tensor, "n D"]) -> Product:
    """oneDNN's products over rows that are laid out for it once."""
    weight = torch.ops.mkldnn._reorder_linear_weight(rows)

    def product(queries: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(queries, weight, None, "none", [], "none")

    return product


@functools.cache
def accumulating_forms() -> tuple[Callable[[Tensor], Product], ...]:
    """Forms whose bfloat16 products keep their sums in fp32 here: in bfloat16 a sum of ones stops at 256."""
    found = []
    ones = torch.ones(2, 1024, dtype=torch.bfloat16)
    for form in (laid_out, plain):
        try:
            product = form(ones)
            if all(bool((product(asked) == 1024).all()) for asked in (ones, ones[:1])):
                found.append(form)
        except (RuntimeError, AttributeError, NotImplementedError):
            continue  # a torch without oneDNN or without these operators
    return tuple(found)


@functools.cache
def fastest_form() -> Callable[[Tensor], Product]:
    """The form in which one query is answered soonest on this machine; all give the same neighbours. The first is kept
    unless another needs less than 0.75 of its time: a busy machine times badly."""
    forms = accumulating_forms() or (plain,)
    if len(forms) == 1:
        return forms[0]
    rows, query = torch.ones(TRIAL, dtype=torch.bfloat16), torch.ones(1, TRIAL[1], dtype=torch.bfloat16)
    seconds = {}
    for form in forms:
        product, taken = form(rows), []
        for _ in range(5):
            began = time.perf_counter()
            product(query)
            taken.append(time.perf_counter() - began)
        seconds[form] = min(taken)
    return min(forms, key=lambda form: seconds[form] / (0.75 if form is not forms[0] else 1))
