"""Passages that questions are read with: their own that hold an answer, then what is found."""

from dataclasses import replace

import pytest

from encodeonce.errors import ConfigError, DataError
from encodeonce.retrieval import Hit
from encodeonce.retrieval.given import pool_of, with_passages
from encodeonce.types import Answer, Passage, Question

A, B, C, D = (Passage(name, "", f"text {name}") for name in "abcd")


class Fixed:
    """Finds the same passages for every question."""

    def __init__(self, *ids: str) -> None:
        self.ids = ids

    def find(self, questions: list[str], k: int) -> list[list[Hit]]:
        return [[Hit(one, 1.0) for one in self.ids[:k]] for _ in questions]


def test_own_passages_with_an_answer_come_first_then_what_is_found() -> None:
    question = Question("q", "?", (Answer("text", "c", 0, 4),), (B, C))
    pool = pool_of([question], [A, D])
    assert list(pool) == ["b", "c", "a", "d"]
    assert with_passages([question], pool, Fixed("d", "c", "a"), 2)[0].passages == (C, D)
    assert with_passages([question], pool, Fixed("d", "c", "a"), 3)[0].passages == (A, C, D)
    assert with_passages([question], pool, Fixed("d"), 4)[0].passages == (B, C, D), "then the rest of its own"
    relevant = replace(question, relevant=("b", "c"))
    assert with_passages([relevant], pool, Fixed("d", "a"), 2)[0].passages == (B, C), "or are marked relevant"


def test_without_a_place_all_of_its_own_come_first() -> None:
    question = Question("q", "?", (Answer("text"),), (B, C))
    pool = pool_of([question], [A])
    assert with_passages([question], pool, Fixed("a"), 3)[0].passages == (A, B, C)
    assert with_passages([question], pool, Fixed("a"), 1)[0].passages == (B,)


def test_own_passages_in_which_an_answer_occurs_or_that_are_relevant_come_before_what_is_found(
    caplog: pytest.LogCaptureFixture,
) -> None:
    own = tuple(Passage(f"c{i}", "", "the cat" if i == 5 else f"category {i}") for i in range(6))
    question = Question("q", "?", (Answer("cat"),), own, place="f:1", relevant=("c3",))
    pool = pool_of([question], [A])
    ids = [[one.id for one in with_passages([question], pool, Fixed("a"), k)[0].passages] for k in (1, 2, 3, 4, 7)]
    assert ids == [["c5"], ["c3", "c5"], ["a", "c3", "c5"], ["a", "c0", "c3", "c5"], ["a", *(one.id for one in own)]]
    assert caplog.text.count("1 of 1 questions are read without some of their own passages, with at most") == 4
    assert "the first f:1" in caplog.text
    nothing = Question("n", "?", (Answer(""),), own[:2])
    assert with_passages([nothing], pool, Fixed("a"), 2)[0].passages == own[:2], "there is no answer to look for"


def test_one_id_with_two_texts_is_refused() -> None:
    with pytest.raises(DataError, match="'a' has another text"):
        pool_of([Question("q", "?", (), (A,))], [Passage("a", "", "other", place="f:3")])


def test_what_is_found_must_be_of_the_pool() -> None:
    with pytest.raises(ConfigError, match=r"found the passage 'd', which is none of the pool's 1. Make it over"):
        with_passages([Question("q", "?", (), (A,))], pool_of([], [A]), Fixed("a", "d"), 2)
