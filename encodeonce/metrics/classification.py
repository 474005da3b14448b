"""Scores of one label a document, and of a set of labels a document. Per cent (Matthews too); None is undefined.

With one label a document, micro F1 over all labels is accuracy: both count each document once, so that is its name.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from math import sqrt
from operator import eq
from statistics import fmean

from .accuracy import per_label, ratio, same_number

__all__ = ["label_scores", "matthews", "mean_of", "multilabel_scores"]


def label_scores(
    gold: Sequence[str], predicted: Sequence[str], *, positive: str | None = None
) -> dict[str, float | None]:
    """accuracy, macro_f1, matthews and n, the number of documents.

    With `positive` also precision, recall and f1 of that label, and f1_accuracy, the mean of its F1 and of accuracy
    (GLUE's score of MRPC and QQP).

    macro_f1 is the mean over the labels of gold or prediction. Precision is None where `positive` is never predicted,
    recall where gold never has it, F1 where neither does. Raises ConfigError where the two differ in length.
    """
    gold, predicted = list(gold), list(predicted)
    same_number(gold, predicted)
    by_label = per_label([gold], [predicted]) if gold else {}
    accuracy = ratio(sum(map(eq, gold, predicted)), len(gold))
    scores = {
        "accuracy": accuracy,
        "macro_f1": mean_of([values["f1"] for values in by_label.values()]),
        "matthews": matthews(gold, predicted),
    }
    if positive is not None:
        own = by_label.get(positive, {})
        scores |= {name: own.get(name) for name in ("precision", "recall", "f1")}
        scores["f1_accuracy"] = mean_of([scores["f1"], accuracy])
    return {**scores, "n": float(len(gold))}


def matthews(gold: Sequence[str], predicted: Sequence[str]) -> float | None:
    """Matthews's correlation x 100 for any number of labels (Gorodkin 2004, R_K), from -100 to 100.

    None where gold or prediction is one and the same label throughout: a correlation with a constant is undefined.
    """
    same_number(gold, predicted)
    n, right = len(gold), sum(map(eq, gold, predicted))
    true, said = Counter(gold), Counter(predicted)
    together = right * n - sum(count * said[label] for label, count in true.items())
    spread_true = n * n - sum(count * count for count in true.values())
    spread_said = n * n - sum(count * count for count in said.values())
    return 100.0 * together / sqrt(spread_true * spread_said) if spread_true and spread_said else None


def multilabel_scores(gold: Sequence[Collection[str]], predicted: Sequence[Collection[str]]) -> dict[str, float | None]:
    """micro_f1, macro_f1, exact_match (the whole set is right) and n, the number of documents.

    macro_f1 is the mean over the labels of gold or prediction; a label of neither has no F1. Both F1 are None where
    no document has or gets a label. Raises ConfigError where the two differ in length.
    """
    same_number(gold, predicted)
    sets = [(set(g), set(p)) for g, p in zip(gold, predicted, strict=True)]
    true: Counter[str] = Counter()
    said: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for g, p in sets:
        true.update(g)
        said.update(p)
        right.update(g & p)
    return {
        "micro_f1": ratio(2 * right.total(), true.total() + said.total()),
        "macro_f1": mean_of([ratio(2 * right[label], true[label] + said[label]) for label in true | said]),
        "exact_match": ratio(sum(g == p for g, p in sets), len(sets)),
        "n": float(len(sets)),
    }


def mean_of(scores: Sequence[float | None]) -> float | None:
    """The mean; None where there is no score or one of them is undefined."""
    defined = [score for score in scores if score is not None]
    return fmean(defined) if defined and len(defined) == len(scores) else None
