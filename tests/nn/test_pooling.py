"""Word rows against counting by hand."""

import numpy as np
import pytest
import torch

from encodeonce.errors import ConfigError
from encodeonce.nn.pooling import rows_of_words

WORDS = [np.array([-1, 0, 0, 1, 2, 2, 2, -1]), np.array([-1, 0, -1]), np.array([0, 1, 1])]


def test_first_and_last_rows_by_hand() -> None:
    first, last = rows_of_words(WORDS, "first"), rows_of_words(WORDS, "last")
    assert first.rows.tolist() == [1, 3, 4, 9, 11, 12]
    assert last.rows.tolist() == [2, 3, 6, 9, 11, 13]
    assert first.lengths == last.lengths == (3, 1, 2)
    assert first.counts == (1,) * 6
    vectors = torch.randn(6, 4)
    assert first.pool(vectors) is vectors


def test_mean_equals_a_loop() -> None:
    mean, vectors = rows_of_words(WORDS, "mean"), torch.randn(14, 4)
    assert mean.rows.tolist() == [1, 2, 3, 4, 5, 6, 9, 11, 12, 13]
    assert mean.counts == (2, 1, 3, 1, 1, 2)
    assert mean.lengths == (3, 1, 2)
    by_hand = [vectors[[1, 2]], vectors[[3]], vectors[[4, 5, 6]], vectors[[9]], vectors[[11]], vectors[[12, 13]]]
    torch.testing.assert_close(mean.pool(vectors[mean.rows]), torch.stack([rows.mean(0) for rows in by_hand]))


@pytest.mark.parametrize("which", ["first", "last", "mean"])
def test_pieces_of_random_words(which: str) -> None:
    rng = np.random.default_rng(0)
    counts = [rng.integers(1, 4, size=rng.integers(0, 6)) for _ in range(50)]
    words = [np.concatenate([[-1], np.repeat(np.arange(len(c)), c), [-1]]) for c in counts]
    chosen = rows_of_words(words, which)
    start, expected = 0, []
    for word in words:
        for number in range(word.max() + 1):
            rows = np.flatnonzero(word == number) + start
            expected += {"first": [rows[0]], "last": [rows[-1]], "mean": list(rows)}[which]
        start += len(word)
    assert chosen.rows.tolist() == expected
    assert chosen.lengths == tuple(len(c) for c in counts)


def test_an_item_without_words_and_an_empty_batch() -> None:
    special = [np.array([-1, -1]), np.array([-1, 0, -1])]
    assert rows_of_words(special, "last").lengths == (0, 1)
    assert rows_of_words(special, "mean").rows.tolist() == [3]
    assert rows_of_words([], "first").rows.tolist() == []


def test_mistakes_are_named() -> None:
    with pytest.raises(ConfigError, match=r"pooling 'max' is unknown\. There is: 'first', 'last', 'mean'"):
        rows_of_words(WORDS, "max")
    for bad in ([0, 2], [1, 0], [0, 1, 0]):
        with pytest.raises(ConfigError, match="item 1 of the batch"):
            rows_of_words([np.array([0]), np.array(bad)], "last")
