"""Bytes on disk: layout, names, estimate, and another reader's view of them."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from fake_source import FakeSource, documents, spec, states
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from encodeonce.errors import ConfigError, StoreError
from encodeonce.store import Store, estimate, ls
from encodeonce.store.format import Layout, key_bytes, parse_sealed, sealed, shard_size


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16", "int8"])
@pytest.mark.parametrize("width", [8, 3])
def test_safetensors_own_reader_opens_a_shard(tmp_path: Path, dtype: str, width: int) -> None:
    """No format of our own: names, types, shapes and values as the header docstring says, whatever the alignment."""
    store = Store.open(tmp_path / "s", spec(dtype=dtype, width=width))
    given_documents = documents(6)
    store.fill(given_documents, FakeSource(width))
    (line,) = ls(tmp_path / "s")
    with safe_open(tmp_path / "s" / f"{line['name']}.safetensors", "pt") as shard:
        assert set(shard.keys()) == {"states", "offsets", "xxh3", "keys", "word"} | (
            {"scales", "channel_rms"} if dtype == "int8" else set()
        )
        assert json.loads(shard.metadata()["spec"]) == store.spec.to_json()
        assert shard.metadata()["format"] == "encodeonce-1"
        offsets, rows = shard.get_tensor("offsets"), shard.get_tensor("states")
        assert rows.dtype == {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}.get(
            dtype, torch.int8
        )
        assert shard.get_tensor("keys").numpy().tobytes() == b"".join(bytes.fromhex(d.key) for d in given_documents)
        for i, document in enumerate(given_documents):
            record = rows[offsets[i] * 4 : offsets[i + 1] * 4].view(4, -1, width)
            due = torch.from_numpy(states(document.key, range(4), len(document.words) + 2, width))
            if dtype == "int8":
                scale = shard.get_tensor("scales")[offsets[i] * 4 : offsets[i + 1] * 4].view(4, -1, 1).float()
                read = record.float() * scale * shard.get_tensor("channel_rms")[:, None]
                torch.testing.assert_close(read, due, rtol=0, atol=0.04)
            else:
                assert torch.equal(record, due.to(record.dtype))


def test_states_begin_on_a_page_and_names_come_from_the_keys(tmp_path: Path) -> None:
    store = Store.open(tmp_path, spec())
    store.fill(documents(5), FakeSource())
    (line,) = ls(tmp_path)
    keys = b"".join(bytes.fromhex(document.key) for document in documents(5))
    assert line["name"] == hashlib.sha256(keys).hexdigest()[:32]
    assert Layout.of(store.spec, 5, 20).arrays["states"].start == 4096
    assert line["bytes"] == shard_size(store.spec, line["items"], line["rows"])


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16", "int8"])
@pytest.mark.parametrize("shard_bytes", [30_000, 256 * 2**20])
def test_estimate_is_within_one_percent_of_the_folder(tmp_path: Path, dtype: str, shard_bytes: int) -> None:
    wide = spec(dtype=dtype, width=64)
    store = Store.open(tmp_path, wide)
    before = (tmp_path / "store.json").stat().st_size
    given_documents = documents(400)
    store.fill(given_documents, FakeSource(64), shard_bytes=shard_bytes)
    rows = sum(len(document.words) + 2 for document in given_documents)
    written = sum(path.stat().st_size for path in tmp_path.iterdir()) - before
    assert abs(estimate(wide, rows, 400, shard_bytes) - written) <= 0.01 * written
    if shard_bytes > 10**8:
        assert store.estimate(rows, 400) == estimate(wide, rows, 400)
    assert store.estimate(0, 0) == 0


def test_int8_takes_at_most_0_52_of_fp16() -> None:
    """MiniLM's shape, a million rows in 35,000 sentences."""
    sizes = {
        dtype: estimate(spec(dtype=dtype, width=384, n_blocks=6, layers=tuple(range(7))), 10**6, 35_000)
        for dtype in ("fp16", "int8")
    }
    assert sizes["int8"] <= 0.52 * sizes["fp16"]


def test_an_item_key_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="key 1 is 'short'"):
        key_bytes(["0" * 64, "short"])
    with pytest.raises(ConfigError, match="not hexadecimal"):
        key_bytes(["z" * 64])


def test_another_format_version_is_refused_by_number(tmp_path: Path) -> None:
    (tmp_path / "store.json").write_bytes(sealed({"format": 7, "spec": spec().to_json()}))
    with pytest.raises(StoreError, match="has format 7; this version reads format 1"):
        Store.open(tmp_path)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_byte_of_a_sealed_file_can_change_unseen(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("sealed") / "a.json"
    raw = bytearray(sealed({"format": 1, "items": 12, "layers": [0, 1]}))
    position = data.draw(st.integers(0, len(raw) - 1))
    raw[position] ^= data.draw(st.integers(1, 255))
    path.write_bytes(raw)
    with pytest.raises(StoreError, match=r"a\.json"):
        parse_sealed(path)
    path.write_bytes(sealed({"format": 1, "items": 12, "layers": [0, 1]}))
    assert parse_sealed(path) == {"format": 1, "items": 12, "layers": [0, 1]}


def test_a_store_holds_nothing_of_time_or_place(tmp_path: Path) -> None:
    """Equal content in two folders at two times is equal bytes."""
    for name in ("a", "b"):
        Store.open(tmp_path / name, spec()).fill(documents(9), FakeSource(), shard_bytes=1000)
    first, second = ({p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in ("a", "b"))
    assert first == second
    assert len(first) > 4
    assert np.all([str(tmp_path).encode() not in content for content in first.values()])
