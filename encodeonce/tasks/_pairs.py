"""How much of a window is left for a passage beside a question, and questions that are cut to leave some."""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ..corpus.windows import HasPieces
from ..errors import ConfigError
from ..types import Document

__all__ = ["Rooms", "fitting"]

log = logging.getLogger("encodeonce")

WORD = re.compile(r"\S+")


class Rooms:
    """`shown[text]` is what is shown of a question, at most `most` pieces of it, whole words, and how many pieces of a
    passage fit beside it, a multiple of `step` where there are so many. ConfigError where none fits."""

    def __init__(self, pieces: HasPieces, window: int, questions: Iterable[str], most: int, step: int = 1) -> None:
        self.shown: Mapping[str, tuple[str, int]]
        different = list(dict.fromkeys(questions))
        special = 0
        if different:
            (pair,) = pieces.cut([Document("", text=different[0].split()[0], pair="a")])
            special = int((pair.word < 0).sum())
        cut = fitting(pieces, different, most)
        shown, n_cut = {}, 0
        for text, (kept, size) in zip(different, cut, strict=True):
            n_cut += len(kept.split()) < len(text.split())
            room = window - special - size
            if room < 1 or not kept:
                raise ConfigError(
                    f"a window of {window} pieces has no room for a passage beside the question {text[:60]!r}, of "
                    f"which {size} pieces are kept. Lower the task's question_pieces={most}."
                )
            shown[text] = kept, room if room < step else room // step * step
        if n_cut:
            log.warning("%d of %d questions are cut to their first %d pieces", n_cut, len(different), most)
        self.shown = shown


def fitting(pieces: HasPieces, texts: Sequence[str], most: int | Sequence[int]) -> list[tuple[str, int]]:
    """Each text as far as whole words of it have at most so many pieces, and how many these are; of a text whose first
    word has more (such as one in a script without blanks) the beginning of that word."""
    limits = [most] * len(texts) if isinstance(most, int) else most
    found = []
    for text, limit, cut in zip(
        texts, limits, pieces.cut([Document("", text=text) for text in texts]) if texts else (), strict=True
    ):
        until = np.cumsum(cut.per_word)
        n = int(np.searchsorted(until, limit, side="right"))
        if n == len(until):
            found.append((text, int(until[-1])))
            continue
        words = [match for match, _ in zip(WORD.finditer(text), range(max(n, 1)), strict=False)]
        found.append((text[: words[-1].end()], int(until[n - 1])) if n else _beginning(pieces, text, words[0], limit))
    return found


def _beginning(pieces: HasPieces, text: str, word: re.Match[str], most: int) -> tuple[str, int]:
    """The text up to the last character of this word at which it has at most so many pieces, and how many these are."""
    low, high, size = word.start(), word.end(), 0  # the text up to `low` fits, up to `high` it does not
    while high - low > 1:
        middle = (low + high) // 2
        (cut,) = pieces.cut([Document("", text=text[:middle])])
        if (own := int((cut.word >= 0).sum())) <= most:
            low, size = middle, own
        else:
            high = middle
    return (text[:low], size) if size else ("", 0)
