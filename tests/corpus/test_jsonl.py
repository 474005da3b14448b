"""JSON lines: no schema, errors that name the line, fields set and the rest kept."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from encodeonce.corpus import jsonl, read, write
from encodeonce.errors import ConfigError, DataError


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_READ_3_null_first_then_a_string_in_either_order(cases: Path, tmp_path: Path, order: str) -> None:
    expected = json.loads((cases / "READ-3.expected.json").read_text("utf-8"))
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"".join((cases / f"READ-3{letter}.jsonl").read_bytes() for letter in order))
    documents = read(path)
    assert len(documents) == expected["rows"]
    assert sorted([d.meta["note"] for d in documents], key=str) == sorted(expected["notes"], key=str)
    assert sorted(d.text for d in documents) == ["x", "y", "z"]


def test_words_labels_and_other_fields(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(
        '{"id": 7, "words": ["a", "b"], "labels": ["X", "Y"], "pos": ["N", "V"], "n": 1, "list": ["only one"]}\n\n'
        '{"tokens": ["c"], "labels": ["Z"]}\r\n',
        encoding="utf-8",
    )
    first, second = read(path)
    assert (first.id, first.words) == ("7", ("a", "b"))
    assert first.columns == {"labels": ("X", "Y"), "pos": ("N", "V")}
    assert first.meta == {"n": 1, "list": ["only one"]}
    assert (second.id, second.words, second.place) == ("x:2", ("c",), f"{path}:3")
    (renamed, _) = jsonl.read(path, columns={"tag": "labels"})
    assert renamed.columns["tag"] == ("X", "Y")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "a"', r"x.jsonl:2:\d+: bad JSON: "),
        ('["text"]', r"x.jsonl:2: a list, not an object"),
        ('{"label": 1}', r"x.jsonl:2: neither 'words' \(or 'tokens'\) nor 'text' nor 'sentences'. There is: label"),
        ('{"text": null}', r"x.jsonl:2: 'text' is a null; it must be a string"),
        ('{"text": 5}', r"x.jsonl:2: 'text' is a int; it must be a string"),
        ('{"words": "a b"}', r"x.jsonl:2: 'words' is a str; it must be a list of strings"),
        ('{"words": ["a", null]}', r"x.jsonl:2: 'words'\[1\] is a null \(None\)"),
        ('{"words": ["a"], "labels": [1]}', r"x.jsonl:2: 'labels'\[0\] is a int \(1\)"),
        ('{"words": ["a"], "labels": ["x", "y"]}', r"x.jsonl:2: 'labels' has 2 labels for 1 words"),
        ('{"text": "\\ud83d"}', r"x.jsonl:2: '\\ud83d' is half a surrogate pair"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"text": "\\ud83d\\ude00"}\n' + line + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read(path)


def test_the_id_may_have_another_name(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"guid": 7, "text": "a", "label": "x"}\n{"guid": null, "text": "b"}\n', encoding="utf-8")
    first, second = read(path, columns={"id": "guid"})
    assert (first.id, dict(first.meta)) == ("7", {"label": "x"})
    assert (second.id, dict(second.meta)) == ("x:2", {})


@pytest.mark.parametrize("name", ["x.jsonl", "x.csv"])
def test_a_field_that_gets_another_name_is_no_part_of_a_document(tmp_path: Path, name: str) -> None:
    fields = {"id": "7", "body": "a cat", "text": "dog", "pair": "yes", "tokens": "2"}
    lines = [json.dumps(fields)] if name == "x.jsonl" else [",".join(fields), ",".join(fields.values())]
    (tmp_path / name).write_text("\n".join(lines) + "\n")
    columns = {"text": "body", "animal": "text", "label": "pair", "n": "tokens", "number": "id"}
    (found,) = read(tmp_path / name, columns=columns)
    assert (found.id, found.text, found.pair, found.words) == ("x:1", "a cat", "", ())
    assert found.meta == {"animal": "dog", "label": "yes", "n": "2", "number": "7"}


def test_column_maps_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"sentence": "a", "y": "b"}\n', encoding="utf-8")
    (document,) = read(path, columns={"text": "sentence", "label": "y"})
    assert (document.text, document.meta) == ("a", {"label": "b"})
    with pytest.raises(DataError, match=r"x.jsonl:1: no field 'body' \(text\). There is: sentence, y"):
        read(path, columns={"text": "body"})
    with pytest.raises(ConfigError, match="'text' is 0; fields of this format are named"):
        read(path, columns={"text": 0})


def test_writing_sets_fields_and_keeps_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes('\ufeff{"text": "é😀", "label": null, "n": 1.50}\n\n{"text": "b"}'.encode())
    stream = io.BytesIO()
    jsonl.write(stream, path, {})
    assert stream.getvalue() == path.read_bytes()
    jsonl.write(tmp_path / "y.jsonl", path, {"label": ["yes", "no"], "labels": [("A", "B"), ["C"]]})
    assert (tmp_path / "y.jsonl").read_text("utf-8") == (
        '\ufeff{"text": "é😀", "label": "yes", "n": 1.5, "labels": ["A", "B"]}\n\n'
        '{"text": "b", "label": "no", "labels": ["C"]}\n'
    )
    with pytest.raises(DataError, match=r"field 'label' has values for 3 objects; there are 2"):
        jsonl.write(tmp_path / "y.jsonl", path, {"label": ["a", "b", "c"]})
    with pytest.raises(DataError, match=r"x.jsonl:3: field 'label' has values for 1 objects; there are more"):
        jsonl.write(tmp_path / "y.jsonl", path, {"label": ["a"]})


def test_documents_survive_writing_and_reading(tmp_path: Path) -> None:
    source, out = tmp_path / "x.conll", tmp_path / "y.jsonl"
    source.write_text("a\tX\nb\tY\n\nc\tZ\n", encoding="utf-8")
    documents = read(source)
    jsonl.write(out, documents, {})
    again = read(out)
    assert [(d.id, d.words, d.columns["tag"], d.key) for d in again] == [
        (d.id, d.words, d.columns["tag"], d.key) for d in documents
    ]


def test_sentences_are_read_and_written(tmp_path: Path) -> None:
    """A list of strings under "sentences"; without a text, the text is them; another kind of list stays meta."""
    path = tmp_path / "x.jsonl"
    path.write_text('{"sentences": ["A b.", "C."]}\n{"text": "a", "sentences": [["a"]]}\n', encoding="utf-8")
    own, other = read(path)
    assert (own.sentences, own.text) == (("A b.", "C."), "A b. C.")
    assert (other.sentences, other.meta) == ((), {"sentences": [["a"]]})
    jsonl.write(tmp_path / "y.jsonl", [own], {})
    assert read(tmp_path / "y.jsonl")[0].sentences == own.sentences
    path.write_text('{"text": "a", "s": [1]}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"'s'\[0\] is a int"):
        read(path, columns={"sentences": "s"})


def test_fields_called_like_a_documents_own_stay_beside_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, again = tmp_path / "x.jsonl", tmp_path / "y.jsonl"
    path.write_text('{"body": "the dog", "text": "TEASER", "words": 5, "pair": 3}\n', encoding="utf-8")
    (document,) = read(path, columns={"text": "body", "count": "words"})
    assert (document.text, document.meta["text"], document.meta["count"]) == ("the dog", "TEASER", 5)
    write(again, [document], {"label": ["a"]})
    (read_again,) = read(again)
    assert read_again.text == "the dog"
    assert read_again.meta == {"text_": "TEASER", "count": 5, "pair": 3, "label": "a"}
    assert "field 'text' is written as 'text_'" in caplog.text


def test_the_words_of_a_table_are_not_lost_to_a_column_of_that_name(tmp_path: Path) -> None:
    path, again = tmp_path / "x.csv", tmp_path / "y.jsonl"
    path.write_text("id,text,words\nr,the dog sees,5\n", encoding="utf-8")
    documents = [replace(one, words=tuple(one.text.split())) for one in read(path)]
    write(again, documents, {"upos": [("D", "N", "V")]})
    (found,) = read(again)
    assert (found.words, found.meta["words_"], found.columns["upos"]) == (("the", "dog", "sees"), "5", ("D", "N", "V"))


@pytest.mark.parametrize("line", ['{"text": "a", "n": ' + "1" * 5000 + "}", '{"text": "a", "n": ' + "[" * 100_000])
def test_json_that_python_gives_up_on_is_named(line: str, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(line + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"x\.jsonl:1: JSON that cannot be read: "):
        read(tmp_path / "x.jsonl")
