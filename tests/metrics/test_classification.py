"""Labels, sets of labels and numbers of documents: against scikit-learn and scipy where they define a score."""

import inspect
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as oracle

from encodeonce.errors import ConfigError
from encodeonce.metrics.classification import label_scores, matthews, mean_of, multilabel_scores
from encodeonce.metrics.regression import pearson, regression_scores, spearman


def drawn(seed: int) -> tuple[list[str], list[str], list[str]]:
    """Labels, gold and prediction; some labels never occur, in one of the two or in both."""
    random = np.random.default_rng(seed)
    labels = [f"l{i}" for i in range(random.integers(2, 6))]
    n = int(random.integers(2, 60))
    gold, predicted = (random.choice(labels[: random.integers(1, len(labels) + 1)], n).tolist() for _ in range(2))
    return labels, gold, [g if random.random() < 0.5 else p for g, p in zip(gold, predicted, strict=True)]


@pytest.mark.parametrize("seed", range(40))
def test_label_scores_equal_scikit_learn(seed: int) -> None:
    _, gold, predicted = drawn(seed)
    scores = label_scores(gold, predicted, positive="l0")
    assert scores["accuracy"] == pytest.approx(100 * oracle.accuracy_score(gold, predicted))
    assert scores["accuracy"] == pytest.approx(100 * oracle.f1_score(gold, predicted, average="micro"))
    assert scores["macro_f1"] == pytest.approx(100 * oracle.f1_score(gold, predicted, average="macro"))
    assert scores["n"] == len(gold)
    if len(set(gold)) > 1 and len(set(predicted)) > 1:
        assert scores["matthews"] == pytest.approx(100 * oracle.matthews_corrcoef(gold, predicted))
    else:
        assert scores["matthews"] is None
    ours = [scores[name] for name in ("precision", "recall", "f1")]
    theirs = oracle.precision_recall_fscore_support(
        [g == "l0" for g in gold], [p == "l0" for p in predicted], average="binary", zero_division=np.nan
    )
    for mine, other in zip(ours, theirs[:3], strict=True):
        assert (mine is None and math.isnan(other)) or mine == pytest.approx(100 * other)
    both = None if scores["f1"] is None else (scores["f1"] + scores["accuracy"]) / 2
    assert scores["f1_accuracy"] == (both if both is None else pytest.approx(both))


def test_matthews_by_hand_and_where_it_is_undefined() -> None:
    assert matthews(["a", "a", "b", "b"], ["a", "a", "b", "b"]) == 100
    assert matthews(["a", "a", "b", "b"], ["b", "b", "a", "a"]) == -100
    assert matthews(["1", "1", "1", "0"], ["1", "0", "1", "1"]) == pytest.approx(-100 / 3)
    for gold, predicted in ((["a", "a"], ["a", "b"]), (["a", "b"], ["a", "a"]), ([], [])):
        assert matthews(gold, predicted) is None


def test_nothing_to_score_is_undefined_never_zero() -> None:
    labels = label_scores([], [], positive="a")
    assert labels.pop("n") == 0
    assert set(labels.values()) == {None}
    sets = multilabel_scores([], [])
    assert sets == {"micro_f1": None, "macro_f1": None, "exact_match": None, "n": 0}
    numbers = regression_scores([], [])
    assert numbers == {"pearson": None, "spearman": None, "pearson_spearman": None, "r2": None, "mse": None, "n": 0}


def test_a_positive_label_that_neither_has_leaves_its_f1_undefined() -> None:
    scores = label_scores(["no", "no"], ["no", "no"], positive="yes")
    assert scores["accuracy"] == 100
    assert [scores[name] for name in ("precision", "recall", "f1", "f1_accuracy")] == [None] * 4


@pytest.mark.parametrize("seed", range(30))
def test_multilabel_scores_equal_scikit_learn(seed: int) -> None:
    random = np.random.default_rng(seed)
    n, names = int(random.integers(1, 30)), [f"l{i}" for i in range(5)]
    gold, predicted = (random.random((n, 5)) < random.choice([0.1, 0.5]) for _ in range(2))
    used = gold.any(0) | predicted.any(0)
    sets = [[tuple(np.array(names)[row]) for row in table] for table in (gold, predicted)]
    scores = multilabel_scores(*sets)
    assert scores["exact_match"] == pytest.approx(100 * oracle.accuracy_score(gold, predicted))
    if not used.any():
        assert scores["micro_f1"] is scores["macro_f1"] is None
        return
    for average in ("micro", "macro"):
        theirs = oracle.f1_score(gold[:, used], predicted[:, used], average=average, zero_division=0)
        assert scores[f"{average}_f1"] == pytest.approx(100 * theirs)


def test_multilabel_sets_have_no_order_and_empty_sets_can_be_right() -> None:
    scores = multilabel_scores([("a", "b"), (), ("a",)], [("b", "a"), (), ("b",)])
    assert scores["exact_match"] == pytest.approx(200 / 3)
    assert scores["micro_f1"] == pytest.approx(100 * 4 / 6)
    assert scores["macro_f1"] == pytest.approx(100 * (2 / 3 + 2 / 3) / 2)


@pytest.mark.parametrize("seed", range(30))
def test_correlations_equal_scipy(seed: int) -> None:
    random = np.random.default_rng(seed)
    n = int(random.integers(2, 50))
    gold = random.integers(0, 6, n) / 2.0 if seed % 2 else random.normal(size=n)  # ties, and none
    predicted = gold * random.normal() + random.normal(size=n)
    gold[0], gold[-1] = 0, 1
    scores = regression_scores(gold.tolist(), predicted.tolist())
    assert scores["pearson"] == pytest.approx(100 * stats.pearsonr(gold, predicted).statistic)
    assert scores["spearman"] == pytest.approx(100 * stats.spearmanr(gold, predicted).statistic)
    assert scores["pearson_spearman"] == pytest.approx((scores["pearson"] + scores["spearman"]) / 2)
    assert scores["r2"] == pytest.approx(100 * oracle.r2_score(gold, predicted))
    assert scores["mse"] == pytest.approx(oracle.mean_squared_error(gold, predicted))
    assert scores["pearson"] == pearson(gold.tolist(), predicted.tolist())
    assert scores["spearman"] == spearman(gold.tolist(), predicted.tolist())


@pytest.mark.parametrize(("gold", "predicted"), [([1.0], [2.0]), ([1.0, 1.0], [1.0, 2.0]), ([1.0, 2.0], [0.1, 0.1])])
def test_a_correlation_with_a_constant_is_undefined(gold: list[float], predicted: list[float]) -> None:
    scores = regression_scores(gold, predicted)
    assert scores["pearson"] is scores["spearman"] is scores["pearson_spearman"] is None
    assert scores["mse"] == pytest.approx(np.mean((np.array(gold) - np.array(predicted)) ** 2))


def test_a_correlation_with_what_is_constant_but_for_rounding_is_undefined() -> None:
    """One of them is a unit in the last place higher: the mean's own rounding is as large."""
    scores = regression_scores([1.0, 2.0, 3.0], [math.nextafter(0.1, 1), 0.1, 0.1])
    assert scores["pearson"] is scores["spearman"] is scores["pearson_spearman"] is None
    assert scores["mse"] == pytest.approx((0.9**2 + 1.9**2 + 2.9**2) / 3)
    scores = regression_scores([math.nextafter(0.1, 1), 0.1, 0.1], [1.0, 2.0, 3.0])
    assert scores["pearson"] is scores["spearman"] is scores["r2"] is None
    assert pearson([1.0, 2.0], [1e-300, 2e-300]) == pytest.approx(100), "small, but apart"


def test_correlations_of_close_numbers_are_those_of_exact_arithmetic() -> None:
    gold, predicted = [1.0, 4.0, 2.0, 8.0], [0.1]
    for steps in (21, 4, 13):
        value = predicted[0]
        for _ in range(steps):
            value = math.nextafter(value, 1)
        predicted.append(value)
    x, y = ([Fraction(v) - sum(map(Fraction, values)) / 4 for v in values] for values in (gold, predicted))
    exact = sum(a * b for a, b in zip(x, y, strict=True)) ** 2 / (sum(a * a for a in x) * sum(b * b for b in y))
    assert pearson(gold, predicted) == pytest.approx(100 * math.sqrt(exact), rel=1e-12)


def test_correlations_of_very_large_and_very_close_numbers() -> None:
    assert pearson([1e200, 2e200, 3e200], [1.0, 2.0, 3.0]) == pytest.approx(100)
    assert pearson([1e-200, 2e-200, 3e-200], [3.0, 2.0, 1.0]) == pytest.approx(-100)


def test_a_number_that_is_not_finite_is_refused_by_item() -> None:
    with pytest.raises(ConfigError, match="item 1: the predicted number is nan"):
        regression_scores([1.0, 2.0], [1.0, math.nan])


def test_lengths_that_differ_are_refused() -> None:
    for scores in (label_scores, matthews, multilabel_scores):
        with pytest.raises(ConfigError, match="2 gold items but 1 predicted ones"):
            scores(["a", "b"], ["a"])
    with pytest.raises(ConfigError, match="2 gold items but 1 predicted ones"):
        regression_scores([1.0, 2.0], [1.0])


def test_a_mean_with_an_undefined_part_is_undefined() -> None:
    assert mean_of([1.0, 2.0]) == 1.5
    assert mean_of([1.0, None]) is None
    assert mean_of([]) is None


def test_arrays_are_scored_as_lists() -> None:
    gold, said = ["1", "0", "1"], ["1", "1", "1"]
    assert inspect.unwrap(label_scores)(np.array(gold), np.array(said)) == label_scores(gold, said)
