"""Objects of a file: one a line or in an array, their lines, and rewriting that keeps every other byte."""

import json
import random
from pathlib import Path

import pytest

from encodeonce.corpus._objects import Objects, has_fields, opens_with
from encodeonce.errors import DataError

ARRAY = '[\n {"a" : 1.50, "b":[1,  2], "é": "\\u00e9"},\n\n {"b": [], "a": {"x": 1e3}}  ]\n'
LINES = '{"a" : 1.50, "b":[1,  2]}\r\n\r\n{"b": [], "a": null}'


@pytest.mark.parametrize(
    ("text", "at"), [(ARRAY, (2, 4)), (LINES, (1, 3)), ("\ufeff" + LINES, (1, 3)), ("", ()), ("[]", ())]
)
def test_every_object_with_its_line(tmp_path: Path, text: str, at: tuple[int, ...]) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(text.encode())
    found = Objects.read(path)
    assert found.at == at
    assert [json.loads(found.text[start:stop]) for start, stop in found.spans] == list(found.values)
    assert "".join(found.rewritten([{}] * len(at))) == text
    assert "".join(found.rewritten(found.values)) == text


def test_set_fields_change_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(ARRAY, encoding="utf-8")
    found = Objects.read(path)
    changed = "".join(found.rewritten([{"b": ["new"], "a": 1.5}, {"c": True, "b": [7], "d": "ü"}]))
    assert changed == (
        '[\n {"a" : 1.50, "b":["new"], "é": "\\u00e9"},\n\n {"b": [7], "a": {"x": 1e3}, "c": true, "d": "ü"}  ]\n'
    )
    path.write_text("{}\n{ }", encoding="utf-8")
    assert "".join(Objects.read(path).rewritten([{"a": 1}, {"a": 2}])) == '{"a": 1}\n{"a": 2 }'


def test_rewriting_equals_json_on_random_objects(tmp_path: Path) -> None:
    rng, path = random.Random(2), tmp_path / "x.jsonl"
    values = [
        {k: rng.choice([None, [1, {"k": "]}"}], '"\\', 0.1]) for k in rng.sample("abcd", rng.randint(0, 4))}
        for _ in range(60)
    ]
    changes = [{k: rng.choice([None, [2], "ü"]) for k in rng.sample("abcdef", rng.randint(0, 3))} for _ in range(60)]
    path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    text = "".join(Objects.read(path).rewritten(changes))
    assert [json.loads(line) for line in text.split("\n") if line] == [
        v | c for v, c in zip(values, changes, strict=True)
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1}\n{"a": }\n', r"x.json:2:7: bad JSON: Expecting value"),
        ('[{"a": 1},\n {"a": 2}', r"x.json:2:10: ',' or '\]' was expected after an object"),
        ('[{"a": 1},', r"x.json:1:11: the array is not closed; the file may have been cut"),
        ('[{"a": 1} {"a": 2}]', r"x.json:1:11: ',' or '\]' was expected"),
        ('[{"a": 1}] x', r"x.json:1:10: 'x' after the end of the array"),
        ("[1]", r"x.json:1:2: a int, not an object"),
        ('["a"]\n', r"x.json:1:2: a str, not an object"),
        ('{"a": "\\ud83d"}', r"x.json:1:1: half a surrogate pair"),
    ],
)
def test_what_is_no_object_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        Objects.read(path)


def test_the_first_object_of_a_file_is_found_over_many_lines(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("\ufeff\n" + json.dumps([{"a": list(range(50))}, {"b": 1}], indent=2), encoding="utf-8")
    assert opens_with(path) == {"a": list(range(50))}
    for text in ("", "[", "[1]", "words\n", '{"a": 1'):
        path.write_text(text, encoding="utf-8")
        assert opens_with(path) is None
    path.write_bytes(b'{"a": "\xff"}')
    assert opens_with(path) is None


@pytest.mark.parametrize("value", [None, 1, "text", [1], True])
def test_what_is_no_object_has_no_fields(value: object) -> None:
    assert not has_fields(value, text=str)
    assert not has_fields({"text": value}, text=dict)
