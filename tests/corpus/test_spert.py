"""SpERT's form: the field case, the real files, and predictions written into them."""

import json
from pathlib import Path

import pytest

from encodeonce.corpus import format_of, read, write
from encodeonce.errors import ConfigError, DataError

from .conftest import graph, put, written

ONE = {
    "tokens": ["a", "b", "c"],
    "entities": [{"type": "P", "start": 0, "end": 2}],
    "relations": [{"type": "r", "head": 0, "tail": 0}],
    "orig_id": 5,
}


def test_REL1_the_second_mention_keeps_its_own_place(cases: Path, tmp_path: Path) -> None:
    expected = json.loads((cases / "REL-1.expected.json").read_text("utf-8"))
    path = cases / "REL-1.jsonl"
    assert format_of(path).name == "spert"
    (document,) = read(path)
    found = graph(document)
    assert len(found.entities) == expected["entities"]
    heads = [found.entities[relation.head].start for relation in found.relations]
    tails = [found.entities[relation.tail].start for relation in found.relations]
    assert heads == expected["relation_head_start_tokens"]
    assert tails == expected["relation_tail_start_tokens"]
    assert heads[1] != expected["wrong_head_of_second_relation_if_found_by_text"]
    gold = {name: [document.meta[name]] for name in ("entities", "relations")}
    assert written(path, gold) == path.read_text("utf-8")
    again = tmp_path / "again.json"
    write(again, [document], {}, format="spert")
    assert graph(*read(again)) == found


@pytest.mark.parametrize(
    ("folder", "split", "sentences", "entities", "relations"),
    [
        ("scierc", "train", 1861, 5598, 3219),
        ("scierc", "dev", 275, 811, 455),
        ("scierc", "test", 551, 1685, 974),
        ("ade_split0", "test", 427, 1070, 666),
    ],
)
def test_real_files_are_read_and_written_byte_by_byte(
    shared: Path, tmp_path: Path, folder: str, split: str, sentences: int, entities: int, relations: int
) -> None:
    import gzip

    path = shared / "data" / "joint_re" / folder / f"{split}.jsonl.gz"
    documents = read(path)
    graphs = [graph(document) for document in documents]
    assert len(graphs) == sentences
    assert sum(len(one.entities) for one in graphs) == entities
    assert sum(len(one.relations) for one in graphs) == relations
    gold = {name: [one.to_json()[name] for one in graphs] for name in ("entities", "relations")}
    assert written(path, gold) == gzip.decompress(path.read_bytes()).decode("utf-8")
    for target in (tmp_path / "x.json", tmp_path / "x.jsonl"):
        write(target, documents, gold, format="spert")
        assert [(d.words, graph(d)) for d in read(target)] == [
            (d.words, one) for d, one in zip(documents, graphs, strict=True)
        ]


def test_an_array_and_lines_are_the_same(tmp_path: Path) -> None:
    lines = put(tmp_path / "x.jsonl", ONE, ONE)
    array = tmp_path / "x.json"
    array.write_text(json.dumps([ONE, ONE], indent=2), encoding="utf-8")
    one, two = read(lines), read(array)
    assert [d.meta for d in one] == [d.meta for d in two]
    assert (two[0].place, two[1].id) == (f"{array}:2", "x:2")
    assert one[0].meta["orig_id"] == 5


def test_predictions_replace_two_fields_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"orig_id":7 ,"tokens":["a","b"],"entities":[],"relations":[]}\n', encoding="utf-8")
    found = {"entities": [({"type": "P", "start": 0, "end": 1},)], "relations": [[]]}
    assert written(path, found) == (
        '{"orig_id":7 ,"tokens":["a","b"],"entities":[{"type": "P", "start": 0, "end": 1}],"relations":[]}\n'
    )
    plain = put(tmp_path / "plain.jsonl", {"tokens": ["a", "b"]})
    assert format_of(plain).name == "jsonl"
    assert json.loads(written(plain, found))["entities"] == [{"type": "P", "start": 0, "end": 1}]
    with pytest.raises(DataError, match="'entities' has values for 1 sentences; there are 2"):
        written(put(tmp_path / "two.jsonl", ONE, ONE), {"entities": [[]]})


def test_a_file_to_be_predicted_needs_no_gold(tmp_path: Path) -> None:
    (document,) = read(put(tmp_path / "x.jsonl", {"tokens": ["a"]}), format="spert")
    assert "entities" not in document.meta


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"entities": [{"type": "P", "start": 2, "end": 4}], "relations": []},
            "entity 0: words 2 to 4 are no span of the 3",
        ),
        ({"relations": [{"type": "r", "head": 0, "tail": 1}]}, "relation 0: 'tail' is entity 1. There are 1, 0 to 0"),
        ({"entities": [3]}, "'entities' must be a list of objects"),
        ({"tokens": ["a", 1, "c"]}, r"'tokens'\[1\] is a int"),
    ],
)
def test_errors_name_file_and_line(tmp_path: Path, change: dict, message: str) -> None:
    path = put(tmp_path / "x.jsonl", ONE, ONE | change)
    with pytest.raises(DataError, match=rf"x.jsonl:2: {message}"):
        read(path)


def test_running_text_has_no_words_to_point_at(tmp_path: Path) -> None:
    path = put(tmp_path / "x.jsonl", {"text": "a b", "entities": []})
    with pytest.raises(DataError, match=r"x.jsonl:1: 'text' without 'tokens': entities are places among words"):
        read(path, format="spert")


def test_a_json_file_of_something_else_says_which_formats_there_are(tmp_path: Path) -> None:
    path = put(tmp_path / "x.json", {"some": "thing"})
    with pytest.raises(ConfigError, match=r"suffix '.json' says no format.*scierc \(.json .jsonl\).*spert"):
        read(path)
