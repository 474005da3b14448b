"""`store ls|info|verify|gc` on a real small store."""

import json
import shutil
from pathlib import Path

import pytest

from encodeonce.store.format import FORMAT, sealed

from .conftest import Run


@pytest.fixture
def store(run: Run, tiny: Path, corpus: Path, tmp_path: Path) -> Path:
    run("encode", "-e", tiny, "-o", tmp_path / "deep" / "s", corpus / "dev.conllu")
    return tmp_path / "deep" / "s"


def test_ls_of_a_store_and_of_a_folder(run: Run, store: Path, tmp_path: Path) -> None:
    shards = json.loads(run("store", "ls", store, "--json").stdout)
    assert [shard["items"] for shard in shards] == [json.loads(run("store", "info", store, "--json").stdout)["items"]]
    assert str(shards[0]["name"]) in run("store", "ls", store).stdout
    found = json.loads(run("store", "ls", tmp_path, "--json").stdout)
    assert [row["path"] for row in found] == [str(store)]


def test_ls_without_a_store_says_what_to_do(run: Run, tmp_path: Path) -> None:
    assert "There is no store at or below" in run("store", "ls", tmp_path, code=1).stderr


def test_ls_of_a_folder_shows_a_damaged_store_beside_the_others(run: Run, store: Path, tmp_path: Path) -> None:
    for name, change in (("damaged", lambda raw: raw.replace(b'"width"', b'"wide"')), ("older", None), ("void", None)):
        shutil.copytree(store, tmp_path / "deep" / name)
        path = tmp_path / "deep" / name / "store.json"
        path.chmod(0o644)
        values = json.loads(path.read_bytes())
        content = b"" if name == "void" else sealed({"format": FORMAT + 1, "spec": values["spec"]})
        path.write_bytes(change(path.read_bytes()) if change else content)
    found = {Path(row["path"]).name: row for row in json.loads(run("store", "ls", tmp_path, "--json").stdout)}
    assert {name: row.get("state") for name, row in found.items()} == {
        "damaged": "damaged",
        "older": "unreadable",
        "s": None,
        "void": "damaged",
    }
    assert found["s"] == json.loads(run("store", "info", store, "--json").stdout)
    assert "its checksum does not fit" in found["damaged"]["problem"]
    shown = run("store", "ls", tmp_path)
    assert [line.count("damaged") for line in shown.stdout.splitlines() if "deep/damaged" in line] == [6]
    assert "deep/void cannot be read: " in shown.stderr


def test_info_names_what_made_it(run: Run, store: Path, tiny: Path) -> None:
    text = run("store", "info", store).stdout
    assert str(tiny) in text
    assert "0, 1, 2" in text


def test_verify_names_a_flipped_byte(run: Run, store: Path) -> None:
    assert "1 shards, all sound" in run("store", "verify", store).stdout
    shard = next(store.glob("*.safetensors"))
    data = bytearray(shard.read_bytes())
    data[5000] ^= 1
    shard.chmod(0o644)
    shard.write_bytes(data)
    assert shard.name in run("store", "verify", store, code=1).stderr


def test_gc_removes_leftovers_only(run: Run, store: Path) -> None:
    leftover = store / f"{'0' * 32}.safetensors.tmp"
    leftover.write_bytes(b"half")
    assert json.loads(run("store", "gc", store, "--dry-run", "--json").stdout)["would_remove"] == [leftover.name]
    assert leftover.exists()
    assert "1 files removed" in run("store", "gc", store).stdout
    assert not leftover.exists()
    assert "all sound" in run("store", "verify", store).stdout


def test_gc_to_a_size(run: Run, store: Path) -> None:
    assert len(json.loads(run("store", "gc", store, "--max-gb", "0.000001", "--json").stdout)["removed"]) == 2
