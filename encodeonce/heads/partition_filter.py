"""Entities and relations of a text together, by the partition filter network (Yan et al. 2021; spec A9, A-15).

The rows are all pieces of an item, special ones included, and all of them are filtered and pooled. The tables are those
of words: a word stands where its first piece stands, so the paper's cells of other pieces hold no gold and can make no
word's prediction, and are left out. Entity (i, j) is that of words i ... j; relation (i, j) that between an entity that
begins at word i and one that begins at word j. The loss reads every pair of words; a prediction can only relate words
where entities were found to begin, so no other pair is scored for it.

Axes: R rows of all items, end to end   D width   W words of all items   N cells of a table   E entity types
T relation types   G gold entities and relations of all items   K chosen words of all items   M cells of their pairs
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

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

__all__ = ["PartitionFilterNetwork", "ENTITY", "RELATION", "Pairs", "Tables"]  # noqa: RUF022 (found by name: the class first)

ENTITY, RELATION = 0, 1
"""First column of a gold row: which table it is in."""


Pairs = Callable[[Int[np.ndarray, " K"], tuple[int, ...]], tuple[Float[Tensor, "M T"], Cells]]
"""Chosen words, as they count through the batch, and how many each item has -> the relation table of them alone: a
logit for every type in every cell, and the cells, whose rows and columns count the chosen words."""


@dataclass(frozen=True, eq=False)
class Tables:
    """A logit for every type in every cell; `counts[b]` is the number of words of item b.

    The relation table is made when it is asked for: `pairs` scores the pairs of some words, `relations` are all.
    """

    entities: Float[Tensor, "N E"]
    entity_cells: Cells
    counts: tuple[int, ...]
    pairs: Pairs

    @property
    def first_words(self) -> Int[np.ndarray, " B"]:
        """The number of each item's first word in the batch."""
        return np.cumsum((0, *self.counts))[:-1].astype(np.int64)

    @property
    def relations(self) -> Float[Tensor, "M T"]:
        """Logits of all pairs of words."""
        return self._related[0]

    @property
    def relation_cells(self) -> Cells:
        """The cells of `relations`."""
        return self._related[1]

    @cached_property
    def _related(self) -> tuple[Tensor, Cells]:
        return self.pairs(np.arange(sum(self.counts)), self.counts)


class PartitionFilterNetwork(Head):
    """Dropout, the filter, and a table for each of the two tasks.

    `labels` are the entity types, `relations` the relation types, `longest` the most words an entity may have: cells of
    longer ones are left out (None: there is no limit). `dropout` is the rate at the input and in the tables. `prior` is
    the probability that every cell starts at. The paper's start at about one half (0.5 does so too), and then hundreds
    of steps teach nothing but that entities and relations are rare.
    ConfigError where types are missing or repeat, or a setting is out of range.
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
        if hidden < 1:
            raise ConfigError(f"hidden={hidden}, the filter's width, must be at least 1.")
        if not 0 <= dropconnect < 1:
            raise ConfigError(f"dropconnect={dropconnect} is a rate: it must lie between 0 and 1, 1 excluded.")
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
        kept = self.filter(self.dropout(vectors), rows.lengths)

        def pairs(chosen: Int[np.ndarray, " K"], n_chosen: tuple[int, ...]) -> tuple[Tensor, Cells]:
            cells, read = Cells.of(n_chosen), words[torch.from_numpy(chosen).to(words.device)]
            return self.relation_table(kept.relation, kept.shared, rows.lengths, read, n_chosen, cells), cells

        entities = self.entity_table(kept.entity, kept.shared, rows.lengths, words, counts, spans)
        return Tables(entities, spans, counts, pairs)

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
        first = scores.first_words
        owner = np.repeat(np.arange(len(first)), scores.counts)
        found: list[list[tuple[float, Span]]] = [[] for _ in scores.counts]
        for row, column, type_, logit in _positive(scores.entities, scores.entity_cells):
            b = owner[row]
            found[b].append((logit, Span(self.labels[type_], int(row - first[b]), int(column - first[b]) + 1)))
        for entities in found:
            entities.sort(key=lambda one: (one[1].start, one[1].stop, one[1].type))
        begins = [_most_probable(entities) for entities in found]
        told: list[list[Relation]] = [[] for _ in scores.counts]
        ends = [(b, number) for b, own in enumerate(begins) for number in own.values()]
        if ends:
            words = np.array([first[b] + word for b, own in enumerate(begins) for word in own], dtype=np.int64)
            for row, column, type_, _ in _positive(*scores.pairs(words, tuple(map(len, begins)))):
                b, head = ends[row]
                told[b].append(Relation(self.relations[type_], head, ends[column][1]))
        return [
            Graph(tuple(span for _, span in entities), tuple(sorted(own, key=lambda r: (r.head, r.tail, r.type))))
            for entities, own in zip(found, told, strict=True)
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
