"""Graphs from JSON and back; what is refused, and where it stands."""

import pytest

from encodeonce.errors import DataError
from encodeonce.graphs import UNTYPED, Graph, Relation
from encodeonce.spans import Span

ENTITIES = [
    {"type": "A", "start": 0, "end": 2},
    {"type": "B", "start": 1, "end": 2},
    {"type": "A", "start": 3, "end": 4},
]
RELATIONS = [{"type": "r", "head": 2, "tail": 0}, {"type": "s", "head": 2, "tail": 1}]


def test_json_and_back() -> None:
    found = Graph.of(ENTITIES, RELATIONS, 4, "f:1")
    assert found.entities[0] == Span("A", 0, 2)
    assert found.relations[0] == Relation("r", 2, 0)
    assert found.to_json() == {"entities": ENTITIES, "relations": RELATIONS}


def test_A9_head_words_are_last_words_without_types() -> None:
    found = Graph.of(ENTITIES, RELATIONS, 4, "f:1").head_words()
    assert found.entities == (Span(UNTYPED, 1, 2), Span(UNTYPED, 3, 4))
    assert found.relations == (Relation("r", 1, 0), Relation("s", 1, 0))


@pytest.mark.parametrize(
    ("entities", "relations", "message"),
    [
        ([{"type": "A", "start": 3, "end": 5}], [], r"f:7: entity 0: words 3 to 5 are no span of the 4 words.*<= 4"),
        ([{"type": "A", "start": 2, "end": 2}], [], "entity 0: words 2 to 2 are no span"),
        ([{"type": "A", "start": -1, "end": 2}], [], "entity 0: words -1 to 2 are no span"),
        ([{"type": "A", "start": "0", "end": 2}], [], "entity 0: 'start' must be a whole number; there is '0'"),
        ([{"type": "A", "end": 2}], [], "entity 0: 'start' must be a whole number; there is None"),
        ([{"type": None, "start": 0, "end": 2}], [], "entity 0: 'type' must be a string; there is None"),
        (ENTITIES, [{"type": "r", "head": 0, "tail": 3}], r"relation 0: 'tail' is entity 3. There are 3, 0 to 2. Add"),
        (ENTITIES, [{"type": "r", "head": -1, "tail": 0}], "relation 0: 'head' is entity -1"),
        ([], [{"type": "r", "head": 0, "tail": 0}], "relation 0: 'head' is entity 0. There is none"),
        (ENTITIES, [{"type": "r", "head": True, "tail": 0}], "relation 0: 'head' must be a whole number"),
        ("none", [], "'entities' must be a list of objects; it is 'none'"),
        ([], [["r", 0, 0]], "'relations' must be a list of objects"),
    ],
)
def test_what_is_no_graph_is_named(entities: object, relations: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Graph.of(entities, relations, 4, "f:7")
