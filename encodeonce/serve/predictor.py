"""A saved run answers: from the store where it holds the text, from the live encoder where it does not.

Live vectors are rounded as the store would have rounded them (fp16, bf16), so that a text has one answer wherever its
vectors come from. An int8 store's scales depend on the items stored beside a text; there, live vectors stay fp32.

Axes: L views   T rows of one item   D width
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

from ..batching import Cut, Encodings, Source
from ..errors import NotStored
from ..types import Document, Encoding, Pieces, Spec
from .bundle import Run, check_spec

__all__ = ["LiveEncoder", "Predictor", "StoredViews"]

log = logging.getLogger("encodeonce")

CHUNK = 256
"""Documents encoded live before they are answered: bounds memory."""

ROUNDED = {"fp16": torch.float16, "bf16": torch.bfloat16}


@runtime_checkable
class LiveEncoder(Protocol):
    """What is asked of an encoder here: `encoders.Pretrained`."""

    def spec(self, layers: Any = "all", dtype: str = "fp16") -> Spec:
        """What would make its vectors."""

    def cut(self, documents: Sequence[Document]) -> list[Pieces]:
        """Documents -> pieces."""

    def encode(self, pieces: Sequence[Pieces], layers: Any = "all") -> Iterator[tuple[int, np.ndarray]]:
        """`(position, fp32 [L, T, D])` once a position, in any order."""


@runtime_checkable
class StoredViews(Source, Protocol):
    """A store that can say what it lacks: `store.Store`."""

    def missing(self, keys: Sequence[str]) -> list[int]:
        """Positions of the first occurrence of every key that is not stored."""


class Predictor:
    """`predict` answers for documents. `hits` and `misses` count where the vectors came from, in documents.

    Give a store, an encoder, or both. Raises RunError naming each difference where one of them does not make the states
    the run was trained on. `around(source, documents)` gives what the method reads instead of the source of these
    documents: with their neighbours, say.
    """

    def __init__(
        self,
        run: Run,
        store: StoredViews | None = None,
        encoder: LiveEncoder | None = None,
        *,
        around: Callable[[Source, Sequence[Document]], Source] | None = None,
    ) -> None:
        self.run, self.store, self.encoder, self.around = run, store, encoder, around
        self.hits = self.misses = 0
        if store is not None:
            check_spec(run, store.spec, "the store")
        if encoder is not None:
            check_spec(run, encoder.spec(layers=list(run.spec.layers), dtype=run.spec.dtype), "the encoder")

    def predict(
        self, documents: Sequence[Document | str | tuple[str, str]], size: int = 32, probabilities: bool = False
    ) -> list[dict[str, Any]]:
        """For each document, in order, an answer a task: a label a word, or one answer for the whole document.

        A string is a text and two are a pair; tasks that label words need documents of words. With `probabilities`, an
        answer is a pair of the prediction and {label: probability}. A document of no words and no text gets no answer:
        () from tasks that label words, None from the others, which is logged. Raises NotStored for a text that no store
        holds where there is no encoder, DataError for one that a task cannot answer for, ConfigError where a head has
        no probabilities.
        """
        shown = [as_document(one, i) for i, one in enumerate(documents)]
        tasks = self.run.tasks
        answers: list[dict[str, Any]] = [{t.name: () if t.needs_words else None for t in tasks} for _ in shown]
        asked = [i for i, document in enumerate(shown) if document.words or document.text.strip()]
        for i in asked:
            for task in tasks:
                task.check(shown[i])
        empty = sorted(set(range(len(shown))) - set(asked))
        if empty and not all(task.needs_words for task in tasks):
            first = shown[empty[0]]
            log.warning("%d texts are empty and get no answer, the first: %s", len(empty), first.place or first.id)
        live = self._not_stored([shown[i] for i in asked])
        stored = [i for i in asked if shown[i].key not in live]
        fresh = [i for i in asked if shown[i].key in live]
        if stored:
            assert self.store is not None
            self._answer(self.store, shown, stored, size, probabilities, answers)
        for start in range(0, len(fresh), CHUNK):
            chunk = fresh[start : start + CHUNK]
            self._answer(self._encoded([shown[i] for i in chunk]), shown, chunk, size, probabilities, answers)
        self.hits += len(stored)
        self.misses += len(fresh)
        return answers

    def _not_stored(self, documents: Sequence[Document]) -> set[str]:
        keys = [document.key for document in documents]
        lacking: Sequence[int] = range(len(keys))
        if self.store is not None and self.run.method.layers:
            lacking = self.store.missing(keys)
        live = {keys[i] for i in lacking}
        if live and self.encoder is None:
            first = documents[next(iter(lacking))]
            raise NotStored(
                f"{first.place or first.id}: {len(live)} of {len(set(keys))} texts are not stored and there is no "
                "encoder. Give the run's encoder, or encode them first."
            )
        return live

    def _encoded(self, documents: Sequence[Document]) -> Source:
        """The views that the run reads, or piece ids where it reads none."""
        assert self.encoder is not None
        layers, dtype = self.run.method.layers, ROUNDED.get(self.run.spec.dtype)
        distinct = list({document.key: document for document in documents}.values())
        pieces = self.encoder.cut(distinct)
        if not layers:
            return Cut(self.run.spec, pieces)
        encodings = []
        for i, states in self.encoder.encode(pieces, list(layers)):
            if dtype is not None:
                states = torch.from_numpy(states).to(dtype).float().numpy()
            encodings.append(Encoding(pieces[i].key, states, pieces[i].word))
        return Encodings(replace(self.run.spec, layers=layers), encodings)

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
        own = [documents[i] for i in which]
        examples = method.read(source if self.around is None else self.around(source, own), own)
        method.eval()
        with torch.no_grad():
            for batch in method.batches(examples, size=size, order=None):
                found += method.predict(batch, probabilities)
        for i, answer in zip(which, found, strict=True):
            answers[i] = answer


def as_document(shown: Document | str | tuple[str, str], ordinal: int) -> Document:
    """A text or a pair of texts as a document."""
    if isinstance(shown, Document):
        return shown
    text, pair = (shown, "") if isinstance(shown, str) else shown
    return Document(f"text {ordinal + 1}", text=text, pair=pair)
