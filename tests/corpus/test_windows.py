"""Long texts into windows: the field case, nothing lost, answers mapped back."""

import json
import random
import unicodedata
from pathlib import Path

import pytest

from encodeonce.corpus.windows import in_source, question_windows, windows
from encodeonce.errors import ConfigError
from encodeonce.types import Answer, Document, Passage, Pieces, Question


class Letters:
    """An encoder whose pieces are letters."""

    def cut(self, documents: list[Document]) -> list[Pieces]:
        import numpy as np

        found = []
        for document in documents:
            words = document.text.split()
            word = np.repeat(np.arange(len(words), dtype=np.int32), [len(one) for one in words])
            word = np.concatenate([[-1], word, [-1]]).astype(np.int32)
            found.append(Pieces(document.key, np.zeros(len(word), np.int32), word, len(words), ((0, len(word), 0, 0),)))
        return found


def test_QA_1_the_windows_of_the_case(cases: Path) -> None:
    """Room for 3 pieces of the passage, 1 shared: the union is the whole, and the answer lies in the window it says."""
    case = json.loads((cases / "QA-1.json").read_text("utf-8"))
    run, too_much = case["runs"][0], case["runs"][1]
    room = run["max_length"] - len(case["question"].split()) - 3
    found = windows([Passage("c", "", case["context"])], room, run["overlap"])
    due = [" ".join(window[4:-1]) for window in run["windows"]]
    assert [passage.text for passage in found] == due
    assert {word for passage in found for word in passage.text.split()} == set(case["context"].split())
    start = case["answer"]["answer_start"]
    holding = [
        number
        for number, passage in enumerate(found)
        if passage.start <= start and start + len(case["answer"]["text"]) <= passage.start + len(passage.text)
    ]
    assert holding == run["windows_with_answer"]
    with pytest.raises(ConfigError, match="overlap=3 must be at least 0 and less than the room for a window, size=3"):
        windows([Passage("c", "", case["context"])], room, too_much["overlap"])
    filling = case["runs"][2]
    room = filling["max_length"] - len(filling["question"].split()) - 3
    with pytest.raises(ConfigError, match="size=-1 leaves a window no room for a word; it must be at least 1"):
        windows([Passage("c", "", case["context"])], room, filling["overlap"])


def test_nothing_is_lost_and_nothing_moves() -> None:
    order = random.Random(0)
    for _ in range(200):
        words = ["".join(order.choices("abé🚁", k=order.randint(1, 5))) for _ in range(order.randint(1, 30))]
        text = "".join(word + order.choice([" ", "  ", "\n", "\u00a0"]) for word in words)
        size = order.randint(1, 8)
        overlap = order.randint(0, size - 1)
        counted = order.choice([None, Letters()])
        found = windows([Passage("x", "T", text)], size, overlap, pieces=counted)
        covered = set()
        for passage in found:
            assert text[passage.start : passage.start + len(passage.text)] == passage.text
            assert passage.title == "T"
            own = set(range(passage.start, passage.start + len(passage.text))) - covered
            assert own, "every window has a word of its own"
            covered |= own
            length = len(passage.text.split()) if counted is None else sum(map(len, passage.text.split()))
            assert length <= size or len(passage.text.split()) == 1
        assert all(place in covered for place, sign in enumerate(text) if not sign.isspace())


def test_disjoint_windows_of_a_hundred_words() -> None:
    text = " ".join(str(i) for i in range(250))
    found = windows([Passage("d", "T", text), Passage("e", "", "short text")])
    assert [(p.id, len(p.text.split()), p.source) for p in found] == [
        ("d#1", 100, "d"),
        ("d#2", 100, "d"),
        ("d#3", 50, "d"),
        ("e", 2, ""),
    ]


def test_a_character_of_a_script_without_blanks_is_a_word() -> None:
    text = "东京 is the 日本的首都。 end"
    found = windows([Passage("p", text=text)], 4)
    assert [one.text for one in found] == ["东京 is the", "日本的首", "都。 end"]
    assert all(text[one.start : one.start + len(one.text)] == one.text for one in found)
    assert windows([Passage("p", text=text)], 11)[0].text == text


def test_windows_take_the_place_of_a_passage_that_is_relevant() -> None:
    passages = (Passage("p", text="one two three four"), Passage("r", text="five six seven"))
    asked = Question("q", "?", (Answer("four", "p", 14, 18),), passages, relevant=("p", "r"))
    (found,) = question_windows([asked], 2)
    assert [one.id for one in found.passages] == ["p#1", "p#2", "r#1", "r#2"]
    assert found.relevant == ("p#2", "r#1", "r#2")


def test_an_answer_has_a_place_in_its_source() -> None:
    text = "one two Oslo four five"
    second = windows([Passage("d", "", text)], 2)[1]
    inner = windows([second], 1)[0]
    assert (inner.source, inner.start, inner.text) == ("d", 8, "Oslo")
    found = in_source(Answer("Oslo", second.id, 0, 4, 0.5), second)
    assert (found, text[found.start : found.end]) == (Answer("Oslo", "d", 8, 12, 0.5), "Oslo")
    assert in_source(Answer(""), second) == Answer("")
    assert in_source(Answer("x", "w", 0, 1), Passage("w", "", "x")) == Answer("x", "w", 0, 1)


def test_a_word_longer_than_a_window_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    found = windows([Passage("d", "", "ab abcdefgh c")], 3, pieces=Letters())
    assert [passage.text for passage in found] == ["ab", "abcdefgh", "c"]
    assert "1 words are longer than a window of 3 pieces" in caplog.text


def test_answers_of_questions_stand_in_the_windows_that_hold_them_whole() -> None:
    words = [f"w{i}" for i in range(10)]
    text = " ".join(words)
    long, short = Passage("long", "T", text), Passage("short", "", "w3 alone", "book", 40)
    places = [Answer("w3", "long", text.index("w3"), text.index("w3") + 2), Answer("w3", "short", 0, 2)]
    cut_in_two = Answer("w2 w3 w4", "long", text.index("w2"), text.index("w4") + 2)
    question = Question("q", "?", (*places, cut_in_two, Answer("w9")), (long, short))
    (found,) = question_windows([question], 4, 1)
    assert [one.id for one in found.passages] == ["long#1", "long#2", "long#3", "short"]
    by_id = {one.id: one for one in found.passages}
    held = [answer for answer in found.answers if answer.located]
    assert [answer.passage for answer in held] == ["long#1", "long#2", "short"]
    assert all(by_id[one.passage].text[one.start : one.end] == "w3" for one in held)
    assert [answer.text for answer in found.answers if not answer.located] == ["w2 w3 w4", "w9"]
    assert question_windows([question], 10) == [question], "what fits stays as it is"


def test_a_window_begins_with_no_mark() -> None:
    thai = "\u0e17\u0e35\u0e48\u0e19\u0e35\u0e48\u0e21\u0e35\u0e19\u0e49\u0e33"
    found = windows([Passage("t", "", thai)], 3)
    assert "".join(one.text for one in found) == thai
    assert all(unicodedata.category(one.text[0]) == "Lo" for one in found)
