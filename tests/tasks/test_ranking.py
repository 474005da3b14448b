"""Ranking passages: candidates, pairs that fit, scores by hand."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from encodeonce.corpus.question_files import document
from encodeonce.errors import ConfigError, DataError
from encodeonce.heads.relevance import Relevance
from encodeonce.nn.rows import Rows
from encodeonce.tasks import from_json, named
from encodeonce.types import Document, Passage, Pieces, Question

pytest.importorskip("bm25s")

SECTIONS = tuple(
    Passage(name, text=text)
    for name, text in {
        "camera": "take a picture with the camera",
        "alarm": "set an alarm for the morning",
        "flash": "a bright camera flash lights the whole picture at night",
        "wifi": "connect to a network",
    }.items()
)
ASKED = Question("q", "how to picture with camera", (), SECTIONS, {"answer": "take a picture"}, "f:1", ("wifi",))
TASK: Any = named("s10_sections", candidates=3)


class Words:
    """A tokenizer of words: a piece each, three special pieces in a pair."""

    def cut(self, documents: Sequence[Document]) -> list[Pieces]:
        found = []
        for one in documents:
            n = len(one.text.split()) + len(one.pair.split())
            word = np.concatenate([np.arange(n), np.full(3 if one.pair else 2, -1)]).astype(np.int32)
            found.append(Pieces(one.key, word, word, n, ((0, len(word), 0, len(word)),)))
        return found


def pairs(training: bool, window: int = 32, asked: Question = ASKED, task: Any = TASK) -> list[Document]:
    (found,) = task.shown([document(asked)], Words(), window, training)
    return list(found)


def test_candidates_are_bm25s_then_others_and_in_training_the_right_ones() -> None:
    found = pairs(training=False)
    assert [pair.meta["judged"].id for pair in found] == ["camera", "flash", "alarm"]
    assert found[0].pair == "take a picture with the camera"
    assert not any(gold.right for gold in TASK.gold(found))
    assert [pair.meta["judged"].id for pair in pairs(training=True)] == ["camera", "flash", "wifi"]
    two = replace(ASKED, relevant=("camera", "wifi"))
    narrow = pairs(training=True, asked=two, task=replace(TASK, candidates=2))
    assert sorted(pair.meta["judged"].id for pair in narrow) == ["camera", "wifi"], "what BM25 found is not cut off"
    every = replace(TASK, candidates=0)
    assert [pair.meta["judged"] for pair in pairs(training=False, task=every)] == list(SECTIONS)
    assert TASK.shown(found, Words(), 32) == [[pair] for pair in found], "a pair's own part is itself"


def test_a_passage_that_was_not_given_is_learned_from_and_never_found() -> None:
    asked = replace(ASKED, passages=SECTIONS[:3], unlisted=SECTIONS[3:])
    for task in (TASK, replace(TASK, candidates=0)):
        found = {t: [pair.meta["judged"].id for pair in pairs(t, asked=asked, task=task)] for t in (False, True)}
        assert sorted(found[False]) == ["alarm", "camera", "flash"]
        assert found[True][-1] == "wifi"
        gold = task.gold(pairs(False, asked=asked, task=task))
        scores = task.score(gold, [1.0] * len(gold))
        assert (scores["hits@5"], scores["ha_f1@1"], scores["n"]) == (0, 0, 1), "the question counts, and is missed"


def test_a_pair_is_cut_to_the_window() -> None:
    assert [pair.pair for pair in pairs(False, window=5 + 3 + 2)] == ["take a", "a bright", "set an"]


def test_scores_by_hand() -> None:
    """Two questions. The first has its section second; of its passages judged right, one of 30 characters, none is. The
    second has its section no candidate: a miss, and nothing is judged right."""
    second = replace(ASKED, id="r", place="f:2", relevant=("flash",), meta={})
    gold = TASK.gold([*pairs(False, asked=replace(ASKED, relevant=("alarm",))), *pairs(False, asked=second)[:1]])
    scores = TASK.score(gold, [3.0, -2.0, -1.0, -4.0])
    assert (scores["hits@1"], scores["hits@3"], scores["n"]) == (0, 50, 2)
    assert scores["ha_f1@1"] == 0
    assert scores["rouge_l"] == pytest.approx(100 * 2 * 3 / (3 + 6)), "take a picture, of six words"
    right = TASK.score(gold, [3.0, -2.0, 4.0, -4.0])
    due, said = len("set an alarm for the morning"), len("take a picture with the camera")
    assert right["hits@1"] == 50
    assert right["ha_f1@1"] == pytest.approx(100 * (2 * due / (due + said + due)) / 2)
    assert TASK.score(gold[3:], [1.0])["rouge_l"] is None


def test_answers_are_written_as_names_in_order() -> None:
    found = pairs(False)
    ranked = TASK.joined(found, [0.5, 2.0, -1.0])
    assert ranked == (("flash", 2.0), ("camera", 0.5), ("alarm", -1.0))
    assert TASK.columns([document(ASKED)], [ranked])["ranked"] == [("flash", "camera", "alarm")]


def test_the_head_is_a_logistic_regression() -> None:
    head = Relevance(6, ("right",)).eval()
    vectors, gold = torch.randn(5, 6), torch.tensor([1.0, 0, 0, 1, 0])
    scores = head(vectors)
    share = 1 / (1 + np.exp(-scores.detach().double().numpy()))
    by_hand = -np.log(np.where(gold.numpy() == 1, share, 1 - share)).sum()
    assert float(head.loss(scores, gold).detach()) == pytest.approx(by_hand, rel=1e-5)
    assert head.decode(scores, Rows((1,) * 5, np.full(5, -1))) == pytest.approx(scores.tolist())


def test_it_survives_json_and_says_what_it_cannot_read() -> None:
    task = TASK.learn([document(ASKED)])
    assert from_json(task.to_json()) == task
    with pytest.raises(DataError, match=r"file of questions \(format squad, techqa, sections, questions\)"):
        TASK.learn([Document("d", text="how", place="f:3")])
    with pytest.raises(DataError, match="no examples with a passage that answers"):
        TASK.learn([document(replace(ASKED, relevant=()))])
    with pytest.raises(ConfigError, match="metric='f1'"):
        named("s10_sections", metric="f1")


def test_a_passage_whose_first_word_has_no_room_is_cut_inside_it() -> None:
    class Letters:
        """A piece a character."""

        def cut(self, documents: Sequence[Document]) -> list[Pieces]:
            found = []
            for one in documents:
                sizes = [len(word) for text in (one.text, one.pair) for word in text.split()]
                word = np.concatenate([np.repeat(np.arange(len(sizes)), sizes), np.full(3, -1)]).astype(np.int32)
                found.append(Pieces(one.key, word, word, len(sizes), ((0, len(word), 0, len(word)),)))
            return found

    own = (Passage("long", text="run" + "s" * 60), Passage("short", text="ran so"))
    asked = Question("q", "who ran", (), own, {}, "f:1", ("short",))
    (found,) = TASK.shown([document(asked)], Letters(), 24)
    assert {pair.meta["judged"].id: pair.pair for pair in found} == {"long": "run" + "s" * 12, "short": "ran so"}
    blank = Question("q", " ", (), own, {}, "f:2", ("short",))
    with pytest.raises(DataError, match=r"^f:2 .*: the question is empty"):
        TASK.shown([document(blank)], Letters(), 24)
