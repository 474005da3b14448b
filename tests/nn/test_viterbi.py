"""Viterbi against every path there is."""

import itertools

import numpy as np
import pytest

from encodeonce.nn.span_transitions import SpanTransitions
from encodeonce.nn.viterbi import viterbi


def brute_force(scores: np.ndarray, start: np.ndarray, step: np.ndarray, end: np.ndarray) -> tuple[float, list[int]]:
    def value(path: tuple[int, ...]) -> float:
        inner = sum(step[a, b] for a, b in itertools.pairwise(path))
        return start[path[0]] + sum(scores[t, y] for t, y in enumerate(path)) + inner + end[path[-1]]

    best = max(itertools.product(range(scores.shape[1]), repeat=len(scores)), key=value)
    return value(best), list(best)


@pytest.mark.parametrize("n_rows", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(4))
def test_equals_brute_force_on_random_chains(n_rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts = rng.normal(size=(n_rows, 4)), rng.normal(size=4), rng.normal(size=(4, 4)), rng.normal(size=4)
    assert viterbi(*parts) == brute_force(*parts)[1]


def well_formed(path: tuple[str, ...], closing: bool) -> bool:
    """Spelled out from the definition of the schemes, one span at a time."""
    at = 0
    while at < len(path):
        mark, _, kind = path[at].partition("-")
        at += 1
        if mark in ("O", "S"):
            continue
        if mark != "B":
            return False
        while at < len(path) and path[at] == f"I-{kind}":
            at += 1
        if closing:
            if at == len(path) or path[at] != f"E-{kind}":
                return False
            at += 1
    return True


@pytest.mark.parametrize(
    "labels",
    [
        ("O", "B-x", "I-x", "B-y", "I-y"),
        ("O", "B-x", "I-x", "E-x", "S-x", "B-y", "I-y", "E-y", "S-y"),
        ("B-x", "O", "B-y-z", "I-y-z"),
    ],
)
def test_transitions_allow_exactly_the_well_formed_sequences(labels: tuple[str, ...]) -> None:
    rules, closing = SpanTransitions.of(labels), any(label[0] in "ES" for label in labels)
    for length in (1, 2, 3, 4):
        for path in itertools.product(range(len(labels)), repeat=length):
            steps = sum(rules.step[a, b] for a, b in itertools.pairwise(path))
            allowed = rules.start[path[0]] + steps + rules.end[path[-1]] == 0
            assert allowed == well_formed(tuple(labels[index] for index in path), closing)


@pytest.mark.parametrize("seed", range(10))
def test_constrained_decoding_equals_brute_force_over_well_formed_sequences(seed: int) -> None:
    labels = ("O", "B-x", "I-x", "E-x", "S-x")
    rules, scores = SpanTransitions.of(labels), np.random.default_rng(seed).normal(size=(5, 5))
    candidates = itertools.product(range(5), repeat=5)
    good = [path for path in candidates if well_formed(tuple(labels[index] for index in path), closing=True)]
    best = max(good, key=lambda path: sum(scores[t, y] for t, y in enumerate(path)))
    assert viterbi(scores, rules.start, rules.step, rules.end) == list(best)


def test_no_rows_no_labels() -> None:
    rules = SpanTransitions.of(("O", "B-x"))
    assert viterbi(np.zeros((0, 2)), rules.start, rules.step, rules.end) == []
