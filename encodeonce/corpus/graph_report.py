"""What is in the entities and relations of documents, and what is wrong with them: a part of `corpus.diagnose`."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..errors import DataError
from ..graphs import Graph
from ..types import Document

__all__ = ["GraphReport", "graph_problems", "graph_report"]

SHOWN = 5
"""Places named of each finding; counts are always of all."""


COUNTED = (
    "without_entities",
    "without_relations",
    "nested",
    "crossing",
    "begin_alike",
    "repeated_entities",
    "repeated_relations",
    "loops",
    "guessed",
    "too_long",
)
"""Numbers of a report that are sums over documents."""


@dataclass(frozen=True, slots=True)
class GraphReport:
    """One split. `entities` and `relations` count types, by falling frequency.

    `broken` documents have an entity that is no span of their words, or a relation with an end that is no entity: they
    count for nothing else. An entity is `nested` that lies inside another one, and `crossing` where it overlaps one and
    neither lies in the other; `begin_alike` are those at whose first word another begins: the partition filter ties a
    relation to the most probable of them. `repeated_...` are said before in their document, `loops` are relations of an
    entity with itself. `guessed` mentions occur several times in their text, and the file does not say where.

    `unseen_...` are types that train never has, with their counts, and `too_long` entities longer than any of train,
    which a model trained on it cannot find; both are empty for train itself.
    """

    entities: dict[str, int]
    relations: dict[str, int]
    without_entities: int
    without_relations: int
    longest: int
    nested: int
    crossing: int
    begin_alike: int
    repeated_entities: int
    repeated_relations: int
    loops: int
    guessed: int
    unseen_entities: dict[str, int]
    unseen_relations: dict[str, int]
    too_long: int
    broken: int
    places: dict[str, list[str]]

    def lines(self) -> Iterator[str]:
        """Lines of a page."""
        yield f"  entities: {_listed(self.entities)}; {self.without_entities:,} documents have none"
        yield (
            f"  entities: the longest of {self.longest:,} words; {self.nested:,} nested, {self.crossing:,} crossing,"
            f" {self.begin_alike:,} begin where another does"
        )
        yield f"  relations: {_listed(self.relations)}; {self.without_relations:,} documents have none"


def graph_report(documents: Sequence[Document], train: Sequence[Document] | None = None) -> GraphReport | None:
    """What the documents' `meta` says of entities and relations; None where no document has any such field.

    Types and lengths are compared with those of `train` (None: there is no such split, or this is it).
    """
    told = [document for document in documents if "entities" in document.meta or "relations" in document.meta]
    if not told:
        return None
    graphs, places = [], _Places()
    for document in told:
        try:
            graphs.append((document, _graph(document)))
        except DataError as problem:
            places.add("broken", str(problem))
    known = [graph for _, graph in _readable(train or ())]
    spans = {span.type for graph in known for span in graph.entities}
    kinds = {relation.type for graph in known for relation in graph.relations}
    longest = max((s.stop - s.start for graph in known for s in graph.entities), default=0)
    counts: Counter[str] = Counter()
    for document, graph in graphs:
        _count(graph, counts)
        counts["guessed"] += len(document.meta.get("ambiguous") or ())
        place = document.place or document.id
        for name, number in (
            ("repeated_entities", len(graph.entities) - len(set(graph.entities))),
            ("repeated_relations", len(graph.relations) - len(set(graph.relations))),
            ("loops", sum(relation.head == relation.tail for relation in graph.relations)),
            ("unseen_entities", sum(span.type not in spans for span in graph.entities) if train else 0),
            ("unseen_relations", sum(relation.type not in kinds for relation in graph.relations) if train else 0),
            ("too_long", sum(span.stop - span.start > longest for span in graph.entities) if train else 0),
        ):
            counts[name] += number
            if number:
                places.add(name, place)
    entities = Counter(span.type for _, graph in graphs for span in graph.entities)
    relations = Counter(relation.type for _, graph in graphs for relation in graph.relations)
    return GraphReport(
        entities=dict(entities.most_common()),
        relations=dict(relations.most_common()),
        longest=max((s.stop - s.start for _, graph in graphs for s in graph.entities), default=0),
        unseen_entities=_unseen(entities, spans) if train else {},
        unseen_relations=_unseen(relations, kinds) if train else {},
        broken=len(told) - len(graphs),
        places=places.found,
        **{name: counts[name] for name in COUNTED},
    )


def graph_problems(name: str, report: GraphReport) -> Iterator[str]:
    """Lines about what is wrong; `name` is the split's."""
    for field, what in (
        ("broken", "documents have entities or relations that are not of their words"),
        ("repeated_entities", "entities are said twice"),
        ("repeated_relations", "relations are said twice"),
        ("loops", "relations are of an entity with itself"),
        ("too_long", "entities are longer than any of train, so no model trained on it finds them"),
    ):
        count, places = getattr(report, field), report.places.get(field, [])
        if count:
            yield f"{name}: {count:,} {what} ({', '.join(places)}{', ...' if count > len(places) else ''})"
    if report.guessed:
        yield f"{name}: {report.guessed:,} mentions occur several times in their text, and the first is taken"
    for field, what in (("unseen_entities", "entity"), ("unseen_relations", "relation")):
        unseen: Mapping[str, int] = getattr(report, field)
        if unseen:
            where = ", ".join(report.places.get(field, []))
            yield f"{name}: {len(unseen)} {what} types that train never has: {_listed(unseen)} ({where})"


def _graph(document: Document) -> Graph:
    place = document.place or document.id
    entities, relations = (document.meta.get(name) or [] for name in ("entities", "relations"))
    return Graph.of(entities, relations, len(document.words), place)


def _readable(documents: Sequence[Document]) -> Iterator[tuple[Document, Graph]]:
    for document in documents:
        try:
            yield document, _graph(document)
        except DataError:  # counted where its own split is reported
            continue


def _count(graph: Graph, counts: Counter[str]) -> None:
    """Adds what is counted within one document."""
    spans = [(span.start, span.stop) for span in dict.fromkeys(graph.entities)]
    counts["without_entities"] += not graph.entities
    counts["without_relations"] += not graph.relations
    for i, (start, stop) in enumerate(spans):
        others = [other for j, other in enumerate(spans) if j != i]
        meeting = [(a, b) for a, b in others if a < stop and start < b]
        counts["nested"] += any(a <= start and stop <= b for a, b in meeting)
        counts["crossing"] += any(not (a <= start and stop <= b) and not (start <= a and b <= stop) for a, b in meeting)
        counts["begin_alike"] += any(a == start for a, _ in others)


def _unseen(counts: Counter[str], known: set[str]) -> dict[str, int]:
    return {type_: n for type_, n in counts.most_common() if type_ not in known}


def _listed(counts: Mapping[str, int]) -> str:
    shown = ", ".join(f"{type_} {n:,}" for type_, n in [*counts.items()][:12])
    return (shown or "none") + (f", ... ({len(counts)} types)" if len(counts) > 12 else "")


class _Places:
    """The first places of each finding."""

    def __init__(self) -> None:
        self.found: dict[str, list[str]] = {}

    def add(self, name: str, place: str) -> None:
        own = self.found.setdefault(name, [])
        if len(own) < SHOWN and place not in own:
            own.append(place)
