"""Entities in a text and the relations between them, as readers give them, heads find them and metrics compare them.

A graph stands in a document's `meta` as JSON: "entities" `[{"type", "start", "end"}]`, words start ... end - 1, and
"relations" `[{"type", "head", "tail"}]`, where head and tail count the entities from 0. Entities are places, not words:
a word that occurs twice is two words.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .errors import DataError
from .spans import Span

__all__ = ["UNTYPED", "Graph", "Relation"]

UNTYPED = "None"
"""Type of an entity of which nobody says what it is."""


class Relation(NamedTuple):
    """From the entity `head` to the entity `tail`, both counted from 0 in their graph."""

    type: str
    head: int
    tail: int


class Graph(NamedTuple):
    """Entities may overlap, nest and share their words; a pair of them may have several relations, and one twice."""

    entities: tuple[Span, ...] = ()
    relations: tuple[Relation, ...] = ()

    @classmethod
    def of(cls, entities: Any, relations: Any, n_words: int, place: str) -> "Graph":
        """From JSON. DataError with `place` for what is no span of the `n_words` words or no entity's number."""
        spans = tuple(_span(value, i, n_words, place) for i, value in enumerate(_items(entities, "entities", place)))
        told = _items(relations, "relations", place)
        return cls(spans, tuple(_relation(value, i, len(spans), place) for i, value in enumerate(told)))

    def to_json(self) -> dict[str, list[dict[str, Any]]]:
        """{"entities": [...], "relations": [...]}."""
        entities = [{"type": span.type, "start": span.start, "end": span.stop} for span in self.entities]
        return {"entities": entities, "relations": [relation._asdict() for relation in self.relations]}

    def head_words(self) -> "Graph":
        """Every entity cut down to its last word and its type forgotten; entities that end alike become one."""
        last = [Span(UNTYPED, span.stop - 1, span.stop) for span in self.entities]
        number = {span: i for i, span in enumerate(dict.fromkeys(last))}
        relations = [Relation(r.type, number[last[r.head]], number[last[r.tail]]) for r in self.relations]
        return Graph(tuple(number), tuple(relations))


def _items(values: Any, name: str, place: str) -> Sequence[Mapping[str, Any]]:
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise DataError(f"{place}: {name!r} must be a list of objects; it is {values!r:.60}.")
    return values


def _span(value: Mapping[str, Any], number: int, n_words: int, place: str) -> Span:
    where = f"{place}: entity {number}"
    start, end = _number(value, "start", where), _number(value, "end", where)
    if not 0 <= start < end <= n_words:
        raise DataError(
            f"{where}: words {start} to {end} are no span of the {n_words} words. Words count from 0, and 'end' is the "
            f"word after the last one: 0 <= start < end <= {n_words}."
        )
    return Span(_type(value, where), start, end)


def _relation(value: Mapping[str, Any], number: int, n_entities: int, place: str) -> Relation:
    where = f"{place}: relation {number}"
    ends = [_number(value, name, where) for name in ("head", "tail")]
    for name, end in zip(("head", "tail"), ends, strict=True):
        if not 0 <= end < n_entities:
            there = f"There are {n_entities}, 0 to {n_entities - 1}." if n_entities else "There is none."
            raise DataError(
                f"{where}: {name!r} is entity {end}. {there} Add the entity, correct the number, or leave the relation "
                "out."
            )
    return Relation(_type(value, where), *ends)


def _number(value: Mapping[str, Any], name: str, where: str) -> int:
    number = value.get(name)
    if not isinstance(number, int) or isinstance(number, bool):
        raise DataError(f"{where}: {name!r} must be a whole number; there is {number!r} in {dict(value)!r:.80}.")
    return number


def _type(value: Mapping[str, Any], where: str) -> str:
    found = value.get("type")
    if not isinstance(found, str) or not found:
        raise DataError(f"{where}: 'type' must be a string; there is {found!r} in {dict(value)!r:.80}.")
    return found
