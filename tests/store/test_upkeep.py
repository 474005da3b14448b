"""info, ls, verify and gc: what they say and what they leave."""

import errno
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fake_source import FakeSource, digest, documents, spec, states

from encodeonce.errors import CorruptStore, StoreError
from encodeonce.store import Store, gc, info, keep_only, ls, reader, removal, upkeep, verify
from encodeonce.store.claim import Claim
from encodeonce.store.format import manifest_names
from encodeonce.store.shard import Shard


def filled(folder: Path, n: int = 20) -> Store:
    store = Store.open(folder, spec())
    store.fill(documents(n), FakeSource(), shard_bytes=3000)
    return store


def test_info_counts_what_is_there(tmp_path: Path) -> None:
    filled(tmp_path)
    rows = sum(len(document.words) + 2 for document in documents(20))
    seen, lines = info(tmp_path), ls(tmp_path)
    assert (seen["items"], seen["rows"], seen["shards"]) == (20, rows, len(lines))
    assert (seen["layers"], seen["dtype"], seen["width"], seen["encoder"]) == ([0, 1, 2, 3], "fp32", 8, "fake")
    assert seen["bytes"] == sum(path.stat().st_size for path in tmp_path.iterdir())
    assert seen["bytes_per_row"] == sum(line["bytes"] for line in lines) / rows
    assert seen["unfinished"] == []
    assert sum(line["items"] for line in lines) == 20
    assert sum(line["rows"] for line in lines) == rows
    assert len(verify(tmp_path)) == len(lines)


def test_an_empty_store_has_no_rows(tmp_path: Path) -> None:
    Store.open(tmp_path, spec())
    assert (info(tmp_path)["items"], info(tmp_path)["bytes_per_row"], ls(tmp_path), verify(tmp_path)) == (
        0,
        None,
        [],
        [],
    )


def test_gc_removes_leftovers_and_nothing_else(tmp_path: Path) -> None:
    """Dead temporary files and data without a manifest go; the store, and files that are not its own, stay."""
    filled(tmp_path)
    before = digest(tmp_path)
    dead = ["0" * 32 + ".safetensors.tmp", "1" * 32 + ".safetensors", "2" * 32 + ".json.tmp", "store.json.tmp"]
    for name in [*dead, "notes.tmp", "other.safetensors"]:
        (tmp_path / name).write_bytes(b"half")
    assert info(tmp_path)["unfinished"] == sorted(dead, key=lambda name: (not name.endswith(".tmp"), name))
    assert sorted(gc(tmp_path, dry_run=True)) == sorted(dead)
    assert sorted(gc(tmp_path)) == sorted(dead)
    assert {
        name: value for name, value in digest(tmp_path).items() if name not in ("notes.tmp", "other.safetensors")
    } == before
    assert gc(tmp_path) == []


@pytest.mark.parametrize("kind", [errno.EACCES, errno.EROFS])
def test_info_of_a_store_that_may_only_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: int) -> None:
    filled(tmp_path)
    dead = "0" * 32 + ".safetensors.tmp"
    (tmp_path / dead).write_bytes(b"half")
    opened = os.open

    def read_only(path: Path, flags: int, *rest: int) -> int:
        if flags & (os.O_RDWR | os.O_WRONLY):
            raise OSError(kind, os.strerror(kind), str(path))
        return opened(path, flags, *rest)

    monkeypatch.setattr(os, "open", read_only)
    assert info(tmp_path)["unfinished"] == [dead]
    store = Store.open(tmp_path)
    store.fill(documents(20), FakeSource())  # nothing is missing
    with pytest.raises(StoreError, match=r"cannot be written to: .*\. What is there can be read; to change it, get"):
        store.fill(documents(21), FakeSource())


def test_gc_removes_shards_whose_items_all_are_elsewhere(tmp_path: Path) -> None:
    """Two jobs that met on other bounds: the repeated items go, each item stays."""
    filled(tmp_path / "a", 10)
    other = Store.open(tmp_path / "b", spec())
    other.fill(documents(30), FakeSource(), shard_bytes=10**9)
    for path in (tmp_path / "b").iterdir():
        (tmp_path / "a" / path.name).write_bytes(path.read_bytes())
    store = Store.open(tmp_path / "a")
    assert (len(store), info(tmp_path / "a")["items"]) == (30, 30)
    small = [line["name"] for line in ls(tmp_path / "a") if line["items"] < 30]
    assert sorted(gc(tmp_path / "a")) == sorted(name + end for name in small for end in (".json", ".safetensors"))
    store = Store.open(tmp_path / "a")
    assert len(store) == 30
    for document in documents(30):
        np.testing.assert_array_equal(
            store.get(document.key).states, states(document.key, range(4), len(document.words) + 2, 8)
        )


def test_gc_to_a_size_removes_the_oldest_shards_first(tmp_path: Path) -> None:
    filled(tmp_path)
    lines = ls(tmp_path)
    for age, line in enumerate(reversed(lines)):
        os.utime(tmp_path / f"{line['name']}.json", (1000 + age, 1000 + age))
    keep = sum(line["bytes"] for line in lines[:2])
    removed = gc(tmp_path, max_bytes=keep)
    assert removed[0] == f"{lines[-1]['name']}.json", (
        "the manifest goes first: a half removed shard is an unfinished one"
    )
    assert [line["name"] for line in ls(tmp_path)] == [line["name"] for line in lines[:2]]
    store = Store.open(tmp_path, spec())
    assert len(store) == sum(line["items"] for line in lines[:2]) < 20
    before = digest(tmp_path)
    evicted = 20 - len(store)
    assert store.fill(documents(20), FakeSource(), shard_bytes=3000).written == evicted
    assert before.items() <= digest(tmp_path).items()


def test_a_reader_of_a_shard_that_was_removed_is_told(tmp_path: Path) -> None:
    store = filled(tmp_path)
    gc(tmp_path, max_bytes=0)
    with pytest.raises(CorruptStore, match="was removed or cut after the store was opened"):
        store.batch(range(20))


def test_a_shard_that_is_removed_while_a_store_is_opened_is_not_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = len(filled(tmp_path))
    name, *_ = (line["name"] for line in ls(tmp_path))
    items = next(line["items"] for line in ls(tmp_path))
    listed = reader.manifest_names

    def removed_since(folder: Path) -> list[str]:
        names = listed(folder)
        for file in folder.glob(f"{name}.*"):
            file.unlink()
        return names

    pickled = pickle.dumps(Store.open(tmp_path))
    monkeypatch.setattr(reader, "manifest_names", removed_since)
    assert len(Store.open(tmp_path)) == held - items
    with pytest.raises(CorruptStore, match=rf"{name}.json is gone: its shard was removed meanwhile. Open the store"):
        pickle.loads(pickled)


def test_nothing_is_said_of_what_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    for command in (info, ls, verify, gc):
        with pytest.raises(StoreError, match="There is no store at"):
            command(tmp_path)


@pytest.mark.parametrize("command", [ls, info, verify, gc, lambda folder: keep_only(folder, [])])
def test_a_shard_that_is_removed_while_a_command_looks_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Callable[[Path], object]
) -> None:
    """`store gc` of another process, between the listing and the reading; what stays is as it was."""
    filled(tmp_path)
    name, *stay = (line["name"] for line in ls(tmp_path))

    def removed_since(folder: Path) -> list[str]:
        names = manifest_names(folder)
        for file in folder.glob(f"{name}.*"):
            file.unlink()
        return names

    for module in (upkeep, removal):
        monkeypatch.setattr(module, "manifest_names", removed_since)
    command(tmp_path)
    monkeypatch.undo()
    assert manifest_names(tmp_path) == ([] if command not in (ls, info, verify, gc) else stay)


def test_a_shard_that_is_removed_while_it_is_hashed_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path)
    lines = ls(tmp_path)
    hashed = upkeep.damage

    def meanwhile(shard: Shard) -> list[str]:
        if shard.manifest.name == lines[1]["name"]:
            for file in tmp_path.glob(f"{shard.manifest.name}.*"):
                file.unlink()
        return hashed(shard)

    monkeypatch.setattr(upkeep, "damage", meanwhile)
    assert len(verify(tmp_path)) == len(lines) - 1


def test_a_temporary_file_that_gets_its_name_while_sizes_are_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(tmp_path)
    due, temporary, seen = info(tmp_path)["bytes"], tmp_path / ("0" * 32 + ".json.tmp"), Path.is_file

    def renamed(path: Path) -> bool:
        there = seen(path)
        if path == temporary:
            path.unlink()
        return there

    monkeypatch.setattr(Path, "is_file", renamed)
    for look in (lambda: info(tmp_path)["bytes"] == due, lambda: store.fill(documents(25), FakeSource()).written == 5):
        temporary.write_bytes(b"half")
        with Claim.take(temporary):
            assert look()


def test_one_process_at_a_time_removes(tmp_path: Path) -> None:
    """keep_only has copied what stays and gc has seen copy and original: each would remove the other's."""
    filled(tmp_path)
    before = digest(tmp_path)
    with Claim.take(tmp_path / "store.removal.tmp"):
        for command in (gc, lambda folder: keep_only(folder, [])):
            with pytest.raises(StoreError, match=r"another process is removing items .*Run this again"):
                command(tmp_path)
        assert (gc(tmp_path, dry_run=True), keep_only(tmp_path, [], dry_run=True).items) == ([], 20)
    assert digest(tmp_path) == before


@pytest.mark.parametrize("kind", [errno.EACCES, errno.EROFS])
def test_nothing_is_removed_from_a_store_that_may_only_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: int
) -> None:
    filled(tmp_path)
    (tmp_path / "store.json.0.tmp").write_bytes(b"half")
    before, opened = digest(tmp_path), os.open

    def read_only(path: Path, flags: int, *rest: int) -> int:
        if flags & (os.O_RDWR | os.O_WRONLY):
            raise OSError(kind, os.strerror(kind), str(path))
        return opened(path, flags, *rest)

    monkeypatch.setattr(os, "open", read_only)
    for command in (gc, lambda folder: gc(folder, max_bytes=0), lambda folder: keep_only(folder, [])):
        with pytest.raises(StoreError, match=r"cannot be written to: .*get the right to write there"):
            command(tmp_path)
    assert Store.open(tmp_path).fill(documents(20), FakeSource()).hits == 20
    assert digest(tmp_path) == before
