"""The second text of a pair: read under the user's names, written back, still one where it is empty."""

import gzip
import json
from pathlib import Path

import pytest

from encodeonce.corpus import read, write
from encodeonce.corpus.text import split
from encodeonce.errors import DataError
from encodeonce.types import Document


@pytest.mark.parametrize("name", ["x.csv", "x.tsv", "x.jsonl"])
def test_pairs_by_the_users_names_and_by_ours(tmp_path: Path, name: str) -> None:
    for columns, fields in (({"text": "one", "pair": "two"}, ("one", "two")), (None, ("text", "pair"))):
        path = tmp_path / name
        if name == "x.jsonl":
            path.write_text(json.dumps({fields[0]: "a", fields[1]: "b c", "label": "x"}) + "\n", encoding="utf-8")
        else:
            comma = "," if name == "x.csv" else "\t"
            path.write_text(f"{fields[0]}{comma}{fields[1]}{comma}label\na{comma}b c{comma}x\n", encoding="utf-8")
        (document,) = read(path, columns=columns)
        assert (document.text, document.pair, document.meta) == ("a", "b c", {"label": "x"})


def test_pairs_by_number_in_a_table_without_header(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    path.write_text("1\ta\tb\n0\tc\td\n", encoding="utf-8")
    rows = read(path, columns={"label": 0, "text": 1, "pair": 2})
    assert [(d.text, d.pair, d.meta["label"]) for d in rows] == [("a", "b", "1"), ("c", "d", "0")]


@pytest.mark.parametrize("name", ["x.csv", "x.tsv", "x.jsonl"])
def test_an_item_without_its_second_text_stays_a_pair_and_is_empty(tmp_path: Path, name: str) -> None:
    path, rows = tmp_path / name, [("a", "b"), ("a", " "), ("a", ""), ("", "b")]
    if name == "x.jsonl":
        lines = [json.dumps({"text": text, "pair": pair}) for text, pair in rows]
    else:
        lines = [("," if name == "x.csv" else "\t").join(row) for row in (("text", "pair"), *rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert [(bool(one.pair), one.empty) for one in read(path)] == [(True, False), *[(True, True)] * 3]


def test_a_json_field_pair_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"text": "a", "pair": null}\n{"text": "b", "pair": [1, 2]}\n{"text": "c"}\n', encoding="utf-8")
    first, second, third = read(path)
    assert (first.pair, second.pair, second.meta, third.pair) == ("", "", {"pair": [1, 2]}, "")
    path.write_text('{"text": "a", "pair": "b"}\n{"text": "b", "pair": [1, 2]}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"x.jsonl:2: 'pair' is a list; it must be a string"):
        read(path, columns={"pair": "pair"})


@pytest.mark.parametrize("name", ["y.csv", "y.tsv", "y.jsonl"])
def test_pairs_are_written_and_read_again(tmp_path: Path, name: str) -> None:
    documents = [Document("1", text="a", pair="b", meta={"g": "x"}), Document("2", text="c", pair='d "e"')]
    write(tmp_path / name, documents, {"label": ["1", "0"]})
    again = read(tmp_path / name)
    assert [(d.id, d.text, d.pair, d.meta["label"]) for d in again] == [("1", "a", "b", "1"), ("2", "c", 'd "e"', "0")]
    assert [d.key for d in again] == [d.key for d in documents]


def test_a_pair_is_not_cut_into_sentences() -> None:
    with pytest.raises(DataError, match="f:1: a pair of texts is not cut into sentences"):
        split(Document("d", text="A. B.", pair="C.", place="f:1"))


def test_the_glue_files_are_read_under_their_names(shared: Path) -> None:
    folder = shared / "data" / "glue"
    columns = {"text": "text_a", "pair": "text_b"}
    for name, size in (("mrpc", 408), ("rte", 277), ("stsb", 1500)):
        rows = read(folder / name / "dev.jsonl.gz", columns=columns)
        with gzip.open(folder / name / "dev.jsonl.gz", "rt", encoding="utf-8") as stream:
            lines = [json.loads(line) for line in stream]
        assert len(rows) == len(lines) == size
        assert [(d.text, d.pair, d.meta["label"]) for d in rows] == [
            (line["text_a"], line["text_b"], line["label"]) for line in lines
        ]
