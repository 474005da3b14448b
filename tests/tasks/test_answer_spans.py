"""Extractive answers: spans of words from characters, scores by SQuAD's rule, training and fusion on tiny models."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encodeonce.batching import Cut
from encodeonce.corpus.question_files import document
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.errors import ConfigError, DataError
from encodeonce.methods.finetune import Finetune, Tuning
from encodeonce.methods.refusion import Fusing, Near, Retrieved, refusion
from encodeonce.store import Search
from encodeonce.tasks import from_json, named
from encodeonce.tasks.answer_spans import MarkedAnswers
from encodeonce.train.evaluate import evaluate, predicted
from encodeonce.train.fit import fit
from encodeonce.train.settings import Settings
from encodeonce.types import Answer, Document, Passage, Pieces, Question

from ..encoders.conftest import checkpoint

__all__ = ["checkpoint"]

TASK = named("answer_spans")
PASSAGE = "The  cat (a tabby) sat on the river's bank."


def question(passage: str, answers: Any, starts: Any, number: int = 0) -> Document:
    meta = {"answers": answers, "answer_starts": starts}
    return Document(f"q{number}", text="who sat", pair=passage, meta=meta, place=f"file:{number}")


def test_characters_become_words_whatever_the_spacing_and_the_answers_edges() -> None:
    answers = ["cat (a tabby", "tabby", "river", "tabby"]
    starts = [5, 12, 30, 12]
    (gold,) = TASK.gold([question(PASSAGE, answers, starts)])
    assert gold.text == PASSAGE
    assert gold.spans == ((1, 3), (3, 3), (7, 7))
    asked = question(PASSAGE, [], [])
    said = TASK.joined([asked], [[(*span, -float(n)) for n, span in enumerate(gold.spans)]])
    assert [answer.text for answer in said] == ["cat (a tabby)", "tabby)", "river's"]
    assert all(PASSAGE[answer.start : answer.end] == answer.text for answer in said)
    written = TASK.columns([asked] * 2, [said, ()])
    assert written == {"answers": [("cat (a tabby)",), ()], "answer_starts": [(5,), ()]}
    withheld = TASK.learn([asked, question(PASSAGE, ["cat"], [5])]).columns([asked], [said])
    assert withheld == {"answers": [()], "answer_starts": [()]}, "its score is not above that of no answer"
    assert TASK.ids(gold).tolist() == [[1, 3], [3, 3], [7, 7]]
    assert TASK.learn([question(PASSAGE, answers, starts)]).head_options == {"longest": 30, "n_best": 20}


def test_a_question_without_an_answer_has_no_row_and_is_learned() -> None:
    documents = [question(PASSAGE, [], []), question(PASSAGE, ["cat"], [5])]
    task = TASK.learn(documents)
    assert task.unanswerable
    assert not TASK.learn(documents[1:]).unanswerable
    assert task.ids(task.gold(documents)[0]).shape == (0, 2)
    assert from_json(task.to_json()) == task


def test_scores_are_squads_by_hand() -> None:
    text = "in the year 1969."
    gold = [marked(text, "1969", (3, 3)), marked(text, "year 1969", (2, 3))]
    scores = TASK.score(gold, [[(3, 3, -1.0)], [(0, 0, 0.5), (3, 3, 1.0)]])
    assert scores["exact_match"] == 50  # the full stop is no part of an answer
    assert scores["f1"] == pytest.approx(100 * (1 + 2 / 3) / 2)  # precision 1, recall 1/2
    none = [marked(text, "", None, name) for name in "ab"]
    assert TASK.score(none, [(), [(0, 0, 1.0)]])["exact_match"] == 50
    learned = replace(TASK, unanswerable=True)
    assert learned.score(none, [[(0, 0, -0.1)], [(0, 0, 1.0)]])["exact_match"] == 50


def marked(text: str, answer: str, span: tuple[int, int] | None, name: str = "") -> MarkedAnswers:
    start = text.find(answer)
    due = Answer(answer, "p", start, start + len(answer)) if answer else Answer("")
    return MarkedAnswers(name or answer, (due,), "p", 0, (span,) if span else (), "", text)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            question(PASSAGE, None, None),
            r"file:0 \(id q0\): task 'answer_spans': 'answers' is None; it must be a list",
        ),
        (
            question(PASSAGE, "cat", [5]),
            r"'answers' is 'cat'; it must be a list of texts, empty for a question",
        ),
        (question(PASSAGE, ["cat"], ["5"]), r"'answer_starts' is \['5'\]; it must be a list of numbers of characters"),
        (question(PASSAGE, ["dog"], [5]), r"file:0 \(id q0\): the answer 'dog' does not stand at character 5"),
        (question(PASSAGE, ["cat"], []), "1 answers begin at 0 places"),
        (Document("s", text="who sat"), "this item has no passage"),
        (
            Document("s", text="who", pair="a cat", meta={"answer": [], "answer_starts": []}),
            "reads 'answers'.*'answer'",
        ),
    ],
)
def test_what_cannot_be_read_is_named(document: Document, message: str) -> None:
    with pytest.raises(DataError, match=message):
        TASK.gold([document])
    with pytest.raises(ConfigError, match="piece='first'"):
        named("answer_spans", piece="first")
    with pytest.raises(ConfigError, match=r"scoring='rouge' is not known. There is: squad, techqa, cuad"):
        named("answer_spans", scoring="rouge")


def drawn(n: int, seed: int) -> list[Document]:
    """The answer is the one word of two kinds among others."""
    draw = np.random.default_rng(seed)
    found = []
    for number in range(n):
        words = draw.choice(["cat", "sat", "mat", "the", "on"], 6).tolist()
        words[int(draw.integers(0, 6))] = answer = str(draw.choice(["river", "cafe"]))
        passage = " ".join(words)
        found.append(question(passage, [answer], [passage.index(answer)], number))
    return found


class Letters:
    """A tokenizer of letters: a piece each, four special pieces in a pair."""

    def cut(self, documents: Sequence[Document]) -> list[Pieces]:
        found = []
        for one in documents:
            words = [*one.text.split(), *one.pair.split()]
            word = np.repeat(np.arange(len(words)), list(map(len, words)))
            word = np.concatenate([word, np.full(4 if one.pair else 2, -1)]).astype(np.int32)
            found.append(Pieces(one.key, word, word, len(words), ((0, len(word), 0, len(word)),)))
        return found


LONG = Question(
    "q",
    "ab cd",
    (Answer("dog", "two", 40, 43), Answer("i j", "one", 20, 23)),
    (
        Passage("one", text="aaaa bbbb cccc dddd i j kk llll mm"),
        Passage("two", text="the cat sat upon a very long mat near a dog which was old"),
    ),
)


@pytest.mark.parametrize("stride", [16, 5])
def test_windows_hold_all_words_and_each_answer_where_it_stands(stride: int) -> None:
    """The room is 24 - 4 special - 4 of the question = 16 pieces; every window that holds an answer whole is marked."""
    task: Any = replace(TASK, stride=stride)
    (parts,) = task.shown([document(LONG)], Letters(), 24)
    assert [part.key for part in parts] == [p.key for own in task.shown(parts, Letters(), 24) for p in own]
    texts = {passage.id: passage.text for passage in LONG.passages}
    seen: dict[str, set[int]] = {name: set() for name in texts}
    for part, gold in zip(parts, task.gold(parts), strict=True):
        name, start = part.meta["window"]
        assert texts[name][start:].startswith(part.pair)
        assert len(part.pair.replace(" ", "")) <= 16
        seen[name] |= set(range(start, start + len(part.pair)))
        words = part.pair.split()
        held = [a for a in LONG.answers if a.passage == name and start <= a.start and a.end <= start + len(part.pair)]
        assert [" ".join(words[i : j + 1]) for i, j in gold.spans] == [a.text for a in held]
    assert all({i for i, c in enumerate(texts[n]) if c != " "} <= at for n, at in seen.items())
    moved = [b.meta["window"][1] > a.meta["window"][1] for a, b in pairwise(parts)]
    assert sum(not one for one in moved) == 1, "one step from the first passage to the second"


def test_candidates_of_all_windows_compete_and_stand_in_the_source() -> None:
    task: Any = replace(TASK, stride=5, unanswerable=True)
    (parts,) = task.shown([document(LONG)], Letters(), 24)
    found = [[(0, 0, -1.0), (1, 1, -2.0)] if not gold.spans else [(*gold.spans[0], 1.0)] for gold in task.gold(parts)]
    best = task.joined(parts, found)
    assert {(a.text, a.passage, a.start) for a in best if a.score > 0} == {("dog", "two", 40), ("i j", "one", 20)}
    places = [(a.passage, a.start, a.end) for a in best]
    assert len(set(places)) == len(places), "windows share words, a place counts once"
    assert [a.score for a in best] == sorted((a.score for a in best), reverse=True)
    assert task.score(task.gold(parts), found)["exact_match"] == 100
    assert task.score(task.gold(parts), found)["n"] == 1
    columns = task.columns([document(LONG)], [best])
    assert columns["answers"] == [(best[0].text,)]
    assert columns["answer_passages"] == [(best[0].passage,)]


def test_a_passage_that_was_not_given_is_learned_from_and_never_found() -> None:
    task: Any = replace(TASK, scoring="techqa", metric="ha_f1@1")
    alone = document(replace(LONG, answers=LONG.answers[:1], passages=LONG.passages[:1], unlisted=LONG.passages[1:]))
    seen = {
        training: {part.meta["window"][0] for part in task.shown([alone], Letters(), 24, training)[0]}
        for training in (False, True)
    }
    assert seen == {False: {"one"}, True: {"one", "two"}}
    (parts,) = task.shown([alone], Letters(), 24)
    scores = task.score(task.gold(parts), [[(0, 0, 1.0)]] * len(parts))
    assert (scores["ha_f1@1"], scores["n"]) == (0, 1), "the question counts, and is missed"


def test_training_keeps_every_window_with_an_answer_and_so_many_without() -> None:
    def kept(negatives: float, training: bool = True) -> tuple[int, int]:
        task: Any = replace(TASK, stride=5, negatives=negatives)
        marks = [
            bool(gold.spans) for own in task.shown([document(LONG)], Letters(), 24, training) for gold in task.gold(own)
        ]
        return sum(marks), len(marks) - sum(marks)

    every = kept(0.0)
    assert every[1] > every[0] > 1
    assert kept(1.0) == (every[0], every[0])
    assert kept(1.0, training=False) == every
    assert kept(100.0) == every


def test_what_has_no_room_is_said(caplog: pytest.LogCaptureFixture) -> None:
    long = replace(LONG, text="ab cd " + "word " * 5, passages=(Passage("two", text="a cat " + "x" * 30),), answers=())
    task: Any = replace(TASK, question_pieces=8)
    (parts,) = task.shown([document(long)], Letters(), 24)
    assert {part.text for part in parts} == {"ab cd word"}
    assert [part.pair for part in parts] == ["a cat", "x" * 12], "what has no room is cut inside the word"
    assert [part.meta["window"] for part in parts] == [("two", 0), ("two", 6)]
    assert "1 of 1 questions are cut to their first 8 pieces" in caplog.text
    assert "of 1 words that fit in no window the beginning alone is read" in caplog.text
    with pytest.raises(ConfigError, match="a window of 12 pieces has no room for a passage beside the question"):
        task.shown([document(long)], Letters(), 12)
    with pytest.raises(DataError, match="needs the answers; none is known"):
        task.gold(parts)
    with pytest.raises(DataError, match="2 passages; gold is of windows"):
        task.gold([document(LONG)])
    strings = document(replace(LONG, answers=(Answer("dog"),)))
    with pytest.raises(DataError, match="it is not said where the answer 'dog' stands"):
        task.learn([strings])


def test_techqas_scores_at_three_thresholds_by_hand() -> None:
    """Overlaps in characters: half of the gold found, F1 2/3; a wrong document 0; nothing due and a bad span."""
    task: Any = replace(named("techqa"), unanswerable=True)
    text = "abcd efgh"
    due = Answer(text, "p", 0, 9)
    gold = [
        MarkedAnswers("half", (replace(due, text="abcd efgh"),), "p", 0, (), "", text),
        MarkedAnswers("wrong", (due,), "other", 0, (), "", text),
        MarkedAnswers("none", (Answer(""),), "p", 0, (), "", text),
    ]
    scores = task.score(gold, [[(0, 0, 2.0)], [(0, 1, -1.0)], [(1, 1, -3.0)]])
    half = 2 * 4 / 13
    assert scores["ha_f1@1"] == pytest.approx(100 * half / 2)
    assert scores["f1"] == pytest.approx(100 * half / 3)
    assert scores["f1_at_null"] == pytest.approx(100 * (half + 0 + 1) / 3)
    assert scores["best_f1"] == pytest.approx(100 * (half + 0 + 1) / 3)
    assert scores["n"] == 3


def test_cuads_probabilities_are_shares_of_spans_and_no_answer() -> None:
    """One clause found at 0.75 = 3 / (1 + 3), one missed; a false one at 0.5: precision 1 at recall 1/2, no more."""
    task: Any = replace(named("cuad"), unanswerable=True)
    gold = [
        marked("Nevada law", "Nevada law", (0, 1), "a"),
        marked("x y", "x", (0, 0), "b"),
        marked("z", "", None, "c"),
    ]
    scores = task.score(gold, [[(0, 1, math.log(3))], [], [(0, 0, 0.0)]])
    assert scores["aupr"] == pytest.approx(50)
    assert scores["precision@80"] == 0
    worse = task.score(gold, [[(0, 1, -math.log(3))], [], [(0, 0, 0.0)]])
    assert worse["aupr"] == pytest.approx(100 * (0.5 * (0.5 + 0.5) / 2))


@pytest.mark.parametrize("family", ["bert", "roberta", "t5"])
def test_it_is_learned_and_takes_neighbours(family: str, checkpoint: Callable[..., Path]) -> None:
    model, train, test = Pretrained(checkpoint(family)), drawn(128, 0), drawn(32, 1)
    task: Any = TASK.learn(train)
    everyone = list({d.key: d for d in [*train, *test]}.values())
    cut = Cut(model.spec(), model.cut(everyone))
    plain = Finetune.build(Tuning("finetune", dropout=0.0), model, model.spec(), [task], seed=3, read_ahead=0)
    vectors = np.random.default_rng(0).standard_normal((9, model.width)).astype(np.float32)
    ids = np.random.default_rng(1).integers(0, 9, (len(everyone), 1, 4))
    near = Near(tuple(d.key for d in everyone), ids, np.zeros(ids.shape, np.float32), Search(vectors))
    method = refusion(plain, Fusing(schemes=("add",), k=4), model.width)
    source = Retrieved(cut, near)
    alone, beside = plain.read(cut, test, [task]), method.read(source, test, [task])
    before = evaluate(method, beside, {task.name: task}).scores[task.name]["f1"]
    assert before is not None
    settings = Settings(
        learning_rate=5e-3, encoder_learning_rate=2e-3, num_train_epochs=10, per_device_train_batch_size=16, seed=1
    )
    fit(method, method.read(source, train, [task]), {task.name: task}, settings)
    after = evaluate(method, beside, {task.name: task}).scores[task.name]["f1"]
    assert after is not None
    assert after > max(80, before + 20)
    batch, other = (next(iter(m.batches(e, size=8, order=None))) for m, e in ((method, beside), (plain, alone)))
    ours, theirs = (m.scores(b, m.names)[task.name].scores.ends for m, b in ((method, batch), (plain, other)))
    assert float((ours - theirs).detach().abs().max()) > 1e-4
    spans = [span for answer in predicted(method, beside)[0] for span in answer[task.name]]
    assert all(0 <= first <= last < 6 for first, last, _ in spans)


def test_a_question_none_of_whose_passage_fits_counts_as_missed() -> None:
    good = question("a cat", ["cat"], [2], 1)
    bad = question("\u6cb3" * 60, ["\u6cb3" * 2], [40], 2)
    parts = [part for own in TASK.shown([good, bad], Letters(), 24) for part in own]
    found = [((1, 1, 5.0),) if part.pair == "a cat" else () for part in parts]
    assert TASK.score(TASK.gold(parts), found)["f1"] == 50
    assert TASK.score(TASK.gold(parts), found)["n"] == 2
