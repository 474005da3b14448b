"""Filling: what is encoded, what is refused, what is counted."""

import errno
import os
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from fake_source import FakeSource, digest, documents, spec, states

from encodeonce.errors import ConfigError, NonFinite, SpecMismatch, StoreError, StoreFull
from encodeonce.store import Source, Store, gc, ls, reader
from encodeonce.types import Document, Pieces, Spec


class Untouchable:
    """A source that must not be asked."""

    def cut(self, documents: Sequence[Document]) -> list[Pieces]:
        raise AssertionError("cut was called")

    def encode(self, pieces: Sequence[Pieces], layers: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
        raise AssertionError("encode was called")


class Altered(FakeSource):
    """The stand-in with one thing changed on the way out."""

    def __init__(self, change: object) -> None:
        super().__init__()
        self.change = change

    def encode(self, pieces: Sequence[Pieces], layers: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
        yield from self.change(list(super().encode(pieces, layers)))  # type: ignore[operator]


def test_the_stand_in_is_a_source() -> None:
    assert isinstance(FakeSource(), Source)


def test_a_second_fill_does_not_touch_the_source(tmp_path: Path) -> None:
    store = Store.open(tmp_path, spec())
    first = store.fill(documents(30), FakeSource(), shard_bytes=1000)
    before = digest(tmp_path)
    for again in (store, Store.open(tmp_path, spec())):
        report = again.fill(documents(30), Untouchable())
        assert (report.hits, report.written, report.shards, report.bytes) == (30, 0, 0, 0)
    assert digest(tmp_path) == before
    assert (first.hits, first.written) == (0, 30)
    assert first.rows == sum(len(document.words) + 2 for document in documents(30))
    assert first.bytes == sum(line["bytes"] for line in ls(tmp_path))
    assert first.shards == len(ls(tmp_path)) > 5


def test_equal_content_is_encoded_once(tmp_path: Path) -> None:
    """Items are found by content: other ids, places and columns make no difference, nor does the order."""
    source = FakeSource()
    store = Store.open(tmp_path, spec())
    twice = [*documents(5), *(replace(document, id="x", place="b:1") for document in documents(5)), *documents(2)]
    report = store.fill(twice, source)
    assert (report.asked, report.duplicates, report.written, report.hits) == (12, 7, 5, 0)
    assert source.encoded == source.cut_documents == 5
    report = store.fill([*reversed(documents(7)), documents(1)[0]], source)
    assert (report.asked, report.duplicates, report.written, report.hits) == (8, 1, 2, 5)
    assert source.encoded == source.cut_documents == len(store) == 7


def test_append_keeps_what_is_there(tmp_path: Path) -> None:
    store = Store.open(tmp_path, spec())
    store.fill(documents(10), FakeSource(), shard_bytes=1500)
    before = digest(tmp_path)
    source = FakeSource()
    assert store.fill(documents(25), source, shard_bytes=1500).written == source.encoded == 15
    after = digest(tmp_path)
    assert {name: after[name] for name in before} == before
    keys = [document.key for document in documents(25)]
    due = [states(d.key, range(4), len(d.words) + 2, 8) for d in documents(25)]
    np.testing.assert_array_equal(store.batch(store.index(keys)).views, np.concatenate(due, 1))


@pytest.mark.parametrize("dtype", ["fp16", "int8"])
def test_a_fill_stopped_by_an_error_goes_on_to_the_same_bytes(tmp_path: Path, dtype: str) -> None:
    Store.open(tmp_path / "whole", spec(dtype=dtype)).fill(documents(40), FakeSource(), shard_bytes=1500)
    store = Store.open(tmp_path / "stopped", spec(dtype=dtype))

    class Stops(FakeSource):
        def encode(self, pieces: Sequence[Pieces], layers: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
            for pair in super().encode(pieces, layers):
                if self.encoded > 17:
                    raise KeyboardInterrupt
                yield pair

    with pytest.raises(KeyboardInterrupt):
        store.fill(documents(40), Stops(), shard_bytes=1500)
    assert not [path for path in (tmp_path / "stopped").iterdir() if path.suffix == ".tmp"]
    assert 0 < len(Store.open(tmp_path / "stopped")) < 40
    store.fill(documents(40), FakeSource(), shard_bytes=1500)
    assert digest(tmp_path / "stopped") == digest(tmp_path / "whole")


def test_parts_together_make_the_same_store(tmp_path: Path) -> None:
    """Slurm array: each part its own shards, whatever the order, whatever is there already; together the whole."""
    Store.open(tmp_path / "whole", spec()).fill(documents(60), FakeSource(), shard_bytes=1500)
    encoded = 0
    for index in (2, 0, 1):
        source = FakeSource()
        report = Store.open(tmp_path / "parts", spec()).fill(documents(60), source, shard_bytes=1500, part=(index, 3))
        assert report.written == source.encoded > 0
        assert report.asked == report.hits + report.written + report.elsewhere + report.duplicates
        encoded += source.encoded
    assert encoded == 60
    assert digest(tmp_path / "parts") == digest(tmp_path / "whole")


@pytest.mark.parametrize("part", [(3, 3), (-1, 2), (0, 0)])
def test_a_wrong_part_is_refused(tmp_path: Path, part: tuple[int, int]) -> None:
    with pytest.raises(ConfigError, match="must be \\(index, count\\)"):
        Store.open(tmp_path, spec()).fill(documents(2), FakeSource(), part=part)
    with pytest.raises(ConfigError, match="shard_bytes=0 must be at least 1"):
        Store.open(tmp_path, spec()).fill(documents(2), FakeSource(), shard_bytes=0)


def test_progress_counts_rows(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    rows = sum(len(document.words) + 2 for document in documents(9))
    Store.open(tmp_path, spec()).fill(
        documents(9), FakeSource(), shard_bytes=900, progress=lambda done, total: seen.append((done, total))
    )
    assert len(seen) == 9
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert seen[-1] == (rows, rows)


def test_the_report_counts_windows_and_words_without_pieces(tmp_path: Path) -> None:
    class Odd(FakeSource):
        def cut(self, documents: Sequence[Document]) -> list[Pieces]:
            first, *rest = super().cut(documents)
            return [replace(first, windows=((0, 2, 0, 2), (1, 3, 2, 3)), unknown_words=(0,)), *rest]

    report = Store.open(tmp_path, spec()).fill(documents(4), Odd())
    assert (report.windowed, report.unknown_words) == (1, 1)


class Disk(NamedTuple):
    total: int
    used: int
    free: int


def test_the_cap_and_the_disk_are_looked_at_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, source = Store.open(tmp_path, spec()), FakeSource()
    with pytest.raises(
        StoreFull, match=r"50 items \(\d+ rows\) need .* over max_bytes=20,000.*Nothing was written.*delete"
    ):
        store.fill(documents(50), source, max_bytes=20_000)
    monkeypatch.setattr("shutil.disk_usage", lambda path: Disk(10**9, 10**9 - 5000, 5000))
    with pytest.raises(StoreFull, match="the disk has 5,000 free"):
        store.fill(documents(50), source)
    assert source.encoded == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store.json"]
    with pytest.raises(SpecMismatch, match=r"(?s)dtype: 'int8' here.*It holds nothing yet: .* delete .*store\.json"):
        Store.open(tmp_path, spec(dtype="int8"))


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "int8"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_num_1_nothing_non_finite_is_stored(tmp_path: Path, dtype: str, value: float) -> None:
    """NUM-1: refused by item, layer and place; what was finished before stays, the item is not in it."""
    bad = documents(20)[13]

    def spoil(pairs: list[tuple[int, np.ndarray]]) -> list[tuple[int, np.ndarray]]:
        for _, array in pairs:
            if np.array_equal(array, states(bad.key, range(4), len(bad.words) + 2, 8)):
                array[2, 1, 5] = value
        return pairs

    store = Store.open(tmp_path, spec(dtype=dtype))
    with pytest.raises(
        NonFinite, match=rf"fake\.txt:14 \(item {bad.key[:12]}\): layer 2, row 1, channel 5 is (nan|inf)"
    ):
        store.fill(documents(20), Altered(spoil), shard_bytes=1000)
    again = Store.open(tmp_path)
    assert 0 < len(again) < 20
    assert bad.key not in again
    assert bool(again.batch(range(len(again))).views.isfinite().all())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda pairs: pairs[:-1], "the encoder gave nothing for 1 items"),
        (lambda pairs: [*pairs, pairs[0]], "must give float32 .*, once"),
        (lambda pairs: [(k, array[:, :-1]) for k, array in pairs], "must give float32"),
        (lambda pairs: [(k, array.astype(np.float64)) for k, array in pairs], "gave float64"),
        (lambda pairs: [(k - 1, array) for k, array in pairs], r"gave position -1|must give float32"),
    ],
)
def test_a_source_that_errs_is_named(tmp_path: Path, change: object, message: str) -> None:
    store = Store.open(tmp_path, spec())
    with pytest.raises(StoreError, match=message):
        store.fill(documents(5), Altered(change))
    assert len(Store.open(tmp_path)) == 0


def test_a_cutter_that_errs_is_named(tmp_path: Path) -> None:
    class Wrong(FakeSource):
        def __init__(self, change: object) -> None:
            super().__init__()
            self.change = change

        def cut(self, documents: Sequence[Document]) -> list[Pieces]:
            return self.change(super().cut(documents))  # type: ignore[operator,no-any-return]

    none = np.zeros(0, np.int32)
    for change, message in (
        (lambda cut: cut[1:], "cut gave 2 Pieces for 3 documents"),
        (lambda cut: cut[::-1], r"fake\.txt:1 .*it must be the document's own"),
        (lambda cut: [replace(pieces, ids=none, word=none) for pieces in cut], r"fake\.txt:1 .*at least one row"),
    ):
        with pytest.raises(StoreError, match=message):
            Store.open(tmp_path, spec()).fill(documents(3), Wrong(change))


OTHER = {
    "weights": "x", "config": "x", "tokenizer": "x", "n_blocks": 4, "width": 9, "layers": (0, 4), "window": 17,
    "overlap": 5, "unit": "word", "pooling": "mean", "empty_words": "zero", "compute": "bf16", "dtype": "fp16",
    "first_position": 3, "segment": 1,
}  # fmt: skip


def test_every_compared_field_is_tried() -> None:
    assert set(OTHER) | {"encoder", "revision", "format"} == {field.name for field in fields(Spec)}


@pytest.mark.parametrize("name", sorted(OTHER))
def test_cachekey_1_another_spec_is_refused_by_field(tmp_path: Path, name: str) -> None:
    """CACHEKEY-1: nothing made by something else is reused; undoing the change hits again."""
    Store.open(tmp_path, spec()).fill(documents(3), FakeSource())
    extra = {"n_blocks": 4} if name == "layers" else {}
    with pytest.raises(
        SpecMismatch, match=rf"(?s)was made by something else.*\n  {name}: .* here, .* there.*another folder"
    ):
        Store.open(tmp_path, spec(**{name: OTHER[name], **extra}))
    assert Store.open(tmp_path, spec()).fill(documents(3), Untouchable()).hits == 3


def test_all_differences_are_listed_and_names_are_not_compared(tmp_path: Path) -> None:
    Store.open(tmp_path, spec())
    with pytest.raises(SpecMismatch, match=r"(?s)weights: .*tokenizer: "):
        Store.open(tmp_path, spec(weights="x", tokenizer="y"))
    assert Store.open(tmp_path, spec(encoder="elsewhere/fake", revision="main")).spec.encoder == "fake"


def test_fields_that_came_later_leave_older_stores_as_they_are(tmp_path: Path) -> None:
    """A store says of them nothing where they are 0, as stores did before there were any."""
    values = spec().to_json()
    assert not {"first_position", "segment"} & values.keys()
    assert Spec.from_json(values) == spec() == Spec.from_json({**values, "segment": 0})
    behind = spec(first_position=7, segment=1)
    assert Spec.from_json(behind.to_json()) == behind
    assert spec().differences(behind) == ["first_position: 0 here, 7 there", "segment: 0 here, 1 there"]


def test_one_changed_letter_is_a_miss(tmp_path: Path) -> None:
    """CACHEKEY-1 c: the key is of the content, not of a file's size or time."""
    store = Store.open(tmp_path, spec())
    store.fill([Document("a", ("the", "cat"))], FakeSource())
    source = FakeSource()
    assert store.fill([Document("a", ("the", "bat"))], source).hits == 0
    assert store.fill([Document("a", ("the", "cat"))], source).hits == 1
    assert source.encoded == 1


def test_cachekey_2_moved_or_named_otherwise_it_hits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CACHEKEY-2 c, d: another folder, a relative path, a path as text."""
    Store.open(tmp_path / "a", spec()).fill(documents(6), FakeSource())
    (tmp_path / "a").rename(tmp_path / "b")
    monkeypatch.chdir(tmp_path)
    for path in (tmp_path / "b", "b", Path("b"), os.path.join(".", "b")):
        assert Store.open(path, spec()).fill(documents(6), Untouchable()).hits == 6


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"There is no store at .*Encode a corpus first"):
        Store.open(tmp_path / "nothing")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("years of work")
    with pytest.raises(StoreError, match=r"no store and not empty \(it holds 'thesis\.tex'\)"):
        Store.open(tmp_path / "other", spec())
    with pytest.raises(StoreError, match="is a file; a store is a folder"):
        Store.open(tmp_path / "other" / "thesis.tex", spec())
    Store.open(tmp_path / "s", spec()).fill(documents(2), FakeSource())
    (tmp_path / "s" / "store.json").unlink()
    for asked in (None, spec()):
        with pytest.raises(StoreError, match=r"has shards but no store\.json"):
            Store.open(tmp_path / "s", asked)
    with pytest.raises(StoreError, match=r"Spec\.format is 2"):
        Store.open(tmp_path / "new", spec(format=2))


class Described(FakeSource):
    """The stand-in, saying what made its vectors."""

    def __init__(self, **changes: object) -> None:
        super().__init__()
        self.changes = changes

    def spec(self, layers: Sequence[int], dtype: str) -> Spec:
        return spec(layers=tuple(layers), dtype=dtype, **self.changes)


def test_a_source_that_did_not_make_the_store_is_refused(tmp_path: Path) -> None:
    """Also where the store was opened without a Spec: its vectors would stand under another encoder's name."""
    Store.open(tmp_path, spec()).fill(documents(3), Described())
    other = Described(weights="x", window=17)
    with pytest.raises(SpecMismatch, match=r"(?s)weights: 'x' here.*window: 17 here"):
        Store.open(tmp_path).fill(documents(5), other)
    assert (other.cut_documents, len(Store.open(tmp_path))) == (0, 3)
    assert Store.open(tmp_path, spec(layers=(1, 2))).fill(documents(5), Described()).written == 2


def test_what_was_removed_since_the_store_was_opened_is_encoded_again(tmp_path: Path) -> None:
    Store.open(tmp_path, spec()).fill(documents(12), FakeSource(), shard_bytes=1500)
    before = digest(tmp_path)
    store = Store.open(tmp_path, spec())
    gc(tmp_path, max_bytes=sum(line["bytes"] for line in ls(tmp_path)) // 2)
    left = len(Store.open(tmp_path))
    report = store.fill(documents(12), FakeSource(), shard_bytes=1500)
    assert (report.hits, report.written, len(store)) == (left, 12 - left, 12)
    assert left < 12
    assert digest(tmp_path) == before


def test_a_store_that_another_process_makes_meanwhile_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a shard already when this one looks whether the folder is empty."""
    refuse = reader.refuse_other_content

    def later(folder: Path) -> None:
        monkeypatch.setattr(reader, "refuse_other_content", refuse)
        Store.open(folder, spec()).fill(documents(3), FakeSource())
        refuse(folder)

    monkeypatch.setattr(reader, "refuse_other_content", later)
    assert len(Store.open(tmp_path / "s", spec())) == 3


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "unplugged")
    with pytest.raises(StoreError, match=r"file/s cannot be made: Not a directory\. A store needs a folder"):
        Store.open(tmp_path / "file" / "s", spec())
    with pytest.raises(StoreError, match=r"link is a link to .*unplugged, which is not there"):
        Store.open(tmp_path / "link", spec())

    def denied(path: Path, **rest: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "mkdir", denied)
    with pytest.raises(StoreError, match="new cannot be written to: Permission denied"):
        Store.open(tmp_path / "new", spec())
