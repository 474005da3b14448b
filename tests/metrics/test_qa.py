"""Answer scores against hand values and the field case, retrieval scores against brute force."""

import json
import re
import string
from collections import Counter
from pathlib import Path

import pytest

from encodeonce.errors import ConfigError
from encodeonce.metrics.qa import answer_scores, exact_match, normalised, token_f1


def test_QA_2_corner_cases(cases: Path) -> None:
    for row in json.loads((cases / "QA-2.json").read_text("utf-8")):
        assert exact_match([row["gold"]], row["pred"]) == bool(row["squad_em"]), row
        assert token_f1([row["gold"]], row["pred"]) == pytest.approx(row["squad_f1"]), row


def test_QA_2_two_empty_strings_are_reported() -> None:
    scores = answer_scores([["?"], ["x"], [""], ["The"]], ["!", "x", "", ""])
    assert (scores["exact_match"], scores["emptied"]) == (100.0, 1.0)


def test_the_published_rule_on_hand_values() -> None:
    assert normalised("The  Twenty-One, a 'Café'!") == "twentyone café"
    assert normalised("theatre an anthem") == "theatre anthem"
    assert normalised("“Hi” – U+200B:\u200b é", "unicode") == normalised(
        "hi u200B é".replace("é", "e\u0301"), "unicode"
    )
    assert token_f1(["b c", "c d e"], "c d x") == pytest.approx(2 / 3)
    assert exact_match(["x", "An  Oslo."], "oslo")


def test_against_a_plain_restatement() -> None:
    """The rule written out another way, over many made-up strings."""
    words = ["the", "a", "Oslo", "is", "in", "Norway.", "an", "U.S.", "-", "1,000"]

    def plain(text: str) -> list[str]:
        text = "".join(" " if c.isspace() else c for c in text.lower() if c not in string.punctuation)
        return [word for word in re.split(r"\s+", text) if word not in ("", "a", "an", "the")]

    for i in range(300):
        gold = " ".join(words[(i * k) % 10] for k in range(1, 1 + i % 4))
        said = " ".join(words[(i * k + 3) % 10] for k in range(1, 1 + i % 5))
        g, p = plain(gold), plain(said)
        same = sum((Counter(g) & Counter(p)).values())
        f1 = float(g == p) if not g or not p else 0.0 if not same else 2 * same / (len(g) + len(p))
        assert exact_match([gold], said) == (g == p)
        assert token_f1([gold], said) == pytest.approx(f1)


def test_no_answer_is_an_outcome() -> None:
    scores = answer_scores([["Oslo"], [""], [""], []], ["", "", "x", "y"])
    assert scores["exact_match"] == pytest.approx(100 / 3)
    assert (scores["answered_exact_match"], scores["unanswerable_exact_match"]) == (0.0, 50.0)
    assert (scores["unanswerable_f1"], scores["n"], scores["unscored"]) == (50.0, 3.0, 1.0)
    assert "answered_f1" not in answer_scores([["x"]], ["x"])


def test_gold_that_normalises_to_nothing_counts_only_alone() -> None:
    assert not exact_match(["The", "Who"], "")
    assert exact_match(["The"], "")


def test_errors() -> None:
    with pytest.raises(ConfigError, match="2 gold items but 1 predicted"):
        answer_scores([["x"], ["y"]], ["x"])
    with pytest.raises(ConfigError, match=r"rule='squat' is not known. There is: squad, unicode"):
        normalised("x", "squat")
    with pytest.raises(ConfigError, match="without gold answers cannot be scored"):
        exact_match([], "x")
    assert answer_scores([], []) == {"exact_match": None, "f1": None, "n": 0.0, "unscored": 0.0, "emptied": 0.0}
