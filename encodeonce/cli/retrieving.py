"""The work behind `retrieve`: parts of documents ranked by BM25 and by encoders' vectors, and their scores.

Axes: T different texts   D width   N parts of one question's document
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from ..corpus.asked import Asked, Part, Ranking
from ..corpus.text import sentences
from ..encoders.pooled import Pooled
from ..encoders.pretrained import Pretrained
from ..metrics.cuad import Clause, cuad
from ..metrics.rouge import rouge_l, rouge_words
from ..metrics.techqa import NO_ANSWER, Span, Spans, best_threshold, hits, techqa
from ..retrieval.bm25 import within
from ..types import Document, Passage
from .steps import names_of

__all__ = ["KEPT", "answer_scores", "by_vectors", "ranked_by", "retrieved", "scores_of"]

log = logging.getLogger("encodeonce")

KEPT = 20
"""Parts of a question that are kept, as in CUAD's and TechQA's scripts."""
HITS = (1, 3, 5)
WORDS = 100
"""Of an answer that ROUGE-L looks at, as in S10's script."""
POINTS = 100
"""Thresholds of a curve where scores are no probabilities."""

Ranked = list[tuple[Part, float]]
Rank = Callable[[Sequence[Asked]], list[Ranked]]


def retrieved(ranking: Ranking, encoders: Sequence[str], pooling: str, compute: str) -> dict[str, dict[str, Any]]:
    """BM25, then each encoder -> scores in per cent, questions, seconds."""
    models = [Pretrained(encoder, compute=compute) for encoder in encoders]  # all are there before the first encodes
    found = {}
    for name in ("BM25", *names_of(encoders, "BM25")):
        began = time.perf_counter()
        rank: Rank = _by_words
        if name != "BM25":
            rank = partial(by_vectors, Pooled(models.pop(0), "text", pooling, normalize=True))
        ranked = rank(ranking.questions)
        scores = {**scores_of(ranking, ranked), **answer_scores(ranking, ranked, rank)}
        found[name] = {**scores, "seconds": round(time.perf_counter() - began, 2)}
        log.info("%s: %s", name, found[name])
    return found


def scores_of(ranking: Ranking, ranked: Sequence[Ranked]) -> dict[str, float | None]:
    """Sections: HITS@K. Sentences, in characters: TechQA's HA_F1@1 and @5, F1 of all questions with nothing withheld,
    and at the threshold that is best for these very questions (a cosine has no null score, so there is no threshold of
    its own). Clauses: CUAD's area under the precision-recall curve and precision at 80 % recall, at thresholds that
    let through from 1 to all parts kept."""
    questions = ranking.questions
    if ranking.form == "sections":
        gold, ids = [one.gold[0] for one in questions], [[part.id for part, _ in one] for one in ranked]
        return {f"hits@{k}": hits([list(dict.fromkeys(one)) for one in ids], gold, k) for k in HITS}
    if ranking.form == "sentences":
        spans = []
        for one, own in zip(questions, ranked, strict=True):
            places = tuple((one.document, part.start, part.stop) for part, _ in own)
            spans.append(Spans(places, tuple(score for _, score in own)))
        due = [_whole(one) for one in questions]
        threshold, best = best_threshold(spans, due)
        log.info("best_f1 withholds answers under %.3f, the best threshold for these questions", threshold)
        return {**techqa(spans, due), "best_f1": best}
    clauses = [
        Clause(one.gold, tuple((part.text, score) for part, score in own), one.query == "Parties")
        for one, own in zip(questions, ranked, strict=True)
    ]
    curve = cuad(clauses, _thresholds([score for own in ranked for _, score in own]))
    return {"aupr": curve.aupr, "precision@80": curve.precision_at_80}


def answer_scores(ranking: Ranking, ranked: Sequence[Ranked], rank: Rank) -> dict[str, float]:
    """Sections whose questions have an answer: mean ROUGE-L, over the first 100 words of both, of the answer and the
    best sentence of the section that was found first, right or wrong; nothing for others."""
    known = [(one, own[:1]) for one, own in zip(ranking.questions, ranked, strict=True) if one.answer]
    if ranking.form != "sections" or not known:
        return {}
    again = [replace(one, parts=_cut(first[0][0]), gold=()) for one, first in known if first]
    found = [
        rouge_l(*(rouge_words(text, WORDS) for text in (one.answer, own[0][0].text if own else "")))
        for one, own in zip(again, rank(again), strict=True)
    ]
    return {"rouge_l": 100 * sum(found) / len(known)}


def _cut(section: Part) -> tuple[Part, ...]:
    """Its sentences."""
    return tuple(Part(str(n), section.text[start:stop]) for n, (start, stop) in enumerate(sentences(section.text)))


def _whole(one: Asked) -> Span:
    """From the first sentence of the answer to its last; NO_ANSWER where there is none."""
    if not one.gold:
        return NO_ANSWER
    own = [part for part in one.parts if part.id in one.gold]
    return one.document, min(part.start for part in own), max(part.stop for part in own)


def _thresholds(scores: Sequence[float]) -> list[float]:
    """Under which 1 ... all of the scores lie, at counts in equal ratios: a cosine is no probability."""
    if not scores:  # no part has a word of its question
        return []
    falling = np.sort(np.asarray(scores))[::-1]
    counts = np.unique(np.geomspace(1, len(falling), POINTS).round().astype(int))
    return [float(np.nextafter(falling[count - 1], -np.inf)) for count in counts]


def ranked_by(score: Callable[[Asked], Float[np.ndarray, " N"]], questions: Sequence[Asked]) -> list[Ranked]:
    """The `KEPT` best parts of each question, equal scores in their order."""
    found = []
    for one in questions:
        values = score(one)
        order = np.argsort(-values, kind="stable")[:KEPT]
        found.append([(one.parts[i], float(values[i])) for i in order])
    return found


def _by_words(questions: Sequence[Asked]) -> list[Ranked]:
    """By BM25 among the parts of each question's own document; parts without a common word are not found."""
    passages: dict[int, list[Passage]] = {}
    for one in questions:
        if id(one.parts) not in passages:
            passages[id(one.parts)] = [Passage(str(n), text=part.text) for n, part in enumerate(one.parts)]
    found = within([(one.query, passages[id(one.parts)]) for one in questions], KEPT)
    return [[(one.parts[at], score) for at, score in own.items()] for one, own in zip(questions, found, strict=True)]


def by_vectors(source: Pooled, questions: Sequence[Asked]) -> list[Ranked]:
    """By cosine."""
    return ranked_by(_vectors(source, questions), questions)


def _vectors(source: Pooled, questions: Sequence[Asked]) -> Callable[[Asked], Float[np.ndarray, " N"]]:
    """Cosines of a question and its parts; every different text is encoded once."""
    texts = {one.query: None for one in questions} | {part.text: None for one in questions for part in one.parts}
    row = {text: n for n, text in enumerate(texts)}
    vectors = np.empty((len(row), source.model.width), np.float32)
    log.info("%s: %s different texts to encode", source.model.name, f"{len(row):,}")
    for i, views in source.encode(source.cut([Document(str(n), text=text) for text, n in row.items()])):
        vectors[i] = views[-1, 0]
    rows = {id(one.parts): np.array([row[part.text] for part in one.parts]) for one in questions}
    return lambda one: vectors[rows[id(one.parts)]] @ vectors[row[one.query]]
