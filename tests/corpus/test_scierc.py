"""SciERC's form: offsets through a document, ends included; read by sentence and written back."""

import json
from pathlib import Path

import pytest

from encodeonce.corpus import format_of, read, write
from encodeonce.errors import ConfigError, DataError
from encodeonce.graphs import Graph, Relation
from encodeonce.spans import Span

from .conftest import graph, put, written

ONE = {
    "doc_key": "D1",
    "sentences": [["We", "parse", "trees", "."], [], ["Trees", "help", "parsing", "of", "trees", "."]],
    "ner": [[[2, 2, "Material"]], [], [[4, 4, "Material"], [6, 8, "Task"], [8, 8, "Material"]]],
    "relations": [[], [], [[4, 4, 6, 8, "Used-for"], [8, 8, 6, 8, "Part-of"], [4, 4, 6, 8, "Part-of"]]],
    "clusters": [[[2, 2], [4, 4]]],
}


def test_sentences_with_offsets_of_their_own(tmp_path: Path) -> None:
    path = put(tmp_path / "x.jsonl", ONE, ONE | {"doc_key": "D2"})
    assert format_of(path).name == "scierc"
    documents = read(path)
    assert [document.id for document in documents] == ["D1:1", "D1:3", "D2:1", "D2:3"]
    assert documents[2].place == f"{path}:2"
    assert documents[0].meta["document"] == {"clusters": ONE["clusters"]}
    assert graph(documents[0]) == Graph((Span("Material", 2, 3),), ())
    assert graph(documents[1]) == Graph(
        (Span("Material", 0, 1), Span("Task", 2, 5), Span("Material", 4, 5)),
        (Relation("Used-for", 0, 1), Relation("Part-of", 2, 1), Relation("Part-of", 0, 1)),
    )


def test_gold_written_back_is_the_file_and_documents_make_its_objects(tmp_path: Path) -> None:
    path = put(tmp_path / "x.jsonl", ONE, ONE | {"doc_key": "D2"})
    documents = read(path)
    gold = {name: [d.meta[name] for d in documents] for name in ("entities", "relations")}
    assert written(path, gold) == path.read_text("utf-8")
    assert written(path, {}) == path.read_text("utf-8")
    whole = [ONE["sentences"][0], ONE["sentences"][2]]
    for text in (written(documents, gold, format="scierc"), written(documents, {}, format="scierc")):
        first = json.loads(text.split("\n")[0])
        assert first == ONE | {"sentences": whole, "ner": ONE["ner"][::2], "relations": ONE["relations"][::2]}


def test_predictions_are_counted_through_the_document(tmp_path: Path) -> None:
    path = put(tmp_path / "x.jsonl", {k: ONE[k] for k in ("doc_key", "sentences")})
    spans = [{"type": "A", "start": 0, "end": 1}, {"type": "B", "start": 2, "end": 4}]
    found = {"entities": [[], spans], "relations": [[], [{"type": "r", "head": 1, "tail": 0}]]}
    value = json.loads(written(path, found))
    assert value["ner"] == [[], [], [[4, 4, "A"], [6, 7, "B"]]]
    assert value["relations"] == [[], [], [[6, 7, 4, 4, "r"]]]
    with pytest.raises(DataError, match="'entities' has values for 1 sentences; there are 2 that have words"):
        written(path, {"entities": [[]], "relations": [[]]})
    with pytest.raises(ConfigError, match="'entities' and 'relations', both at once; there is entities"):
        written(path, {"entities": [[], []]})


def test_real_sentences_survive_the_form(shared: Path, tmp_path: Path) -> None:
    documents = read(shared / "data" / "joint_re" / "scierc" / "test.jsonl.gz")
    target = tmp_path / "x.jsonl"
    write(target, documents, {}, format="scierc")
    again = read(target)
    assert [d.words for d in again] == [d.words for d in documents]
    assert [graph(d) for d in again] == [graph(d) for d in documents]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"ner": [[[3, 4, "A"]], [], []]},
            "sentence 1: entity 0, words 3 to 4, is not in the sentence, whose words are 0 to 3",
        ),
        (
            {"ner": [[], [], [[4, 10, "A"]]]},
            "sentence 3: entity 0, words 4 to 10, is not in the sentence, whose words are 4 to 9",
        ),
        ({"ner": [[[2, 1, "A"]], [], []]}, "sentence 1: entity 0, words 2 to 1"),
        (
            {"ner": [[[2, "A"]], [], []]},
            r"sentence 1: entity 0 is \[2, 'A'\]; it must be \[first word, last word, type\]",
        ),
        (
            {"relations": [[], [], [[4, 4, 5, 5, "r"]]]},
            r"sentence 3: relation 0 \(r\): words 5 to 5 are no entity of this",
        ),
        (
            {"relations": [[], [], [[2, 2, 4, 4, "r"]]]},
            r"sentence 3: relation 0 \(r\): words 2 to 2 are no entity of this",
        ),
        ({"relations": [[], [], [[4, 4, 6, "r"]]]}, r"sentence 3: relation 0 is \[4, 4, 6, 'r'\]; it must be"),
        ({"ner": [[], []]}, "'ner' must have one list a sentence, 3 of them; there is 2 entries"),
        ({"ner": None}, "sentence 3: relations, but the object has no field 'ner'"),
        ({"sentences": ["a"]}, "'sentences' must be a list of lists of words"),
    ],
)
def test_errors_name_file_line_and_sentence(tmp_path: Path, change: dict, message: str) -> None:
    path = put(tmp_path / "x.jsonl", ONE, ONE | change)
    with pytest.raises(DataError, match=rf"x.jsonl:2: {message}"):
        read(path, format="scierc")


def test_fields_have_fixed_names(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="fixed names"):
        read(put(tmp_path / "x.jsonl", ONE), columns={"words": "sentences"})
