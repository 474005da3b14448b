"""Which rows can be among the k nearest of a query: one pass over all of them, nothing missed.

The pass reads rounded rows, a byte a coordinate, which quarters the memory that one query has to read, and knows how
far each product can be off: with x the row, q the query and x', q' their rounded forms, |qx - q'x'| is at most
|q||x-x'| + |q-q'||x'| (Cauchy and Schwarz), and the product itself may be rounded once more. A row stays a candidate
unless k others are certainly nearer; the caller scores the few that stay exactly. Rows should come centred, so that
lengths, and with them the bound, are small.

Axes: N rows   n rows of a block   D width   Q queries   K neighbours
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from . import scan_kernel

__all__ = ["Scan"]

ROWS = 1 << 15
"""Rows read and scored at a time."""
QUERIES = 64
LOST = 2.0**-74
"""Length of a coordinate whose square is no number of fp32 any more, and so is missing in a norm."""
LEAST = 2.0**-126
"""Products up to which processors may take for 0."""

Product = Callable[[Any], Float[Tensor, "Q n"]]
"""Inner products of rounded queries with the rows of a block."""
Block = tuple[int, Product, Tensor, Tensor]
"""First row, product, what its errors are made of [3, n], what is taken from each product [n]."""


@runtime_checkable
class Form(Protocol):
    """How rows and queries are rounded and multiplied. What was rounded is given back in fp32, too."""

    size: int
    """Bytes of a coordinate."""
    output: float
    """How far a product is rounded, as a part of the lengths' product."""

    def fits(self, width: int) -> bool:
        """Whether rows may be this wide."""

    def rows(self, rows: Float[Tensor, "n D"]) -> tuple[Product, Float[Tensor, "n D"]]:
        """The rows' products, and the rows as they multiply."""

    def queries(self, queries: Float[Tensor, "Q D"]) -> tuple[Any, Float[Tensor, "Q D"]]:
        """What a product takes, and the queries as they multiply."""


class Bytes:
    """Rows in 255 steps of their own largest coordinate, queries in as many as sums in 32 bits leave room for."""

    size, output = 1, 0.0

    def fits(self, width: int) -> bool:
        return scan_kernel.usable() and self._steps(width) > 127

    def rows(self, rows: Float[Tensor, "n D"]) -> tuple[Product, Float[Tensor, "n D"]]:
        steps, unit = self._stepped(rows, 127, torch.int8)

        def product(queries: tuple[Tensor, Tensor]) -> Tensor:
            asked, asked_unit = queries
            return scan_kernel.products(steps, asked, unit, asked_unit)

        return product, steps[:, : rows.shape[1]].float().mul_(unit[:, None])

    def queries(self, queries: Float[Tensor, "Q D"]) -> tuple[Any, Float[Tensor, "Q D"]]:
        steps, unit = self._stepped(queries, self._steps(queries.shape[1]), torch.int16)
        return (steps, unit), steps[:, : queries.shape[1]].float().mul_(unit[:, None])

    @staticmethod
    def _steps(width: int) -> int:
        return min(2**15 - 1, (2**31 - 1) // (127 * (width + scan_kernel.STEP)))

    @staticmethod
    def _stepped(values: Float[Tensor, "m D"], most: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        unit = (values.abs().amax(1) / most).clamp_(min=LEAST)
        wide = -values.shape[1] % scan_kernel.STEP
        steps = (values / unit[:, None]).round_().clamp_(-most, most).to(dtype)
        return torch.nn.functional.pad(steps, (0, wide)).contiguous(), unit


class Halves:
    """bfloat16, where its sums are kept in fp32 here: in bfloat16 a sum of ones stops at 256."""

    size, output = 2, 2.0**-8

    def fits(self, width: int) -> bool:
        return sums_are_fp32()

    def rows(self, rows: Float[Tensor, "n D"]) -> tuple[Product, Float[Tensor, "n D"]]:
        rounded = rows.bfloat16()
        return lambda queries: bfloat16_products(rounded, queries), rounded.float()

    def queries(self, queries: Float[Tensor, "Q D"]) -> tuple[Any, Float[Tensor, "Q D"]]:
        rounded = queries.bfloat16()
        return rounded, rounded.float()


class Floats:
    """fp32, as rows come."""

    size, output = 4, 0.0

    def fits(self, width: int) -> bool:
        return True

    def rows(self, rows: Float[Tensor, "n D"]) -> tuple[Product, Float[Tensor, "n D"]]:
        def product(queries: Tensor) -> Tensor:
            if len(queries) > 1:
                return queries @ rows.T
            # as fast as memory on every processor, MKL's is not
            return torch.from_numpy(np.einsum("nd,d->n", rows.numpy(), queries[0].numpy()))[None]

        return product, rows

    def queries(self, queries: Float[Tensor, "Q D"]) -> tuple[Any, Float[Tensor, "Q D"]]:
        return queries, queries


FORMS: tuple[Form, ...] = (Bytes(), Halves(), Floats())


def form_for(width: int) -> Form:
    """The first that fits; all give the same neighbours."""
    return next(form for form in FORMS if form.fits(width))


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
        self.form = form_for(shape[1])
        self.slack = (shape[1] + 8) * 2.0**-24
        fits = shape[0] * (shape[1] * self.form.size + 16) <= memory
        self.held = list(self._blocks()) if fits else None

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
        asked, errors = self._asked(queries)
        nearest = torch.full((len(queries), k), -torch.inf)
        kept: list[tuple[Tensor, Tensor, Tensor]] = []
        for start, product, parts, less in self._blocks() if self.held is None else self.held:
            scores = product(asked).float().sub_(less)
            error = errors @ parts
            most, least = scores + error, scores.sub_(error)
            for number, left_out in enumerate(exclude or ()):
                own = left_out[(left_out >= start) & (left_out < start + len(less))] - start
                most[number, own] = least[number, own] = -torch.inf
            settled = float(nearest.min()) > -torch.inf
            if not settled:
                nearest = best(nearest, least)
            query, row = (most >= nearest.amin(1, keepdim=True)).nonzero(as_tuple=True)
            if settled:
                nearest = best(nearest, side_by_side(least[query, row], query, len(queries)))
            reach = most[query, row]
            real = reach > -torch.inf
            kept.append((query[real], row[real] + start, reach[real]))
        query, ids, reach = (torch.cat(of_all) for of_all in zip(*kept, strict=True))
        near = reach >= nearest.amin(1)[query]
        query, ids = query[near], ids[near]
        return [ids[query == number].numpy() for number in range(len(queries))]

    def _asked(self, queries: Float[Tensor, "Q D"]) -> tuple[Any, Float[Tensor, "Q 3"]]:
        """Rounded queries, and what the errors of their products are made of."""
        asked, rounded = self.form.queries(queries)
        lost = self.shape[1] ** 0.5 * LOST
        away, length = (queries - rounded).norm(dim=1) + lost, queries.norm(dim=1) + lost
        away += (self.form.output + self.slack) * (length + away)
        return asked, torch.stack([length, away, torch.ones_like(length)], dim=1)

    def _blocks(self) -> Iterator[Block]:
        lost, margin = self.shape[1] ** 0.5 * LOST, 1 + 2.0**-8
        for start in range(0, self.shape[0], ROWS):
            rows = torch.from_numpy(self.read(slice(start, start + ROWS)))
            product, rounded = self.form.rows(rows)
            norms, off = rows.norm(dim=1), (rows - rounded).norm(dim=1) + self.off + lost
            least = torch.full_like(norms, (self.shape[1] + 8) * LEAST)
            squares = norms.square() if self.squared else torch.zeros_like(norms)
            parts = torch.stack([margin * off, margin * (norms + off), least.add_(squares, alpha=self.slack)])
            yield start, product, parts, squares / 2


def best(nearest: Float[Tensor, "Q K"], values: Float[Tensor, "Q n"]) -> Float[Tensor, "Q K"]:
    """The K largest of both."""
    k = nearest.shape[1]
    largest = values.topk(min(k, values.shape[1]), dim=1, sorted=False).values
    return torch.cat([nearest, largest], dim=1).topk(k, dim=1, sorted=False).values


def side_by_side(values: Float[Tensor, " m"], query: Int[Tensor, " m"], n_queries: int) -> Float[Tensor, "Q most"]:
    """A row for the values of each query, which come in the queries' order; -inf where there are no more."""
    counts = query.bincount(minlength=n_queries)
    place = torch.arange(len(query)) - (counts.cumsum(0) - counts)[query]
    table = torch.full((n_queries, int(counts.max())), -torch.inf)
    table[query, place] = values
    return table


@functools.cache
def sums_are_fp32() -> bool:
    """Whether torch's products of bfloat16 keep their sums in fp32 here."""
    ones = torch.ones(2, 1024, dtype=torch.bfloat16)
    try:
        return all(bool((bfloat16_products(ones, asked) == 1024).all()) for asked in (ones, ones[:1]))
    except RuntimeError:  # no product of this type here
        return False


def bfloat16_products(rows: Tensor, queries: Tensor) -> Tensor:
    """A single query goes as a vector: half the time of a product of one row."""
    return queries @ rows.T if len(queries) > 1 else rows.mv(queries[0])[None]
