"""Entities and relations of a text together, by the partition filter network (Yan et al. 2021; spec A9, A-15).

The rows are all pieces of an item, special ones included, and all of them are filtered and pooled. The tables are those
of words: a word stands where its first piece stands, so the paper's cells of other pieces hold no gold and can make no
word's prediction, and are left out. Entity (i, j) is that of words i ... j; relation (i, j) that between an entity that
begins at word i and one that begins at word j.

Axes: R rows of all items, end to end   D width   W words of all items   N cells of a table   E entity types
T relation types   G gold entities and relations of all items
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import softplus

from ..errors import ConfigError
from ..graphs import Graph, Relation
from ..nn.dropout import Dropout
from ..nn.pair_table import Cells, PairTable
from ..nn.partition_filter import PartitionFilter
from ..nn.rows import Rows
from ..spans import Span
from . import Head

__all__ = ["PartitionFilterNetwork", "ENTITY", "RELATION", "Tables"]  # noqa: RUF022 (found by name: the class first)

ENTITY, RELATION = 0, 1
"""First column of a gold row: which table it is in."""


@dataclass(frozen=True, eq=False)
class Tables:
    """A logit for every type in every cell; `counts[b]` is the number of words of item b."""

    entities: Float[Tensor, "N E"]
    relations: Float[Tensor, "M T"]
    entity_cells: Cells
    relation_cells: Cells
    counts: tuple[int, ...]

    @property
    def first_words(self) -> Int[np.ndarray, " B"]:
        """The number of each item's first word in the batch."""
        return np.cumsum((0, *self.counts))[:-1].astype(np.int64)


class PartitionFilterNetwork(Head):
    """Dropout, the filter, and a table for each of the two tasks.

    `labels` are the entity types, `relations` the relation types, `longest` the most words an entity may have: cells of
    longer ones are left out (None: there is no limit). `dropout` is the rate at the input and in the tables. `prior` is
    the probability that every cell starts at. The paper's start at about one half (0.5 does so too), and then hundreds
    of steps teach nothing but that entities and relations are rare.
    ConfigError where types are missing or repeat.
    """

    def __init__(
        self,
        width: int,
        labels: Sequence[str],
        relations: Sequence[str],
        longest: int | None = None,
        hidden: int = 300,
        dropout: float = 0.1,
        dropconnect: float = 0.1,
        prior: float = 0.01,
        compute: str = "fp32",
    ) -> None:
        super().__init__()
        for kind, types in (("entity", labels), ("relation", relations)):
            repeated = sorted({type_ for type_ in types if list(types).count(type_) > 1})
            if not types or repeated:
                seen = f"repeated: {repeated}" if repeated else "there is none"
                raise ConfigError(f"the network needs at least one {kind} type and each once; {seen}.")
        if longest is not None and longest < 1:
            raise ConfigError(f"longest={longest} must be at least 1 word, or None for no limit.")
        if not 0 < prior < 1:
            raise ConfigError(f"prior={prior} is a probability: it must lie between 0 and 1, both excluded.")
        self.labels, self.relations, self.longest = tuple(labels), tuple(relations), longest
        self.dropout = Dropout(dropout)
        self.filter = PartitionFilter(width, hidden, dropconnect, compute)
        self.entity_table = PairTable(hidden, len(labels), dropout, compute, prior)
        self.relation_table = PairTable(hidden, len(relations), dropout, compute, prior)

    def forward(self, vectors: Float[Tensor, "R D"], rows: Rows) -> Tables:
        """Logits of all cells. No item's depend on the items beside it."""
        item = np.repeat(np.arange(len(rows.lengths)), rows.lengths)
        begins = (rows.word >= 0) & ((np.diff(rows.word, prepend=-1) != 0) | (np.diff(item, prepend=-1) != 0))
        counts = tuple(np.bincount(item[begins], minlength=len(rows.lengths)).tolist())
        words = torch.from_numpy(np.flatnonzero(begins)).to(vectors.device)
        # without a limit the longest item's length is one: only order is asked for
        spans = Cells.of(counts, self.longest or max(counts, default=1) or 1)
        pairs = Cells.of(counts)
        kept = self.filter(self.dropout(vectors), rows.lengths)
        of_words = (rows.lengths, words, counts)
        return Tables(
            self.entity_table(kept.entity, kept.shared, *of_words, spans),
            self.relation_table(kept.relation, kept.shared, *of_words, pairs),
            spans,
            pairs,
            counts,
        )

    def loss(self, scores: Tables, gold: Int[Tensor, "G 4"], counts: tuple[int, ...]) -> Float[Tensor, ""]:
        """Binary cross-entropy in nats, SUMMED over all cells and types of both tables.

        A gold row is (ENTITY, first word, last word, type) or (RELATION, head's first word, tail's first word, type).
        The paper divides a batch's sum by its padded length, another number for every batch; here a constant divides,
        the mean number of gold rows of a batch, so that an item weighs the same wherever it falls.
        """
        rows = gold.cpu().numpy()
        first = np.repeat(scores.first_words, counts)
        total = scores.entities.new_zeros(())
        tables = ((ENTITY, scores.entities, scores.entity_cells), (RELATION, scores.relations, scores.relation_cells))
        for table, logits, cells in tables:
            mine = rows[:, 0] == table
            cell = cells.at(rows[mine, 1] + first[mine], rows[mine, 2] + first[mine])
            held = cell >= 0
            right = logits[torch.from_numpy(cell[held]), torch.from_numpy(rows[mine, 3][held])]
            counted = softplus(logits) if cells.longest is None else softplus(logits)[torch.from_numpy(cells.inside)]
            total = total + counted.sum() - right.sum()
        return total

    def decode(self, scores: Tables, rows: Rows) -> list[Graph]:
        """What has a probability of more than one half; a relation only between words where such entities begin.

        Of several entities that begin at one word the most probable one is the relation's end.
        """
        graphs: list[tuple[list[tuple[float, Span]], list[Relation]]] = [([], []) for _ in scores.counts]
        first = scores.first_words
        owner = np.repeat(np.arange(len(first)), scores.counts)
        for row, column, type_, logit in _positive(scores.entities, scores.entity_cells):
            b = owner[row]
            graphs[b][0].append((logit, Span(self.labels[type_], int(row - first[b]), int(column - first[b]) + 1)))
        for entities, _ in graphs:
            entities.sort(key=lambda found: (found[1].start, found[1].stop, found[1].type))
        begins = [_most_probable(entities) for entities, _ in graphs]
        for row, column, type_, _ in _positive(scores.relations, scores.relation_cells):
            b = owner[row]
            head, tail = begins[b].get(int(row - first[b])), begins[b].get(int(column - first[b]))
            if head is not None and tail is not None:
                graphs[b][1].append(Relation(self.relations[type_], head, tail))
        return [
            Graph(tuple(span for _, span in entities), tuple(sorted(told, key=lambda r: (r.head, r.tail, r.type))))
            for entities, told in graphs
        ]


def _positive(logits: Float[Tensor, "N C"], cells: Cells) -> list[tuple[int, int, int, float]]:
    """(row word, column word, type, logit) of all that is more probable than not, in the order of the cells."""
    values = logits.detach().float().cpu().numpy()
    cell, type_ = np.nonzero((values > 0) & cells.inside[:, None])
    found = (cells.row[cell], cells.column[cell], type_, values[cell, type_])
    return list(zip(*(array.tolist() for array in found), strict=True))


def _most_probable(entities: list[tuple[float, Span]]) -> dict[int, int]:
    """First word -> the number of the most probable entity that begins there."""
    best: dict[int, int] = {}
    for number, (logit, span) in enumerate(entities):
        if span.start not in best or logit > entities[best[span.start]][0]:
            best[span.start] = number
    return best
