"""What debug-data reports, against small data with known faults."""

import json
from pathlib import Path

import numpy as np
import pytest

from encodeonce.corpus import read
from encodeonce.corpus.diagnose import diagnose
from encodeonce.errors import ConfigError
from encodeonce.types import Document, Pieces


def tagged(words: str, tags: str, name: str) -> Document:
    return Document(name, tuple(words.split()), columns={"tag": tuple(tags.split())}, place=f"{name}:1")


TRAIN = [tagged("Ana ran", "B-PER O", "a"), tagged("Ana ran", "B-PER O", "b"), tagged("go on", "O O", "b")]
DEV = [
    tagged("Ana ran", "B-PER O", "c"),
    tagged("x y z", "I-LOC O I-LOC", "d"),
    tagged("Oslo", "B-LOC", "e"),
    Document("f"),
]


def test_counts_labels_repeats_overlap_and_schemes() -> None:
    found = diagnose({"train": TRAIN, "dev": DEV}, ["tag"])
    train, dev = found.splits["train"], found.splits["dev"]
    assert (train.documents, train.words, train.longest) == (3, 6, 2)
    assert train.columns["tag"].labels == {"O": 4, "B-PER": 2}
    assert (train.duplicates, train.duplicate_places, train.repeated_ids) == (1, ["b:1"], 1)
    assert (dev.empty, dev.empty_places) == (1, ["f"])
    assert found.overlap == {"train/dev": 1}
    report = dev.columns["tag"]
    assert report.unseen == {"I-LOC": 2, "B-LOC": 1}
    assert report.unseen_places == {"I-LOC": "d:1", "B-LOC": "e:1"}
    assert (report.scheme, report.spans, report.spans_beginning_with_i) == ("mixed", 4, 2)
    assert train.columns["tag"].unseen == {}
    for line in (
        "train: 1 documents repeat an earlier one (b:1)",
        "train: 1 documents have an id that is used before",
        "dev: 1 documents without word or text (f)",
        "dev: column 'tag' has 2 labels that train never has: I-LOC (2, d:1), B-LOC (1, e:1)",
        "dev: column 'tag' has 2 spans that begin with I-",
        "column 'tag' is tagged by different schemes: train IOB2, dev mixed",
        "dev: 1 of 4 documents are in train too",
    ):
        assert line in found.problems
        assert f"- {line}" in str(found)
    assert json.loads(json.dumps(found.to_json()))["overlap"] == {"train/dev": 1}


def pieces(document: Document, n: int, windows: int = 1, unknown: tuple[int, ...] = ()) -> Pieces:
    rows = np.zeros(n, np.int32)
    return Pieces(document.key, rows, rows, len(document.words), ((0, n, 0, n),) * windows, unknown)


def test_pieces_say_long_documents_and_words_without_pieces() -> None:
    cut = [pieces(TRAIN[0], 4, unknown=(1,)), pieces(TRAIN[1], 4), pieces(TRAIN[2], 9, windows=2)]
    found = diagnose({"train": TRAIN}, ["tag"], pieces={"train": cut})
    train = found.splits["train"]
    assert (train.pieces, train.words_without_pieces, train.over_long) == (17, 1, 1)
    assert train.words_without_pieces_places == ["a:1: word 1 'ran'"]
    assert "train: 1 words have no piece of their own (a:1: word 1 'ran')" in found.problems
    assert "train: 1 documents are longer than the encoder's window, and are read in parts (b:1)" in found.problems
    assert "17, 2.83 a word" in str(found)
    with pytest.raises(ConfigError, match="2 pieces for the 3 documents of 'train'"):
        diagnose({"train": TRAIN}, pieces={"train": cut[:2]})
    with pytest.raises(ConfigError, match="pieces of 'train' are not those of its documents: a:1 differs"):
        diagnose({"train": TRAIN}, pieces={"train": cut[::-1]})


def test_clean_data_has_no_problems() -> None:
    found = diagnose({"train": [TRAIN[0], TRAIN[2]]}, ["tag"])
    assert found.problems == []
    assert str(found).endswith("Problems\nnone")


def test_labels_of_documents_and_LABELS_2(cases: Path) -> None:
    found = diagnose({"train": read(cases / "LABELS-2-single.jsonl")}, ["label"])
    assert found.splits["train"].columns["label"].labels == {"yes": 3}
    assert found.problems == ["train: column 'label' has one label only: 'yes'"]
    one = diagnose({"train": read(cases / "LABELS-2-one.jsonl")}, ["label"])
    assert "train: one example" in one.problems
    with pytest.raises(ConfigError, match=r"no document has a column or field 'topic'. There is: label"):
        diagnose({"train": read(cases / "LABELS-2-one.jsonl")}, ["topic"])


def test_LABELS_1_unseen_labels_are_listed_once(cases: Path) -> None:
    splits = {name: read(cases / f"LABELS-1-{name}.conll") for name in ("train", "dev")}
    found = diagnose(splits, ["tag"])
    expected = json.loads((cases / "LABELS-1.expected.json").read_text("utf-8"))
    assert list(found.splits["dev"].columns["tag"].unseen) == expected["dev_unseen"]
    assert sum("train never has" in problem for problem in found.problems) == 1


def test_treebank_overlap_equals_a_look_at_every_pair_of_sentences(unchecked: None, shared: Path) -> None:
    folder = shared / "data" / "ud" / "en_ewt"
    splits = {name: read(folder / f"en_ewt-ud-{name}.conllu.gz") for name in ("dev", "test")}
    found = diagnose(splits, ["upos"])
    seen = [document.words for document in splits["dev"]]
    assert found.overlap["dev/test"] == sum(document.words in seen for document in splits["test"]) > 25
    assert len(found.splits["test"].columns["upos"].labels) == 17
    assert found.splits["test"].columns["upos"].scheme is None
