"""BM25 against the formula written out, and the edges of "at most k"."""

import math
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from encodeonce.errors import ConfigError
from encodeonce.retrieval import Hit, Retriever, shown
from encodeonce.retrieval.bm25 import BM25, _made_of
from encodeonce.types import Passage

pytest.importorskip("bm25s", reason="needs the extra: pip install 'encodeonce[search]'")

TEXTS = ["Oslo is a city", "the sea by Oslo and Oslo again", "a boat on the sea", "Ana's café", "nothing"]
PASSAGES = [Passage(f"p{i}", "" if i else "Norway", text) for i, text in enumerate(TEXTS)]


def by_hand(query: list[str], k1: float = 1.5, b: float = 0.75) -> np.ndarray:
    """Lucene's BM25: idf = ln(1 + (N - df + .5) / (df + .5)), tf / (tf + k1 (1 - b + b len / mean))."""
    documents = [Counter(re.findall(r"\w+", shown(passage).lower())) for passage in PASSAGES]
    lengths = [sum(document.values()) for document in documents]
    mean = sum(lengths) / len(lengths)
    scores = np.zeros(len(documents))
    for word in query:
        df = sum(word in document for document in documents)
        idf = math.log(1 + (len(documents) - df + 0.5) / (df + 0.5))
        for i, document in enumerate(documents):
            tf = document[word]
            scores[i] += idf * tf / (tf + k1 * (1 - b + b * lengths[i] / mean))
    return scores


def test_scores_are_those_of_the_formula() -> None:
    hits = BM25(PASSAGES).find(["Where is OSLO by the sea?"], 5)[0]
    due = by_hand(["oslo", "sea"])
    assert [hit.passage for hit in hits] == [f"p{i}" for i in np.argsort(-due, kind="stable") if due[i] > 0]
    np.testing.assert_allclose([hit.score for hit in hits], sorted(due[due > 0], reverse=True), rtol=1e-5)


def test_RETR_1_never_more_than_there_are() -> None:
    index = BM25(PASSAGES)
    assert isinstance(index, Retriever)
    assert len(index.find(["oslo"], 100)[0]) == 2
    assert index.find(["unheard of"], 3) == [[]]
    assert index.find([], 3) == []
    assert [hit.passage for hit in index.find(["sea oslo"], 1)[0]] == ["p1"]


def test_ties_keep_the_order_of_the_passages() -> None:
    same = [Passage(f"p{i}", "", "x y") for i in range(30)] + [Passage("q", "", "x z")]
    assert [hit.passage for hit in BM25(same).find(["y"], 4)[0]] == ["p0", "p1", "p2", "p3"]


def test_accents_and_common_words() -> None:
    index = BM25(PASSAGES)
    assert index.find(["cafe\u0301"], 1)[0][0].passage == "p3"
    assert {hit.passage for hit in index.find(["the"], 9)[0]} == {"p1", "p2"}
    assert isinstance(index.find(["oslo"], 1)[0][0], Hit)


def test_marks_are_parts_of_words() -> None:
    """A vowel sign is no letter to `re`: Hindi words shared their bare consonants, and were found by these."""
    texts = ["हिन्दी भाषा", "हाथी नदी दिन", "ภาษาไทยเป็น", "مُحَمَّد", "❤\ufe0f 1 x\u0304y"]
    index = BM25([Passage(f"p{i}", "", text) for i, text in enumerate(texts)])
    for question, expected in (("हिन्दी", ["p0"]), ("दिन", ["p1"]), ("न", []), ("مُحَمَّد", ["p3"]), ("x\u0304y 1", ["p4"])):
        assert [hit.passage for hit in index.find([question], 9)[0]] == expected
    assert not index.find(["\ufe0f"], 1)[0]


def test_scripts_without_blanks_are_found_by_characters_and_pairs_of_them() -> None:
    texts = {
        "a": "东京是日本的首都。",
        "b": "巴黎是法国的首都，法国在欧洲。",
        "c": "กรุงเทพเป็นเมืองหลวง",
        "d": "the ペット abc",
    }
    index = BM25([Passage(name, text=text) for name, text in texts.items()])
    asked = ["法国的首都在哪里", "日本", "เมืองหลวง", "ペット", "abc"]
    assert [hits[0].passage for hits in index.find(asked, 1)] == ["b", "a", "c", "d", "d"]
    assert index.find(["Київ"], 3) == [[]]


def test_errors() -> None:
    with pytest.raises(ConfigError, match="k=0 must be at least 1"):
        BM25(PASSAGES).find(["x"], 0)
    with pytest.raises(ConfigError, match="6 passages have 5 ids, 'p0' several times"):
        BM25([*PASSAGES, PASSAGES[0]])
    with pytest.raises(ConfigError, match="there is no passage to search"):
        BM25([])


def test_a_kept_index_answers_the_same_and_serves_these_passages_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, asked = tmp_path / "index", ["oslo sea", "café boat", "the", "unheard of", "oslo oslo"]
    due = BM25(PASSAGES).find(asked, 5)
    assert BM25(PASSAGES, kept=kept).find(asked, 5) == due
    written = kept.read_bytes()
    with monkeypatch.context() as without:
        without.setattr("bm25s.BM25.index", None)  # nothing is indexed again
        assert BM25(PASSAGES, kept=kept).find(asked, 5) == due
    changed = [replace(PASSAGES[0], text="Oslo by the sea"), *PASSAGES[1:]]
    assert BM25(changed, kept=kept).find(asked, 5) == BM25(changed).find(asked, 5) != due
    assert kept.read_bytes() != written
    BM25(PASSAGES, k1=1.2, kept=kept)
    assert BM25(PASSAGES, kept=kept).find(asked, 5) == due, "other parameters make another index"


def test_a_kept_index_that_was_changed_or_cannot_be_written_is_made_anew(tmp_path: Path) -> None:
    due = BM25(PASSAGES).find(["oslo sea"], 5)
    kept = tmp_path / "index"
    BM25(PASSAGES, kept=kept)
    whole = kept.read_bytes()
    for broken in (whole[:-1] + bytes([whole[-1] ^ 1]), whole[:40], b""):
        kept.write_bytes(broken)
        assert BM25(PASSAGES, kept=kept).find(["oslo sea"], 5) == due
        assert BM25(PASSAGES)._restored(kept, _made_of(PASSAGES, 1.5, 0.75)), "a whole one is there again"
    assert BM25(PASSAGES, kept=tmp_path / "no folder" / "index").find(["oslo sea"], 5) == due
