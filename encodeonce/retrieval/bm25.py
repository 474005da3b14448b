"""BM25 (Robertson and Zaragoza 2009) over titles and texts, by the library bm25s (Lu 2024).

Words are runs of letters, digits and the marks on them, lower-cased, accents composed; nothing is stemmed, and the
commonest English function words of a question count for nothing. Of scripts without blanks between words (Chinese,
Japanese, Thai and others) each character and each two neighbours are a word. An index may be kept in a file
(safetensors: the scores of each word's passages, and the words), which serves as long as it was made of the same
passages in the same way.
"""

import json
import logging
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as tensor_bytes

from ..corpus.text import MARKS, UNSPACED
from ..errors import ConfigError, MissingExtra, StoreError
from ..store.claim import write_atomically
from ..types import Passage
from . import Hit, check_ids, check_k, shown

__all__ = ["BM25", "within"]

log = logging.getLogger("encodeonce")

FORMAT = 2
PARTS = ("data", "indices", "indptr")
PLAIN = re.compile(r"\w+")
"""The same in a text without marks, and faster."""

WORD = re.compile(rf"[{UNSPACED}]+|[^\W{UNSPACED}]+(?:[{MARKS}]+[^\W{UNSPACED}]*)*")
RUN = re.compile(rf"[{UNSPACED}]")
COMMON = frozenset(
    WORD.findall(
        "a an and are as at be but by did do does for from had has have how if in into is it its no not of on or such "
        "that the their then there these they this to was were what when where which who whom whose why will with"
    )
)


class BM25:
    """An index of passages. `k1` and `b` as in the paper, by Lucene's form of the score.

    `kept` is a file that the index is read from where it is of these passages, and else written to; a folder that
    cannot be written to costs the file alone. Raises MissingExtra without bm25s, ConfigError where there is no passage
    and for two of one id.
    """

    def __init__(
        self, passages: Sequence[Passage], k1: float = 1.5, b: float = 0.75, *, kept: Path | None = None
    ) -> None:
        if not passages:
            raise ConfigError("there is no passage to search. Add some first.")
        self.ids = [passage.id for passage in passages]
        check_ids(self.ids)
        self._index: Any = _bm25s().BM25(k1=k1, b=b, method="lucene")
        made_of = "" if kept is None else _made_of(passages, k1, b)
        if kept is not None and self._restored(kept, made_of):
            return
        self._index.index([_words(shown(passage)) or [""] for passage in passages], show_progress=False)
        if kept is not None:
            self._keep(kept, made_of)

    def find(self, questions: Sequence[str], k: int) -> list[list[Hit]]:
        """At most k passages that share a word with the question; equal scores in the order of the passages.

        A question whose words are all common ones is searched by these.
        """
        check_k(k)
        return [self._found(question, k) for question in questions]

    def _restored(self, kept: Path, made_of: str) -> bool:
        """Take the index from the file; whether it was there, whole, and of these passages."""
        try:
            with safe_open(kept, "np") as file:
                about = file.metadata() or {}
                parts = {name: file.get_tensor(name) for name in PARTS}
        except (OSError, SafetensorError):
            return False
        words = about.get("words", "")
        if about.get("made_of") != made_of or about.get("check") != _check(parts, words):
            return False
        self._index.scores = {**parts, "num_docs": len(self.ids)}
        self._index.vocab_dict = {word: number for number, word in enumerate(json.loads(words))}
        self._index.nonoccurrence_array = None
        return True

    def _keep(self, kept: Path, made_of: str) -> None:
        vocabulary = self._index.vocab_dict
        words = json.dumps(sorted(vocabulary, key=vocabulary.__getitem__), ensure_ascii=False)
        parts = {name: np.ascontiguousarray(self._index.scores[name]) for name in PARTS}
        about = {"made_of": made_of, "check": _check(parts, words), "words": words}
        try:
            write_atomically(kept, tensor_bytes(parts, about))
        except (OSError, StoreError) as problem:
            log.info("the index of passages is not kept: %s", problem)

    def _found(self, question: str, k: int) -> list[Hit]:
        words = _words(question)
        wanted = [word for word in words if word not in COMMON] or words
        known = [word for word in wanted if word in self._index.vocab_dict]
        if not known:
            return []
        scores = np.asarray(self._index.get_scores(known))
        near = np.flatnonzero(scores > 0)
        if len(near) > k:
            near = near[scores[near] >= np.partition(scores[near], len(near) - k)[len(near) - k]]
        best = near[np.lexsort((near, -scores[near]))][:k]
        return [Hit(self.ids[i], float(scores[i])) for i in best]


def within(asked: Sequence[tuple[str, Sequence[Passage]]], k: int) -> list[dict[int, float]]:
    """For each question and its own passages: the places of at most k that BM25 finds among them, best first, and their
    scores. Questions that share one sequence of passages share an index."""
    indices: dict[int, BM25] = {}
    found = []
    for text, passages in asked:
        if id(passages) not in indices:
            numbered = [replace(passage, id=str(n)) for n, passage in enumerate(passages)]
            indices[id(passages)] = BM25(numbered)
        (own,) = indices[id(passages)].find([text], k)
        found.append({int(hit.passage): hit.score for hit in own})
    return found


def _words(text: str) -> list[str]:
    shown = unicodedata.normalize("NFC", text).lower()
    if shown.isascii():
        return PLAIN.findall(shown)
    found: list[str] = []
    for word in WORD.findall(shown):
        found += [*word, *map("".join, pairwise(word))] if RUN.match(word) else [word]
    return found


def _made_of(passages: Sequence[Passage], k1: float, b: float) -> str:
    """A fingerprint of the passages and of how they are indexed."""
    seen = xxhash.xxh3_128(f"{FORMAT} {_bm25s().__version__} {k1} {b} {WORD.pattern}".encode())
    for passage in passages:
        seen.update(json.dumps([passage.id, passage.title, passage.text]).encode())
    return seen.hexdigest()


def _check(parts: dict[str, np.ndarray], words: str) -> str:
    seen = xxhash.xxh3_128(words.encode())
    for name in PARTS:
        seen.update(parts[name].tobytes())
    return seen.hexdigest()


def _bm25s() -> Any:
    try:
        import bm25s
    except ImportError:
        raise MissingExtra("BM25 needs bm25s. Install it with: pip install 'encodeonce[search]'") from None
    return bm25s
