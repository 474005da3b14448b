"""Killed, out of disk, two at once: what is finished stays whole, going on ends in the same bytes (CACHEIO-1, -2)."""

import errno
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import fake_source
import numpy as np
import pytest
from fake_source import FakeSource, digest, documents, spec, states

from encodeonce.errors import StoreFull
from encodeonce.store import Store, check_room, claim, gc, info, leftovers, upkeep, verify, writer

Forked = Callable[[Callable[[], object]], int]
FSYNC = os.fsync
SHARD = 1500


@pytest.fixture(scope="module", params=["fp16", "int8"])
def dtype(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def whole(folder: Path, n: int, dtype: str = "fp16") -> dict[str, str]:
    """Digest of the store an undisturbed run makes."""
    Store.open(folder, spec(dtype=dtype)).fill(documents(n), FakeSource(), shard_bytes=SHARD)
    return digest(folder)


def is_true(store: Store, n: int) -> int:
    """Every item that is there equals what the source gives, within fp16; returns how many are."""
    found = 0
    for document in documents(n):
        if document.key in store:
            due = states(document.key, range(4), len(document.words) + 2, 8)
            np.testing.assert_allclose(store.get(document.key).states, due, rtol=0, atol=0.05)
            found += 1
    return found


def test_cacheio_1_kill_9_at_ten_moments_ends_in_the_same_bytes(tmp_path: Path, forked: Forked, dtype: str) -> None:
    """Ten writers one after the other, each killed at a random moment; what they leave is whole, what ends is equal."""
    due = whole(tmp_path / "whole", 60, dtype)
    folder, moments, most = tmp_path / "killed", random.Random(5), 0
    for _ in range(10):
        reader, writer = os.pipe()

        def child(writer: int = writer) -> None:
            Store.open(folder, spec(dtype=dtype)).fill(
                documents(60),
                FakeSource(pause=0.004),
                shard_bytes=SHARD,
                progress=lambda done, total: os.write(writer, b".") and None,
            )

        pid = forked(child)
        os.close(writer)
        for _ in range(moments.randrange(1, 9)):
            os.read(reader, 1)
        time.sleep(moments.uniform(0, 0.006))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reader)
        if (folder / "store.json").exists():
            most = max(most, is_true(Store.open(folder), 60))
            verify(folder)
    Store.open(folder, spec(dtype=dtype)).fill(documents(60), FakeSource(), shard_bytes=SHARD)
    assert digest(folder) == due
    assert most > 0


@pytest.mark.parametrize("step", range(14))
def test_killed_after_each_change_of_the_folder(tmp_path: Path, forked: Forked, step: int) -> None:
    """Killed just before the n-th rename, link or removal, of store.json, data or manifest: the same end."""
    due = whole(tmp_path / "whole", 8)
    folder = tmp_path / "killed"

    def child() -> None:
        left = [step]
        for name in ("replace", "link", "unlink"):
            real = getattr(os, name)

            def counted(*args: object, real: Callable[..., object] = real, **kwargs: object) -> object:
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*args, **kwargs)

            setattr(os, name, counted)
        Store.open(folder, spec(dtype="fp16")).fill(documents(8), FakeSource(), shard_bytes=SHARD)

    os.waitpid(forked(child), 0)
    Store.open(folder, spec(dtype="fp16")).fill(documents(8), FakeSource(), shard_bytes=SHARD)
    assert digest(folder) == due


def test_a_file_of_a_dead_writer_does_not_block(tmp_path: Path) -> None:
    """Leftovers of any content under the very names that are wanted: taken over, and the end is the same."""
    due = whole(tmp_path / "whole", 20)
    Store.open(tmp_path / "s", spec(dtype="fp16"))
    for name in due:
        if name != "store.json":
            (tmp_path / "s" / f"{name}.tmp").write_bytes(b"half" * 9000)
    (tmp_path / "s" / "store.json.tmp").write_bytes(b"{")
    started = time.monotonic()
    Store.open(tmp_path / "s", spec(dtype="fp16")).fill(documents(20), FakeSource(), shard_bytes=SHARD)
    assert time.monotonic() - started < 10
    assert digest(tmp_path / "s") == due


def test_cacheio_2_two_writers_at_once_end_equal_to_one(tmp_path: Path, forked: Forked, dtype: str) -> None:
    """Started at the same moment on the same 200 documents, read all the while: nothing half written is met."""
    due = whole(tmp_path / "whole", 200, dtype)
    folder, go = tmp_path / "both", time.time() + 0.2
    Store.open(folder, spec(dtype=dtype))

    def child() -> None:
        time.sleep(max(0.0, go - time.time()))
        report = Store.open(folder, spec(dtype=dtype)).fill(documents(200), FakeSource(pause=0.001), shard_bytes=SHARD)
        assert report.asked == report.hits + report.written + report.elsewhere
        assert len(Store.open(folder)) == 200
        (tmp_path / f"{os.getpid()}.json").write_text(json.dumps(report.written))

    alive = {forked(child), forked(child)}
    seen, reader = 0, Store.open(folder)
    while alive:
        reader.refresh()
        seen = max(seen, is_true(reader, 200))
        for pid in list(alive):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                alive.remove(pid)
                assert os.waitstatus_to_exitcode(status) == 0
    written = [json.loads(path.read_text()) for path in tmp_path.glob("*.json")]
    assert sum(written) == 200, "every item was encoded by exactly one of the two"
    assert min(written) > 0
    assert digest(folder) == due


def test_a_writer_waits_for_a_living_one_and_takes_over_from_a_dead_one(tmp_path: Path, forked: Forked) -> None:
    due = whole(tmp_path / "whole", 5)
    folder = tmp_path / "s"
    Store.open(folder, spec(dtype="fp16"))
    pid = forked(
        lambda: Store.open(folder, spec(dtype="fp16")).fill(documents(5), FakeSource(pause=60), shard_bytes=SHARD)
    )
    while not list(folder.glob("*.tmp")):
        time.sleep(0.01)
    time.sleep(0.05)
    assert info(folder)["unfinished"] == [], "what a living writer holds is no leftover"
    assert gc(folder) == []
    second = forked(lambda: Store.open(folder, spec(dtype="fp16")).fill(documents(5), FakeSource(), shard_bytes=SHARD))
    time.sleep(0.3)
    assert os.waitpid(second, os.WNOHANG) == (0, 0), "the second writer waits for the first's shard"
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(os.waitpid(second, 0)[1]) == 0
    assert digest(folder) == due


@pytest.mark.parametrize("moment", ["is_held", "leftovers"])
def test_gc_spares_a_shard_that_is_finished_while_it_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Its manifest appears once gc has seen the data without one: before it asks who holds them, or before it acts."""
    due = whole(tmp_path, 5)
    (manifest, *_) = (tmp_path / name for name in due if name.endswith(".json") and name != "store.json")
    aside = manifest.rename(tmp_path.with_name("aside.json"))
    asked = getattr(leftovers, moment)

    def finishing(path: Path) -> object:
        if moment == "leftovers":
            found = asked(path)
            assert [file.name for file in found] == [manifest.with_suffix(".safetensors").name]
        if aside.exists():
            aside.rename(manifest)
        return found if moment == "leftovers" else asked(path)

    monkeypatch.setattr({"is_held": leftovers, "leftovers": upkeep}[moment], moment, finishing)
    assert gc(tmp_path) == []
    assert digest(tmp_path) == due


def test_disk_full_is_one_clear_error(tmp_path: Path, forked: Forked) -> None:
    """A file size limit (`ulimit -f`): StoreFull with the bytes, nothing unfinished left, the finished whole."""
    due = whole(tmp_path / "whole", 60)
    folder = tmp_path / "s"
    biggest = max(path.stat().st_size for path in (tmp_path / "whole").glob("*.safetensors"))

    def child() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (biggest - 1, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        with pytest.raises(
            StoreFull, match=rf"A shard of \d+ items needs {biggest:,} bytes .*\(.* bytes free\).*goes on"
        ):
            Store.open(folder, spec(dtype="fp16")).fill(documents(60), FakeSource(), shard_bytes=SHARD)

    assert os.waitstatus_to_exitcode(os.waitpid(forked(child), 0)[1]) == 0
    assert not list(folder.glob("*.tmp"))
    assert {path.stem for path in folder.glob("*.safetensors")} == {
        path.stem for path in folder.glob("*.json") if path.stem != "store"
    }
    assert is_true(Store.open(folder), 60) < 60
    Store.open(folder, spec(dtype="fp16")).fill(documents(60), FakeSource(), shard_bytes=SHARD)
    assert digest(folder) == due


@pytest.mark.parametrize("call", ["reserve", *range(1, 18, 2)])
@pytest.mark.parametrize("kind", [errno.ENOSPC, errno.EDQUOT])
def test_disk_full_at_any_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int | str, kind: int) -> None:
    """The disk fills at the reservation, at the n-th write of data, index or manifest: the same error, the same end."""
    due = whole(tmp_path / "whole", 6)
    folder = tmp_path / "s"
    store = Store.open(folder, spec(dtype="fp16"))
    real, left = claim.Claim.write, [call]

    def full(*args: object) -> None:
        raise OSError(kind, os.strerror(kind))

    def write(self: claim.Claim, data: bytes | memoryview, position: int) -> None:
        left[0] -= 1  # type: ignore[operator]
        if left[0] == 0:
            full()
        real(self, data, position)

    with monkeypatch.context() as patch:
        if call == "reserve":
            patch.setattr(os, "posix_fallocate", full)
        else:
            patch.setattr(claim.Claim, "write", write)
        with pytest.raises(StoreFull, match=r"needs [\d,]+ bytes and could not be written .*run the same again"):
            store.fill(documents(6), FakeSource(), shard_bytes=SHARD)
    assert not list(folder.glob("*.tmp"))
    assert {path.stem for path in folder.glob("*.safetensors")} == {
        path.stem for path in folder.glob("*.json") if path.stem != "store"
    }
    store.fill(documents(6), FakeSource(), shard_bytes=SHARD)
    assert digest(folder) == due


def test_where_files_cannot_be_locked_or_reserved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows, and file systems without locks: names of one's own, the same bytes; nothing left."""
    due = whole(tmp_path / "whole", 20)
    monkeypatch.setattr(claim, "fcntl", None)
    monkeypatch.delattr(os, "posix_fallocate")
    assert whole(tmp_path / "s", 20) == due
    (tmp_path / "s" / f"{'0' * 32}.safetensors.tmp").write_bytes(b"x")
    assert gc(tmp_path / "s") == [f"{'0' * 32}.safetensors.tmp"]


def test_data_is_durable_before_its_manifest_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fsync of each file before its rename and of the folder after it, data before manifest."""
    events: list[str] = []
    replace = os.replace

    def synced(handle: int) -> None:
        events.append("folder" if os.path.isdir(f"/dev/fd/{handle}") else "file")
        FSYNC(handle)

    def renamed(source: Path, target: Path) -> None:
        events.append(target.suffix)
        replace(source, target)

    store = Store.open(tmp_path, spec())
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    store.fill(documents(2), FakeSource())
    assert events == ["file", ".safetensors", "folder", "file", ".json", "folder"]


def test_cachekey_2_the_same_in_a_process_with_another_hash_seed(tmp_path: Path) -> None:
    """CACHEKEY-2 a: made there, found here, equal byte for byte."""
    due = whole(tmp_path / "whole", 10)
    command = [sys.executable, str(fake_source.__file__), str(tmp_path / "s"), "10", str(SHARD), "0", "fp16"]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": "12345"}, stdout=subprocess.DEVNULL)
    assert digest(tmp_path / "s") == due
    source = FakeSource()
    assert Store.open(tmp_path / "s", spec(dtype="fp16")).fill(documents(10), source).hits == 10
    assert source.cut_documents == 0


def test_what_a_killed_writer_left_is_room_for_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole shard was taken from the disk when it died; going on needs no more, and no more of the cap."""
    due = whole(tmp_path / "whole", 20)
    size = sum(path.stat().st_size for path in (tmp_path / "whole").iterdir())
    folder = tmp_path / "s"
    store = Store.open(folder, spec(dtype="fp16"))
    for name in due:
        if name.endswith(".safetensors"):
            shutil.copy(tmp_path / "whole" / name, folder / f"{name}.tmp")
    usage = shutil.disk_usage(folder)

    def nearly_full(path: Path) -> object:
        taken = sum(path.stat().st_size for path in folder.iterdir())
        return usage._replace(free=size - taken)

    monkeypatch.setattr(shutil, "disk_usage", nearly_full)
    check_room(folder, 20, 1, size - (folder / "store.json").stat().st_size, size)  # as a dry run asks
    store.fill(documents(20), FakeSource(), shard_bytes=SHARD, max_bytes=size)
    assert digest(folder) == due


def test_no_more_files_is_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, opened = Store.open(tmp_path, spec()), os.open

    def full(path: Path, flags: int, *rest: int) -> int:
        if flags & os.O_CREAT:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return opened(path, flags, *rest)

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(StoreFull, match=r"Another file needs 0 bytes .*No space left .*file size or number"):
        store.fill(documents(3), FakeSource())


def test_without_locks_a_shard_that_another_finished_is_left_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both wrote it; this one's disk is full at the manifest, the other's is there."""
    due = whole(tmp_path / "whole", 3)
    folder, written = tmp_path / "s", writer.write_atomically

    def full(path: Path, data: bytes) -> None:
        written(path, data)  # the other's
        raise StoreFull("full")

    monkeypatch.setattr(writer, "write_atomically", full)
    monkeypatch.setattr(claim, "fcntl", None)
    with pytest.raises(StoreFull):
        Store.open(folder, spec(dtype="fp16")).fill(documents(3), FakeSource())
    assert digest(folder) == due
