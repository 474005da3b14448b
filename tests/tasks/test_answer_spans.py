"""Extractive answers: spans of words from characters, scores by SQuAD's rule, training and fusion on tiny models."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encodeonce.batching import Cut
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
from encodeonce.types import Document

from ..encoders.conftest import checkpoint

__all__ = ["checkpoint"]

TASK = named("answer_spans")
PASSAGE = "The  cat (a tabby) sat on the river's bank."


def question(passage: str, answers: list[str], starts: list[int], number: int = 0) -> Document:
    meta = {"answers": answers, "answer_starts": starts}
    return Document(f"q{number}", text="who sat", pair=passage, meta=meta, place=f"file:{number}")


def test_characters_become_words_whatever_the_spacing_and_the_answers_edges() -> None:
    answers = ["cat (a tabby", "tabby", "river", "tabby"]
    starts = [5, 12, 30, 12]
    (gold,) = TASK.gold([question(PASSAGE, answers, starts)])
    assert gold.words == tuple(PASSAGE.split())
    assert gold.spans == ((1, 3), (3, 3), (7, 7))
    assert [gold.said(span) for span in gold.spans] == ["cat (a tabby)", "tabby)", "river's"]
    written = TASK.columns([question(PASSAGE, [], [])] * 2, [(1, 3), ()])
    assert written == {"answers": [("cat (a tabby)",), ()], "answer_starts": [(5,), ()]}
    assert TASK.ids(gold).tolist() == [[1, 3], [3, 3], [7, 7]]
    assert TASK.learn([question(PASSAGE, answers, starts)]).head_options == {"longest": 30, "unanswerable": False}


def test_a_question_without_an_answer_has_no_row_and_is_learned() -> None:
    documents = [question(PASSAGE, [], []), question(PASSAGE, ["cat"], [5])]
    task = TASK.learn(documents)
    assert task.head_options["unanswerable"]
    assert task.ids(task.gold(documents)[0]).shape == (0, 2)
    assert from_json(task.to_json()) == task


def test_scores_are_squads_by_hand() -> None:
    words = ("in", "the", "year", "1969.")
    gold = [MarkedAnswers(words, ("1969",), ((3, 3),)), MarkedAnswers(words, ("year 1969",), ((2, 3),))]
    scores = TASK.score(gold, [(3, 3), (3, 3)])
    assert scores["exact_match"] == 50  # the full stop is no part of an answer
    assert scores["f1"] == pytest.approx(100 * (1 + 2 / 3) / 2)  # precision 1, recall 1/2
    assert TASK.score([MarkedAnswers(words, (), ())] * 2, [(), (0, 0)])["exact_match"] == 50


@pytest.mark.parametrize(
    ("document", "message"),
    [
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


@pytest.mark.parametrize("family", ["bert", "roberta", "t5"])
def test_it_is_learned_and_takes_neighbours(family: str, checkpoint: Callable[..., Path]) -> None:
    model, train, test = Pretrained(checkpoint(family)), drawn(64, 0), drawn(32, 1)
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
        learning_rate=5e-3, encoder_learning_rate=2e-3, num_train_epochs=12, per_device_train_batch_size=16, seed=1
    )
    fit(method, method.read(source, train, [task]), {task.name: task}, settings)
    after = evaluate(method, beside, {task.name: task}).scores[task.name]["f1"]
    assert after is not None
    assert after > max(80, before + 20)
    batch, other = (next(iter(m.batches(e, size=8, order=None))) for m, e in ((method, beside), (plain, alone)))
    ours, theirs = (m.scores(b, m.names)[task.name].scores.ends for m, b in ((method, batch), (plain, other)))
    assert float((ours - theirs).detach().abs().max()) > 1e-4
    spans = [answer[task.name] for answer in predicted(method, beside)[0]]
    assert all(0 <= first <= last < 6 for first, last in spans)
