"""The answer span of a pair against loops over words.   Axes: R rows  D width"""

import math

import numpy as np
import pytest
import torch

from encodeonce.errors import DataError
from encodeonce.heads.answer_span import AnswerSpan, InPassages
from encodeonce.heads.span_reader import PairRows, SpanScores
from encodeonce.nn.rows import Rows

WIDTH = 6
ROWS = Rows((9, 7), np.array([-1, 0, 0, 1, -1, 2, 3, 3, -1, -1, 0, -1, -1, 1, 2, -1]))
"""[CLS] a a b [SEP] P Q Q [SEP], and <s> a </s> </s> P Q </s>: the two families' ways to divide a pair."""


def test_question_and_passage_are_told_apart_and_words_are_counted_in_the_passage() -> None:
    found = AnswerSpan(WIDTH)(torch.randn(16, WIDTH), ROWS)
    assert found.scores.pairs.question == (5, 4)
    assert found.scores.pairs.passage == (4, 3)
    assert found.word.tolist() == [0, 1, 1, -1, 0, 1, -1]


def by_hand(seed: int) -> tuple[InPassages, list[np.ndarray]]:
    """Scores, and each pair's probabilities of first and last rows, no answer last."""
    torch.manual_seed(seed)
    pairs = PairRows((5, 4), (4, 3), np.array([0, 1]), 2)
    scores = SpanScores(2 * torch.randn(2, 7), torch.randn(2), pairs)
    sides = []
    for rows, pair in ((slice(0, 4), 0), (slice(4, 7), 1)):
        none = np.full((2, 1), float(scores.none[pair]))
        weights = np.exp(np.concatenate([scores.ends[:, rows].double().numpy(), none], 1))
        sides.append(weights / weights.sum(1, keepdims=True))
    return InPassages(scores, np.array([0, 1, 1, -1, 0, 1, -1])), sides


def test_loss_is_of_any_gold_span_from_the_first_piece_of_its_first_word_to_the_last_of_its_last() -> None:
    found, (one, two) = by_hand(0)
    gold = torch.tensor([[0, 1], [1, 1], [0, 0]])
    expected = -math.log(one[0, 0] * one[1, 2] + one[0, 1] * one[1, 2]) - math.log(two[0, 0] * two[1, 0])
    assert float(AnswerSpan(WIDTH).loss(found, gold, (2, 1))) == pytest.approx(expected, abs=1e-5)
    expected = -math.log(one[0, 0] * one[1, 2]) - math.log(two[0, -1] * two[1, -1])
    assert float(AnswerSpan(WIDTH).loss(found, gold[:1], (1, 0))) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("n_best", [1, 3, 20])
def test_decoding_equals_a_loop_over_all_spans(seed: int, n_best: int) -> None:
    found, sides = by_hand(seed)
    for own, (start, end), word in zip(
        AnswerSpan(WIDTH, n_best=n_best).decode(found, ROWS), sides, ([0, 1, 1], [0, 1]), strict=True
    ):
        odds = {
            (i, j): math.log(start[i] * end[j] / (start[-1] * end[-1]))
            for i in range(len(word))
            for j in range(i, len(word))
        }
        best = sorted(odds, key=lambda span: -odds[span])[:n_best]
        expected: dict[tuple[int, int], float] = {}
        for first, last in best:
            expected.setdefault((word[first], word[last]), odds[first, last])
        assert [(first, last) for first, last, _ in own] == list(expected)
        assert [score for *_, score in own] == pytest.approx(list(expected.values()), abs=1e-4)


def test_every_parameter_but_no_answers_gets_a_gradient_and_a_single_text_is_refused() -> None:
    head = AnswerSpan(WIDTH)
    head.loss(head(torch.randn(16, WIDTH), ROWS), torch.tensor([[0, 1], [1, 1]]), (1, 1)).backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in head.parameters())
    with pytest.raises(DataError, match="no special piece between two texts"):
        head(torch.randn(4, WIDTH), Rows((4,), np.array([-1, 0, 1, -1])))
