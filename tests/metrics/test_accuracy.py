"""Accuracy and per-label scores against counting by hand and against seqeval's and NumPy's arithmetic."""

import numpy as np
import pytest

from encodeonce.errors import ConfigError
from encodeonce.metrics.accuracy import accuracy, per_label

GOLD = [["N", "V", "N"], ["A"], []]
PREDICTED = [["N", "N", "N"], ["B"], []]


def test_accuracy_by_hand() -> None:
    assert accuracy(GOLD, PREDICTED) == {"accuracy": 50.0, "n": 4.0}


def test_LABELS_2_undefined_is_neither_0_nor_1() -> None:
    assert accuracy([], []) == {"accuracy": None, "n": 0.0}
    assert accuracy([[]], [[]])["accuracy"] is None
    scores = per_label(GOLD, PREDICTED)
    assert scores["V"] == {"precision": None, "recall": 0.0, "f1": 0.0, "gold": 1.0, "predicted": 0.0}
    assert scores["B"]["recall"] is None
    assert scores["N"] == {"precision": 100 * 2 / 3, "recall": 100.0, "f1": 80.0, "gold": 2.0, "predicted": 3.0}


def test_per_label_equals_a_confusion_matrix() -> None:
    rng = np.random.default_rng(0)
    gold, predicted = rng.integers(0, 4, (2, 50, 7))
    labels = [[str(x) for x in row] for row in gold], [[str(x) for x in row] for row in predicted]
    table = np.zeros((4, 4))
    np.add.at(table, (gold.ravel(), predicted.ravel()), 1)
    for label, values in per_label(*labels).items():
        i = int(label)
        assert values["precision"] == pytest.approx(100 * table[i, i] / table[:, i].sum())
        assert values["recall"] == pytest.approx(100 * table[i, i] / table[i].sum())
    assert accuracy(*labels)["accuracy"] == pytest.approx(100 * table.trace() / table.sum())


def test_predictions_that_end_early_are_refused() -> None:
    with pytest.raises(ConfigError, match="item 1: 2 gold labels but 1 predicted ones"):
        accuracy([["a"], ["a", "b"]], [["a"], ["a"]])
    with pytest.raises(ConfigError, match="2 gold items but 1 predicted ones"):
        accuracy([["a"], ["b"]], [["a"]])
