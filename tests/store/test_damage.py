"""One changed byte or a cut file is found and named (CACHEIO-1)."""

import json
from pathlib import Path

import numpy as np
import pytest
from fake_source import FakeSource, documents, spec

from encodeonce.errors import CorruptStore, StoreError
from encodeonce.store import Store, verify
from encodeonce.store.format import Layout

N = 15


@pytest.fixture(params=["fp16", "int8"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    store = Store.open(tmp_path / "s", spec(dtype=request.param))
    store.fill(documents(N), FakeSource(), shard_bytes=3000)
    assert len(verify(tmp_path / "s")) > 1
    return tmp_path / "s"


def read_all(folder: Path) -> None:
    store = Store.open(folder)
    keys = [document.key for document in documents(N)]
    index = store.index(keys)
    store.batch(index)
    for position in index.tolist():
        store.word(position)


def flip(path: Path, position: int, change: int = 1) -> None:
    raw = bytearray(path.read_bytes())
    raw[position] ^= change
    path.write_bytes(raw)


def layout(folder: Path, shard: Path) -> Layout:
    manifest = json.loads(shard.with_suffix(".json").read_text())
    return Layout.of(Store.open(folder).spec, manifest["items"], manifest["rows"])


def test_a_flipped_byte_anywhere_is_found_and_named(folder: Path) -> None:
    """In every array, the header, the manifest and store.json: by reading everything once, and by `verify`."""
    generator = np.random.default_rng(0)
    shard = sorted(folder.glob("*.safetensors"))[1]
    whole = layout(folder, shard)
    ranges = {name: (place.start, place.start + place.nbytes) for name, place in whole.arrays.items()}
    ranges["header"] = (0, len(whole.header))
    places = [(shard, int(generator.integers(*pair))) for pair in ranges.values() for _ in range(6)]
    for path in (shard.with_suffix(".json"), folder / "store.json"):
        places += [(path, int(generator.integers(path.stat().st_size))) for _ in range(6)]
    for path, position in places:
        change = int(generator.integers(1, 256))
        flip(path, position, change)
        for look in (read_all, verify):
            with pytest.raises(StoreError, match=path.stem):
                look(folder)
        flip(path, position, change)
    read_all(folder)
    verify(folder)


def test_the_item_and_layer_are_named(folder: Path) -> None:
    store = Store.open(folder)
    position = int(store.index([documents(N)[6].key])[0])
    ((s, item),) = store._locate(np.array([position]))
    shard = store._shards[s]
    flip(shard.path, shard.span(item, 2, 3)[0])
    key = documents(N)[6].key[:12]
    wanted = rf"{shard.path.name}.*item {item} \(key {key}\.\.\.\), layers \[2\].*run the encoding again"
    with pytest.raises(CorruptStore, match=wanted):
        Store.open(folder).batch([position])
    with pytest.raises(CorruptStore, match=wanted):
        verify(folder)
    # what is read alone is checked alone, and is still right
    Store.open(folder).batch([position], (0, 1))
    with pytest.raises(CorruptStore, match=wanted):
        Store.open(folder).batch([position], (2,))


def test_verify_names_every_damaged_file(folder: Path) -> None:
    first, second = sorted(folder.glob("*.safetensors"))[:2]
    flip(first, first.stat().st_size - 1)
    second.write_bytes(second.read_bytes()[:-40])
    with pytest.raises(CorruptStore, match=rf"(?s){first.name}.*\n.*{second.name}"):
        verify(folder)


@pytest.mark.parametrize("lost", [1, 40, 5000])
def test_a_cut_file_is_found_when_the_store_is_opened(folder: Path, lost: int) -> None:
    shard = sorted(folder.glob("*.safetensors"))[0]
    shard.write_bytes(shard.read_bytes()[:-lost])
    with pytest.raises(CorruptStore, match=rf"{shard.name} has .* bytes, its manifest says .*Delete this file"):
        Store.open(folder)


@pytest.mark.parametrize("name", ["manifest", "store.json"])
def test_a_cut_manifest_is_found(folder: Path, name: str) -> None:
    path = folder / name if name == "store.json" else sorted(folder.glob("*.safetensors"))[0].with_suffix(".json")
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(CorruptStore, match=f"{path.stem}.*was cut or changed"):
        Store.open(folder)


def test_after_removing_the_named_file_only_its_items_are_redone(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    shard = sorted(folder.glob("*.safetensors"))[0]
    flip(shard, 4096)
    shard.unlink()
    with pytest.raises(CorruptStore, match=f"{shard.name} is gone, its manifest is still there"):
        Store.open(folder)
    shard.with_suffix(".json").unlink()
    source = FakeSource()
    store = Store.open(folder, Store.open(folder).spec)
    missing = store.missing([document.key for document in documents(N)])
    assert store.fill(documents(N), source, shard_bytes=3000).written == source.encoded == len(missing) < N
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_shard_of_another_store_is_refused(folder: Path, tmp_path: Path) -> None:
    Store.open(tmp_path / "t", spec(dtype="bf16")).fill(documents(3), FakeSource())
    for path in (tmp_path / "t").iterdir():
        if path.name != "store.json":
            (folder / path.name).write_bytes(path.read_bytes())
    with pytest.raises(CorruptStore, match="belongs to another store: dtype is 'bf16'"):
        Store.open(folder)


def test_when_hashes_are_looked_at(folder: Path) -> None:
    """first: the first read after opening; always: each one; never: none."""
    store = {when: Store.open(folder, verify=when) for when in ("first", "always", "never")}
    for one in store.values():
        one.batch(range(N))
    shard = store["first"]._shards[0]
    flip(shard.path, shard.span(0, 0, 1)[0])
    for when in ("first", "never"):
        store[when].batch([0])
    Store.open(folder, verify="never").batch([0])
    # the write above replaced the bytes of the same file, which the open mappings see
    with pytest.raises(CorruptStore, match=shard.path.name):
        store["always"].batch([0])
    with pytest.raises(CorruptStore, match=shard.path.name):
        Store.open(folder).batch([0])
