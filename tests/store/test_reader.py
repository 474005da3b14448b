"""Reading: packed batches against plain concatenation of what the source gave."""

import gc
import mmap
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from fake_source import FakeSource, documents, spec, states
from hypothesis import given, settings
from hypothesis import strategies as st

from encodeonce.errors import ConfigError, NonFinite, NotStored
from encodeonce.store import Store, keep_only
from encodeonce.store import reader as reader_module
from encodeonce.types import Document, Pieces

BOUND = {"fp32": 0.0, "fp16": 2**-11, "bf16": 2**-8, "int8": 0.02}
"""Largest error relative to the largest number of an item."""


def filled(folder: Path, n: int = 12, dtype: str = "fp32", shard_bytes: int = 1500) -> Store:
    store = Store.open(folder, spec(dtype=dtype))
    store.fill(documents(n), FakeSource(), shard_bytes=shard_bytes)
    return store


def truth(chosen: list[Document], layers: tuple[int, ...] = (0, 1, 2, 3)) -> np.ndarray:
    return np.concatenate([states(d.key, layers, len(d.words) + 2, 8) for d in chosen], axis=1)


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16", "int8"])
def test_a_batch_is_the_concatenation_of_its_items(tmp_path: Path, dtype: str) -> None:
    store = filled(tmp_path, dtype=dtype)
    chosen = [documents(12)[k] for k in (7, 0, 3, 3, 11)]
    index = store.index([document.key for document in chosen])
    packed = store.batch(index)
    due = truth(chosen)
    assert packed.views.dtype == torch.float32
    assert packed.lengths == tuple(len(document.words) + 2 for document in chosen) == tuple(store.rows(index).tolist())
    np.testing.assert_allclose(packed.views, due, rtol=0, atol=BOUND[dtype] * np.abs(due).max())


@pytest.mark.parametrize(
    ("dtype", "kind"), [("fp16", torch.float16), ("bf16", torch.bfloat16), ("fp32", torch.float32)]
)
def test_rounding_is_torchs_own(tmp_path: Path, dtype: str, kind: torch.dtype) -> None:
    """fp16 and bf16 are exactly the nearest values, and come as stored when no type is asked for."""
    store = filled(tmp_path, dtype=dtype)
    index = store.index([document.key for document in documents(12)])
    due = torch.from_numpy(truth(documents(12))).to(kind)
    stored = store.batch(index, dtype=None).views
    assert stored.dtype == kind
    assert torch.equal(stored, due)
    assert torch.equal(store.batch(index).views, due.float())
    assert torch.equal(store.batch(index, dtype=torch.bfloat16).views, due.to(torch.bfloat16))


def test_int8_without_a_type_comes_as_fp32(tmp_path: Path) -> None:
    store = filled(tmp_path, dtype="int8")
    assert torch.equal(store.batch([0, 5], dtype=None).views, store.batch([0, 5]).views)


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "int8"])
@pytest.mark.parametrize("layers", [(0,), (3,), (1, 2), (0, 2), (0, 1, 3), (0, 1, 2, 3)])
def test_layers_read_alone_are_slices_of_all(tmp_path: Path, dtype: str, layers: tuple[int, ...]) -> None:
    store = filled(tmp_path, dtype=dtype)
    index = [4, 1, 9]
    assert torch.equal(store.batch(index, layers).views, store.batch(index).views[list(layers)])


def test_more_layers_than_asked_are_fine(tmp_path: Path) -> None:
    """A store opened for fewer layers reads those by default, and says which it holds."""
    filled(tmp_path)
    store = Store.open(tmp_path, spec(layers=(1, 3)))
    assert store.layers == (1, 3)
    assert store.spec.layers == (0, 1, 2, 3)
    np.testing.assert_array_equal(store.batch([2]).views, Store.open(tmp_path).batch([2], (1, 3)).views)
    assert store.get(documents(12)[2].key).states.shape[0] == 2


@pytest.mark.parametrize("layers", [(), (2, 1), (1, 1), (4,), (-1,)])
def test_wrong_layers_are_refused(tmp_path: Path, layers: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=r"must be ascending, without repeats, and among \(0, 1, 2, 3\)"):
        filled(tmp_path).batch([0], layers)


def test_get_gives_states_and_words(tmp_path: Path) -> None:
    store = filled(tmp_path)
    document = documents(12)[8]
    encoding = store.get(document.key)
    n = len(document.words)
    np.testing.assert_array_equal(encoding.states, states(document.key, range(4), n + 2, 8))
    assert encoding.word.tolist() == [-1, *range(n), -1]
    assert encoding.key == document.key


def test_out_is_reused_and_checked(tmp_path: Path) -> None:
    store = filled(tmp_path)
    out = torch.full((10_000,), -7.0)
    packed = store.batch([0, 1], out=out)
    assert packed.views.data_ptr() == out.data_ptr()
    assert torch.equal(packed.views, store.batch([0, 1]).views)
    with pytest.raises(ConfigError, match="at least"):
        store.batch([0, 1], out=torch.empty(5))
    with pytest.raises(ConfigError, match=r"contiguous torch\.float16"):
        store.batch([0, 1], dtype=torch.float16, out=out)


def test_an_empty_batch_has_no_rows(tmp_path: Path) -> None:
    assert filled(tmp_path).batch([]).views.shape == (4, 0, 8)


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    store = filled(tmp_path)
    keys = [document.key for document in documents(15)]
    assert keys[3] in store
    assert keys[12] not in store
    assert store.missing([*keys, *keys]) == [12, 13, 14]
    with pytest.raises(NotStored, match=f"lacks 3 of 15 items; the first is number 12, key {keys[12]}"):
        store.index(keys)
    with pytest.raises(NotStored, match=r"position 12 is outside 0 \.\.\. 11"):
        store.batch([12])
    with pytest.raises(NotStored, match="position -1"):
        store.word(-1)


def test_few_shards_mapped_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More shards than may be mapped: the oldest is given up and mapped again when it is read again."""
    monkeypatch.setattr(reader_module, "MAPPED", 2)
    store = filled(tmp_path, 20, shard_bytes=1)
    for _ in range(2):
        index = store.index([document.key for document in documents(20)])
        np.testing.assert_array_equal(store.batch(index).views, truth(documents(20)))
        assert sum(shard._mapping is not None for shard in store._shards) <= 2


def test_views_outlive_the_store(tmp_path: Path) -> None:
    store = filled(tmp_path)
    word, views = store.word(0), store.batch([0], dtype=None).views
    kept = views.clone(), word.copy()
    del store
    gc.collect()
    assert torch.equal(views, kept[0])
    assert (word == kept[1]).all()


def test_a_pickled_store_keeps_positions(tmp_path: Path) -> None:
    """Also when shards came after it, and when they sort before the known ones."""
    store = filled(tmp_path)
    index = store.index([document.key for document in documents(12)])
    stale = pickle.dumps(store)
    other = Store.open(tmp_path)
    other.fill(documents(30), FakeSource(), shard_bytes=1500)
    again = pickle.loads(stale)
    assert len(again) == 12
    assert torch.equal(again.batch(index).views, store.batch(index).views)
    store.refresh()
    assert len(store) == 30
    assert (store.index([document.key for document in documents(12)]) == index).all()


def test_a_forked_reader_reads_the_same(tmp_path: Path, forked: Callable[[Callable[[], object]], int]) -> None:
    store = filled(tmp_path)
    due = store.batch(range(12)).views.clone()

    def child() -> None:
        assert torch.equal(store.batch(range(12)).views, due)

    assert os.waitstatus_to_exitcode(os.waitpid(forked(child), 0)[1]) == 0


def test_prefetch_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hint; where the system has none, nothing."""
    store = filled(tmp_path)
    before = store.batch([1, 2]).views
    store.prefetch([1, 2], (1,))
    for name in ("MADV_WILLNEED", "MADV_RANDOM"):
        if hasattr(mmap, name):
            monkeypatch.delattr(mmap, name)
    other = Store.open(tmp_path)
    other.prefetch([1, 2])
    assert torch.equal(other.batch([1, 2]).views, before)


def test_readers_write_nothing(tmp_path: Path) -> None:
    filled(tmp_path)
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in tmp_path.iterdir()}
    store = Store.open(tmp_path, spec())
    packed = store.batch(range(12), dtype=None)
    packed.views.zero_()
    store.word(0)[:] = 5
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16", "int8"])
@settings(max_examples=15, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=25),
    width=st.sampled_from([1, 3, 8, 17]),
    shard_bytes=st.sampled_from([1, 2000, 20_000, 10**9]),
    data=st.data(),
)
def test_round_trip_of_ragged_lengths(
    tmp_path_factory: pytest.TempPathFactory,
    dtype: str,
    lengths: list[int],
    width: int,
    shard_bytes: int,
    data: st.DataObject,
) -> None:
    """Any lengths, widths (aligned or not) and shard sizes: what comes back is what went in, in any order."""
    given_documents = [
        Document(str(i), tuple(f"{i}-{k}" for k in range(n)), text=str(i)) for i, n in enumerate(lengths)
    ]
    store = Store.open(tmp_path_factory.mktemp("store"), spec(dtype=dtype, width=width))
    store.fill(given_documents, FakeSource(width), shard_bytes=shard_bytes)
    chosen = data.draw(st.lists(st.sampled_from(given_documents), min_size=1, max_size=12))
    packed = store.batch(store.index([document.key for document in chosen]))
    due = [states(d.key, range(4), len(d.words) + 2, width) for d in chosen]
    for item, start, n in zip(due, packed.starts, packed.lengths, strict=True):
        # int8: half a step of the row's own scale, in units of its channels, whose sizes differ by less than 5 here
        bound = BOUND[dtype] * np.abs(item).max() * (5 if dtype == "int8" else 1)
        np.testing.assert_allclose(packed.views[:, start : start + n], item, rtol=0, atol=bound)


@pytest.mark.parametrize("dtype", ["fp32", "int8"])
def test_what_was_rewritten_is_found_where_it_is_now(tmp_path: Path, dtype: str) -> None:
    """keep_only copies what stays into new shards; a reader that refreshes forgets the old ones."""
    store = filled(tmp_path, dtype=dtype)
    keys = [document.key for document in documents(12)]
    before = {key: store.get(key).states for key in keys}
    kept = keys[::2]
    keep_only(tmp_path, kept)
    store._shards[0].unmap()
    store.refresh()
    assert (len(store), keys[1] in store) == (6, False)
    for key in kept:
        np.testing.assert_array_equal(store.get(key).states, before[key])
    with pytest.raises(NotStored, match="lacks 1 of 1 items"):
        store.index(keys[1:2])


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "int8"])
def test_values_beyond_fp16_are_not_read_as_infinite(tmp_path: Path, dtype: str) -> None:
    class Large(FakeSource):
        def encode(self, pieces: Sequence[Pieces], layers: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
            for position, array in super().encode(pieces, layers):
                array[1, 0, 3] = 90_000 if position == 2 else 60_000
                yield position, array

    store = Store.open(tmp_path, spec(dtype=dtype))
    store.fill(documents(4), Large())
    index = store.index([document.key for document in documents(4)])
    assert store.batch(index).views.max() == pytest.approx(90_000, rel=0.01)
    with pytest.raises(NonFinite, match=f"item {documents(4)[2].key[:12]} has a value beyond what fp16 holds"):
        store.batch(index, dtype=torch.float16)
    rest = store.batch(index[[0, 1, 3]], dtype=torch.float16).views
    np.testing.assert_allclose(rest.float(), store.batch(index[[0, 1, 3]]).views, rtol=2e-3)
    assert store.batch(index, [0, 2], dtype=torch.float16).views.isfinite().all()
    with pytest.raises(ConfigError, match=r"dtype=torch\.int8 has no place for states"):
        store.batch(index, dtype=torch.int8)
