"""Prompted inputs: documents laid into a template, cut so that the template and its gap always survive.

Axes: T pieces of an item   K labels
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Int

from ..errors import ConfigError, DataError, EncoderError
from ..prompts import Part, Prompt
from ..types import Document, Pieces
from .pieces import Cutter

__all__ = ["Prompted", "Prompter"]

log = logging.getLogger("encodeonce")


@dataclass(frozen=True)
class Prompted:
    """Prompted documents in order: in `pieces[i]`, `word` is 0 at the gap and -1 everywhere else.

    `cut` lists the documents whose texts were too long and lost pieces at the end; `fitted[i]` counts the texts laid
    before document i.
    """

    pieces: list[Pieces]
    cut: tuple[int, ...]
    fitted: tuple[int, ...]


class Prompter:
    """One prompt for one tokenizer. `window` is the longest input in pieces, special ones included.

    With `written` a decoder writes the labels (T5): the input has no gap, and a label's words may be several pieces.

    Label words and the gap are looked up at once. Raises EncoderError for a tokenizer without a mask piece, ConfigError
    for a label word that is not one piece of its vocabulary, for a template that leaves no room for a text, and with
    `written` for one whose gap is not its end.
    """

    def __init__(self, cutter: Cutter, prompt: Prompt, window: int, *, written: bool = False) -> None:
        self.cutter, self.prompt, self.written = cutter, prompt, written
        self.window = min(window, prompt.max_pieces) if prompt.max_pieces else window
        mask = getattr(cutter.tokenizer, "mask_token_id", None)
        if mask is None and not written:
            raise EncoderError(
                f"{cutter.source}: the tokenizer has no mask piece, so a prompt has no gap to fill. Use a checkpoint"
                " of a masked language model, or a classification head."
            )
        if written and prompt.parts[-1].kind != "mask":
            raise ConfigError(
                f"{prompt.source or prompt.name}: the template {prompt.template!r} has its gap before its end; a label"
                " that is written follows the whole input. Leave {mask} out."
            )
        self.mask = None if mask is None or written else int(mask)
        self._literals = {part: self._ids(part.literal) for part in prompt.parts if part.kind == "literal"}
        self.label_words = tuple(self._label(label) for label in prompt.labels)
        self._check_distinct()
        self._check_room()

    def __call__(self, documents: Sequence[Document], before: Sequence[Sequence[str]] = ()) -> Prompted:
        """Documents (texts; words are joined by spaces) as prompted inputs; longer texts lose pieces at their end.

        Where both texts of a pair are too long together, the longer one is cut first. `before[i]` are texts to be laid
        before document i, nearest first: they come with a separator each, the nearest next to the prompt, as many as
        fit whole (concatenation, CA-512 of the paper). How many documents were cut is logged, and how many texts fit.

        DataError for a second text that the template has no slot for, and for a slot that no second text fills.
        """
        found = [self._laid(document) for document in documents]
        pieces, fitted = [], []
        for i, (document, (ids, _)) in enumerate(zip(documents, found, strict=True)):
            laid, count = self._with_texts(ids, before[i] if before else ())
            pieces.append(self._pieces(document, laid))
            fitted.append(count)
        cut = tuple(i for i, (_, short) in enumerate(found) if short)
        if cut:
            log.info("%d of %d texts were cut to fit the prompt's %d pieces", len(cut), len(documents), self.window)
        if before and fitted:
            given = sum(map(len, before)) / len(before)
            log.info("%.1f of %.1f texts fit whole before a text, on average", sum(fitted) / len(fitted), given)
        return Prompted(pieces, cut, tuple(fitted))

    def _ids(self, text: str) -> list[int]:
        """Pieces of a running text. What looks like a special piece in it is text like any other."""
        tokenizer = self.cutter.tokenizer
        if not self.cutter.fast:
            return [
                int(i) for i in tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text, split_special_tokens=True))
            ]
        backend = tokenizer.backend_tokenizer
        backend.encode_special_tokens = True
        try:
            return list(backend.encode(text, add_special_tokens=False).ids)
        finally:
            backend.encode_special_tokens = False

    @property
    def label_pieces(self) -> Int[np.ndarray, " K"]:
        """The piece of each label's word, where it fills a gap."""
        return np.array([ids[0] for ids in self.label_words], dtype=np.int64)

    def _label(self, label: str) -> tuple[int, ...]:
        """The pieces of a label's word; in a gap it is written as inside a running text: with a space before it."""
        word = self.prompt.words[label]
        ids = self._ids(word if self.written or word[0] in "<[.,:;!?" else f" {word}")
        names = self.cutter.tokenizer.convert_ids_to_tokens(ids)
        where = f"{self.prompt.source or self.prompt.name}: label {label!r}: the word {word!r}"
        if len(ids) != 1 and not self.written:
            raise ConfigError(
                f"{where} is {len(ids)} pieces of {self.cutter.source}: {' '.join(names)}. A label word must be a"
                " single piece, or two labels may share a score: choose another word."
            )
        if self.cutter.unknown in ids or not ids:
            raise ConfigError(f"{where} is unknown to {self.cutter.source} ({' '.join(names)}): choose another word.")
        return tuple(ids)

    def _check_distinct(self) -> None:
        by_pieces: dict[tuple[int, ...], str] = {}
        for label, pieces in zip(self.prompt.labels, self.label_words, strict=True):
            if pieces in by_pieces:
                raise ConfigError(
                    f"{self.prompt.source or self.prompt.name}: labels {by_pieces[pieces]!r} and {label!r} have the"
                    f" same label word ({self.prompt.words[label]!r} to {self.cutter.source}): nothing would tell them"
                    " apart."
                )
            by_pieces[pieces] = label

    @cached_property
    def fixed(self) -> int:
        """Pieces of the template, the gap and the special pieces around: what every input has."""
        literals = sum(len(self._literals[part]) for part in self.prompt.parts if part.kind == "literal")
        return len(self.cutter.before) + len(self.cutter.after) + literals + (not self.written)

    def _check_room(self) -> None:
        slots = 2 if self.prompt.pairs else 1
        if self.window - self.fixed < slots:
            raise ConfigError(
                f"{self.prompt.source or self.prompt.name}: the template {self.prompt.template!r} takes {self.fixed} of"
                f" {self.window} pieces, which leaves no room for the text. Shorten it or raise max_pieces."
            )

    def _laid(self, document: Document) -> tuple[list[int], bool]:
        """The prompt's pieces without special ones, and whether a text was cut."""
        if bool(document.pair) != self.prompt.pairs:
            has, here = ("a slot", "no second text") if self.prompt.pairs else ("no slot", "a second text")
            raise DataError(
                f"{document.place or document.id}: {self.prompt.source or self.prompt.name}: the template "
                f"{self.prompt.template!r} has {has} {{pair}}, and this item has {here}."
            )
        shown = {"text": document.text or " ".join(document.words), "pair": document.pair}
        slots = {part: self._ids(part.filled(shown[part.kind])) for part in self.prompt.parts if part.kind in shown}
        kept = self._trimmed(slots)
        given = {**self._literals, **{part: ids[: kept[part]] for part, ids in slots.items()}}
        gap = [] if self.mask is None else [self.mask]
        laid = [i for part in self.prompt.parts for i in (gap if part.kind == "mask" else given[part])]
        return laid, any(kept[part] < len(ids) for part, ids in slots.items())

    def _trimmed(self, slots: dict[Part, list[int]]) -> dict[Part, int]:
        """How many pieces of each text are kept."""
        limit = self.prompt.text_pieces
        kept = {
            part: min(len(ids), limit) if limit and part.kind == "text" else len(ids) for part, ids in slots.items()
        }
        over = sum(kept.values()) - (self.window - self.fixed)
        while over > 0:
            longest = max(kept, key=lambda part: kept[part])
            others = [size for part, size in kept.items() if part is not longest]
            step = max(1, min(over, kept[longest] - max(others, default=0)))
            kept[longest] -= step
            over -= step
        return kept

    def _with_texts(self, laid: list[int], texts: Iterable[str]) -> tuple[list[int], int]:
        """Special pieces around, and before them whole texts, the first next to the prompt."""
        own = [*self.cutter.before, *laid, *self.cutter.after]
        end = self.cutter.after[:1]
        room, front, count = self.window - len(own), list[int](), 0
        for text in texts:
            ids = [*self._ids(text.strip()), *end]
            if len(ids) > room:
                break
            front, room, count = [*ids, *front], room - len(ids), count + 1
        before = len(self.cutter.before)
        return [*own[:before], *front, *own[before:]], count

    def _pieces(self, document: Document, laid: Sequence[int]) -> Pieces:
        ids = np.array(laid, dtype=np.int32)
        word: Int[np.ndarray, " T"] = np.full(len(ids), -1, np.int32)
        if self.mask is not None:
            gaps = np.flatnonzero(ids == self.mask)
            assert len(gaps) == 1, f"{document.place or document.id}: {len(gaps)} gaps"
            word[gaps[0]] = 0
        return Pieces(document.key, ids, word, 1, ((0, len(ids), 0, len(ids)),))
