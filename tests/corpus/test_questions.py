"""Question files: each format against hand-written content, the field cases, and the real files."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from encodeonce.corpus.passages import read_passages
from encodeonce.corpus.questions import question_formats, read_questions, write_questions
from encodeonce.errors import ConfigError, DataError
from encodeonce.types import Answer, Passage, Question

SQUAD = {
    "version": "v2.0",
    "data": [
        {
            "title": "Norway",
            "paragraphs": [
                {
                    "context": "Oslo, once Christiania, is in Norway.",
                    "qas": [
                        {
                            "id": "a",
                            "question": "Where is Oslo?",
                            "answers": [
                                {"text": "Norway", "answer_start": 30},
                                {"text": "in Norway", "answer_start": 27},
                            ],
                        },
                        {"id": "b", "question": "Who rules?", "answers": [], "is_impossible": True},
                        {"id": "c", "question": "Unknown?", "answers": []},
                    ],
                }
            ],
        }
    ],
}


def put(path: Path, *values: object, array: bool = False) -> Path:
    text = json.dumps(values) if array else "".join(json.dumps(value) + "\n" for value in values)
    path.write_text(text, encoding="utf-8")
    return path


def test_squad_nested(tmp_path: Path) -> None:
    a, b, c = read_questions(put(tmp_path / "s.json", SQUAD))
    passage = a.passages[0]
    assert (a.id, passage.title, b.passages, a.relevant) == ("a", "Norway", (passage,), (passage.id,))
    assert a.answers == (Answer("Norway", passage.id, 30, 36), Answer("in Norway", passage.id, 27, 36))
    assert b.answers == (Answer(""),)
    assert c.answers == ()


def test_squad_flat_and_nested_agree(tmp_path: Path) -> None:
    flat = {
        "id": "a",
        "title": "Norway",
        "context": SQUAD["data"][0]["paragraphs"][0]["context"],
        "question": "Where is Oslo?",
        "answers": {"text": ["Norway", "in Norway"], "answer_start": [30, 27]},
    }
    nested = read_questions(put(tmp_path / "s.json", SQUAD))[0]
    one = read_questions(put(tmp_path / "f.jsonl", flat))[0]
    assert (one.answers, one.passages[0].id, one.relevant) == (nested.answers, nested.passages[0].id, nested.relevant)
    flat["answers"] = {"text": [], "answer_start": []}
    assert read_questions(put(tmp_path / "f.jsonl", flat))[0].answers == (Answer(""),)


def test_a_mark_that_is_a_word_is_neither_true_nor_false(tmp_path: Path) -> None:
    """ "false" was taken as true."""
    flat = {"id": "a", "context": "Oslo", "question": "Where?", "answers": [], "is_impossible": "false"}
    with pytest.raises(DataError, match=r"f.jsonl:1 \(question a\): 'is_impossible' is 'false'; it must be true or"):
        read_questions(put(tmp_path / "f.jsonl", flat))
    flat["is_impossible"] = None
    assert read_questions(put(tmp_path / "f.jsonl", flat))[0].answers == ()
    marked = [{"text": "Oslo", "answer": 1}, {"text": "Bergen", "answer": "false"}]
    own = {"id": "a", "question": "Where?", "sentences": marked}
    with pytest.raises(DataError, match=r"o.jsonl:1: sentence 2: 'answer' is 'false'; it must be true or false"):
        read_questions(put(tmp_path / "o.jsonl", own))
    marked[1]["answer"] = False
    assert [one.text for one in read_questions(put(tmp_path / "o.jsonl", own))[0].answers] == ["Oslo"]


def test_squad_written_and_read_again(tmp_path: Path) -> None:
    questions = read_questions(put(tmp_path / "s.json", SQUAD))[:2]
    write_questions(tmp_path / "again.json", questions, format="squad")
    again = read_questions(tmp_path / "again.json")
    assert [(q.id, q.text, q.answers) for q in again] == [(q.id, q.text, q.answers) for q in questions]
    other = replace(questions[1], passages=(replace(questions[0].passages[0], text="another text"),))
    with pytest.raises(DataError, match=r"question b\): passage '.*' is another text than that of an earlier question"):
        write_questions(tmp_path / "twins.json", [questions[0], other], format="squad")


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (29, r"s.json:1 \(question a\): answer 'Norway' should stand at character 29 .* where ' Norwa' stands"),
        ("30", r"answer 'Norway' starts at '30'; it must be a number of characters"),
        (-1, r"should stand at character -1"),
        (900, r"should stand at character 900"),
    ],
)
def test_squad_answer_elsewhere(tmp_path: Path, start: object, message: str) -> None:
    wrong = json.loads(json.dumps(SQUAD))
    wrong["data"][0]["paragraphs"][0]["qas"][0]["answers"][0]["answer_start"] = start
    with pytest.raises(DataError, match=message):
        read_questions(put(tmp_path / "s.json", wrong))


def test_squad_offsets_count_characters_not_bytes(tmp_path: Path) -> None:
    flat = {"id": "1", "context": "🚁 à Zoë", "question": "q?", "answers": {"text": ["Zoë"], "answer_start": [4]}}
    assert read_questions(put(tmp_path / "f.jsonl", flat))[0].answers[0].end == 7


def test_FID_1_unequal_numbers_of_passages(cases: Path) -> None:
    expected = json.loads((cases / "FID-1.expected.json").read_text("utf-8"))["batch_of_three"]["real_passages"]
    questions = read_questions(cases / "FID-1.jsonl")
    assert [len(question.passages) for question in questions] == expected
    assert [passage.title for passage in questions[1].passages] == ["t1", "t2", "t3"]
    assert all("scores" not in question.meta for question in questions)
    assert questions[1].answers == (Answer("Oslo"), Answer("Christiania"))
    assert questions[0].passages == ()


def test_fid_scores_and_names(tmp_path: Path) -> None:
    ctxs = [{"id": 7, "title": "t", "text": "x", "score": "81.5"}, {"text": "y"}]
    question = read_questions(put(tmp_path / "f.json", {"question": "q", "answers": ["x"], "ctxs": ctxs}, array=True))[
        0
    ]
    assert question.meta["scores"] == (81.5, None)
    assert question.passages[0].id == "7"
    assert len(question.passages[1].id) == 16
    write_questions(tmp_path / "g.json", [question])
    again = read_questions(tmp_path / "g.json")[0]
    assert (again.passages[1].id, again.meta) == (question.passages[1].id, question.meta)
    with pytest.raises(DataError, match=r"2 scores in meta\['scores'\] for 1 passages"):
        write_questions(tmp_path / "h.json", [replace(question, passages=question.passages[:1])])


def test_dpr_training_file(tmp_path: Path) -> None:
    value = {
        "question": "q",
        "answers": ["x"],
        "positive_ctxs": [{"psg_id": "1", "title": "", "text": "x"}],
        "hard_negative_ctxs": [{"psg_id": "2", "title": "", "text": "y"}],
        "negative_ctxs": [],
    }
    question = read_questions(put(tmp_path / "d.json", value, array=True))[0]
    assert ([p.id for p in question.passages], question.relevant) == (["1", "2"], ("1",))


def test_flashrag(tmp_path: Path) -> None:
    value = {"id": "t0", "question": "who?", "golden_answers": ["Ana", "A."], "metadata": {"x": 1}}
    question = read_questions(put(tmp_path / "f.jsonl", value))[0]
    assert (question.answers, question.meta) == ((Answer("Ana"), Answer("A.")), {"metadata": {"x": 1}})
    write_questions(tmp_path / "g.jsonl", [question], format="flashrag")
    assert json.loads((tmp_path / "g.jsonl").read_text("utf-8")) == value


def test_pairs_and_lines(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("who wrote it?\t[\"Ana\", 'B']\n", encoding="utf-8")
    question = read_questions(tmp_path / "p.csv")[0]
    assert (question.text, question.answers) == ("who wrote it?", (Answer("Ana"), Answer("B")))
    (tmp_path / "bad.tsv").write_text("who?\tAna\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"bad.tsv:1: 'who\?\\tAna' is no question and list of answers"):
        read_questions(tmp_path / "bad.tsv")
    (tmp_path / "l.txt").write_text("\ufeffwho?\n\n where? \n", encoding="utf-8")
    assert [(q.id, q.text) for q in read_questions(tmp_path / "l.txt")] == [("l:1", "who?"), ("l:3", " where? ")]


def test_answers_of_pairs_as_json_or_python_writes_them(tmp_path: Path) -> None:
    """JSON writes what lies beyond 16 bits as two halves, which Python's literals would keep apart."""
    answers = ["\U0001d11e", "a 'b'", 'c "d"', "\\x41"]
    for cell in (json.dumps(answers), json.dumps(answers, ensure_ascii=False), repr(answers)):
        (tmp_path / "q.tsv").write_text(f"which?\t{cell}\n", encoding="utf-8")
        (question,) = read_questions(tmp_path / "q.tsv")
        assert [answer.text for answer in question.answers] == answers
    for cell in ("{[]: 1}", "[" * 10000, "who"):
        (tmp_path / "q.tsv").write_text(f"which?\t{cell}\n", encoding="utf-8")
        with pytest.raises(DataError, match=r"q.tsv:1: .* is no question and list of answers"):
            read_questions(tmp_path / "q.tsv")


def test_judgements_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    put(tmp_path / "queries.jsonl", {"_id": "2", "text": "who"})
    (tmp_path / "qrels").mkdir()
    judged = tmp_path / "qrels" / "test.tsv"
    judged.write_bytes("\ufeffquery-id\tcorpus-id\tscore\r\n2\td1\t1\r\n".encode())
    assert read_questions(tmp_path, format="beir")[0].relevant == ("d1",)
    judged.write_bytes("\ufeffquery-id\tcorpus-id\tscore\r\n2\td1\tx\r\n".encode())
    with pytest.raises(DataError, match=r"test.tsv:2: '2\\td1\\tx' is not query-id"):
        read_questions(tmp_path, format="beir")


def test_beir_folder(tmp_path: Path) -> None:
    put(tmp_path / "queries.jsonl", {"_id": "1", "text": "q1"}, {"_id": "2", "text": "q2"})
    put(tmp_path / "corpus.jsonl", {"_id": "d1", "title": "T", "text": "x"}, {"_id": "d2", "text": "y"})
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n2\td1\t1\n2\td2\t0\n", encoding="utf-8")
    (tmp_path / "README.md").write_text("about", encoding="utf-8")
    (question,) = read_questions(tmp_path)
    assert (question.id, question.relevant, question.meta["grades"]) == ("2", ("d1",), {"d1": 1, "d2": 0})
    assert read_passages(tmp_path)[0] == Passage("d1", "T", "x", place=f"{tmp_path / 'corpus.jsonl'}:1")
    with pytest.raises(DataError, match=r"no judgements for split 'dev'. There is: test"):
        read_questions(tmp_path, split="dev")
    (tmp_path / "qrels" / "test.tsv").write_text("9\td1\t1\n", encoding="utf-8")
    with pytest.raises(DataError, match="query '9' is judged, and is not in"):
        read_questions(tmp_path)


def test_our_own_form(tmp_path: Path) -> None:
    put(tmp_path / "passages.jsonl", {"passage_id": "p", "title": "t", "text": "in Oslo"}, {"id": "r", "text": "z"})
    rows = [
        {"id": 1, "question": "where?", "answers": ["Oslo"], "answer_starts": [3], "passage_id": "p", "split": "dev"},
        {"question": "what?", "answers": ["z"], "passage_ids": ["r", "p"]},
    ]
    one, two = read_questions(put(tmp_path / "q.jsonl", *rows))
    assert one.answers == (Answer("Oslo", "p", 3, 7),)
    assert (one.id, one.meta, two.id, two.relevant) == ("1", {"split": "dev"}, "q:2", ("r", "p"))
    located = Question("3", "what?", (Answer("z", "r", 0, 1), Answer("in", "p", 0, 2)), two.passages)
    write_questions(tmp_path / "again.jsonl", [located])
    assert read_questions(tmp_path / "again.jsonl")[0].answers == located.answers, "places in several passages"
    for change, said in (
        ({}, "2 answers and 2 passages; 'answer_passages' names none"),
        ({"answer_passages": ["r"]}, "names 1 that"),
        ({"answer_passages": ["r", "s"]}, "names 's'; the question has r, p"),
    ):
        row = {"question": "what?", "answers": ["z", "in"], "answer_starts": [0, 0], "passage_ids": ["r", "p"]}
        with pytest.raises(DataError, match=said):
            read_questions(put(tmp_path / "wrong.jsonl", row | change))
    write_questions(tmp_path / "again.jsonl", [one, two])
    assert [q.answers for q in read_questions(tmp_path / "again.jsonl")] == [one.answers, two.answers]
    with pytest.raises(DataError, match="passage 'p' is not among the 1 passages"):
        read_questions(tmp_path / "q.jsonl", passages=[Passage("r", text="z")])
    (tmp_path / "passages.jsonl").unlink()
    bare = read_questions(tmp_path / "q.jsonl", bare=True)
    assert [(q.answers, q.passages, q.relevant) for q in bare] == [
        ((Answer("Oslo"),), (), ("p",)), ((Answer("z"),), (), ("r", "p")),
    ]  # fmt: skip
    with pytest.raises(DataError, match="names passages by id, and there is neither"):
        read_questions(tmp_path / "q.jsonl")


def test_two_files_of_passages_beside_the_questions_must_hold_the_same(tmp_path: Path) -> None:
    path = put(tmp_path / "q.jsonl", {"question": "where?", "passage_id": "p"})
    plain = put(tmp_path / "passages.jsonl", {"id": "p", "text": "new"})
    (tmp_path / "passages.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    assert read_questions(path)[0].passages[0].place == f"{plain}:1"
    put(plain, {"id": "p", "text": "newer"})
    with pytest.raises(DataError, match=r"passages\.jsonl and .*passages\.jsonl\.gz hold different passages. Remove"):
        read_questions(path)
    plain.unlink()
    assert read_questions(path)[0].passages[0].text == "new"


def test_errors_name_the_place(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"q.jsonl:1: no field 'question'. There is: text"):
        read_questions(put(tmp_path / "q.jsonl", {"text": "x"}))
    with pytest.raises(DataError, match=r"q.jsonl:1: 'answers' is a int; it must be a list of strings"):
        read_questions(put(tmp_path / "q.jsonl", {"question": "x", "answers": 3}))
    with pytest.raises(DataError, match=r"q.jsonl:2: a second question 'a'; the first is at .*q.jsonl:1"):
        read_questions(put(tmp_path / "q.jsonl", {"id": "a", "question": "x"}, {"id": "a", "question": "y"}))
    with pytest.raises(DataError, match=r"q.jsonl:1: the question is empty"):
        read_questions(put(tmp_path / "q.jsonl", {"question": " "}))
    with pytest.raises(ConfigError, match=r"format='squat' is not known. .* Did you mean 'squad'"):
        read_questions(tmp_path / "q.jsonl", format="squat")
    with pytest.raises(ConfigError, match="format 'beir' is read, not written"):
        write_questions(tmp_path / "q", [Question("1", "q")], format="beir")
    (tmp_path / "empty.jsonl").write_text("\n", encoding="utf-8")
    with pytest.raises(DataError, match="no questions in"):
        read_questions(tmp_path / "empty.jsonl")


def test_real_files_of_every_kind_can_be_read(shared: Path) -> None:
    """Counts as data/README.md gives them."""
    counts = {
        "qa/xquad_en/questions": 1190,
        "qa/qed/dev": 1355,
        "qa/fairytaleqa/dev": 1025,
        "qa/musique_multi/test": 150,
        "qa/techqa_dev_sentences/dev": 160,
        "qa_open/nq_open/dev": 3610,
        "qa_open/curatedtrec/test": 694,
        "qa_open/webquestions/test": 2032,
    }
    for name, count in counts.items():
        questions = read_questions(shared / "data" / f"{name}.jsonl.gz")
        assert len(questions) == count, name
        if name.startswith("qa/") and "musique" not in name:
            assert all(question.passages and question.relevant for question in questions)
        if "squad" in name:
            assert all(answer.located for question in questions for answer in question.answers)


def test_formats_have_names_of_their_own() -> None:
    assert set(question_formats()) == {
        "beir",
        "fid",
        "flashrag",
        "lines",
        "pairs",
        "questions",
        "sections",
        "squad",
        "techqa",
    }


def test_gz(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "q.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write('{"question": "é?", "answers": ["x"]}\n')
    assert read_questions(tmp_path / "q.jsonl.gz")[0].text == "é?"


def test_passages_are_named_by_numbers_too(tmp_path: Path) -> None:
    (tmp_path / "passages.jsonl").write_text('{"id": 5, "text": "a"}\n{"id": "6", "text": "b"}\n', encoding="utf-8")
    rows = [{"passage_id": 5}, {"passage_ids": [6, "5"]}, {"passage_id": None}, {"passage_ids": None}, {}]
    text = "".join(json.dumps({"question": "who?", **row}) + "\n" for row in rows)
    (tmp_path / "q.jsonl").write_text(text, encoding="utf-8")
    read = read_questions(tmp_path / "q.jsonl", format="questions")
    assert [[passage.id for passage in one.passages] for one in read] == [["5"], ["6", "5"], [], [], []]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"passage_ids": "56"}, r"'passage_ids' is a str \('56'\); it must be a list of ids"),
        ({"passage_ids": {"5": 1}}, "'passage_ids' is a dict"),
        ({"passage_ids": [["5"]]}, r"a passage's id is a list \(\['5'\]\); it must be a string or a number"),
        ({"passage_id": ["5"]}, "a passage's id is a list"),
        ({"passage_id": True}, "a passage's id is a bool"),
        ({"passage_id": 7}, "passage '7' is not among the 2 passages"),
    ],
)
def test_ids_of_passages_of_another_kind(tmp_path: Path, row: dict[str, object], said: str) -> None:
    (tmp_path / "passages.jsonl").write_text('{"id": 5, "text": "a"}\n{"id": "6", "text": "b"}\n', encoding="utf-8")
    (tmp_path / "q.jsonl").write_text(json.dumps({"question": "who?", **row}) + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=rf"q\.jsonl:1: {said}"):
        read_questions(tmp_path / "q.jsonl", format="questions")


def test_an_empty_id_of_a_passage_is_none(tmp_path: Path) -> None:
    asked = {"question": "who?", "ctxs": [{"id": "", "text": "a b"}, {"text": "a b"}]}
    (tmp_path / "f.jsonl").write_text(json.dumps(asked) + "\n", encoding="utf-8")
    (own,) = read_questions(tmp_path / "f.jsonl")
    assert own.passages[0].id == own.passages[1].id != ""
    qas = [{"id": "q", "question": "who?", "answers": [{"text": "b", "answer_start": 2}]}]
    data = {"data": [{"title": "", "paragraphs": [{"id": "", "context": "a b", "qas": qas}]}]}
    (tmp_path / "s.json").write_text(json.dumps(data), encoding="utf-8")
    (other,) = read_questions(tmp_path / "s.json")
    assert other.answers == (Answer("b", own.passages[0].id, 2, 3),)


def test_an_empty_query_is_named_before_any_is_answered(tmp_path: Path) -> None:
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("q1\tp\t1\nq2\tp\t1\n", encoding="utf-8")
    rows = [{"_id": "q1", "text": "who?"}, {"_id": "q2", "text": " "}]
    (tmp_path / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with pytest.raises(DataError, match=r"queries\.jsonl:2: the question is empty"):
        read_questions(tmp_path)
