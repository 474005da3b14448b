"""keep_only: what it keeps is there to the byte, what it was not asked about is not touched."""

from pathlib import Path

import numpy as np
import pytest
from fake_source import FakeSource, digest, documents, spec

from encodeonce.errors import ConfigError, CorruptStore, StoreError
from encodeonce.store import Store, info, keep_only, ls, verify
from encodeonce.store.claim import Claim
from encodeonce.store.format import shard_name


def filled(folder: Path, dtype: str) -> tuple[Store, list[str]]:
    store = Store.open(folder, spec(dtype=dtype))
    store.fill(documents(30), FakeSource(), shard_bytes=3000)
    return store, [document.key for document in documents(30)]


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16", "int8"])
def test_kept_items_are_equal_to_the_bit_and_nothing_is_encoded(tmp_path: Path, dtype: str) -> None:
    store, keys = filled(tmp_path, dtype)
    before = {key: store.get(key) for key in keys}
    kept = keys[::3] + keys[25:]
    size = info(tmp_path)["bytes"]
    done = keep_only(tmp_path, kept)
    after = Store.open(tmp_path, verify="always")
    assert (len(after), done.items, done.waiting) == (len(set(kept)), 30 - len(set(kept)), 0)
    assert done.bytes == size - info(tmp_path)["bytes"]
    for key in kept:
        assert np.array_equal(after.get(key).states, before[key].states)
        assert np.array_equal(after.get(key).word, before[key].word)
    assert len(verify(tmp_path)) == len(ls(tmp_path))


def test_shards_without_a_hole_are_not_touched(tmp_path: Path) -> None:
    store, keys = filled(tmp_path, "fp16")
    first = ls(tmp_path)[0]["name"]
    own = {row.tobytes().hex() for row in next(s for s in store._shards if s.manifest.name == first).keys}
    lost = next(iter(own))
    before = digest(tmp_path)
    done = keep_only(tmp_path, [key for key in keys if key != lost])
    assert (done.items, done.rewritten, done.removed) == (1, int(len(own) > 1), int(len(own) == 1))
    after = digest(tmp_path)
    untouched = {name: value for name, value in before.items() if not name.startswith(first)}
    assert {name: after[name] for name in untouched} == untouched
    assert f"{first}.safetensors" not in after


def test_slack_leaves_small_holes(tmp_path: Path) -> None:
    _, keys = filled(tmp_path, "fp16")
    before = digest(tmp_path)
    done = keep_only(tmp_path, keys[1:], slack=0.9)
    assert (done.items, done.waiting, digest(tmp_path)) == (0, 1, before)
    assert keep_only(tmp_path, [], slack=0.9).removed == len(before) // 2
    assert len(Store.open(tmp_path)) == 0


def test_dry_run_changes_nothing(tmp_path: Path) -> None:
    _, keys = filled(tmp_path, "int8")
    before = digest(tmp_path)
    planned = keep_only(tmp_path, keys[:10], dry_run=True)
    assert digest(tmp_path) == before
    done = keep_only(tmp_path, keys[:10])
    assert (planned.items, planned.rewritten, planned.removed) == (done.items, done.rewritten, done.removed)


def test_a_damaged_item_is_not_carried_over(tmp_path: Path) -> None:
    store, keys = filled(tmp_path, "fp32")
    shard = max(store._shards, key=len)
    raw = bytearray(shard.path.read_bytes())
    raw[shard.span(1, 0, 1)[0]] ^= 1
    shard.path.write_bytes(raw)
    gone = shard.keys[0].tobytes().hex()
    with pytest.raises(CorruptStore, match="was changed after it was written"):
        keep_only(tmp_path, [key for key in keys if key != gone])
    assert shard.path.exists()


def test_a_shard_that_another_process_writes_is_left(tmp_path: Path) -> None:
    store, keys = filled(tmp_path, "fp32")
    shard = max(store._shards, key=len)
    gone = shard.keys[0].tobytes().hex()
    with Claim.take(tmp_path / f"{shard_name(shard.keys[1:])}.safetensors.tmp") as claim:
        assert claim is not None
        with pytest.raises(StoreError, match="another process is writing shard"):
            keep_only(tmp_path, [key for key in keys if key != gone])
    assert shard.path.exists()


def test_errors(tmp_path: Path) -> None:
    filled(tmp_path, "fp32")
    with pytest.raises(ConfigError, match=r"slack=1.5 must lie between 0"):
        keep_only(tmp_path, [], slack=1.5)
    with pytest.raises(StoreError, match="There is no store at"):
        keep_only(tmp_path / "none", [])
