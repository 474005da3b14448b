"""Triples without positions: found, ambiguous, absent; the paper's WebNLG."""

import gzip
import json
import logging
from pathlib import Path

import pytest

from encodeonce.corpus import format_of, read
from encodeonce.errors import ConfigError, DataError
from encodeonce.graphs import UNTYPED, Graph, Relation
from encodeonce.spans import Span

from .conftest import graph, put, written

ONE = {"text": "Alan Bean was born in Wheeler .", "triple_list": [["Bean", "birthPlace", "Wheeler"]]}
TWICE = {
    "tokens": ["Lima", "beat", "Quito", "before", "Lima", "hosted", "Oslo"],
    "triples": [["Lima", "hosted", "Oslo"]],
}


def test_an_argument_that_occurs_once_has_its_place(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = put(tmp_path / "x.jsonl", ONE)
    assert format_of(path).name == "triples"
    (document,) = read(path)
    assert document.words == ("Alan", "Bean", "was", "born", "in", "Wheeler", ".")
    assert document.meta["text"] == ONE["text"]
    spans = (Span(UNTYPED, 1, 2), Span(UNTYPED, 5, 6))
    assert graph(document) == Graph(spans, (Relation("birthPlace", 0, 1),))
    assert "ambiguous" not in document.meta
    assert not caplog.records


def test_REL1_an_argument_that_occurs_twice_is_marked_or_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = put(tmp_path / "x.jsonl", ONE, TWICE)
    with caplog.at_level(logging.WARNING, "encodeonce"):
        document = read(path)[1]
    assert document.meta["ambiguous"] == ["Lima"]
    assert graph(document).entities[0].start == 0
    assert len(caplog.messages) == 1
    assert "1 of 2 triples (1 texts) name words that occur several times" in caplog.messages[0]
    with pytest.raises(DataError, match=r"x.jsonl:2: triple 0: 'Lima' occurs 2 times, at words 0, 4, .*format 'spert'"):
        read(path, ambiguous="refuse")
    with pytest.raises(ConfigError, match=r"ambiguous='last' is not known. There is: first, refuse"):
        read(path, ambiguous="last")


def test_arguments_of_several_words_and_other_blanks(tmp_path: Path) -> None:
    value = {"text": "New  York\u00a0City is in New\tYork", "triple_list": [["New York", "r", "in"]]}
    (document,) = read(put(tmp_path / "x.json", value))
    assert document.words == ("New", "York\u00a0City", "is", "in", "New", "York")
    assert graph(document).entities == (Span(UNTYPED, 4, 6), Span(UNTYPED, 3, 4))


def test_several_relations_of_a_pair_and_repeats_are_kept(tmp_path: Path) -> None:
    triples = [["a", "r", "b"], ["a", "s", "b"], ["a", "r", "b"], ["b", "r", "b"]]
    path = put(tmp_path / "x.jsonl", {"tokens": ["a", "b"], "triples": triples})
    (document,) = read(path)
    assert graph(document).relations == (
        Relation("r", 0, 1),
        Relation("s", 0, 1),
        Relation("r", 0, 1),
        Relation("r", 1, 1),
    )
    gold = {name: [document.meta[name]] for name in ("entities", "relations")}
    assert written(path, gold) == path.read_text("utf-8")


@pytest.mark.parametrize(("split", "texts", "triples"), [("dev", 499, 1117), ("test", 703, 1591)])
def test_the_papers_files_are_read_and_written_byte_by_byte(
    shared: Path, caplog: pytest.LogCaptureFixture, split: str, texts: int, triples: int
) -> None:
    path = shared / "data" / "joint_re" / "webnlg" / f"{split}.jsonl.gz"
    documents = read(path)
    graphs = [graph(document) for document in documents]
    assert (len(graphs), sum(len(one.relations) for one in graphs)) == (texts, triples)
    assert {(span.type, span.stop - span.start) for one in graphs for span in one.entities} == {(UNTYPED, 1)}
    for document, one in zip(documents, graphs, strict=True):
        for span in one.entities:
            assert document.words.index(document.words[span.start]) == span.start
    assert {"dev": "273 of 1117", "test": "424 of 1591"}[split] in caplog.text
    gold = {name: [one.to_json()[name] for one in graphs] for name in ("entities", "relations")}
    assert written(path, gold) == gzip.decompress(path.read_bytes()).decode("utf-8")
    assert [graph(d) for d in documents] == graphs


def test_predictions_become_triples_and_lonely_entities_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = put(tmp_path / "x.jsonl", ONE)
    spans = [{"type": UNTYPED, "start": s, "end": e} for s, e in ((0, 2), (5, 6), (6, 7))]
    found = {"entities": [spans], "relations": [[{"type": "bornIn", "head": 0, "tail": 1}]]}
    value = json.loads(written(path, found))
    assert value == ONE | {"triple_list": [["Alan Bean", "bornIn", "Wheeler"]]}
    assert "1 entities of no relation are not written" in caplog.text
    made = json.loads(written(read(path), found, format="triples"))
    assert made["triples"] == value["triple_list"]
    with pytest.raises(ConfigError, match="give 'entities' and 'relations'; there is tag"):
        written(path, {"tag": [()]})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"triple_list": [["Bean", "r", "Dallas"]]},
            "triple 0: 'Dallas' is not in the text, whose words are divided by bl",
        ),
        ({"triple_list": [["Bean", "r"]]}, r"triple 0 is \['Bean', 'r'\]; it must be \[head, relation, tail\]"),
        ({"triple_list": [["Bean", 1, "Wheeler"]]}, "triple 0 is"),
        ({"triple_list": "none"}, "the triples must be a list"),
        ({"text": None}, "neither 'text', a string, nor 'tokens'"),
    ],
)
def test_errors_name_file_and_line(tmp_path: Path, change: dict, message: str) -> None:
    path = put(tmp_path / "x.jsonl", ONE, ONE | change)
    with pytest.raises(DataError, match=rf"x.jsonl:2: {message}"):
        read(path)
