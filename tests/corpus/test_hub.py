"""Hugging Face datasets, in memory and saved."""

import io
import sys
from pathlib import Path

import pytest

from encodeonce.corpus import read, write
from encodeonce.errors import ConfigError, DataError, MissingExtra
from encodeonce.types import Document

datasets = pytest.importorskip("datasets", reason="needs the extra: pip install 'encodeonce[datasets]'")


@pytest.fixture(scope="module")
def tagged() -> "datasets.Dataset":
    features = datasets.Features(
        {
            "tokens": datasets.Sequence(datasets.Value("string")),
            "ner": datasets.Sequence(datasets.ClassLabel(names=["O", "B-PER"])),
            "topic": datasets.ClassLabel(names=["a", "b"]),
        }
    )
    rows = {"tokens": [["Ana", "ran"], ["ok"]], "ner": [[1, 0], [0]], "topic": [1, -1]}
    return datasets.Dataset.from_dict(rows, features=features)


def test_class_ids_become_names(tagged: "datasets.Dataset") -> None:
    first, second = read(tagged)
    assert (first.words, first.columns["ner"], first.meta["topic"]) == (("Ana", "ran"), ("B-PER", "O"), "b")
    assert second.meta["topic"] is None
    assert read(tagged, columns={"tag": "ner"})[0].columns["tag"] == ("B-PER", "O")
    with pytest.raises(DataError, match=r"Dataset:1: no field 'pos' \(tag\). There is: tokens, ner, topic"):
        read(tagged, columns={"tag": "pos"})


def test_saved_folders_and_splits(tagged: "datasets.Dataset", tmp_path: Path) -> None:
    tagged.save_to_disk(str(tmp_path / "one"))
    datasets.DatasetDict({"train": tagged, "dev": tagged.select([0])}).save_to_disk(str(tmp_path / "two"))
    assert [d.words for d in read(tmp_path / "one")] == [("Ana", "ran"), ("ok",)]
    assert [d.words for d in read(tmp_path / "two", split="dev")] == [("Ana", "ran")]
    with pytest.raises(ConfigError, match=r"split=None .*two: name one of its splits: train, dev, or .*: .*two/train"):
        read(tmp_path / "two")
    with pytest.raises(ConfigError, match="is one Dataset without splits"):
        read(tagged, split="train")
    with pytest.raises(DataError, match="is no folder written by save_to_disk"):
        read(tmp_path)
    with pytest.raises(ConfigError, match="list cannot be read"):
        read([1])


def test_predictions_are_saved_as_a_dataset(tagged: "datasets.Dataset", tmp_path: Path) -> None:
    tagged.save_to_disk(str(tmp_path / "one"))
    write(tmp_path / "out", tmp_path / "one", {"predicted": [("X", "Y"), ("Z",)]})
    assert [d.columns["predicted"] for d in read(tmp_path / "out")] == [("X", "Y"), ("Z",)]
    with pytest.raises(ConfigError, match="the target is a BytesIO: name a path"):
        write(io.BytesIO(), tmp_path / "one", {"predicted": [("X", "Y"), ("Z",)]})
    with pytest.raises(DataError, match="column 'predicted' has 1 values for 2 rows"):
        write(tmp_path / "out", tmp_path / "one", {"predicted": [("X", "Y")]})


def test_documents_keep_every_field_that_any_of_them_has(tmp_path: Path) -> None:
    documents = [
        Document("a", text="one", meta={"label": "x"}),
        Document("b", ("two", "words"), columns={"tag": ("A", "B")}, meta={"score": 1.5}),
        Document("c", text="three", pair="four", meta={"label": "y", "score": 2.0}),
    ]
    write(tmp_path / "out", documents, {"predicted": ["p", "q", "r"]}, format="hub")
    found = read(tmp_path / "out")
    assert [(d.id, d.text, d.words, d.pair) for d in found] == [(d.id, d.text, d.words, d.pair) for d in documents]
    assert [d.meta["label"] for d in found] == ["x", None, "y"]
    assert [d.meta["score"] for d in found] == [None, 1.5, 2.0]
    assert [d.meta["predicted"] for d in found] == ["p", "q", "r"]
    assert found[1].columns["tag"] == ("A", "B")
    mixed = [Document("a", text="one", meta={"label": "x"}), Document("b", text="two", meta={"label": {"y": 1}})]
    with pytest.raises(DataError, match=r"field 'label' cannot be a column of a Dataset.* Write jsonl"):
        write(tmp_path / "mixed", mixed, {}, format="hub")


def test_a_saved_dataset_without_rows_or_with_a_file_missing_is_named(
    tagged: "datasets.Dataset", tmp_path: Path
) -> None:
    datasets.Dataset.from_dict({"text": []}).save_to_disk(str(tmp_path / "none"))
    with pytest.raises(DataError, match=r"none holds no data set that can be read .*: it is empty"):
        read(tmp_path / "none")
    tagged.save_to_disk(str(tmp_path / "cut"))
    next((tmp_path / "cut").glob("*.arrow")).unlink()
    with pytest.raises(DataError, match=r"cut holds no data set .* was not copied whole"):
        read(tmp_path / "cut")


def test_without_the_package_the_command_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "state.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match=r"pip install 'encodeonce\[datasets\]'"):
        read(tmp_path)
