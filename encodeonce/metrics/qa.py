"""Exact match and F1 of answers, by the rule of SQuAD (Rajpurkar et al. 2016; no-answer as in 2.0, 2018). Per cent.

An answer is lower-cased, loses ASCII punctuation (deleted, not made a space: "twenty-one" is "twentyone"), the words a,
an and the, and surplus blanks; the best of a question's gold answers counts. Typographic quotes and dashes stay, and
composed and decomposed accents differ: that is the published rule, and comparable scores need it. `rule="unicode"` is
another, ours: NFKC, case folded, and every character of punctuation, symbols and format goes.
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from ..errors import ConfigError
from .accuracy import same_number

__all__ = ["RULES", "answer_scores", "exact_match", "normalised", "token_f1"]

ARTICLES = re.compile(r"\b(a|an|the)\b", re.UNICODE)
DELETED = str.maketrans("", "", string.punctuation)


def _squad(text: str) -> str:
    return " ".join(ARTICLES.sub(" ", text.lower().translate(DELETED)).split())


def _unicode(text: str) -> str:
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    kinds = ((sign, unicodedata.category(sign)) for sign in folded)
    kept = "".join(sign for sign, kind in kinds if kind[0] not in "PS" and kind != "Cf")
    return " ".join(ARTICLES.sub(" ", kept).split())


RULES: Mapping[str, Callable[[str], str]] = {"squad": _squad, "unicode": _unicode}
"""How an answer is made comparable, by name."""


def normalised(text: str, rule: str = "squad") -> str:
    """The answer as it is compared."""
    if rule not in RULES:
        raise ConfigError(f"rule={rule!r} is not known. There is: {', '.join(RULES)}.")
    return RULES[rule](text)


def exact_match(gold: Sequence[str], predicted: str, rule: str = "squad") -> bool:
    """Whether the prediction is one of the gold answers. ("",) is the gold of a question without an answer."""
    said = normalised(predicted, rule)
    return any(said == one for one in _kept(gold, rule))


def token_f1(gold: Sequence[str], predicted: str, rule: str = "squad") -> float:
    """The best F1 over the gold answers of the bag of words, 0 to 1; where one side has no words, 1 or 0."""
    said = normalised(predicted, rule).split()
    return max(_f1(one.split(), said) for one in _kept(gold, rule))


def answer_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[str], rule: str = "squad"
) -> dict[str, float | None]:
    """exact_match and f1 over the questions with gold answers, `n` of them; `unscored` have none, and count nowhere.

    Where some questions have no answer (their gold is ("",)) and some have, also each score over either kind, as
    answered_... and unanswerable_.... `emptied` counts the questions that match only because both sides normalise to
    nothing although neither is empty ("!" and "?", case QA-2): right by the rule, and to be looked at.
    Raises ConfigError where the two differ in length.
    """
    same_number(gold, predicted)
    pairs = [(tuple(g), p) for g, p in zip(gold, predicted, strict=True) if g]
    rows = [(exact_match(g, p, rule), token_f1(g, p, rule), any(g)) for g, p in pairs]
    scores = _means(rows)
    if 0 < sum(some for *_, some in rows) < len(rows):
        for name, kind in (("answered", True), ("unanswerable", False)):
            own = _means([row for row in rows if row[2] is kind])
            scores |= {f"{name}_{key}": value for key, value in own.items()}
    emptied = sum(bool(p) and any(g) and not normalised(p, rule) and exact_match(g, p, rule) for g, p in pairs)
    return {**scores, "n": float(len(pairs)), "unscored": float(len(gold) - len(pairs)), "emptied": float(emptied)}


def _means(rows: Sequence[tuple[bool, float, bool]]) -> dict[str, float | None]:
    n = len(rows)
    if not n:
        return {"exact_match": None, "f1": None}
    return {"exact_match": 100.0 * sum(row[0] for row in rows) / n, "f1": 100.0 * sum(row[1] for row in rows) / n}


def _kept(gold: Sequence[str], rule: str) -> list[str]:
    """Gold answers that keep a word; where none does, nothing is the right answer (as in SQuAD 2.0's script)."""
    if not gold:
        raise ConfigError("a question without gold answers cannot be scored; ('',) says that nothing is the answer.")
    return [one for one in (normalised(answer, rule) for answer in gold) if one] or [""]


def _f1(gold: Sequence[str], said: Sequence[str]) -> float:
    if not gold or not said:
        return float(gold == said)
    same = (Counter(gold) & Counter(said)).total()
    return 2 * same / (len(gold) + len(said))
