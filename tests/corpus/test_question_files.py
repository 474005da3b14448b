"""Files of questions as documents, and written again with answers."""

import json
from pathlib import Path
from typing import Any

import pytest

from encodeonce.corpus import format_of, read, write
from encodeonce.corpus.questions import read_questions
from encodeonce.errors import ConfigError, DataError
from encodeonce.types import Answer

CONTEXT = "The cat sat. The dog ran."


def put(path: Path, value: Any) -> Path:
    text = "".join(json.dumps(row) + "\n" for row in value) if path.suffix == ".jsonl" else json.dumps(value)
    path.write_text(text, encoding="utf-8")
    return path


def squad(tmp_path: Path) -> Path:
    qas = [
        {"id": "a", "question": "who sat", "answers": [{"text": "cat", "answer_start": 4}], "is_impossible": False},
        {"id": "b", "question": "who flew", "answers": [], "is_impossible": True, "plausible_answers": []},
    ]
    paragraphs = [{"context": CONTEXT, "qas": qas}]
    return put(tmp_path / "s.json", {"version": "v2.0", "data": [{"title": "Pets", "paragraphs": paragraphs}]})


def test_squad_nested_and_flat(tmp_path: Path) -> None:
    path = squad(tmp_path)
    assert format_of(path).name == "squad"
    first, second = read(path)
    assert (first.id, first.text, first.pair) == ("a", "who sat", CONTEXT)
    assert [answer.text for answer in first.meta["asked"].answers] == ["cat"]
    assert second.meta["asked"].answers == (Answer(""),)
    flat = [
        {"id": "a", "context": CONTEXT, "question": "who sat", "answers": {"text": ["cat"], "answer_start": [4]}},
        {"id": "b", "context": CONTEXT, "question": "who flew", "answers": {"text": [], "answer_start": []}},
    ]
    again = read(put(tmp_path / "f.jsonl", flat))
    assert [d.key for d in again] == [first.key, second.key]
    assert again[1].meta["asked"].answers == (Answer(""),)
    plain = put(tmp_path / "p.jsonl", [{"context": CONTEXT, "question": "who", "label": "x"}])
    assert format_of(plain).name == "jsonl", "a context alone may be anything"
    with pytest.raises(ConfigError, match="fields of 'squad' have fixed names"):
        read(path, columns={"text": "question"})
    with pytest.raises(
        ConfigError, match=r"read as 'squad', which names no passages by id.*techqa, sections, questions"
    ):
        read(path, passages=path)


def test_answers_are_written_into_squads_own_fields(tmp_path: Path) -> None:
    path = squad(tmp_path)
    write(tmp_path / "o.json", path, {"answers": [(), ("dog",)], "answer_starts": [(), (17,)]})
    before, after = (json.loads(p.read_text()) for p in (path, tmp_path / "o.json"))
    qas = after["data"][0]["paragraphs"][0]["qas"]
    assert [q["answers"] for q in qas] == [[], [{"text": "dog", "answer_start": 17}]]
    assert [q["is_impossible"] for q in qas] == [True, False]
    for q, own in zip(before["data"][0]["paragraphs"][0]["qas"], qas, strict=True):
        q |= {"answers": own["answers"], "is_impossible": own["is_impossible"]}
    assert before == after, "all else stays"
    assert [d.meta["asked"].answers[0].text for d in read(tmp_path / "o.json")] == ["", "dog"]
    with pytest.raises(DataError, match=r"'answers' has 1 values; .*s.json has 2 questions"):
        write(tmp_path / "x.json", path, {"answers": [()]})
    with pytest.raises(ConfigError, match="'squad' is written from a file of questions"):
        write(tmp_path / "x.json", read(path), {}, format="squad")


def techqa(tmp_path: Path, **changes: Any) -> tuple[Path, Path]:
    notes = put(tmp_path / "notes.json", {"n1": {"title": "T", "text": CONTEXT}, "n2": {"text": "A bird."}})
    one = {
        "QUESTION_ID": "Q1", "QUESTION_TITLE": "Sitting", "QUESTION_TEXT": "who sat\n", "DOCUMENT": "n1",
        "ANSWER": "cat", "START_OFFSET": 4, "END_OFFSET": 7, "ANSWERABLE": "Y", "DOC_IDS": ["n2", "n1"],
    }  # fmt: skip
    none = {**one, "QUESTION_ID": "Q2", "DOCUMENT": "-", "START_OFFSET": "-", "END_OFFSET": "-", "ANSWERABLE": "N"}
    open_ = {key: one[key] for key in ("QUESTION_TITLE", "QUESTION_TEXT", "DOC_IDS")} | {"QUESTION_ID": "Q3"}
    return put(tmp_path / "q.json", [{**one, **changes}, none, open_]), notes


def test_answers_of_our_own_form_are_read_again_as_they_were_written(tmp_path: Path) -> None:
    put(tmp_path / "passages.jsonl", [{"id": "p", "text": CONTEXT}, {"id": "r", "text": "A bird flew."}])
    rows = [
        {"question": "who sat", "answers": ["cat"], "answer_starts": [4], "passage_id": "p"},
        {"question": "who flew", "passage_ids": ["p", "r"]},
        {"question": "who swam", "passage_ids": ["p", "r"]},
    ]
    path, out = put(tmp_path / "q.jsonl", rows), tmp_path / "out.jsonl"
    found = {
        "answers": [(), ("bird",), ()],
        "answer_starts": [(), (2,), ()],
        "answer_passages": [(), ("r",), ()],
    }
    write(out, path, found, format="questions")
    answers = [document.meta["asked"].answers for document in read(out, format="questions")]
    assert answers == [(Answer(""),), (Answer("bird", "r", 2, 6),), (Answer(""),)]


def test_techqa_has_candidates_and_says_where_the_answer_stands(tmp_path: Path) -> None:
    path, notes = techqa(tmp_path)
    assert format_of(path).name == "techqa"
    asked = [d.meta["asked"] for d in read(path, passages=notes)]
    assert asked[0].text == "Sitting\nwho sat"
    assert [p.id for p in asked[0].passages] == ["n2", "n1"]
    assert asked[0].answers == (Answer("cat", "n1", 4, 7),)
    assert asked[1].answers == (Answer(""),)
    assert asked[2].answers == ()
    bare = read_questions(path, bare=True)
    assert [(q.text, q.answers, q.passages) for q in bare] == [
        (q.text, tuple(Answer(answer.text) for answer in q.answers), ()) for q in asked
    ]
    columns = {"answers": [("dog",), (), ()], "answer_starts": [(17,), (), ()], "answer_passages": [("n1",), (), ()]}
    write(tmp_path / "o.json", path, columns)
    rows = json.loads((tmp_path / "o.json").read_text())
    assert [row["ANSWERABLE"] for row in rows] == ["Y", "N", "N"]
    assert [rows[0][key] for key in ("DOCUMENT", "ANSWER", "START_OFFSET", "END_OFFSET")] == ["n1", "dog", 17, 20]
    assert read(tmp_path / "o.json", passages=notes)[0].meta["asked"].answers == (Answer("dog", "n1", 17, 20),)


def test_a_document_that_is_no_candidate_is_only_learned_from(tmp_path: Path) -> None:
    path, notes = techqa(tmp_path, DOC_IDS=["n2"])
    document = read(path, passages=notes)[0]
    asked = document.meta["asked"]
    assert [p.id for p in asked.passages] == ["n2"]
    assert [p.id for p in asked.unlisted] == ["n1"]
    assert asked.answers == (Answer("cat", "n1", 4, 7),)


def test_what_techqa_lacks_is_named(tmp_path: Path) -> None:
    path, notes = techqa(tmp_path)
    with pytest.raises(ConfigError, match=r"names documents by id. Give their file as passages"):
        read(path)
    for changes, message in (
        ({"END_OFFSET": 3}, r"\(question Q1\): characters 4 to 3 of document 'n1', which has 25, are no answer"),
        ({"END_OFFSET": 99}, r"\(question Q1\): characters 4 to 99 of document 'n1', which has 25, are no answer"),
        ({"ANSWER": "dog"}, r"\(question Q1\): the answer 'dog' does not stand at characters 4 to 7 .*; 'cat' does"),
        ({"START_OFFSET": "-"}, "must be numbers of characters"),
        ({"START_OFFSET": float("inf")}, r"q\.json:1 \(question Q1\): START_OFFSET and END_OFFSET must be numbers of"),
        ({"DOC_IDS": ["n9"]}, "document 'n9' is not among the 2"),
        ({"DOCUMENT": "n8"}, "document 'n8' is not among the 2"),
        ({"DOCUMENT": None}, r"\(question Q1\): 'DOCUMENT' is a null; it must be a string"),
        ({"QUESTION_TITLE": None, "QUESTION_TEXT": " "}, r"\(question Q1\): the question is empty. Give it a text"),
    ):
        with pytest.raises(DataError, match=message):
            read(techqa(tmp_path, **changes)[0], passages=notes)


@pytest.mark.parametrize("version", [1, "1.0", None, ["n1"]])
def test_a_document_of_techqa_that_is_no_object_is_named(tmp_path: Path, version: object) -> None:
    path, _ = techqa(tmp_path)
    notes = put(tmp_path / "notes.json", {"version": version, "n1": {"text": CONTEXT}})
    with pytest.raises(DataError, match=r"notes\.json:1: document 'version' has no text. The file holds an object"):
        read(path, passages=notes)


def test_a_data_set_of_squad_whose_articles_are_no_objects_is_named(tmp_path: Path) -> None:
    path = put(tmp_path / "squad.json", {"data": [1]})
    with pytest.raises(DataError, match=r"squad\.json:1: 'data' is a list; it must be a list of objects"):
        read(path, format="squad")
    with pytest.raises(ConfigError, match=r"suffix '\.json' says no format"):
        read(path)


def test_a_question_of_techqa_without_a_text_is_named(tmp_path: Path) -> None:
    path, notes = techqa(tmp_path)
    rows = json.loads(path.read_text())
    del rows[1]["QUESTION_TEXT"]
    path.write_text(json.dumps(rows))
    with pytest.raises(DataError, match=r"\(question Q2\): no field 'QUESTION_TEXT'. There is: QUESTION_ID"):
        read(path, passages=notes)


@pytest.mark.parametrize(
    ("name", "form", "row"),
    [
        ("q.jsonl", "sections", {"question": "who sat", "section_path": ["A"]}),
        ("q.json", "sections", {"question": "who sat", "section_path": ["A"]}),
        ("q.jsonl", "questions", {"id": "1", "question": "who sat", "answers": ["cat"]}),
    ],
)
def test_a_file_of_questions_that_is_read_as_texts_says_by_which_name(
    tmp_path: Path, name: str, form: str, row: dict[str, Any]
) -> None:
    path = put(tmp_path / name, [row])
    with pytest.raises((ConfigError, DataError)) as problem:
        read(path)
    assert f"--format {form} --passages FILE" in str(problem.value)
    assert ("columns, such as" in str(problem.value)) == (form == "questions")  # whose texts may be meant
    put(tmp_path / "manual.json", [{"section_path": ["A"], "text": "the cat sat", "id": "A"}])
    assert [one.text for one in read(path, format=form, passages=tmp_path / "manual.json")] == ["who sat"]
    with pytest.raises(DataError) as problem:
        read(put(tmp_path / "x.jsonl", [{"body": "who sat"}]))
    assert "--format" not in str(problem.value)


def test_sections_share_a_manual(tmp_path: Path) -> None:
    sections = put(
        tmp_path / "sections.jsonl",
        [
            {"section_path": ["A", "B"], "title": "B", "text": "one"},
            {"section_path": ["A", "B"], "text": "two"},
            {"section_path": [], "text": "no path"},
            {"section_path": ["C"], "text": "three"},
        ],
    )
    path = put(
        tmp_path / "q.jsonl",
        [{"question": "what", "section_path": ["A", "B"], "answer": "one"}, {"question": "x", "section_path": ["C"]}],
    )
    assert format_of(path).name == "jsonl", "it may be meant as texts"
    first, second = (d.meta["asked"] for d in read(path, format="sections", passages=sections))
    assert [(p.id, p.text) for p in first.passages] == [("A > B", "one\ntwo"), ("C", "three")]
    assert first.passages is second.passages
    assert (first.relevant, first.meta["answer"]) == (("A > B",), "one")
    assert read(path, format="sections")[0].meta["asked"].passages == ()
    write(tmp_path / "o.jsonl", path, {"ranked": [("C",), ("C", "A > B")]}, format="sections")
    assert [json.loads(line)["ranked"] for line in (tmp_path / "o.jsonl").read_text().splitlines()] == [
        ["C"],
        ["C", "A > B"],
    ]
    lost = put(tmp_path / "lost.jsonl", [{"question": "what", "section_path": ["A"]}])
    with pytest.raises(DataError, match="no section has the path 'A'; there are 2 sections"):
        read(lost, format="sections", passages=sections)
