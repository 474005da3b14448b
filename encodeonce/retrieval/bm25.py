"""BM25 (Robertson and Zaragoza 2009) over titles and texts, by the library bm25s (Lu 2024).

Words are runs of letters, digits and marks, lower-cased, accents composed; nothing is stemmed, and the commonest
English function words of a question count for nothing.
"""

import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ConfigError, MissingExtra
from ..types import Passage
from . import Hit, check_k, shown

__all__ = ["BM25"]

WORD = re.compile(r"\w+")
COMMON = frozenset(
    WORD.findall(
        "a an and are as at be but by did do does for from had has have how if in into is it its no not of on or such "
        "that the their then there these they this to was were what when where which who whom whose why will with"
    )
)


class BM25:
    """An index of passages in memory. `k1` and `b` as in the paper, by Lucene's form of the score.

    Raises MissingExtra without bm25s, ConfigError where there is no passage.
    """

    def __init__(self, passages: Sequence[Passage], k1: float = 1.5, b: float = 0.75) -> None:
        if not passages:
            raise ConfigError("there is no passage to search. Add some first.")
        self.ids = [passage.id for passage in passages]
        self._index: Any = _bm25s().BM25(k1=k1, b=b, method="lucene")
        self._index.index([_words(shown(passage)) or [""] for passage in passages], show_progress=False)

    def find(self, questions: Sequence[str], k: int) -> list[list[Hit]]:
        """At most k passages that share a word with the question; equal scores in the order of the passages.

        A question whose words are all common ones is searched by these.
        """
        check_k(k)
        return [self._found(question, k) for question in questions]

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


def _words(text: str) -> list[str]:
    return WORD.findall(unicodedata.normalize("NFC", text).lower())


def _bm25s() -> Any:
    try:
        import bm25s
    except ImportError:
        raise MissingExtra("BM25 needs bm25s. Install it with: pip install 'encodeonce[search]'") from None
    return bm25s
