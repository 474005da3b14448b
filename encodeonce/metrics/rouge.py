"""ROUGE-L (Lin 2004): the longest common subsequence of two texts' words, as an F measure with beta 1 (spec A9).

Words are lower-cased runs between white space, without stemming. The length is counted with bit vectors in Python's
integers (Hyyro 2004): as many steps as the shorter text has words.

Axes: none; a text is a string
"""

from collections.abc import Sequence

__all__ = ["common_length", "rouge_l", "rouge_words"]


def rouge_words(text: str, limit: int | None = None) -> list[str]:
    """The words compared: at most `limit` from the start."""
    return text.lower().split()[:limit]


def common_length(first: Sequence[str], second: Sequence[str]) -> int:
    """Length of the longest common subsequence of two lists of words."""
    if len(first) > len(second):
        first, second = second, first
    places: dict[str, int] = {}
    for place, word in enumerate(second):
        places[word] = places.get(word, 0) | 1 << place
    whole = (1 << len(second)) - 1
    row = whole
    for word in first:
        match = row & places.get(word, 0)
        row = ((row + match) | (row - match)) & whole
    return len(second) - row.bit_count()


def rouge_l(first: str | Sequence[str], second: str | Sequence[str]) -> float:
    """F measure between 0 and 1, of texts or of their words; 0 where one of them has none."""
    one = rouge_words(first) if isinstance(first, str) else first
    two = rouge_words(second) if isinstance(second, str) else second
    return 2 * common_length(one, two) / (len(one) + len(two)) if one and two else 0.0
