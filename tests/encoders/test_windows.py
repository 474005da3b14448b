"""Windows against brute force, and case LONG-1."""

import tracemalloc
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from encodeonce.encoders.pieces import Cutter
from encodeonce.encoders.windows import _edges, _spans, plan
from encodeonce.errors import ConfigError
from encodeonce.types import Document


def rows(lengths: list[int], before: int, after: int) -> np.ndarray:
    return np.concatenate([[-1] * before, np.repeat(np.arange(len(lengths)), lengths), [-1] * after]).astype(np.int32)


@pytest.mark.parametrize("seed", range(60))
def test_windows_hold_what_was_promised(seed: int) -> None:
    draw = np.random.default_rng(seed)
    before, after = int(draw.integers(0, 2)), int(draw.integers(0, 2))
    window = int(draw.integers(before + after + 3, 20))
    room = window - before - after
    overlap = int(draw.integers(0, room))
    word = rows(list(draw.integers(1, room + 1 + 3 * (seed % 2), size=int(draw.integers(1, 40)))), before, after)
    windows = plan(word, before, after, window, overlap)
    keeps = [(keep_start, keep_stop) for _, _, keep_start, keep_stop in windows]
    assert [stop for _, stop in keeps[:-1]] == [start for start, _ in keeps[1:]]  # once each, nothing left out
    assert (keeps[0][0], keeps[-1][1]) == (0, len(word))
    lengths = np.bincount(word[word >= 0])
    for start, stop, keep_start, keep_stop in windows:
        assert before <= start < stop <= len(word) - after
        assert stop - start <= room
        assert max(keep_start, before) >= start
        assert min(keep_stop, len(word) - after) <= stop
        for edge in (start, stop, keep_start, keep_stop):
            inside = 0 < edge < len(word) and word[edge] == word[edge - 1] != -1
            assert not inside or lengths[word[edge]] > room  # only a word longer than a window is ever cut
    if len(windows) > 1:
        assert all(later[0] >= earlier[1] - overlap for earlier, later in pairwise(windows[:-1]))


@pytest.mark.parametrize("seed", range(30))
def test_each_word_comes_from_its_most_central_window(seed: int) -> None:
    draw = np.random.default_rng(seed)
    room = int(draw.integers(6, 14))
    word = rows(list(draw.integers(1, 4, size=60)), 1, 1)
    windows = plan(word, 1, 1, room + 2, room // 2)
    assert len(windows) > 2
    for w in range(60):
        at = np.flatnonzero(word == w)
        first, last = at[0], at[-1] + 1
        away = {
            k: abs((first + last) / 2 - (start + stop) / 2)
            for k, (start, stop, _, _) in enumerate(windows)
            if start <= first and last <= stop
        }
        owner = next(k for k, (_, _, a, b) in enumerate(windows) if a <= first < b)
        assert away[owner] == min(away.values())


def by_table(word: np.ndarray, before: int, after: int, window: int, overlap: int) -> tuple[tuple[int, ...], ...]:
    """Every unit held against every window: what `plan` must give, with a table of units by windows."""
    room, stop = window - before - after, len(word) - after
    edges = _edges(word[before:stop], room)
    starts, stops = _spans(edges, room, overlap)
    owners = [
        min(
            (k for k in range(len(starts)) if starts[k] <= first and last <= stops[k]),
            key=lambda k: abs((first + last) / 2 - (starts[k] + stops[k]) / 2),
        )
        for first, last in pairwise(edges.tolist())
    ]
    found = []
    for k in sorted(set(owners)):
        units = [unit for unit, owner in enumerate(owners) if owner == k]
        found.append([starts[k] + before, stops[k] + before, edges[units[0]] + before, edges[units[-1] + 1] + before])
    found[0][2], found[-1][3] = 0, len(word)
    return tuple(tuple(int(row) for row in one) for one in found)


@pytest.mark.parametrize("seed", range(40))
def test_owners_are_those_of_a_table_of_units_by_windows(seed: int) -> None:
    draw = np.random.default_rng(seed)
    room = int(draw.integers(3, 14))
    word = rows(list(draw.integers(1, room + 3 * (seed % 2), size=80)), 1, 1)
    overlap = int(draw.integers(0, room))
    assert plan(word, 1, 1, room + 2, overlap) == by_table(word, 1, 1, room + 2, overlap)


def test_a_book_is_planned_in_memory_that_grows_with_its_length() -> None:
    word = np.concatenate([[-1], np.arange(300_000), [-1]]).astype(np.int32)
    tracemalloc.start()
    windows = plan(word, 1, 1, 512, 128)
    highest = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(windows) == 786
    assert highest < 300 * word.nbytes, "a table of words by windows takes 2,000 times the item"


def test_a_short_item_is_one_window() -> None:
    assert plan(rows([1, 2, 1], 1, 1), 1, 1, 6, 2) == ((1, 5, 0, 6),)
    assert plan(rows([1, 2, 2], 1, 1), 1, 1, 6, 0) == ((1, 4, 0, 4), (2, 6, 4, 7))  # the last reaches back


def test_a_word_longer_than_a_window_is_cut_inside() -> None:
    windows = plan(rows([1, 11, 1], 1, 1), 1, 1, 6, 2)
    assert all(stop - start <= 4 for start, stop, _, _ in windows)
    assert windows[0][2] == 0
    assert windows[-1][3] == 15


@pytest.mark.parametrize(("overlap", "window"), [(4, 6), (9, 6), (-1, 6), (0, 2)])
def test_an_overlap_without_a_way_forward_is_refused_with_the_numbers(overlap: int, window: int) -> None:
    with pytest.raises(ConfigError, match=rf"overlap={overlap} must be.*room for words, 4|window=2 leaves no room"):
        plan(rows([1] * 9, 1, 1), 1, 1, window, overlap)


def test_LONG_1_all_700_words_have_a_row_in_some_window(cases: Path, tiny: SimpleNamespace) -> None:
    lines = (cases / "LONG-1.conll").read_text("utf-8").split("\n")
    words = tuple(line.split("\t")[0] for line in lines if line.strip())
    cut = Cutter(tiny.wordpiece(), 512, 128)([Document("long", words)])[0]
    assert cut.n_words == 700
    kept = np.concatenate([cut.word[a:b] for _, _, a, b in cut.windows])
    assert kept.tolist() == [-1, *range(700), -1]
    assert cut.windows == ((1, 511, 0, 351), (191, 701, 351, 702))
