"""Precision, recall and F1 of spans (chunks, named entities), micro and macro, per cent; None is undefined.

A span counts as found when type, start and end agree (Tjong Kim Sang and De Meulder, 2003). How tags are read as spans
is the rule of `encodeonce.spans`: lenient (conlleval's, the default; decision A-16) or strict (by the scheme), the same
for gold and prediction, and the result says which.
"""

from collections import Counter
from collections.abc import Sequence

from ..errors import ConfigError
from ..spans import to_spans
from .accuracy import paired, ratio, same_number

__all__ = ["SpanScores", "all_pieces", "span_scores", "spans_per_type"]

Tags = Sequence[Sequence[str]]


class SpanScores(dict[str, float | None]):
    """Scores by name, with the rule that made them: `scores.rule` is "lenient (conlleval)" or "strict IOB2" etc."""

    rule: str

    def __init__(self, scores: dict[str, float | None], rule: str) -> None:
        super().__init__(scores)
        self.rule = rule


def span_scores(gold: Tags, predicted: Tags, *, scheme: str = "IOB2", strict: bool = False) -> SpanScores:
    """precision, recall, f1 (micro), macro_precision, macro_recall, macro_f1, and the counts gold, predicted, correct.

    Precision is None where nothing is predicted, recall where there is no gold span, F1 where there is neither. A
    macro value is the mean over the types for which it is defined. A gold span of a type never seen in training counts
    like any other. Raises ConfigError where the two differ in shape, DataError for tags that are no chunk tags.
    """
    n_gold, n_predicted, right = _counts(gold, predicted, scheme, strict)
    types = _by_type(n_gold, n_predicted, right)
    scores: dict[str, float | None] = {
        "precision": ratio(right.total(), n_predicted.total()),
        "recall": ratio(right.total(), n_gold.total()),
        "f1": ratio(2 * right.total(), n_gold.total() + n_predicted.total()),
        "gold": float(n_gold.total()),
        "predicted": float(n_predicted.total()),
        "correct": float(right.total()),
    }
    for name in ("precision", "recall", "f1"):
        defined = [value for values in types.values() if (value := values[name]) is not None]
        scores[f"macro_{name}"] = sum(defined) / len(defined) if defined else None
    return SpanScores(scores, f"strict {scheme}" if strict else "lenient (conlleval)")


def all_pieces(tags: Tags, pieces: Sequence[Sequence[int]]) -> list[tuple[str, ...]]:
    """Each word's tag once for each of its pieces, [items][words]: what `span_scores` of both sides then gives is the
    score of programs that label every piece, where a B- word of three pieces is three entities (spec A12).

    Beside the score of first pieces, for comparison with such published values; a word has at least one piece. Raises
    ConfigError where the two differ in shape, or a word has none.
    """
    same_number(tags, pieces)
    found = []
    for index, (own, counts) in enumerate(zip(tags, pieces, strict=True)):
        if len(own) != len(counts) or min(counts, default=1) < 1:
            raise ConfigError(f"item {index}: {len(own)} tags, pieces {list(counts)}: at least one piece a word.")
        found.append(tuple(tag for tag, n in zip(own, counts, strict=True) for _ in range(n)))
    return found


def spans_per_type(
    gold: Tags, predicted: Tags, *, scheme: str = "IOB2", strict: bool = False
) -> dict[str, dict[str, float | None]]:
    """For each type of gold or prediction: precision, recall, f1, and the counts gold, predicted, correct."""
    return _by_type(*_counts(gold, predicted, scheme, strict))


def _counts(gold: Tags, predicted: Tags, scheme: str, strict: bool) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Spans of gold, of the prediction and of both, counted by type."""
    n_gold: Counter[str] = Counter()
    n_predicted: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for index, (g, p) in enumerate(paired(gold, predicted)):
        gold_spans = to_spans(g, scheme, strict=strict, place=f"gold item {index}")
        found = to_spans(p, scheme, strict=strict, place=f"predicted item {index}")
        n_gold.update(span.type for span in gold_spans)
        n_predicted.update(span.type for span in found)
        right.update(span.type for span in set(gold_spans) & set(found))
    return n_gold, n_predicted, right


def _by_type(
    n_gold: Counter[str], n_predicted: Counter[str], right: Counter[str]
) -> dict[str, dict[str, float | None]]:
    return {
        type_: {
            "precision": ratio(right[type_], n_predicted[type_]),
            "recall": ratio(right[type_], n_gold[type_]),
            "f1": ratio(2 * right[type_], n_gold[type_] + n_predicted[type_]),
            "gold": float(n_gold[type_]),
            "predicted": float(n_predicted[type_]),
            "correct": float(right[type_]),
        }
        for type_ in sorted(n_gold | n_predicted)
    }
