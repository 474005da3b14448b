"""From words to pieces and back: which piece belongs to which word, for any tokenizer.

A running text is cut at white space first (`str.split`) and then treated as its words, so that both kinds of document
have one path; the second text of a pair likewise, its words numbered on from the first text's. Words that a tokenizer
drops (a zero-width space, a lone accent, an empty string) get the unknown piece in their place: every word has at least
one row, whatever the tokenizer, in training as in prediction.
"""

import logging
import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError, EncoderError
from ..types import Document, Pieces
from ._pair_template import PairTemplate
from .checkpoint import VOCABULARY_FILES
from .loading import refusals
from .windows import Window, plan, room_for

__all__ = ["Cutter", "load_tokenizer"]

PROBES = (("the", "cat"), ("a", "b"), ("и", "в"))
"""Word pairs by which a tokenizer shows whether words of a list come out as words of a running text."""

WORD = re.compile(r"\S+")
"""What `str.split` takes for a word."""

HALF = re.compile("[\ud800-\udfff]")
"""Half a surrogate pair, which a string of Python can hold; no tokenizer takes one."""

REMEMBERED = 500_000
"""Different words whose pieces are kept at hand."""

NEARLY = 0.95
"""A share of words that is nearly all of them."""

FEW = 20
"""Fewer unknown words say nothing of a vocabulary that knows a word of `PROBES`: a text in another script."""

log = logging.getLogger("encodeonce")


def load_tokenizer(folder: Path) -> Any:
    """The folder's own tokenizer, from its files only; EncoderError with the folder where that fails."""
    from transformers import AutoTokenizer

    if not any((folder / name).is_file() for name in VOCABULARY_FILES):
        raise EncoderError(
            f"{folder}: there is no vocabulary; the tokenizer needs one of {', '.join(VOCABULARY_FILES)}."
        )
    try:
        return AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except refusals() as problem:
        raise EncoderError(f"{folder}: the tokenizer cannot be loaded: {problem}") from problem


class Cutter:
    """Documents -> `Pieces`. Special pieces by the tokenizer's own template; windows planned for `window` pieces.

    A pair is shown whole or not at all: cut into windows, most windows would hold one text without the other, which is
    another input than the one asked for. A pair longer than `window` is a DataError that names it. Texts of a pair that
    are shown apart are two single texts, end to end.

    Raises EncoderError for a tokenizer that gives words of a list other pieces than words of a text (byte-level BPE
    without the word-start space), and in a call where (nearly) every word came out as the unknown piece, as it did for
    all words before. One text in a script that a good vocabulary lacks is warned of.
    """

    def __init__(self, tokenizer: Any, window: int, overlap: int, source: str = "tokenizer") -> None:
        self.tokenizer, self.window, self.overlap, self.source = tokenizer, window, overlap, source
        self.fast = bool(tokenizer.is_fast)
        self._known: dict[str, list[int]] = {}
        self._places: dict[str, list[tuple[int, int]]] = {}
        self._n_spelled = self._n_lost = 0
        if self.fast:
            self._backend = tokenizer.backend_tokenizer
            self._backend.no_padding()
            self._backend.no_truncation()
        self.unknown = tokenizer.unk_token_id
        self.lead = self._leading_space()
        self.before, self.after = self._template()
        room_for(window, overlap, len(self.before) + len(self.after))

    def __call__(self, documents: Sequence[Document]) -> list[Pieces]:
        """One `Pieces` a document, in order. DataError for a document without words, for one with half a character, and
        for a pair over the window."""
        shown = [self._words(document) for document in documents]
        texts = [words for pair in shown for words in pair]
        self._learn(dict.fromkeys(word for words in texts for word in words))
        cut = [self._pieces(document, *pair) for document, pair in zip(documents, shown, strict=True)]
        self._refuse_unknown(texts)
        self._refuse_long(documents, cut)
        dropped = sum(len(pieces.unknown_words) for pieces in cut)
        if dropped:
            log.info("%d words without a piece of their own were given the unknown piece", dropped)
        return cut

    def spans(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Int64 [T, 2] a text: the characters start:end of the running text that each of its pieces stands for.

        Special pieces have -1:-1; a tokenizer that does not tell (a slow one), and a word that it dropped, have the
        whole word for each piece. In the order of `Pieces.ids` of a document with that text.
        """
        found = []
        for text in texts:
            places = [-1] * (2 * len(self.before))
            for match in WORD.finditer(text):
                first = match.start()
                for start, stop in self._inside(match.group()):
                    places += (first + start, first + stop)
            places += [-1] * (2 * len(self.after))
            found.append(np.array(places, np.int64).reshape(-1, 2))
        return found

    def _inside(self, word: str) -> list[tuple[int, int]]:
        """The characters of a word that each of its pieces stands for."""
        if word not in self._places:
            if word not in self._known:
                self._learn([word])
            whole, places = (0, len(word)), []
            if self.fast:
                lead = bool(self.lead) and not word.startswith(" ")
                row = self._backend.encode([" " * lead + word], is_pretokenized=True, add_special_tokens=False)
                shifted = [(max(start - lead, 0), stop - lead) for start, stop in row.offsets]
                places = [(start, max(stop, start + 1)) for start, stop in shifted]  # a piece may be the space alone
                places = _with_marks(word, places)
            self._places[word] = places or [whole] * max(1, len(self._known[word]))
        return self._places[word]

    def _words(self, document: Document) -> tuple[Sequence[str], Sequence[str]]:
        """The words of the first text and of the second, which a single text has none of."""
        first, second = document.words or document.text.split(), document.pair.split()
        if not first or (document.pair and not second):
            which = "the document" if not document.pair else "the second text" if first else "the first text of a pair"
            raise DataError(f"{document.place or document.id}: nothing to encode: {which} has no words and no text.")
        half = next(filter(None, map(HALF.search, (document.text, document.pair, "".join(document.words)))), None)
        if half is not None:
            raise DataError(
                f"{document.place or document.id}: {half.group()!a} is half a surrogate pair, not a character."
            )
        return first, second

    def _learn(self, words: Iterable[str]) -> None:
        """Cuts words not met before. Tokenizers cut the words of a list one by one, so each needs cutting once only."""
        if len(self._known) > REMEMBERED:
            self._known.clear()
            self._places.clear()
            self._n_spelled = self._n_lost = 0
        new = [word for word in words if word not in self._known]
        spaced = [" " + word if self.lead and not word.startswith(" ") else word for word in new]
        if self.fast:
            rows = self._backend.encode_batch(
                [[word] for word in spaced], is_pretokenized=True, add_special_tokens=False
            )
            self._known.update((word, row.ids) for word, row in zip(new, rows, strict=True))
        else:
            self._known.update((word, self._slow_ids(text)) for word, text in zip(new, spaced, strict=True))
        spelled = _spelled(new)
        self._n_spelled += len(spelled)
        self._n_lost += sum(self._is_unknown(word) for word in spelled)

    def _pieces(self, document: Document, first: Sequence[str], second: Sequence[str]) -> Pieces:
        cut = [self._known[word] for word in chain(first, second)]
        unknown: tuple[int, ...] = ()
        if not all(cut):
            unknown = tuple(i for i, ids in enumerate(cut) if not ids)
            cut = [ids or [self._stand_in(document, unknown)] for ids in cut]
        if second and not document.apart:
            return self._pair(document, cut, len(first), unknown)
        rows, word, windows = self._single(cut[: len(first)])
        if second:
            more, word_of_more, windows_of_more = self._single(cut[len(first) :])
            windows += tuple(
                (a + len(rows), b + len(rows), c + len(rows), d + len(rows)) for a, b, c, d in windows_of_more
            )
            word = np.concatenate([word, np.where(word_of_more < 0, word_of_more, word_of_more + len(first))])
            rows = np.concatenate([rows, more])
        return Pieces(document.key, rows, word, len(cut), windows, unknown, texts=2 if second else 1)

    def _single(self, cut: list[list[int]]) -> tuple[np.ndarray, np.ndarray, tuple[Window, ...]]:
        """Ids of a text with its special pieces, the word of each, and windows."""
        before, after = len(self.before), len(self.after)
        rows = np.array([*self.before, *chain.from_iterable(cut), *self.after], np.int32)
        word = np.full(len(rows), -1, np.int32)
        word[before : len(rows) - after] = np.repeat(np.arange(len(cut), dtype=np.int32), [len(ids) for ids in cut])
        return rows, word, plan(word, before, after, self.window, self.overlap)

    def _pair(self, document: Document, cut: list[list[int]], n_first: int, unknown: tuple[int, ...]) -> Pieces:
        template = self._pair_template
        first, second = list(chain.from_iterable(cut[:n_first])), list(chain.from_iterable(cut[n_first:]))
        ids, segments = template.filled(first, second)
        start, middle, stop = template.bounds(len(first), len(ids))
        word = np.full(len(ids), -1, np.int32)
        owner = np.repeat(np.arange(len(cut), dtype=np.int32), [len(word_ids) for word_ids in cut])
        word[start : start + len(first)], word[middle:stop] = np.split(owner, [len(first)])
        return Pieces(document.key, ids, word, len(cut), ((start, stop, 0, len(ids)),), unknown, segments)

    def _refuse_long(self, documents: Sequence[Document], cut: Sequence[Pieces]) -> None:
        long = [
            (d, len(p)) for d, p in zip(documents, cut, strict=True) if d.pair and not d.apart and len(p) > self.window
        ]
        if long:
            named = ", ".join(f"{document.place or document.id} ({rows} pieces)" for document, rows in long[:5])
            raise DataError(
                f"over the window of {self.window} pieces: {len(long)} of {len(cut)} items, pairs, {named}. Both texts"
                " of a pair must be seen at once, so it is neither cut short nor cut into windows: shorten these"
                " texts, leave them out, raise the window where the model holds more, or read the two texts apart (the"
                " task's piece = 'document-apart')."
            )

    def _stand_in(self, document: Document, missing: tuple[int, ...]) -> int:
        """The id that takes the place of words without pieces: unknown, else end of sequence, else padding."""
        for name in ("unk_token_id", "eos_token_id", "pad_token_id"):
            value = getattr(self.tokenizer, name, None)
            if value is not None:
                return int(value)
        raise EncoderError(
            f"{document.place or document.id}: words {missing[:5]} yield no piece, and {self.source} has no unknown,"
            " end or padding piece to stand for them. Take these words out of the data."
        )

    def _slow_ids(self, text: str) -> list[int]:
        return list(self.tokenizer.convert_tokens_to_ids(self.tokenizer.tokenize(text)))

    def _ids(self, words: list[str] | str) -> list[int]:
        """Pieces of a list of words or of a running text as the tokenizer itself cuts them, without special pieces."""
        if self.fast:
            listed = not isinstance(words, str)
            return list(self._backend.encode(words, is_pretokenized=listed, add_special_tokens=False).ids)
        return [i for text in ([words] if isinstance(words, str) else words) for i in self._slow_ids(text)]

    def _leading_space(self) -> bool:
        """Whether words of a list need a space before them to come out as in a running text.

        A setting of a finished tokenizer tells nothing (case ALIGN-1), so it is shown pairs of words: the second word
        of "the cat" must get the pieces that "cat" gets in a list, bare or with the space.
        """
        for lead in ("", " "):
            if all(self._alike(lead, first, second) for first, second in PROBES):
                return bool(lead)
        raise EncoderError(
            f"{self.source}: words given as a list get other pieces than in a running text: 'the cat' gives"
            f" {self._ids('the cat')}, ['the', 'cat'] {self._ids(['the', 'cat'])}. A byte-level BPE tokenizer"
            " must be built with the word-start space (add_prefix_space=True); setting the attribute does nothing."
        )

    def _alike(self, lead: str, first: str, second: str) -> bool:
        alone, running = self._ids([lead + second]), self._ids(f"{first} {second}")
        if not alone:
            return True  # a pair that the vocabulary cannot spell shows nothing
        listed = self._ids([lead + first, lead + second])
        tail = len(running) - len(alone)
        return running[tail:] == alone and listed[len(listed) - len(alone) :] == alone

    def _template(self) -> tuple[list[int], list[int]]:
        """Ids of the special pieces before and after one item."""
        if not self.fast:
            body = -1
            ids = list(self.tokenizer.build_inputs_with_special_tokens([body]))
            return ids[: ids.index(body)], ids[ids.index(body) + 1 :]
        row = self._backend.encode(["a"], is_pretokenized=True)
        inside = [i for i, special in enumerate(row.special_tokens_mask) if not special]
        first, last = (inside[0], inside[-1] + 1) if inside else (len(row.ids), len(row.ids))
        return list(row.ids[:first]), list(row.ids[last:])

    @cached_property
    def _pair_template(self) -> PairTemplate:
        """Asked for when words have been cut: the tokenizer is shown one that has pieces."""
        return PairTemplate.of(
            self.tokenizer, next((word for word, ids in self._known.items() if ids), "a"), self.source
        )

    def _refuse_unknown(self, items: Sequence[Sequence[str]]) -> None:
        """Stops where nearly everything is lost: such a run would train on one and the same vector."""
        spelled = _spelled(word for words in items for word in words)
        lost = sorted(filter(self._is_unknown, spelled))
        if len(lost) < 2 or len(lost) < NEARLY * len(spelled):
            return
        said = f"{len(lost)} of {len(spelled)} different words came out as the unknown piece, for example {lost[:2]}"
        if self._n_lost < NEARLY * self._n_spelled or (len(lost) < FEW and self._knows_a_probe):
            log.warning("%s: %s", self.source, said)
            return
        raise EncoderError(
            f"{self.source}: {said}. The vocabulary does not fit the data, or was not loaded; check its files."
        )

    def _is_unknown(self, word: str) -> bool:
        return self.unknown is not None and set(self._known[word]) == {self.unknown}

    @cached_property
    def _knows_a_probe(self) -> bool:
        lead = " " * self.lead
        return any(set(self._ids([lead + word])) - {self.unknown} for pair in PROBES for word in pair)


def _spelled(words: Iterable[str]) -> set[str]:
    """The different words among these that have a letter."""
    return {word for word in words if any(letter.isalpha() for letter in word)}


def _with_marks(word: str, places: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Each place up to the end of its last letter: uncased tokenizers leave accents and vowel signs out, so that no
    piece has them."""
    covered = {n for start, stop in places for n in range(start, stop)}
    found = []
    for start, stop in places:
        while stop < len(word) and stop not in covered and unicodedata.category(word[stop]).startswith("M"):
            stop += 1
        found.append((start, stop))
    return found
