"""The memory of passages over a stand-in encoder: what a change writes, what it leaves alone, what it says."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from encodeonce.corpus.windows import windows
from encodeonce.errors import CorruptStore, DataError, NotStored, SpecMismatch, StoreError
from encodeonce.memory import Memory
from encodeonce.store.claim import Claim
from encodeonce.types import Document, Passage, Pieces, Spec

SPEC = Spec("fake", "w", "c", "t", 2, 4, (1,), 16, 4, dtype="fp32")


class Source:
    """A row a word; its states are numbers of the item's key."""

    def __init__(self) -> None:
        self.encoded = 0

    def cut(self, documents: Sequence[Document]) -> list[Pieces]:
        found = []
        for document in documents:
            n = len(document.text.split())
            found.append(
                Pieces(document.key, np.arange(n, dtype=np.int32), np.arange(n, dtype=np.int32), n, ((0, n, 0, n),))
            )
        return found

    def encode(self, pieces: Sequence[Pieces], layers: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
        for i, one in enumerate(pieces):
            self.encoded += 1
            generator = np.random.default_rng(int(one.key[:8], 16))
            yield i, generator.standard_normal((len(layers), len(one), 4), np.float32)


def passages(n: int, first: int = 0) -> list[Passage]:
    return [
        Passage(f"p{i}", f"title {i}", f"text of number {i}", place=f"x.jsonl:{i}") for i in range(first, first + n)
    ]


def built(folder: Path, n: int = 10) -> tuple[Memory, Source]:
    memory, source = Memory.create(folder, SPEC), Source()
    memory.add(passages(n), source)
    return memory, source


def digests(folder: Path) -> dict[str, str]:
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_what_was_added_is_there_again(tmp_path: Path) -> None:
    _, source = built(tmp_path / "m")
    again = Memory.open(tmp_path / "m", SPEC)
    assert [replace(one, place="") for one in passages(10)] == again.passages
    assert (len(again), "p3" in again, again["p3"].title, source.encoded) == (10, True, "title 3", 10)
    keys = [document.key for document in again.documents(again.passages)]
    assert again.states is not None
    assert not again.states.missing(keys)


def test_adding_touches_no_other_file_and_encodes_nothing_again(tmp_path: Path) -> None:
    memory, source = built(tmp_path / "m")
    before = digests(tmp_path / "m")
    done = memory.add([*passages(3, 10), *passages(2)], source)
    assert (done.new, done.same, done.replaced, source.encoded) == (3, 2, 0, 13)
    after = digests(tmp_path / "m")
    assert {name: after[name] for name in before} == before
    assert len(after) == len(before) + 3  # data and manifest of one shard, one change of the ledger
    memory.add(passages(10), source)
    assert digests(tmp_path / "m") == after


def test_states_that_were_lost_are_encoded_anew_by_adding_their_passages_again(tmp_path: Path) -> None:
    memory, source = built(tmp_path / "m", 4)
    memory.add(passages(2, 4), source)
    shard = sorted(memory.states.path.glob("[0-9a-f]*.json"))[0]  # type: ignore[union-attr]
    shard.with_suffix(".safetensors").unlink()
    shard.unlink()
    again = Memory.open(tmp_path / "m")
    lost = len(again.states.missing(_keys(again)))  # type: ignore[union-attr]
    assert lost in (2, 4)
    with pytest.raises(NotStored, match=f"{lost} passages are not in"):
        again.add(again.passages)
    done = again.add(again.passages, source)
    assert done.states is not None
    assert (done.new, done.same, done.states.written, done.states.hits) == (0, 6, lost, 6 - lost)
    assert not again.states.missing(_keys(again))  # type: ignore[union-attr]


def test_equal_texts_are_stored_once(tmp_path: Path) -> None:
    memory, source = built(tmp_path / "m", 1)
    twin = replace(passages(1)[0], id="twin")
    memory.add([twin], source)
    assert (len(memory), source.encoded, len(memory.states or ())) == (2, 1, 1)
    memory.remove(["p0"])
    memory.gc()
    assert (memory.passages, len(memory.states or ())) == ([replace(twin, place="")], 1)


def test_replacing_is_asked_for(tmp_path: Path) -> None:
    memory, source = built(tmp_path / "m")
    changed = replace(passages(10)[4], text="something else")
    before = digests(tmp_path / "m")
    with pytest.raises(
        DataError, match=r"x.jsonl:4: 1 passages have ids of other texts in .*, the first 'p4'. Say that"
    ):
        memory.add([changed, *passages(1, 10)], source)
    assert digests(tmp_path / "m") == before
    done = memory.add([changed, *passages(1, 10)], source, replacing=True)
    assert (done.new, done.replaced, memory["p4"].text, len(memory)) == (1, 1, "something else", 11)
    assert memory.info()["unused_items"] == {"states": 1}


def test_a_text_that_changed_loses_its_old_windows(tmp_path: Path) -> None:
    memory, source = Memory.create(tmp_path / "m", SPEC), Source()
    long = Passage("doc", "T", "one two three four five six")
    memory.add([*windows([long], 2), *passages(2)], source)
    assert len(memory) == 5
    done = memory.add(windows([replace(long, text="one two three")], 2), source, replacing=True)
    assert (done.same, done.replaced, done.removed) == (1, 1, 1)
    assert [one.id for one in memory.passages] == ["doc#1", "doc#2", "p0", "p1"]
    done = memory.add([replace(long, text="short")], source, replacing=True)
    assert [one.id for one in memory.passages] == ["p0", "p1", "doc"]
    assert memory.remove(["doc", "p1"]) == 2


def test_a_text_that_became_shorter_is_not_taken_for_the_old_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    memory, source = Memory.create(tmp_path / "m", SPEC), Source()
    long = Passage("doc", "T", "one two three four five six")
    memory.add([*windows([long], 2), *passages(2)], source)
    memory.add(windows([long], 2), source)
    assert not caplog.messages, "the same text again"
    memory.add(windows([replace(long, text="one two three four")], 2), source)
    assert "keeps 1 windows of texts that were given without them, the first 'doc#3'" in caplog.text
    assert len(memory) == 5


def test_removing_by_passage_or_by_text_then_gc(tmp_path: Path) -> None:
    memory, source = Memory.create(tmp_path / "m", SPEC), Source()
    memory.add([*windows([Passage("doc", "", "a b c d")], 2), *passages(8)], source)
    shards = {name for name in digests(tmp_path / "m") if name.startswith("states")}
    assert memory.remove(["doc", "p2", "p2"]) == 3
    assert {name for name in digests(tmp_path / "m") if name.startswith("states")} == shards
    assert [one.id for one in Memory.open(tmp_path / "m").passages] == ["p0", "p1", "p3", "p4", "p5", "p6", "p7"]
    held = {one.id: memory.states.get(key) for one, key in zip(memory.passages, _keys(memory), strict=True)}
    assert sum(done.items for done in memory.gc(dry_run=True)) == 3
    assert sum(done.items for done in memory.gc()) == 3
    assert source.encoded == 10
    for one, key in zip(memory.passages, _keys(memory), strict=True):
        assert np.array_equal(memory.states.get(key).states, held[one.id].states)
    assert [name for name in digests(tmp_path / "m") if name.startswith("passages")] == ["passages-000002.jsonl"]
    assert Memory.open(tmp_path / "m").passages == memory.passages
    assert memory.info()["unused_items"] == {"states": 0}


def _keys(memory: Memory) -> list[str]:
    return [document.key for document in memory.documents(memory.passages)]


def test_what_another_process_added_is_seen(tmp_path: Path) -> None:
    memory, source = built(tmp_path / "m", 2)
    other = Memory.open(tmp_path / "m")
    other.add(passages(1, 2), source)
    memory.add(passages(1, 3), source)
    assert [one.id for one in memory.passages] == ["p0", "p1", "p2", "p3"]


def test_what_is_added_while_a_memory_is_opened_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its stores and its ledger, another process adds: every passage that is named has its states."""
    from encodeonce.memory.ledger import Ledger

    memory, source = built(tmp_path / "m", 2)
    read = Ledger.refresh

    def late(ledger: Ledger) -> None:
        monkeypatch.setattr(Ledger, "refresh", read)
        memory.add(passages(1, 2), source)
        read(ledger)

    monkeypatch.setattr(Ledger, "refresh", late)
    found = Memory.open(tmp_path / "m")
    assert [one.id for one in found.passages] == ["p0", "p1", "p2"]
    assert found.states is not None
    assert not found.states.missing(_keys(found))


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    memory, source = built(tmp_path / "m", 2)
    with Claim.take(tmp_path / "m" / "writing.tmp") as claim:
        assert claim is not None
        with pytest.raises(StoreError, match="is being changed by another process"):
            memory.add(passages(1, 5), source)
    memory.add(passages(1, 5), source)


def test_another_model_is_refused_by_name(tmp_path: Path) -> None:
    built(tmp_path / "m", 1)
    for field, value in (("weights", "v"), ("tokenizer", "u"), ("window", 9), ("layers", (2,)), ("dtype", "fp16")):
        with pytest.raises(SpecMismatch, match=field):
            Memory.open(tmp_path / "m", replace(SPEC, **{field: value}))
    with pytest.raises(SpecMismatch, match="weights"):
        Memory.create(tmp_path / "m", replace(SPEC, weights="v"))


def test_a_damaged_ledger_is_noticed(tmp_path: Path) -> None:
    built(tmp_path / "m", 3)
    file = tmp_path / "m" / "passages-000000.jsonl"
    whole = file.read_bytes()
    for raw in (whole[:-20], whole.replace(b"number 1", b"number 7"), b"", b"{}\n"):
        file.write_bytes(raw)
        with pytest.raises(CorruptStore, match=r"passages-000000.jsonl was cut or changed"):
            Memory.open(tmp_path / "m")


def test_a_killed_change_leaves_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The states are there before the ledger says so; the next run finds them and encodes nothing twice."""
    from encodeonce.memory.ledger import Ledger

    memory, source = built(tmp_path / "m", 2)
    with monkeypatch.context() as broken:

        def killed(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        broken.setattr(Ledger, "put", killed)
        with pytest.raises(KeyboardInterrupt):
            memory.add(passages(2, 2), source)
    again = Memory.open(tmp_path / "m")
    assert (len(again), source.encoded) == (2, 4)
    again.add(passages(2, 2), source)
    assert (len(again), source.encoded) == (4, 4)


def test_hits_are_counted_and_kept(tmp_path: Path) -> None:
    memory, _ = built(tmp_path / "m", 3)
    memory.count(["p0", "p1"], "p1")
    memory.count(["p1"])
    memory.save_hits()
    memory.save_hits()
    again = Memory.open(tmp_path / "m")
    again.count(["p1"], "p1")
    found, answered = again.hits()
    assert (found, answered) == ({"p0": 1, "p1": 3}, {"p1": 2})
    assert (again.info()["asked"], again.info()["never_found"]) == (3, 1)
    again.save_hits()
    again.remove(["p1"])
    assert again.hits() == ({"p0": 1}, {})
    (tmp_path / "m" / "hits.json").write_text("{", encoding="utf-8")
    with pytest.raises(CorruptStore, match=r"hits.json was cut or changed"):
        again.hits()


def test_info_adds_up(tmp_path: Path) -> None:
    memory, _ = built(tmp_path / "m")
    seen = memory.info()
    size = sum(file.stat().st_size for file in (tmp_path / "m").rglob("*") if file.is_file())
    assert (seen["bytes"], seen["bytes_per_passage"], seen["passages"], seen["words"]) == (size, size / 10, 10, 40)
    assert seen["states"]["rows"] == 60  # titles are encoded with their texts
    json.dumps(seen)


def test_errors(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"There is no memory at .* Build one: encodeonce memory build"):
        Memory.open(tmp_path / "none")
    built(tmp_path / "run" / "memory")
    with pytest.raises(StoreError, match=r"There is no memory at .*run, but one at .*memory: name that\."):
        Memory.open(tmp_path / "run")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(StoreError, match=r"is no memory and not empty \(file\)"):
        Memory.create(tmp_path / "other", SPEC)
    memory, source = built(tmp_path / "m", 2)
    with pytest.raises(NotStored, match="has no passage 'x' and none cut from a text of that name"):
        memory.remove(["p0", "x"])
    assert len(memory) == 2
    with pytest.raises(NotStored, match="has no passage 'x' among its 2"):
        _ = memory["x"]
    with pytest.raises(NotStored, match=r"1 passages are not in .*, and nothing encodes states: give one"):
        memory.add(passages(1, 5))
    with pytest.raises(DataError, match="a second passage 'p7'"):
        memory.add([*passages(1, 7), *passages(1, 7)], source)
    with pytest.raises(StoreError, match="shows passages as 'plain' and has no vectors; asked for are 'fid'"):
        Memory.create(tmp_path / "m", SPEC, form="fid")
    Memory.create(tmp_path / "texts", None)
    with pytest.raises(StoreError, match=r"stores no states; a reader with memory needs view \[1\]"):
        Memory.open(tmp_path / "texts", SPEC)


def test_a_create_that_was_killed_stands_in_nobodys_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("encodeonce.memory.memory.write_atomically", killed)
        with pytest.raises(KeyboardInterrupt):
            Memory.create(tmp_path / "m", SPEC)
    assert [file.name for file in (tmp_path / "m").iterdir()] == ["states"]
    memory, _ = built(tmp_path / "m")
    assert len(memory) == 10
    (tmp_path / "m" / "memory.json").unlink()
    with pytest.raises(StoreError, match=r"is no memory and not empty \(passages-000000.jsonl\)"):
        Memory.create(tmp_path / "m", SPEC)
    for file in (tmp_path / "m").glob("passages*"):
        file.unlink()
    with pytest.raises(StoreError, match=r"is no memory and not empty \(states\)"):
        Memory.create(tmp_path / "m", SPEC)  # a store with something in it is another job's


def test_removing_a_text_takes_its_old_windows_too(tmp_path: Path) -> None:
    memory, source = Memory.create(tmp_path / "m", SPEC), Source()
    memory.add(windows([Passage("a", text="b c d e f"), Passage("z", text="g")], 2), source)
    memory.add([Passage("a", text="h")], source)
    assert [one.id for one in memory.passages] == ["a#1", "a#2", "a#3", "z", "a"]
    assert memory.remove(["a", "a#1"]) == 4
    assert [one.id for one in memory.passages] == ["z"]


def test_a_change_that_is_missing_is_named(tmp_path: Path) -> None:
    memory, source = built(tmp_path / "m", 2)
    for n in range(2, 5):
        memory.add(passages(1, n), source)
    lost = tmp_path / "m" / "passages-000001.jsonl"
    kept = lost.read_bytes()
    lost.unlink()
    with pytest.raises(CorruptStore, match=r"passages-000001\.jsonl is not there, and passages-000003\.jsonl came"):
        Memory.open(tmp_path / "m")
    lost.write_bytes(kept)
    memory.gc()
    assert len(Memory.open(tmp_path / "m")) == 5, "what gc took together is missed by nobody"
    old = tmp_path / "m" / "passages-000002.jsonl"
    old.write_bytes(kept)  # as where `gc` was killed among the files it takes away
    assert len(Memory.open(tmp_path / "m")) == 5


def test_changes_that_gc_takes_together_while_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, source = built(tmp_path / "m", 2)
    writer.add(passages(1, 2), source)
    read, taken = Path.read_bytes, False

    def late(path: Path) -> bytes:
        nonlocal taken
        if path.name.startswith("passages-") and not taken:
            taken = True
            writer.gc()
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", late)
    assert [one.id for one in Memory.open(tmp_path / "m").passages] == ["p0", "p1", "p2"]


def test_items_that_are_lost_are_not_unused(tmp_path: Path) -> None:
    memory, source = built(tmp_path / "m", 3)
    memory.add(passages(2, 3), source)
    memory.remove(["p0"])
    first = min((tmp_path / "m" / "states").glob("*.safetensors"), key=lambda file: -file.stat().st_size)
    held = len(Memory.open(tmp_path / "m").states or ())
    for file in (tmp_path / "m" / "states").glob(f"{first.stem}.*"):
        file.unlink()
    seen = Memory.open(tmp_path / "m").info()
    assert (held, seen["states"]["items"]) == (5, 2)
    assert (seen["unused_items"], seen["lost_items"]) == ({"states": 0}, {"states": 2}), "p1, p2; p0 was lost unused"


def test_counts_that_are_no_numbers_are_named(tmp_path: Path) -> None:
    memory, _ = built(tmp_path / "m", 2)
    for counts in ('{"p0": "x"}', '{"p0": null}', "[]", "3"):
        text = f'{{"asked": 1, "found": {counts}, "answered": {{}}}}'
        (tmp_path / "m" / "hits.json").write_text(text, encoding="utf-8")
        with pytest.raises(CorruptStore, match=r"hits.json was cut or changed.* Delete it: the counts begin again"):
            memory.hits()


def test_a_passage_without_an_id_is_refused(tmp_path: Path) -> None:
    memory, source = built(tmp_path / "m", 1)
    with pytest.raises(DataError, match=r"y\.tsv:3: the id of 'some text' is empty"):
        memory.add([Passage("", text="some text", place="y.tsv:3")], source)
    assert source.encoded == 1
