"""Precision, recall and F1 of entities and of the relations between them, micro, per cent; None is undefined.

Three rules, and a result says which one made it:

strict      an entity is its words and its type; a relation its own type, and both entities so
boundary    an entity is its words; a relation its type, and the words of both entities
head word   an entity is its last word; a relation its type, and the last words of both entities (the paper's WebNLG)

What is said twice counts once. A relation runs from its head to its tail, and two types of one pair are two relations.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence

from ..errors import ConfigError
from ..graphs import Graph
from ..resolve import nearest
from ..spans import Span
from .accuracy import ratio

__all__ = ["RULES", "GraphScores", "graph_scores", "per_type"]

RULES: dict[str, Callable[[Span], Hashable]] = {
    "strict": lambda span: span,
    "boundary": lambda span: (span.start, span.stop),
    "head word": lambda span: span.stop - 1,
}
"""What an entity is by each rule."""


class GraphScores(dict[str, float | None]):
    """Scores by name, with the rule that made them: `scores.rule`."""

    rule: str

    def __init__(self, scores: dict[str, float | None], rule: str) -> None:
        super().__init__(scores)
        self.rule = rule


def graph_scores(gold: Sequence[Graph], predicted: Sequence[Graph], rule: str = "strict") -> GraphScores:
    """precision, recall, f1 and the counts gold, predicted, correct, each as entity_... and relation_...

    Precision is None where nothing is predicted, recall where there is no gold, F1 where there is neither. Raises
    ConfigError for an unknown rule and where the numbers of graphs differ.
    """
    scores: dict[str, float | None] = {}
    for kind, (n_gold, n_predicted, right) in _counts(gold, predicted, rule).items():
        totals = _scores(n_gold.total(), n_predicted.total(), right.total())
        scores.update({f"{kind}_{name}": value for name, value in totals.items()})
    return GraphScores(scores, rule)


def per_type(
    gold: Sequence[Graph], predicted: Sequence[Graph], rule: str = "strict"
) -> dict[str, dict[str, dict[str, float | None]]]:
    """{"entity": {type: scores}, "relation": {type: scores}} for each type of gold or prediction.

    Entities have types under the strict rule only: by the others they are one type, "all".
    """
    return {
        kind: {
            type_: _scores(n_gold[type_], n_predicted[type_], right[type_]) for type_ in sorted(n_gold | n_predicted)
        }
        for kind, (n_gold, n_predicted, right) in _counts(gold, predicted, rule).items()
    }


def _counts(
    gold: Sequence[Graph], predicted: Sequence[Graph], rule: str
) -> dict[str, tuple[Counter[str], Counter[str], Counter[str]]]:
    """What is in gold, in the prediction and in both, counted by type."""
    if rule not in RULES:
        raise ConfigError(f"rule={rule!r} is not known. There is: {', '.join(RULES)}.{nearest(rule, list(RULES))}")
    if len(gold) != len(predicted):
        raise ConfigError(f"{len(gold)} gold graphs but {len(predicted)} predicted ones; each needs a prediction.")
    counts: dict[str, tuple[Counter[str], Counter[str], Counter[str]]] = {
        kind: (Counter(), Counter(), Counter()) for kind in ("entity", "relation")
    }
    for g, p in zip(gold, predicted, strict=True):
        mine, theirs = _said(g, rule), _said(p, rule)
        for kind, counters in counts.items():
            for counter, said in zip(counters, (mine[kind], theirs[kind], mine[kind] & theirs[kind]), strict=True):
                counter.update(type_ for type_, _ in said)
    return counts


def _said(graph: Graph, rule: str) -> dict[str, set[tuple[str, Hashable]]]:
    """The entities and the relations of a graph as a rule sees them, each once: (type, where)."""
    same = [RULES[rule](span) for span in graph.entities]
    types = [span.type if rule == "strict" else "all" for span in graph.entities]
    return {
        "entity": set(zip(types, same, strict=True)),
        "relation": {(r.type, (same[r.head], same[r.tail])) for r in graph.relations},
    }


def _scores(gold: int, predicted: int, right: int) -> dict[str, float | None]:
    return {
        "precision": ratio(right, predicted),
        "recall": ratio(right, gold),
        "f1": ratio(2 * right, gold + predicted),
        "gold": float(gold),
        "predicted": float(predicted),
        "correct": float(right),
    }
