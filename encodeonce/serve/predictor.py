"""A saved run answers: from the store where it holds the text, from the live encoder where it does not.

Live vectors are rounded as the store would have rounded them (fp16, bf16), so that a text has one answer wherever its
vectors come from. An int8 store's scales depend on the items stored beside a text; there, live vectors stay fp32.

Axes: L views   P rows of all items   D width
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from ..batching import Cut, LaidOut, Source
from ..corpus._format import second_text
from ..errors import DataError, NotStored
from ..methods.finetune import Finetune, refuse_long
from ..types import Document, Pieces, Spec
from .bundle import Run, check_spec

__all__ = ["LiveEncoder", "Predictor", "StoredViews"]

log = logging.getLogger("encodeonce")

CHUNK = 256
"""Documents that the encoder is given at once, so that its batches hold texts of like length."""

ROUNDED = ("fp16", "bf16")
"""Stored types that live vectors are rounded to."""


@runtime_checkable
class LiveEncoder(Protocol):
    """What is asked of an encoder here: `encoders.Pretrained`."""

    def spec(self, layers: Any = "all", dtype: str = "fp16") -> Spec:
        """What would make its vectors."""

    def cut(self, documents: Sequence[Document]) -> list[Pieces]:
        """Documents -> pieces."""

    def encode(self, pieces: Sequence[Pieces], layers: Any = "all") -> Iterator[tuple[int, np.ndarray]]:
        """`(position, fp32 [L, T, D])` once a position, in any order: what fills a store."""

    def encode_together(
        self, pieces: Sequence[Pieces], layers: Any = "all", dtype: str = "fp32"
    ) -> Iterator[tuple[list[int], Tensor]]:
        """Positions, each once in any order, and their views end to end, fp32 [L, P, D], rounded to `dtype`; the memory
        may be used again for those that follow."""


@runtime_checkable
class StoredViews(Source, Protocol):
    """A store that can say what it lacks: `store.Store`."""

    def missing(self, keys: Sequence[str]) -> list[int]:
        """Positions of the first occurrence of every key that is not stored."""


class Predictor:
    """`predict` answers for documents. `hits` and `misses` count where the vectors came from, in documents.

    Give a store, an encoder, or both. Raises RunError naming each difference where one of them does not make the states
    the run was trained on.
    """

    def __init__(self, run: Run, store: StoredViews | None = None, encoder: LiveEncoder | None = None) -> None:
        self.run, self.store, self.encoder = run, store, encoder
        self.hits = self.misses = 0
        if store is not None:
            check_spec(run, store.spec, "the store")
        if encoder is not None:
            check_spec(run, encoder.spec(layers=list(run.spec.layers), dtype=run.spec.dtype), "the encoder")

    def predict(
        self, documents: Sequence[Document | str | tuple[str, str]], size: int = 32, probabilities: bool = False
    ) -> list[dict[str, Any]]:
        """For each document, in order, an answer a task: a label a word, or one answer for the whole document.

        A string is a text and two are a pair; tasks that label words need documents of words. `size` documents are
        answered at once, those that are encoded live as many as the encoder was shown at once. With `probabilities`,
        an answer is a pair of the prediction and {label: probability}. A document that is
        `empty`, of a pair either text, gets no answer: () from tasks that label words, None from the others, which is
        logged. Raises NotStored for a text that no store holds where there is no encoder, DataError for one that a task
        cannot answer for, ConfigError where a head has no probabilities.
        """
        tasks = self.run.tasks
        shown = [tasks[0].prepared(one) for one in as_documents(documents)]  # all tasks read the same
        answers: list[dict[str, Any]] = [{t.name: () if t.needs_words else None for t in tasks} for _ in shown]
        of_words = any(task.needs_words for task in tasks)  # to these no pair can be shown, whatever its second text is
        asked = [i for i, document in enumerate(shown) if not document.empty or (of_words and document.pair)]
        for i in asked:
            for task in tasks:
                task.check(shown[i])
        empty = sorted(set(range(len(shown))) - set(asked))
        if empty and not all(task.needs_words for task in tasks):
            first = shown[empty[0]]
            log.warning("%d texts are empty and get no answer, the first: %s", len(empty), first.place or first.id)
        alike: dict[str, list[int]] = {}
        for i in asked:
            alike.setdefault(shown[i].key, []).append(i)
        fresh = self._not_stored(shown, alike)
        pieces = self._cut([shown[alike[key][0]] for key in fresh])
        live = set(fresh)
        stored = [i for key, places in alike.items() if key not in live for i in places]
        if stored:
            assert self.store is not None
            self._answer(self.store, shown, sorted(stored), size, probabilities, answers)
        for start in range(0, len(fresh), CHUNK):
            chunk = slice(start, start + CHUNK)
            for source, places in self._encoded(pieces[chunk], [alike[key] for key in fresh[chunk]]):
                at_once = len(places) if self.run.method.layers else size
                self._answer(source, shown, places, at_once, probabilities, answers)
        self.hits += len(stored)
        self.misses += len(asked) - len(stored)
        return answers

    def _not_stored(self, shown: Sequence[Document], alike: Mapping[str, Sequence[int]]) -> list[str]:
        """Keys of the texts to encode. NotStored where there is no encoder to do it."""
        keys = list(alike)
        if self.store is not None and self.run.method.layers:
            keys = [keys[place] for place in self.store.missing(keys)]
        if keys and self.encoder is None:
            first = shown[alike[keys[0]][0]]
            raise NotStored(
                f"{first.place or first.id}: {len(keys)} of {len(alike)} texts are not stored and there is no "
                "encoder. Give the run's encoder, or encode them first."
            )
        return keys

    def _cut(self, documents: Sequence[Document]) -> list[Pieces]:
        """The pieces of what is encoded live, each document cut once; DataError for one that is longer than the encoder
        or the run's blocks can be given, before any is answered."""
        found: list[Pieces] = []
        for start in range(0, len(documents), CHUNK):
            assert self.encoder is not None
            some = documents[start : start + CHUNK]
            pieces = self.encoder.cut(some)
            if isinstance(self.run.method, Finetune):
                refuse_long((one.place or one.id for one in some), map(len, pieces), self.run.method.window)
            found += pieces
        return found

    def _encoded(self, pieces: Sequence[Pieces], places: Sequence[Sequence[int]]) -> Iterator[tuple[Source, list[int]]]:
        """The views that the run reads, a batch of the encoder's at a time, while they are in the processor's cache,
        and the places of their texts; all piece ids at once where it reads no view."""
        assert self.encoder is not None
        layers, dtype = self.run.method.layers, self.run.spec.dtype
        if not layers:
            yield Cut(self.run.spec, pieces), [i for own in places for i in own]
            return
        spec = replace(self.run.spec, layers=layers)
        kept_as = dtype if dtype in ROUNDED else "fp32"
        for items, views in self.encoder.encode_together(pieces, list(layers), kept_as):
            yield LaidOut(spec, [pieces[i] for i in items], views), [j for i in items for j in places[i]]

    def _answer(
        self,
        source: Source,
        documents: Sequence[Document],
        which: Sequence[int],
        size: int,
        probabilities: bool,
        answers: list[dict[str, Any]],
    ) -> None:
        method, found = self.run.method, []
        examples = method.read(source, [documents[i] for i in which])
        method.eval()
        with torch.no_grad():
            for batch in method.batches(examples, size=size, order=None):
                found += method.predict(batch, probabilities)
        for i, answer in zip(which, found, strict=True):
            answers[i] = answer


def as_documents(shown: Sequence[Document | str | tuple[str, str]]) -> list[Document]:
    """Texts and pairs of texts as documents; DataError for a single one, whose letters would be texts."""
    if isinstance(shown, str | Document):
        what = "string" if isinstance(shown, str) else "document"
        raise DataError(f"{shown!r:.60} is one {what}, and predict takes many. Give a list: predict([...]).")
    return [_document(one, number) for number, one in enumerate(shown, 1)]


def _document(shown: Any, number: int) -> Document:
    if isinstance(shown, Document):
        return shown
    parts = (shown, None) if isinstance(shown, str) else shown
    listed = isinstance(parts, tuple | list) and len(parts) == 2
    if not listed or not isinstance(parts[0], str) or not isinstance(parts[1], str | None):
        raise DataError(f"text {number} is {shown!r:.60}: give a string, a pair of strings, or a Document.")
    text, pair = parts
    return Document(f"text {number}", text=text, pair=second_text(pair))
