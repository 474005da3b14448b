"""Chu-Liu/Edmonds and Eisner against all trees there are, the field case TREES-1, and scores meant to break them."""

import itertools
import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from encodeonce.errors import ConfigError
from encodeonce.nn.arborescence import arborescence
from encodeonce.nn.eisner import eisner
from encodeonce.nn.trees import cycle_of, is_projective, is_tree, roots_of

Decoder = Callable[[np.ndarray], list[int]]
DECODERS = pytest.mark.parametrize("decode", [arborescence, eisner])


@cache
def trees(n: int, projective: bool = False) -> np.ndarray:
    """Every single-rooted tree over n words, [trees, n], found by trying every head for every word."""
    heads = np.array(list(itertools.product(range(n + 1), repeat=n)))
    found = heads[((heads == 0).sum(1) == 1) & all_reach(heads)]
    return np.array([tree for tree in found.tolist() if intervals(tree)]) if projective else found


def all_reach(heads: np.ndarray) -> np.ndarray:
    """Whether climbing n steps from every word ends at the root."""
    up = np.concatenate([np.zeros((len(heads), 1), dtype=int), heads], axis=1)
    at = up
    for _ in range(heads.shape[1]):
        at = np.take_along_axis(up, at, 1)
    return ~at.any(1)


def intervals(heads: Sequence[int]) -> bool:
    """Projective by its other definition: every word's descendants, itself included, are neighbours."""
    for top in range(1, len(heads) + 1):
        below = {top}
        for _ in heads:
            below |= {word for word, head in enumerate(heads, 1) if head in below}
        if max(below) - min(below) + 1 != len(below):
            return False
    return True


def total(scores: np.ndarray, heads: Sequence[int]) -> float:
    return float(sum(scores[word, head] for word, head in enumerate(heads)))


def best(scores: np.ndarray, decode: Decoder) -> list[int]:
    every = trees(len(scores), decode is eisner)
    found: list[int] = every[scores[np.arange(len(scores)), every].sum(1).argmax()].tolist()
    return found


def test_the_brute_force_counts_the_known_numbers_of_trees() -> None:
    """n^(n-1) rooted trees (Cayley); 1, 2, 7, 30, 143 projective ones (binomial(3n-2, n-1) / n)."""
    assert [len(trees(n)) for n in range(1, 6)] == [1, 2, 9, 64, 625]
    assert [len(trees(n, True)) for n in range(1, 6)] == [1, 2, 7, 30, 143]


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_trees_know_themselves(n: int) -> None:
    heads = np.array(list(itertools.product(range(n + 1), repeat=n)))
    singles = trees(n).tolist()
    for tree, reaches in zip(heads.tolist(), all_reach(heads).tolist(), strict=True):
        assert is_tree(tree) == (tree in singles)
        assert bool(cycle_of(tree)) != reaches
        if tree in singles:
            assert is_projective(tree) == intervals(tree)


def test_what_is_wrong_is_named() -> None:
    assert cycle_of([2, 3, 1, 1, 0]) == [1, 2, 3]
    assert cycle_of([3, 3, 0]) == []
    assert cycle_of([1]) == [1]
    assert roots_of([0, 1, 0]) == [1, 3]
    assert not is_tree([])


@DECODERS
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_TREES1_exact_against_all_trees(decode: Decoder, n: int) -> None:
    random = np.random.default_rng(n)
    for _ in range(100):
        scores = random.normal(size=(n, n + 1)) * random.choice([0.1, 1, 30])
        assert decode(scores) == best(scores, decode)


@DECODERS
def test_exact_where_the_root_tempts_and_where_cycles_nest(decode: Decoder) -> None:
    random = np.random.default_rng(0)
    for _ in range(100):
        scores = random.normal(size=(5, 6))
        scores[:, 0] += 20
        assert decode(scores) == best(scores, decode)
        scores[:, 0] -= 40
        scores[:3, 1:4] += 5
        scores[:2, 1:3] += 5
        assert decode(scores) == best(scores, decode)


@DECODERS
def test_equal_scores_give_a_best_tree_and_always_the_same(decode: Decoder) -> None:
    random = np.random.default_rng(1)
    for n in (2, 3, 4, 5):
        for _ in range(50):
            scores = random.integers(0, 3, size=(n, n + 1)).astype(np.float32)
            heads = decode(scores)
            assert is_tree(heads)
            assert total(scores, heads) == total(scores, best(scores, decode))
            assert decode(scores.copy()) == decode(scores.astype(np.float64)) == heads
    assert is_tree(decode(np.zeros((40, 41))))


@DECODERS
def test_forbidden_arcs_are_avoided_where_they_can_be(decode: Decoder) -> None:
    random = np.random.default_rng(2)
    for _ in range(200):
        n = int(random.integers(2, 6))
        scores = random.normal(size=(n, n + 1)) * random.choice([1e-3, 1, 1e6])
        scores[random.random(scores.shape) < 0.5] = -np.inf
        heads = decode(scores)
        possible = trees(n, decode is eisner)
        fewest = int(np.isneginf(scores)[np.arange(n), possible].sum(1).min())
        assert is_tree(heads)
        assert sum(scores[w, h] == -np.inf for w, h in enumerate(heads)) == fewest
        if not fewest:
            assert heads == best(scores, decode)


@DECODERS
@pytest.mark.parametrize("low", [-1e32, np.finfo(np.float32).min, -1e300, np.finfo(np.float64).min, -np.inf])
def test_masks_of_every_kind_leave_a_tree(decode: Decoder, low: float) -> None:
    assert is_tree(decode(np.full((7, 8), low)))
    scores = np.full((4, 5), low)
    for word, head in enumerate((2, 0, 2, 3)):
        scores[word, head] = 1.0
    assert decode(scores) == [2, 0, 2, 3]
    if low == np.finfo(np.float64).min:
        assert is_tree(decode(np.random.default_rng(0).choice([low, -low], size=(9, 10))))


@DECODERS
def test_long_sentences_are_trees_and_crossing_ones_score_no_less(decode: Decoder) -> None:
    random = np.random.default_rng(3)
    for n in (13, 40, 90):
        for scores in (random.normal(size=(n, n + 1)), np.round(random.normal(size=(n, n + 1)))):
            heads = decode(scores)
            assert is_tree(heads)
            assert decode is arborescence or is_projective(heads)
            assert total(scores, arborescence(scores)) >= total(scores, heads)


@DECODERS
def test_a_single_word_and_none(decode: Decoder) -> None:
    assert decode(np.array([[-5.0, -np.inf]])) == [0]
    assert decode(np.zeros((0, 1))) == []


@DECODERS
def test_what_no_tree_can_be_made_of_is_refused_by_word_and_head(decode: Decoder) -> None:
    scores = np.zeros((3, 4))
    scores[1, 3] = np.nan
    with pytest.raises(ConfigError, match="the score of head 3 for word 2 is nan; a tree needs numbers below"):
        decode(scores)
    scores[1, 3] = np.inf
    with pytest.raises(ConfigError, match="the score of head 3 for word 2 is inf"):
        decode(scores)
    with pytest.raises(ConfigError, match=r"arc scores of shape \(3, 3\): 3 words have 4 possible heads"):
        decode(np.zeros((3, 3)))


def test_TREES1_case(cases: Path) -> None:
    """Columns and rows of the file begin with the root. Many roots: let one extra word be the root of all of them."""
    for case in (json.loads((cases / "TREES-1.json").read_text())[name] for name in ("cycle", "roots")):
        scores = np.array(case["scores"], dtype=np.float64)[1:]
        free = scores.copy()
        np.fill_diagonal(free[:, 1:], -np.inf)
        assert free.argmax(1).tolist() == case["greedy_heads"]
        assert not is_tree(case["greedy_heads"])
        for decode in (arborescence, eisner):
            assert decode(scores) == case["single_root_heads"]
            assert total(scores, decode(scores)) == case["single_root_score"]
        if "multi_root_heads" in case:
            n = len(scores)
            under = np.full((n + 1, n + 2), -np.inf)
            under[0, 0] = 0
            under[1:, 1:] = scores
            heads = [head - 1 for head in arborescence(under)[1:]]
            assert heads == case["multi_root_heads"]
            assert total(scores, heads) == case["multi_root_score"]
