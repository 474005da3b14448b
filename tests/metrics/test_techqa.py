"""TechQA's scores (identities 10 to 12) and CUAD's curve (identity 13)."""

import math
import random

import numpy as np
import pytest

from encodeonce.errors import DataError
from encodeonce.metrics.cuad import Clause, cuad, similar
from encodeonce.metrics.techqa import NO_ANSWER, Spans, best_threshold, hits, overlap_f1, techqa
from encodeonce.tasks import named
from encodeonce.tasks.answer_spans import MarkedAnswers
from encodeonce.types import Answer


def test_fd10_overlap_in_characters() -> None:
    gold = ("d", 100, 200)
    for found, due in ((("d", 150, 250), 0.5), (("d", 100, 300), 2 / 3), (("d", 300, 400), 0), (("e", 100, 200), 0)):
        assert overlap_f1(found, gold) == pytest.approx(due, abs=1e-4)
    assert overlap_f1(NO_ANSWER, NO_ANSWER) == 1
    assert overlap_f1(NO_ANSWER, gold) == 0


GOLD = [("a", 0, 10), ("b", 5, 15), NO_ANSWER, NO_ANSWER]
FOUND = [
    Spans((("a", 0, 10), ("x", 0, 5)), (3.0, 1.0)),
    Spans((("x", 0, 9), ("b", 5, 20)), (2.0, 1.5)),
    Spans((("c", 0, 3),), (-1.0,)),
    Spans((("c", 0, 3),), (4.0,)),
]


def test_fd11_thresholds_at_both_ends() -> None:
    low, high = techqa(FOUND, GOLD), techqa(FOUND, GOLD, math.inf)
    assert low["f1"] == pytest.approx(low["ha_f1@1"] * 2 / 4)
    assert high["f1"] == 50
    assert low["ha_f1@1"] == 50
    assert low["ha_f1@5"] == pytest.approx(100 * (1 + 2 * 10 / 25) / 2), "the maximum of five, not their mean"
    assert techqa(FOUND, GOLD, 0.0)["f1"] == 50
    threshold, best = best_threshold(FOUND, GOLD)
    assert techqa(FOUND, GOLD, threshold)["f1"] == best >= max(low["f1"], high["f1"])
    assert techqa(FOUND[:1], [NO_ANSWER]) == {"f1": 0.0, "ha_f1@1": None, "ha_f1@5": None}
    with pytest.raises(DataError, match="from the highest on"):
        Spans((("a", 0, 1), ("a", 0, 2)), (1.0, 2.0))


def test_fd12_hits_do_not_fall_with_k_and_absent_gold_is_a_miss() -> None:
    ranked, gold = [["a", "b", "c"], ["b", "a"], ["x", "y"], []], ["a", "a", "z", "q"]
    values = [hits(ranked, gold, k) for k in range(1, 6)]
    assert values == sorted(values)
    assert values[0] == 25
    assert values[-1] == 50


def test_fd13_the_curve_of_perfect_empty_and_worse_predictions() -> None:
    clauses = [Clause(("the governing law is Nevada",), (("The governing law is Nevada.", 1.0),)), Clause((), ())]
    perfect = cuad(clauses)
    assert (perfect.aupr, perfect.precision_at_80) == (100, 100)
    none = cuad([Clause(("a b",), ()), Clause(("c",), (("", 1.0),))])
    assert (none.aupr, none.precision_at_80) == (0, 0)
    two = [Clause(("a b c",), (("a b c", 0.9),)), Clause(("d e f",), (("d e f", 0.5), ("x y", 0.7)))]
    before = cuad(two).aupr
    for chance in (0.6, 0.3, 0.05):
        worse = [two[0], Clause(two[1].gold, (*two[1].predicted, ("q r", chance)))]
        assert cuad(worse).aupr <= before + 1e-9
    assert cuad(two).precision_at_80 == pytest.approx(200 / 3)
    assert before == pytest.approx(100 * (0.5 * 1.0 + 0.5 * 2 / 3)), "(0, 1), (1/2, 1), (1/2, 2/3), (1, 2/3)"
    assert similar("and/or costs", "or costs and")
    assert similar("between Acme Inc and Beta LLC of Delaware", "Acme Inc", parties=True)
    assert not similar("between Acme Inc and Beta LLC of Delaware", "Acme Inc")
    assert not similar("between ACME INC and Beta LLC of Delaware", "Acme Inc", parties=True), "letter by letter"


def test_the_curve_by_hand_with_unanswerable_questions_repeated_texts_and_the_end_under_80() -> None:
    """Above .9 one false alone, (0, 0); above .8 one hit beside it, (1/3, 1/2): the repeated text has its later .31;
    above .3 two false and one hit, (1/3, 1/3); then two of each, (2/3, 1/2), and the third gold is never met. With the
    best precision at a recall or beyond, the curve is 1/2 from recall 0 to 2/3."""
    clauses = [
        Clause(("a b c d",), (("a b", 0.9), ("A B, C", 0.85))),
        Clause((), (("anything", 0.95),)),
        Clause(("e f", "g h"), (("E; F.", 0.9), ("E; F.", 0.31), ("z", 0.35), ("", 0.9))),
    ]
    found = cuad(clauses)
    assert found.aupr == pytest.approx(100 * 2 / 3 / 2)
    assert found.points[0] == (0, 1)
    assert set(found.points[1:]) == {(0, 0.5), (1 / 3, 0.5), (2 / 3, 0.5)}
    assert found.precision_at_80 == 0
    with pytest.raises(DataError, match="none of 1 questions has a gold answer"):
        cuad([Clause((), (("x", 0.5),))])


def test_the_curve_is_that_of_counting_anew_at_every_threshold() -> None:
    """Against the definition: at each threshold every question is looked at again."""
    rng, words = np.random.default_rng(3), ["a", "b", "c", "d e", "a b", " "]
    for _ in range(20):
        clauses = [
            Clause(
                tuple(rng.choice(words[:5], rng.integers(0, 3))),
                tuple((str(rng.choice(words)), round(float(rng.random()), 2)) for _ in range(rng.integers(0, 5))),
                bool(rng.integers(2)),
            )
            for _ in range(8)
        ]
        clauses.append(Clause(("a",), ()))
        thresholds = [0.9, 0.5, 0.25, 0.0]
        points = [(0.0, 1.0)]
        for t in thresholds:
            hit = missed = false = 0
            for one in clauses:
                shown = [text for text, p in dict(one.predicted).items() if p > t and text.strip()]
                met = [any(similar(text, due, one.parties) for text in shown) for due in one.gold]
                hit, missed = hit + sum(met), missed + len(met) - sum(met)
                false += sum(not any(similar(text, due, one.parties) for due in one.gold) for text in shown)
            points.append((hit / (hit + missed), hit / (hit + false) if hit + false else math.nan))
        known = [[p for _, p in points[n:] if not math.isnan(p)] for n in range(len(points))]
        expected = [(recall, max(own, default=0.0)) for (recall, _), own in zip(points, known, strict=True)]
        np.testing.assert_allclose(cuad(clauses, thresholds).points, expected)


def test_the_best_threshold_is_that_of_trying_every_one() -> None:
    draw = random.Random(3)
    for _ in range(40):
        gold = [draw.choice([NO_ANSWER, ("a", 0, draw.randint(1, 9))]) for _ in range(draw.randint(1, 12))]
        found = [
            Spans((("a", 0, draw.randint(1, 9)),) * n, (float(draw.randint(-3, 3)),) * n)
            for n in (int(draw.random() < 0.8) for _ in gold)
        ]
        every = [-math.inf, *sorted({one.scores[0] for one in found if one.scores}), math.inf]
        tried = [techqa(found, gold, threshold)["f1"] for threshold in every]
        threshold, best = best_threshold(found, gold)
        assert best == pytest.approx(max(value for value in tried if value is not None))
        assert techqa(found, gold, threshold)["f1"] == best


@pytest.mark.parametrize("scoring", ["techqa", "cuad"])
def test_scores_of_questions_without_an_answer_are_undefined(scoring: str) -> None:
    task = named(scoring)
    gold = MarkedAnswers("q", (Answer(""),), "p", 0, (), "who", "the cat")
    scores = task.score([gold], [((1, 1, 5.0),)])
    assert scores[task.metric] is None
    assert scores["n"] == 1


def test_a_threshold_that_lets_nothing_through_stands_at_recall_0() -> None:
    """As the published script has it: its precision is the best of what comes after, so the curve begins there."""
    one = Clause(("governing law",), (("governing law", 0.5), ("other text", 0.5)))
    assert cuad([one]).aupr == pytest.approx(50)
    assert cuad([one, Clause((), (("wrong", 0.995),))]).aupr == pytest.approx(100 / 3)
