"""ROUGE-L (Lin 2004): the longest common subsequence of two texts' words, as an F measure with beta 1 (spec A9).

Words are lower-cased runs between white space, without stemming. The length is counted with bit vectors in Python's
integers (Hyyro 2004): as many steps as a text has words that the other has too.

Axes: none; a text is a string
"""

from collections.abc import Iterable, Mapping, Sequence

__all__ = ["common_length", "rouge_l", "rouge_scores", "rouge_words"]


def rouge_words(text: str, limit: int | None = None) -> list[str]:
    """The words compared: at most `limit` from the start."""
    return text.lower().split()[:limit]


def common_length(first: Sequence[str], second: Sequence[str]) -> int:
    """Length of the longest common subsequence of two lists of words."""
    return _common(first, _places(second), len(second))


def rouge_l(first: str | Sequence[str], second: str | Sequence[str]) -> float:
    """F measure between 0 and 1, of texts or of their words; 0 where one of them has none."""
    one, two = (rouge_words(text) if isinstance(text, str) else text for text in (first, second))
    return rouge_scores(one, [two])[0]


def rouge_scores(words: Sequence[str], others: Iterable[Sequence[str]]) -> list[float]:
    """`rouge_l` of one text with each of the others, all given as words; where its words stand is noted once."""
    places, n = _places(words), len(words)
    return [2 * _common(own, places, n) / (len(own) + n) if own and n else 0.0 for own in others]


def _places(words: Sequence[str]) -> dict[str, int]:
    """Word -> a bit for every place where it stands."""
    found: dict[str, int] = {}
    for place, word in enumerate(words):
        found[word] = found.get(word, 0) | 1 << place
    return found


def _common(words: Sequence[str], places: Mapping[str, int], n: int) -> int:
    """The length from one side's words and the other's `n` places; a word without a place changes nothing."""
    whole = row = (1 << n) - 1
    for word in words:
        if word in places:
            match = row & places[word]
            row = ((row + match) | (row - match)) & whole
    return n - row.bit_count()
