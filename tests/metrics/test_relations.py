"""Scores of graphs against the field case and against sets counted by hand."""

import json
import random
from pathlib import Path

import pytest

from encodeonce.errors import ConfigError
from encodeonce.graphs import Graph, Relation
from encodeonce.metrics.relations import graph_scores, per_type
from encodeonce.spans import Span


def graph(entities: list[list], relations: list[list]) -> Graph:
    spans = tuple(Span(type_, start, stop) for start, stop, type_ in entities)
    return Graph(spans, tuple(Relation(type_, head, tail) for head, tail, type_ in relations))


def test_REL2_duplicates_directions_and_the_named_rules(cases: Path) -> None:
    case = json.loads((cases / "REL-2.json").read_text("utf-8"))
    gold = graph(case["gold_entities"], case["gold_relations"])
    predicted = graph(case["pred_entities"], case["pred_relations"])
    for rule, name in (("boundary", "boundary"), ("strict", "strict_with_entity_types")):
        scores = graph_scores([gold], [predicted], rule)
        assert scores.rule == rule
        for short, long in (("p", "precision"), ("r", "recall"), ("f1", "f1")):
            assert scores[f"relation_{long}"] == 100 * case["expected"][name][short]
        assert scores["relation_predicted"] == 2
        assert scores["relation_gold"] == 2


def test_rules_by_hand() -> None:
    gold = [Graph((Span("A", 0, 2), Span("B", 3, 4)), (Relation("r", 0, 1),))]
    shorter = [Graph((Span("A", 1, 2), Span("B", 3, 4)), (Relation("r", 0, 1),))]
    retyped = [Graph((Span("C", 0, 2), Span("B", 3, 4)), (Relation("r", 0, 1),))]
    found = {
        (name, rule): (scores["entity_correct"], scores["relation_correct"])
        for name, predicted in (("shorter", shorter), ("retyped", retyped))
        for rule in ("strict", "boundary", "head word")
        for scores in [graph_scores(gold, predicted, rule)]
    }
    assert found == {
        ("shorter", "strict"): (1, 0),
        ("shorter", "boundary"): (1, 0),
        ("shorter", "head word"): (2, 1),
        ("retyped", "strict"): (1, 0),
        ("retyped", "boundary"): (2, 1),
        ("retyped", "head word"): (2, 1),
    }


def random_graph(rng: random.Random) -> Graph:
    entities = []
    for _ in range(rng.randint(0, 4)):
        start = rng.randint(0, 3)
        entities.append([start, start + rng.randint(1, 2), rng.choice("AB")])
    n = rng.randint(0, 4) if entities else 0
    return graph(entities, [[*rng.choices(range(len(entities)), k=2), rng.choice("rs")] for _ in range(n)])


def test_strict_scores_equal_sets_of_everything_spelt_out() -> None:
    rng = random.Random(0)
    gold, predicted = [random_graph(rng) for _ in range(40)], [random_graph(rng) for _ in range(40)]

    def told(graphs: list[Graph]) -> set[tuple]:
        return {
            (i, type_, *graph.entities[head], *graph.entities[tail])
            for i, graph in enumerate(graphs)
            for type_, head, tail in graph.relations
        }

    g, p = told(gold), told(predicted)
    scores = graph_scores(gold, predicted)
    assert scores["relation_precision"] == pytest.approx(100 * len(g & p) / len(p))
    assert scores["relation_recall"] == pytest.approx(100 * len(g & p) / len(g))
    assert scores["relation_f1"] == pytest.approx(200 * len(g & p) / (len(g) + len(p)))
    tables = per_type(gold, predicted)
    for kind in ("entity", "relation"):
        for count in ("gold", "predicted", "correct"):
            assert sum(row[count] for row in tables[kind].values()) == scores[f"{kind}_{count}"]
    assert set(tables["entity"]) == {"A", "B"}
    assert set(per_type(gold, predicted, "boundary")["entity"]) == {"all"}


def test_undefined_scores_are_none() -> None:
    some, none = Graph((Span("A", 0, 1),), ()), Graph()
    assert graph_scores([none], [none])["relation_f1"] is None
    missed = graph_scores([some], [none])
    assert (missed["entity_precision"], missed["entity_recall"], missed["entity_f1"]) == (None, 0.0, 0.0)


def test_errors_are_named() -> None:
    with pytest.raises(ConfigError, match=r"rule='stric' is not known. There is: strict, boundary, head word. Did you"):
        graph_scores([], [], "stric")
    with pytest.raises(ConfigError, match="2 gold graphs but 1 predicted"):
        graph_scores([Graph(), Graph()], [Graph()])
