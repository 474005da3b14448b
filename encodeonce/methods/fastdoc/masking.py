"""Masked-language inputs: windows of documents with some of their pieces hidden (Devlin et al. 2019).

Axes: P pieces of all windows   M hidden ones   T pieces of one window
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from ...corpus.text import words
from ...errors import DataError
from ...types import Pieces

__all__ = ["Masked", "Window", "hidden", "in_words", "masked", "windows_of"]


@dataclass(frozen=True)
class Window:
    """What a model is shown at once: ids and words (-1: a special piece) [T], and where it comes from."""

    ids: Int[np.ndarray, " T"]
    word: Int[np.ndarray, " T"]
    place: str


@dataclass(frozen=True)
class Masked:
    """A batch: `ids` as shown, `rows` of the hidden pieces, `targets` what they were."""

    ids: Int[Tensor, " P"]
    lengths: tuple[int, ...]
    rows: Int[Tensor, " M"]
    targets: Int[Tensor, " M"]


def in_words(cut: Sequence[Pieces], spans: Sequence[Int[np.ndarray, "T 2"]], texts: Sequence[str]) -> list[Pieces]:
    """The same pieces, each in the word of its text that it begins in: marks of punctuation and Chinese characters are
    words (`corpus.text.words`), not parts of what stands between blanks. `spans` are those of `Pretrained.spans`."""
    found = []
    for pieces, own, text in zip(cut, spans, texts, strict=True):
        first = np.array([start for start, _ in words(text)], np.int64)
        word = np.where(pieces.word < 0, -1, np.searchsorted(first, own[:, 0], side="right") - 1)
        found.append(replace(pieces, word=word.astype(pieces.word.dtype), n_words=len(first)))
    return found


def windows_of(cut: Sequence[Pieces], places: Sequence[str]) -> list[Window]:
    """The windows of cut documents, special pieces around each. A piece in two windows (overlap) is in both. Words are
    those of the pieces: what stands between blanks in a running text, or its words after `in_words`."""
    found = []
    for pieces, place in zip(cut, places, strict=True):
        before, after = pieces.windows[0][0], pieces.windows[-1][1]
        for start, stop, *_ in pieces.windows:
            rows = np.r_[0:before, start:stop, after : len(pieces)]
            found.append(Window(pieces.ids[rows].astype(np.int64), pieces.word[rows], place))
    if not found:
        raise DataError("no document to hide pieces of.")
    return found


def hidden(
    word: Int[np.ndarray, " T"], probability: float, whole_words: bool, generator: np.random.Generator
) -> Bool[np.ndarray, " T"]:
    """Which pieces are hidden: each with this probability, or all pieces of a word; never a special one."""
    if not whole_words:
        return (generator.random(len(word)) < probability) & (word >= 0)
    chosen = generator.random(int(word.max(initial=-1)) + 1) < probability
    return np.where(word >= 0, np.append(chosen, False)[word], False)


def masked(
    windows: Sequence[Window],
    probability: float,
    whole_words: bool,
    mask_id: int,
    vocabulary: int,
    generator: np.random.Generator,
) -> Masked:
    """Of the hidden pieces 80 % become the mask, 10 % any piece, 10 % stay. A batch has one hidden piece at least."""
    ids = np.concatenate([window.ids for window in windows])
    word = np.concatenate([window.word for window in windows])
    chosen = np.concatenate([hidden(window.word, probability, whole_words, generator) for window in windows])
    if not chosen.any():
        chosen[generator.choice(np.flatnonzero(word >= 0))] = True
    rows = np.flatnonzero(chosen)
    shown, lot = ids.copy(), generator.random(len(rows))
    shown[rows[lot < 0.8]] = mask_id
    other = rows[(lot >= 0.8) & (lot < 0.9)]
    shown[other] = generator.integers(vocabulary, size=len(other))
    return Masked(
        torch.from_numpy(shown),
        tuple(len(window.ids) for window in windows),
        torch.from_numpy(rows),
        torch.from_numpy(ids[rows]),
    )
