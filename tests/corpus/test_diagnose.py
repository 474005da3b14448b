"""What debug-data reports, against small data with known faults."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

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
        "dev: 1 documents without word or text, or second text of a pair (f)",
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


def test_two_texts_apart_are_long_where_one_of_them_is_and_words_of_both_count() -> None:
    """By hand: a text apart has a window of its own, so two windows are none too many, and three are."""
    pair = Document("p", ("Ana", "ran"), pair="go on now", meta={"y": "a"}, place="p:1", apart=True)
    long = Document("l", text="Ana ran", pair="x", meta={"y": "b"}, place="l:1", apart=True)
    cut = [replace(pieces(one, 9, windows=n), texts=2) for one, n in ((pair, 2), (long, 3))]
    train = diagnose({"train": [pair, long]}, ["y"], pieces={"train": cut}).splits["train"]
    assert (train.words, train.longest) == (2 + 3 + 2 + 1, 5)
    assert (train.over_long, train.over_long_places) == (1, ["l:1"])


def test_labels_of_documents_are_those_that_a_task_reads() -> None:
    """Counted by hand; null, nothing and no field are missing, "_" and "NA" are labels, true is written as in JSON."""
    given = [True, "true", "_", "NA", None, "", 3]
    documents = [Document(str(i), text="a", meta={"y": y}) for i, y in enumerate(given)]
    documents.append(Document("left out", text="a"))
    report = diagnose({"train": documents}, ["y"]).splits["train"].columns["y"]
    assert report.labels == {"true": 2, "_": 1, "NA": 1, "3": 1}
    assert report.missing == 3
    scores = [Document(str(i), text="a", meta={"y": y}) for i, y in enumerate([*map(str, range(30)), ""])]
    numbers = diagnose({"train": scores}, ["y"]).splits["train"].columns["y"]
    assert (numbers.numbers, numbers.missing) == ((0.0, 14.5, 29.0), 1)  # an empty cell makes no labels of numbers


def test_labels_that_are_no_column_are_named(tmp_path: Path) -> None:
    rows = [
        {"words": ["a", "b"], "pos": ["X", "Y"], "topics": ["t", "u", "v"], "spans": [[0], [1]]},
        {"words": ["c"], "pos": ["X", "Y"], "topics": []},
        {"words": ["d", "e"], "pos": ["X", None], "topics": []},
        {"words": ["f"], "pos": ["X"], "topics": []},
    ]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = diagnose({"x": read(tmp_path / "x.jsonl")}, ["pos", "topics"])
    report = found.splits["x"].columns["pos"]
    assert report.unfit == 2
    assert [place.partition("x.jsonl")[2] for place in report.unfit_places] == [
        ":2: 2 values for 1 words",
        ":3: word 2 has null; labels are strings",
    ]
    assert any("column 'pos': 2 documents do not have one label a word (" in problem for problem in found.problems)
    assert not any("topics" in problem for problem in found.problems)


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


GRAPHS = {
    "train": [
        # said twice; inside another and beginning alike; crossing
        ("a b c d", [("P", 0, 1), ("P", 0, 1), ("Q", 0, 2), ("P", 1, 3)], [("r", 0, 1), ("r", 0, 1), ("s", 2, 2)]),
        ("e f", [("Q", 1, 2)], []),
        ("g", [], []),
    ],
    "dev": [
        ("a b c d", [("P", 0, 3), ("Z", 3, 4)], [("t", 0, 1), ("r", 1, 0)]),
        ("h i", [("P", 1, 3)], []),
        ("h i", [("P", 1, 2)], [("r", 0, 4)]),
    ],
}


def graphs_of(split: str) -> list[Document]:
    def made(number: int, words: str, entities: Any, relations: Any) -> Document:
        meta = {
            "entities": [{"type": t, "start": a, "end": b} for t, a, b in entities],
            "relations": [{"type": t, "head": a, "tail": b} for t, a, b in relations],
        }
        return Document(f"{split}{number}", tuple(words.split()), meta=meta, place=f"{split}:{number}")

    return [made(number, *one) for number, one in enumerate(GRAPHS[split], 1)]


def test_entities_and_relations_are_counted_and_their_faults_named() -> None:
    found = diagnose({split: graphs_of(split) for split in GRAPHS})
    train, dev = (found.splits[split].graphs for split in ("train", "dev"))
    assert train is not None
    assert dev is not None
    assert (train.entities, train.relations) == ({"P": 3, "Q": 2}, {"r": 2, "s": 1})
    assert (train.without_entities, train.without_relations, train.longest) == (1, 2, 2)
    # distinct spans of the first: [0, 1) inside [0, 2), which crosses [1, 3)
    assert (train.nested, train.crossing, train.begin_alike) == (1, 2, 2)
    assert (train.repeated_entities, train.repeated_relations, train.loops) == (1, 1, 1)
    assert (train.unseen_entities, train.too_long, train.broken) == ({}, 0, 0)
    assert (dev.entities, dev.unseen_entities, dev.unseen_relations) == ({"P": 1, "Z": 1}, {"Z": 1}, {"t": 1})
    assert (dev.too_long, dev.broken, dev.places["too_long"]) == (1, 2, ["dev:1"])
    for line in (
        "train: 1 entities are said twice (train:1)",
        "train: 1 relations are of an entity with itself (train:1)",
        "dev: 1 entities are longer than any of train, so no model trained on it finds them (dev:1)",
        "dev: 1 entity types that train never has: Z 1 (dev:1)",
        "dev: 1 relation types that train never has: t 1 (dev:1)",
        "dev: 1 of 3 documents are in train too",
    ):
        assert line in found.problems
    (broken,) = (problem for problem in found.problems if "not of their words" in problem)
    assert broken.startswith("dev: 2 documents have entities")
    assert "dev:2: entity 0: words 1 to 3" in broken
    assert "dev:3: relation 0: 'tail' is entity 4" in broken
    assert "entities: P 3, Q 2; 1 documents have none" in str(found)
    assert json.loads(json.dumps(found.to_json()))["splits"]["dev"]["graphs"]["broken"] == 2
    assert diagnose({"train": TRAIN}).splits["train"].graphs is None


def test_counts_of_overlaps_equal_a_look_at_every_pair() -> None:
    rng = np.random.default_rng(3)
    documents, nested, crossing, alike = [], 0, 0, 0
    for number in range(30):
        starts = rng.integers(0, 8, size=5)
        spans = sorted({(int(a), int(a + rng.integers(1, 5))) for a in starts})
        words = [set(range(*span)) for span in spans]
        for i, own in enumerate(words):
            others = [other for j, other in enumerate(words) if j != i]
            nested += any(own <= other for other in others)
            crossing += any(own & other and own - other and other - own for other in others)
            alike += any(min(own) == min(other) for other in others)
        entities = [{"type": "P", "start": a, "end": b} for a, b in spans]
        documents.append(Document(str(number), tuple("abcdefghijklm"), meta={"entities": entities}))
    report = diagnose({"train": documents}).splits["train"].graphs
    assert report is not None
    assert (report.nested, report.crossing, report.begin_alike) == (nested, crossing, alike)


def test_documents_labels_of_a_list_count_each_and_numbers_have_a_range() -> None:
    def made(split: str, labels: list[list[str]], scores: list[float]) -> list[Document]:
        pairs = zip(labels, scores, strict=True)
        return [
            Document(f"{split}{i}", text="a text", pair="b", meta={"t": t, "score": s})
            for i, (t, s) in enumerate(pairs)
        ]

    train = made("train", [["x", "y"]] * 12 + [[]] * 13, [i / 4 for i in range(25)])
    dev = made("dev", [["y", "z"], ["x"]], [0.3, 9.0])
    found = diagnose({"train": train, "dev": dev}, ["t", "score"])
    assert found.splits["train"].columns["t"].labels == {"x": 12, "y": 12}
    assert found.splits["dev"].columns["t"].unseen == {"z": 1}
    assert found.splits["train"].columns["score"].numbers == (0.0, 3.0, 6.0)
    assert found.splits["dev"].columns["score"].unseen == {}
    assert found.splits["dev"].words == 6
    assert "score: numbers from 0 to 6, 3 on average" in str(found)


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
