"""What a run reads: tuples of documents over stored sentence vectors, windows of pieces, or both.

Axes: N documents   Q tuples   K documents of a tuple   B tuples of a batch   H levels   P sentences of all documents
E width of a sentence vector
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from ...batching import Source
from ...errors import DataError
from ...nn.packed import Packed
from ...types import Document, Texts
from .masking import Masked, Window

__all__ = ["TASK", "DocumentBatch", "DocumentExamples", "SentencePieces", "too_long"]

TASK = "documents"
"""The name under which tuples are scored."""


@dataclass(frozen=True)
class SentencePieces:
    """The pieces of every sentence of a batch, end to end, for a sentence encoder that is trained too."""

    ids: Tensor
    lengths: tuple[int, ...]

    @classmethod
    def of(cls, documents: Sequence[Texts]) -> "SentencePieces":
        """DataError for a sentence that is longer than the encoder's window."""
        cut = [text for document in documents for text in document.texts]
        long = next((text for text in cut if len(text.windows) > 1), None)
        if long is not None:
            raise DataError(
                f"a sentence of {len(long)} pieces is longer than the sentence encoder's window: it cannot be trained "
                "on whole. Leave its document out, or read stored sentence vectors, which are windowed."
            )
        ids = np.concatenate([text.ids for text in cut]).astype(np.int64)
        return cls(torch.from_numpy(ids), tuple(len(text) for text in cut))


def too_long(document: Texts) -> bool:
    """Whether one of its sentences is longer than the window, so that no sentence encoder can be trained on it."""
    return any(len(text.windows) > 1 for text in document.texts)


@dataclass(frozen=True)
class DocumentBatch:
    """Documents in the order anchors, positives, ..., negatives: document k * B + b is the k-th of tuple b.

    `vectors` are stored sentence vectors, `pieces` the sentences themselves (one of them where there are tuples).
    """

    lengths: tuple[int, ...]
    labels: Int[Tensor, "K B H"]
    vectors: Packed | None = None
    pieces: SentencePieces | None = None
    masked: Masked | None = None
    places: tuple[str, ...] = ()


@dataclass(frozen=True)
class DocumentExamples:
    """`tuples` [Q K] number the documents; `labels` [N H] are their classes (H = 0 without a taxonomy).

    Sentences come from `source`, a store whose rows are sentences, or from `texts`; `windows` are those of the masked
    loss. An epoch goes through all tuples once (through all windows where there are no tuples); beside tuples,
    `windows_per_batch` windows are taken a batch, in an order of their own.
    """

    places: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    tuples: Int[np.ndarray, "Q K"] = field(default_factory=lambda: np.zeros((0, 3), np.int64))
    labels: Int[np.ndarray, "N H"] = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    source: Source | None = None
    index: Int[np.ndarray, " N"] = field(default_factory=lambda: np.zeros(0, np.int64))
    lengths: Int[np.ndarray, " N"] = field(default_factory=lambda: np.zeros(0, np.int64))
    texts: tuple[Texts, ...] = ()
    windows: tuple[Window, ...] = ()
    windows_per_batch: int = 0

    @classmethod
    def read(
        cls,
        documents: Sequence[Document],
        tuples: Int[np.ndarray, "Q K"],
        labels: Int[np.ndarray, "N H"] | None = None,
        *,
        source: Source | None = None,
        texts: Sequence[Texts] = (),
        windows: Sequence[Window] = (),
        windows_per_batch: int = 0,
    ) -> "DocumentExamples":
        """Documents with sentences and the tuples over them; NotStored where one that is used is not in the store.

        Only documents that stand in a tuple need be stored.
        """
        if len(tuples) == 0:
            raise DataError("no tuples of documents to train on.")
        used = np.unique(tuples)
        keys = tuple(document.key_in("sentence") for document in documents)
        index, lengths = np.full(len(documents), -1, np.int64), np.zeros(len(documents), np.int64)
        if source is not None:
            index[used] = source.index([keys[n] for n in used])
            lengths[used] = source.rows(index[used])
        else:
            lengths[used] = [len(texts[n]) for n in used]
        none = np.zeros((len(documents), 0), np.int64)
        return cls(
            places=tuple(document.place or document.id for document in documents),
            keys=keys,
            tuples=tuples,
            labels=none if labels is None else labels,
            source=source,
            index=index,
            lengths=lengths,
            texts=tuple(texts),
            windows=tuple(windows),
            windows_per_batch=windows_per_batch,
        )

    def __len__(self) -> int:
        return len(self.tuples) or len(self.windows)

    @property
    def gold(self) -> Mapping[str, Sequence[Any]]:
        """Every anchor is nearer to its positive."""
        return {TASK: (True,) * len(self.tuples)}

    def fingerprint(self) -> dict[str, Any]:
        """What a resumed run compares: name -> value or SHA-256, and what the store's Spec compares."""
        digest = hashlib.sha256()
        shown = (part for window in self.windows for part in (window.ids, window.word))
        for part in (self.tuples, self.labels, *shown):
            digest.update(np.ascontiguousarray(part).tobytes())
        digest.update("\n".join(self.keys).encode())
        return {
            "tuples": str(len(self.tuples)),
            "windows": str(len(self.windows)),
            "windows_per_batch": str(self.windows_per_batch),
            "content": digest.hexdigest(),
            "store": None if self.source is None else self.source.spec.compared(),
        }

    def batch(self, chosen: Int[np.ndarray, " B"], masked: Masked | None) -> DocumentBatch:
        """The batch of these tuples."""
        documents = self.tuples[chosen].T.ravel()
        shape = (self.tuples.shape[1], len(chosen), self.labels.shape[1])
        labels = torch.from_numpy(self.labels[documents].reshape(shape))
        vectors = pieces = None
        if self.source is not None:
            vectors = self.source.batch(self.index[documents], dtype=torch.float32)
        else:
            pieces = SentencePieces.of([self.texts[n] for n in documents])
        places = tuple(self.places[n] for n in documents)
        lengths = tuple(self.lengths[documents].tolist())
        return DocumentBatch(lengths, labels, vectors, pieces, masked, places)
