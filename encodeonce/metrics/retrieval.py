"""Was the right passage found? By judgements (passage ids), and by "the passage contains the answer" (DPR, FiD).

A text contains an answer where the answer's pieces stand in it in a row: both are put into NFD and lower-cased, and a
piece is a run of letters, numbers and marks or one other character that is not blank or invisible. So accents match in
composed and decomposed form, "10" is not in "1066", "US" is not in "U.S.", and a run of Chinese is one piece. An answer
without pieces ("", U+200B) is in no text (case FID-2; the published rule finds it in every one), and is counted.
"""

import re
import unicodedata
from collections.abc import Sequence

from ..errors import ConfigError
from .accuracy import same_number

__all__ = ["answer_pieces", "answer_recall", "contains_answer", "retrieval_scores"]

ASCII_PIECES = re.compile(r"[a-z0-9]+|[!-/:-@\[-`{-~]")


def answer_pieces(text: str) -> list[str]:
    """The pieces by which texts and answers are compared."""
    text = unicodedata.normalize("NFD", text).lower()
    if text.isascii():
        return ASCII_PIECES.findall(text)
    pieces: list[str] = []
    run = False
    for sign in text:
        kind = unicodedata.category(sign)[0]
        if kind in "LNM":
            if run:
                pieces[-1] += sign
            else:
                pieces.append(sign)
        elif kind not in "ZC":
            pieces.append(sign)
        run = kind in "LNM"
    return pieces


def contains_answer(text: str, answers: Sequence[str]) -> bool:
    """Whether one of the answers stands in the text."""
    joined = _joined(text)
    # pieces hold no blank, so that one string within the other is one run of pieces within the other
    return any(wanted.strip() and wanted in joined for wanted in map(_joined, answers))


def answer_recall(
    answers: Sequence[Sequence[str]], texts: Sequence[Sequence[str]], ks: Sequence[int] = (1, 5, 20, 100)
) -> dict[str, float | None]:
    """answer_recall@k: for how many questions one of the first k texts contains an answer, per cent; and `n`.

    `unscored` questions have no answer with a piece in it: they count nowhere, neither found nor missed. A question
    with fewer than k texts is scored on those it has. Raises ConfigError where the two differ in length.
    """
    same_number(answers, texts)
    _check(ks)
    ranks = []
    for own, found in zip(answers, texts, strict=True):
        if any(answer_pieces(answer) for answer in own):
            ranks.append(next((rank for rank, text in enumerate(found, 1) if contains_answer(text, own)), None))
    n = len(ranks)
    hits = {k: sum(rank is not None and rank <= k for rank in ranks) for k in ks}
    scores: dict[str, float | None] = {f"answer_recall@{k}": 100.0 * hits[k] / n if n else None for k in ks}
    return {**scores, "n": float(n), "unscored": float(len(answers) - n)}


def retrieval_scores(
    relevant: Sequence[Sequence[str]], found: Sequence[Sequence[str]], ks: Sequence[int] = (1, 5, 20, 100)
) -> dict[str, float | None]:
    """recall@k (the share of a question's relevant passages among the first k found), success@k (whether any is) and
    mrr (1/rank of the first, over all found), means over questions, per cent; `n` of them.

    `unscored` questions have no relevant passage. Raises ConfigError where a list of found ids repeats one (it would be
    counted twice) or the two differ in length.
    """
    same_number(relevant, found)
    _check(ks)
    for number, ids in enumerate(found):
        if len(set(ids)) != len(ids):
            repeated = next(one for place, one in enumerate(ids) if one in ids[:place])
            raise ConfigError(f"question {number}: passage {repeated!r} was found more than once.")
    pairs = [(set(own), ids) for own, ids in zip(relevant, found, strict=True) if own]
    n = len(pairs)
    scores: dict[str, float | None] = {}
    for k in ks:
        shares = [len(own.intersection(ids[:k])) / len(own) for own, ids in pairs]
        scores[f"recall@{k}"] = 100.0 * sum(shares) / n if n else None
        scores[f"success@{k}"] = 100.0 * sum(share > 0 for share in shares) / n if n else None
    first = [next((1 / rank for rank, one in enumerate(ids, 1) if one in own), 0.0) for own, ids in pairs]
    return {**scores, "mrr": 100.0 * sum(first) / n if n else None, "n": float(n), "unscored": float(len(found) - n)}


def _joined(text: str) -> str:
    return f" {' '.join(answer_pieces(text))} "


def _check(ks: Sequence[int]) -> None:
    if not ks or min(ks) < 1:
        raise ConfigError(f"ks={tuple(ks)} must be numbers of passages, each at least 1.")
