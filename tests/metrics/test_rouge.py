"""ROUGE-L against a table of dynamic programming and the value of the specification."""

import random

import pytest

from encodeonce.metrics.rouge import common_length, rouge_l, rouge_scores


def by_table(one: list[str], two: list[str]) -> int:
    table = [[0] * (len(two) + 1) for _ in range(len(one) + 1)]
    for i, word in enumerate(one):
        for j, other in enumerate(two):
            table[i + 1][j + 1] = table[i][j] + 1 if word == other else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


def test_fd14_the_cat_sat_on_the_mat() -> None:
    assert rouge_l("the cat sat on the mat", "The cat is on the mat") == pytest.approx(0.8333, abs=1e-4)


def test_equal_to_the_table_and_bounded() -> None:
    generator = random.Random(0)
    for _ in range(200):
        one = [generator.choice("abcde") for _ in range(generator.randrange(0, 30))]
        two = [generator.choice("abcde") for _ in range(generator.randrange(0, 30))]
        assert common_length(one, two) == by_table(one, two)
        assert rouge_l(one, two) == rouge_l(two, one)
        both = 2 * by_table(one, two) / (len(one) + len(two)) if one and two else 0.0
        assert rouge_scores(one, [two, one, []]) == [both, float(bool(one)), 0.0]
    assert rouge_l("a b", "a b") == 1
    assert rouge_l("", "a") == 0
