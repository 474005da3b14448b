"""Recall and "the passage contains the answer" against brute force and the field case."""

import json
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from encodeonce.errors import ConfigError
from encodeonce.metrics.retrieval import answer_pieces, answer_recall, contains_answer, retrieval_scores


def test_FID_2_passage_contains_the_answer(cases: Path) -> None:
    documented = {"US": False, "北京": False}
    for row in json.loads((cases / "FID-2.json").read_text("utf-8")):
        due = documented[row["answers"][0]] if row["has_answer"] == "documented" else row["has_answer"]
        assert contains_answer(row["text"], row["answers"]) is due, row


def test_pieces_of_ascii_text_are_those_of_any_text() -> None:
    """The short way for ASCII against a loop over characters."""
    for text in ("U.S. army 10-20 (x_y) `a`\t~", "".join(map(chr, range(128)))):
        pieces, run = [], ""
        for sign in text.lower() + " ":
            if unicodedata.category(sign)[0] in "LNM":
                run += sign
                continue
            pieces += [run] if run else []
            run = ""
            if unicodedata.category(sign)[0] not in "ZC":
                pieces.append(sign)
        assert answer_pieces(text) == pieces
        assert answer_pieces(text + " é")[:-1] == pieces


def test_containing_is_a_run_of_pieces() -> None:
    generator = np.random.default_rng(0)
    signs = np.array(["a", "b", ".", "ab", "é"])
    for _ in range(300):
        text = " ".join(generator.choice(signs, generator.integers(0, 8)))
        answer = " ".join(generator.choice(signs, generator.integers(0, 3)))
        t, a = answer_pieces(text), answer_pieces(answer)
        brute = bool(a) and any(t[i : i + len(a)] == a for i in range(len(t)))
        assert contains_answer(text, [answer]) == brute


def test_answer_recall_counts_by_hand() -> None:
    answers = [["Oslo"], ["1999", "2000"], [""], ["z"]]
    texts = [["by sea", "in Oslo"], ["in 2000"], ["anything"], []]
    scores = answer_recall(answers, texts, ks=(1, 2))
    assert scores == {"answer_recall@1": 100 / 3, "answer_recall@2": 200 / 3, "n": 3.0, "unscored": 1.0}


def test_recall_against_brute_force() -> None:
    generator = np.random.default_rng(0)
    relevant = [[str(i) for i in generator.choice(20, generator.integers(0, 4), replace=False)] for _ in range(50)]
    found = [[str(i) for i in generator.permutation(20)[: generator.integers(0, 20)]] for _ in range(50)]
    scores = retrieval_scores(relevant, found, ks=(1, 5))
    scored = [(set(r), f) for r, f in zip(relevant, found, strict=True) if r]
    for k in (1, 5):
        shares = [sum(one in f[:k] for one in r) / len(r) for r, f in scored]
        assert scores[f"recall@{k}"] == pytest.approx(100 * np.mean(shares))
        assert scores[f"success@{k}"] == pytest.approx(100 * np.mean([share > 0 for share in shares]))
    ranks = [[f.index(one) + 1 for one in r if one in f] for r, f in scored]
    assert scores["mrr"] == pytest.approx(100 * np.mean([1 / min(own) if own else 0 for own in ranks]))
    assert (scores["n"], scores["unscored"]) == (len(scored), 50 - len(scored))


def test_errors() -> None:
    with pytest.raises(ConfigError, match="question 1: passage 'p30' was found more than once"):
        retrieval_scores([["a"], ["p30"]], [["a"], ["p30", "p10", "p30"]])
    with pytest.raises(ConfigError, match=r"ks=\(0,\)"):
        answer_recall([["a"]], [["a"]], ks=(0,))
    assert retrieval_scores([[]], [["a"]], ks=(1,))["recall@1"] is None
