"""Accuracy of a column of labels, and precision, recall and F1 of each label. All per cent; None is undefined."""

from collections import Counter
from collections.abc import Sequence, Sized

from ..errors import ConfigError

__all__ = ["accuracy", "paired", "per_label", "ratio", "same_number"]

Labels = Sequence[Sequence[str]]


def accuracy(gold: Labels, predicted: Labels) -> dict[str, float | None]:
    """{"accuracy": 0-100, "n": words counted}. With one label a word, micro F1 is the same number.

    Accuracy is None where there is no word to count. Raises ConfigError where the two differ in shape.
    """
    right = total = 0
    for g, p in paired(gold, predicted):
        total += len(g)
        right += sum(map(str.__eq__, g, p))
    return {"accuracy": ratio(right, total), "n": float(total)}


def per_label(gold: Labels, predicted: Labels) -> dict[str, dict[str, float | None]]:
    """For each label of gold or prediction: precision, recall, f1 (0-100 or None), gold and predicted (counts).

    Precision of a label never predicted is undefined, and so is recall of a label that gold never has.
    """
    n_gold: Counter[str] = Counter()
    n_predicted: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for g, p in paired(gold, predicted):
        n_gold.update(g)
        n_predicted.update(p)
        right.update(label for label, other in zip(g, p, strict=True) if label == other)
    return {
        label: {
            "precision": ratio(right[label], n_predicted[label]),
            "recall": ratio(right[label], n_gold[label]),
            "f1": ratio(2 * right[label], n_gold[label] + n_predicted[label]),
            "gold": float(n_gold[label]),
            "predicted": float(n_predicted[label]),
        }
        for label in sorted(n_gold | n_predicted)
    }


def ratio(part: int, whole: int) -> float | None:
    """part of whole in per cent; None where there is nothing to divide by."""
    return 100.0 * part / whole if whole else None


def paired(gold: Labels, predicted: Labels) -> list[tuple[Sequence[str], Sequence[str]]]:
    """Gold and prediction of each item. Raises ConfigError naming the first item whose lengths differ."""
    same_number(gold, predicted)
    for index, (g, p) in enumerate(zip(gold, predicted, strict=True)):
        if len(g) != len(p):
            raise ConfigError(
                f"item {index}: {len(g)} gold labels but {len(p)} predicted ones; each word needs a prediction."
            )
    return list(zip(gold, predicted, strict=True))


def same_number(gold: Sized, predicted: Sized) -> None:
    """ConfigError where there are not as many predictions as gold items."""
    if len(gold) != len(predicted):
        raise ConfigError(
            f"{len(gold)} gold items but {len(predicted)} predicted ones; each gold item needs a prediction."
        )
