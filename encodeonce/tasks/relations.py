"""Entities and the relations between them, found together (spec A9).

Gold is a `Graph`, read from a document's "entities" and "relations" (`corpus/spert.py`, `scierc.py`, `triples.py`).

Axes: K entities and relations of one item
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int

from ..errors import ConfigError, DataError
from ..graphs import UNTYPED, Graph
from ..heads.partition_filter import ENTITY, RELATION
from ..metrics.relations import graph_scores
from ..types import Document
from . import Task

__all__ = ["Relations"]

METRIC = "ner+re"


@dataclass(frozen=True)
class Relations(Task):
    """`labels` are the entity types, `relations` the relation types and `longest` the most words of an entity that the
    training documents have. `hidden`, `dropconnect` and `prior` are the head's (`heads/partition_filter.py`).

    `head_words=True` cuts entities down to their last word and forgets their types: the paper's WebNLG from any data.
    Where no entity has a type, scores are of head words, else strict and of boundaries, and are named so.
    """

    piece: str = "pieces"
    head_words: bool = False
    hidden: int = 300
    dropconnect: float = 0.1
    prior: float = 0.01
    called: str = "relations"
    labels: tuple[str, ...] = ()
    relations: tuple[str, ...] = ()
    longest: int = 0

    LEARNED: ClassVar[tuple[str, ...]] = ("labels", "relations", "longest", "called")
    head: ClassVar[str] = "partition_filter"
    metric: ClassVar[str] = METRIC

    def __post_init__(self) -> None:
        if self.piece != "pieces":
            raise ConfigError(f"piece={self.piece!r}: the filter reads all pieces, special ones too: piece='pieces'.")

    @property
    def name(self) -> str:
        """As in settings."""
        return self.called

    @property
    def head_options(self) -> dict[str, Any]:
        """What the head needs beside the entity types."""
        return {name: getattr(self, name) for name in ("relations", "longest", "hidden", "dropconnect", "prior")}

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules that scores are made by; the first one decides (see `metrics.relations`)."""
        return ("head word",) if self._untyped else ("strict", "boundary")

    def learn(self, documents: Sequence[Document]) -> "Relations":
        """With the sorted types of these documents."""
        graphs = self.gold(documents)
        spans = [span for graph in graphs for span in graph.entities]
        told = sorted({relation.type for graph in graphs for relation in graph.relations})
        if not told:
            raise DataError(
                f"task {self.name!r}: the {len(graphs)} training documents have no relation. Give some that have, or "
                "write the entities as tags in a column and train the task 'ner' on it."
            )
        labels = tuple(sorted({span.type for span in spans}))
        return replace(self, labels=labels, relations=tuple(told), longest=max(s.stop - s.start for s in spans))

    def gold(self, documents: Sequence[Document]) -> list[Graph]:
        """The graph of each document."""
        graphs = [graph_of(document) for document in documents]
        return [graph.head_words() for graph in graphs] if self.head_words else graphs

    def ids(self, gold: Graph) -> Int[np.ndarray, "K 4"]:
        """What the head's loss takes; what is said twice once, and nothing for a type training never saw: a miss."""
        entities, relations = self._numbers
        spans = gold.entities
        rows = {(ENTITY, s.start, s.stop - 1, entities[s.type]) for s in spans if s.type in entities} | {
            (RELATION, spans[r.head].start, spans[r.tail].start, relations[r.type])
            for r in gold.relations
            if r.type in relations
        }
        return np.array(sorted(rows), dtype=np.int64).reshape(-1, 4)

    def scored(self, ids: Int[np.ndarray, "K 4"]) -> int:
        """Entities and relations: the loss is a sum over cells, and their number grows with that of true ones."""
        return len(ids)

    def unseen(self, gold: Graph) -> Iterable[str]:
        """Entity and relation types of one graph that training never saw; entities' only where scores ask for them."""
        entities, relations = self._numbers
        if not self._untyped:
            yield from (span.type for span in gold.entities if span.type not in entities)
        yield from (relation.type for relation in gold.relations if relation.type not in relations)

    def score(self, gold: Sequence[Graph], predicted: Sequence[tuple[Any, ...]]) -> dict[str, float | None]:
        """precision, recall and f1 as ner_... and re_..., named by rule; n, what gold has of both; ner+re decides.

        ner+re is the sum of the two F1 by the first rule, 200 at most (spec A9).
        """
        scores: dict[str, float | None] = {}
        graphs = [Graph(*one) for one in predicted]  # a document without words is answered by an empty tuple
        for rule in self.rules:
            found = graph_scores(gold, graphs, rule)
            for short, kind in (("ner", "entity"), ("re", "relation")):
                for name in ("precision", "recall", "f1"):
                    scores[f"{short}_{name}_{rule.replace(' ', '_')}"] = found[f"{kind}_{name}"]
                if rule == self.rules[0]:
                    scores["n"] = (scores.get("n") or 0.0) + (found[f"{kind}_gold"] or 0.0)
        deciding = [scores[f"{short}_f1_{self.rules[0].replace(' ', '_')}"] for short in ("ner", "re")]
        scores[METRIC] = None if deciding == [None, None] else sum(value or 0.0 for value in deciding)
        return scores

    def columns(self, documents: Sequence[Document], predicted: Sequence[tuple[Any, ...]]) -> dict[str, Sequence[Any]]:
        """Entities and relations as JSON, one list an item."""
        values = [Graph(*graph).to_json() for graph in predicted]
        return {name: [value[name] for value in values] for name in ("entities", "relations")}

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        fields = ("piece", "head_words", "hidden", "dropconnect", "prior", "called", "longest")
        plain = {name: getattr(self, name) for name in fields}
        return {"kind": "relations", **plain, "labels": list(self.labels), "relations": list(self.relations)}

    @property
    def _untyped(self) -> bool:
        """Whether training knew no type of an entity."""
        return self.labels == (UNTYPED,)

    @cached_property
    def _numbers(self) -> tuple[dict[str, int], dict[str, int]]:
        entities, relations = ({type_: i for i, type_ in enumerate(types)} for types in (self.labels, self.relations))
        return entities, relations


def graph_of(document: Document) -> Graph:
    """A document's gold. DataError where it has none, or where it is not one of its words."""
    place = f"{document.place or 'document'} ({document.id})"
    for name in ("entities", "relations"):
        if name not in document.meta:
            raise DataError(
                f"{place}: no {name!r}: training and evaluation need gold, an empty list where there is none. Read a "
                "file of entities and relations (format 'spert', 'scierc' or 'triples')."
            )
    return Graph.of(document.meta["entities"], document.meta["relations"], len(document.words), place)
