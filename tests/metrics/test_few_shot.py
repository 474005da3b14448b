"""Scores of few-shot tables against the paper's own averages and values by hand."""

import math

import pytest
from scipy import stats

from encodeonce.errors import ConfigError
from encodeonce.metrics.few_shot import group_means, over_tasks, paired, spread, task_score
from encodeonce.prompts import PAIR_TASKS, SINGLE_TASKS

NAMES = (*SINGLE_TASKS, *PAIR_TASKS)
TABLE_1 = {
    "LM-BFF": [92.7, 47.4, 87.0, 90.3, 84.7, 91.2, 84.8, 9.3, 68.3, 70.5, 77.2, 64.5, 69.1, 74.5, 65.5],
    "CA-512": [91.3, 46.7, 85.1, 88.3, 76.9, 88.0, 82.2, 7.4, 66.2, 67.8, 71.6, 66.9, 66.6, 73.5, 64.0],
    "ReFusion": [93.4, 49.8, 87.9, 91.7, 86.7, 92.5, 90.3, 11.4, 69.3, 70.9, 80.6, 73.0, 70.9, 77.0, 68.9],
}
"""ReFusion's Table 1, in the order of `NAMES`."""
PRINTED = {"LM-BFF": (73.4, 69.9, 71.8), "CA-512": (70.7, 68.1, 69.5), "ReFusion": (75.5, 72.9, 74.3)}


@pytest.mark.parametrize("row", list(TABLE_1))
def test_I35_averages_of_table_1_are_those_printed(row: str) -> None:
    found = group_means(dict(zip(NAMES, TABLE_1[row], strict=True)))
    for value, printed in zip(found.values(), PRINTED[row], strict=True):
        assert value == pytest.approx(printed, abs=0.0501)


def test_an_average_of_a_group_with_a_task_missing_is_none() -> None:
    found = group_means(dict.fromkeys(SINGLE_TASKS, 50.0))
    assert found == {"Avg-S": 50.0, "Avg-P": None, "Avg-all": None}


def test_I36_matthews_of_constant_predictions_is_0_and_f1_is_of_the_positive_class() -> None:
    assert task_score(["a", "b", "a"], ["a", "a", "a"], "matthews") == 0
    gold, predicted = ["yes", "yes", "no", "no"], ["yes", "no", "yes", "no"]
    assert task_score(gold, predicted, "f1", "yes") == pytest.approx(50)
    assert task_score(["no"] * 3, ["no"] * 3, "f1", "yes") == 0
    assert task_score(gold, predicted, "accuracy") == 50
    with pytest.raises(ConfigError, match="metric='f2' is not known"):
        task_score(gold, predicted, "f2")


def test_spread_is_the_populations_and_the_interval_students() -> None:
    found = spread([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (found.mean, found.deviation) == (3.0, pytest.approx(math.sqrt(2)))
    assert found.half_width == pytest.approx(2.7764451 * math.sqrt(2.5) / math.sqrt(5), rel=1e-6)
    assert spread([2.0]).half_width is None


def test_the_interval_of_a_mean_over_tasks_is_welchs() -> None:
    mean, half = over_tasks({"a": [1.0, 3.0], "b": [10.0, 14.0]})
    assert mean == 7.0
    variance, freedom = (1 + 4) / 4, (1 + 4) ** 2 / (1**2 + 4**2)  # of the mean of both; 2 / 2 and 8 / 2 of each
    assert half == pytest.approx(stats.t.ppf(0.975, freedom) * math.sqrt(variance))
    same = over_tasks({"a": [1.0, 2.0, 3.0, 4.0, 5.0]})
    assert same == (3.0, pytest.approx(spread([1.0, 2.0, 3.0, 4.0, 5.0]).half_width))
    assert over_tasks({"a": [1.0, 3.0], "b": [4.0]}) == (3.0, None)
    assert over_tasks({"a": [2.0, 2.0]}) == (2.0, 0.0)
    with pytest.raises(ConfigError, match="no scores: a mean needs at least one task"):
        over_tasks({})


def test_paired_differences_are_clustered_by_task() -> None:
    first = {"a": [3.0, 5.0], "b": [10.0, 10.0]}
    second = {"a": [1.0, 1.0], "b": [9.0, 9.0]}
    mean, error, by_task = paired(first, second)
    assert (mean, by_task) == (2.0, {"a": 3.0, "b": 1.0})
    assert error == pytest.approx(math.sqrt(2) / math.sqrt(2))
    with pytest.raises(ConfigError, match=r"tasks differ: \['b'\]"):
        paired(first, {"a": [1.0, 1.0]})
    with pytest.raises(ConfigError, match="task 'a': 2 scores against 1"):
        paired(first, {**second, "a": [1.0]})
