"""The span reader against loops over every span.   Axes: R rows  D width"""

import itertools
import math

import numpy as np
import torch

from encodeonce.heads.span_reader import Found, PairRows, SpanReader, SpanScores

WIDTH = 8
PAIRS = PairRows((2, 2, 3), (4, 3, 5), np.array([0, 0, 1]), 2)
"""Two questions: one with two passages, one with one."""
N_ROWS = 7 + 12
EVERY = np.ones(12, dtype=bool)


def scores(seed: int = 0) -> SpanScores:
    torch.manual_seed(seed)
    return SpanScores(2 * torch.randn(2, 12), torch.randn(2), PAIRS)


def by_hand(found: SpanScores, question: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Probabilities of starts and ends over the question's rows, and of no answer."""
    rows = slice(0, 7) if question == 0 else slice(7, 12)
    sides = []
    for end in found.ends.double().numpy():
        weights = np.exp([*end[rows], float(found.none[question])])
        sides.append(weights / weights.sum())
    return sides[0][:-1], sides[1][:-1], float(sides[0][-1] * sides[1][-1])


def test_loss_is_the_log_of_the_gold_spans_together() -> None:
    found = scores()
    gold = [np.array([[1, 2], [4, 4]]), np.array([[0, 3]])]
    start, end, _ = by_hand(found, 0)
    other_start, other_end, _ = by_hand(found, 1)
    expected = -math.log(start[1] * end[2] + start[4] * end[4]) - math.log(other_start[0] * other_end[3])
    assert abs(SpanReader(WIDTH).loss(found, gold).item() - expected) < 1e-5


def test_no_answer_is_an_outcome_and_None_counts_for_nothing() -> None:
    found = scores()
    nothing = [by_hand(found, question)[2] for question in range(2)]
    reader, empty = SpanReader(WIDTH), np.zeros((0, 2), np.int64)
    assert abs(reader.loss(found, [empty, None]).item() + math.log(nothing[0])) < 1e-5
    assert reader.loss(found, [None, None]).item() == 0
    sure = SpanScores(found.ends, torch.tensor([50.0, -50.0]), PAIRS)
    first, second = reader.decode(sure, EVERY)
    assert first == Found(-1, -1, -1, 1.0)
    assert second.pair == 2
    assert reader.decode(sure, EVERY, forced=True)[0].pair in (0, 1)
    assert reader.decode(sure, np.zeros(12, dtype=bool), forced=True)[1].pair == -1


def test_decoding_equals_a_search_over_every_span() -> None:
    allowed = EVERY.copy()
    allowed[[1, 8]] = False
    places = {0: [(0, r) for r in range(4)] + [(1, r) for r in range(3)], 1: [(2, r) for r in range(5)]}
    for seed, longest in itertools.product(range(20), (1, 2, 30)):
        found = scores(seed)
        answers = SpanReader(WIDTH).decode(found, allowed, longest, forced=True)
        for question, first_row in ((0, 0), (1, 7)):
            start, end, _ = by_hand(found, question)
            spans = [
                (start[i] * end[j], places[question][i], places[question][j])
                for i in range(len(start))
                for j in range(i, min(len(start), i + longest))
                if places[question][i][0] == places[question][j][0]
                and allowed[first_row + i]
                and allowed[first_row + j]
            ]
            probability, (pair, first), (_, last) = max(spans)
            answer = answers[question]
            assert (answer.pair, answer.first, answer.last) == (pair, first, last)
            assert abs(answer.score - probability) < 1e-5


def test_scores_are_the_formula() -> None:
    reader, states = SpanReader(WIDTH).eval(), torch.randn(N_ROWS, WIDTH)
    found = reader(states, PAIRS)
    row = 0
    for pair, (n_question, n_passage) in enumerate(zip(PAIRS.question, PAIRS.passage, strict=True)):
        asked, read = states[row : row + n_question], states[row + n_question : row + n_question + n_passage]
        for end in range(2):
            weights = torch.softmax(asked @ reader.pool.weight[end], 0)
            wanted = reader.ask[end](weights @ asked)
            mine = found.ends[end][torch.from_numpy(PAIRS.pair == pair)]
            torch.testing.assert_close(mine, read @ wanted)
        row += n_question + n_passage


def test_passages_in_another_order_and_a_question_without_any() -> None:
    reader, states = SpanReader(WIDTH).eval(), torch.randn(N_ROWS, WIDTH)
    turned = torch.cat([states[6:11], states[:6], states[11:]])
    before, none = reader(states, PAIRS).log_probabilities()
    after, still = reader(turned, PairRows((2, 2, 3), (3, 4, 5), PAIRS.owner, 2)).log_probabilities()
    torch.testing.assert_close(after[:, 0, :3], before[:, 0, 4:7])
    torch.testing.assert_close(still, none)
    alone = PairRows((2, 3), (0, 5), np.array([0, 1]), 2)
    found = reader(torch.cat([states[:2], states[11:]]), alone)
    answers = reader.decode(found, np.ones(5, dtype=bool), forced=True)
    assert answers[0] == Found(-1, -1, -1, 1.0)
    torch.testing.assert_close(found.log_probabilities()[0][:, 1, :5], before[:, 1, :5])
    reader.loss(found, [np.zeros((0, 2), np.int64), np.array([[1, 1]])]).backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in reader.parameters())
