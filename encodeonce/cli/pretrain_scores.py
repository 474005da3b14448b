"""What vectors of held-out documents are worth: accuracy of triplets, and the share of length that tells them apart.

Axes: M documents scored   Q tuples
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..corpus.text import joined
from ..encoders.pooled import Pooled
from ..encoders.pretrained import Pretrained
from ..errors import DataError
from ..methods.fastdoc.fastdoc import FastDoc
from ..methods.fastdoc.masking import windows_of
from ..methods.fastdoc.measure import (
    by_live_sentences,
    by_pieces,
    by_sentences,
    centred_share,
    plain_means,
    triplet_accuracy,
)
from ..methods.fastdoc.sampling import Sample
from ..store import Store
from ..types import Document
from .pretrain_config import PretrainConfig
from .pretrain_material import sampled

__all__ = ["HeldOut", "apart"]

log = logging.getLogger("encodeonce")

NONE = np.zeros((0, 3), np.int64)
"""No tuples."""


@dataclass(frozen=True)
class HeldOut:
    """`documents` that were held out, and tuples of them (None: nothing is scored); `store` has their sentences."""

    config: PretrainConfig
    base: Pretrained
    source: Pooled
    store: Store
    documents: Sequence[Document]
    held: Sample | None

    def plain(self) -> float | None:
        """Held-out accuracy of the mean of sentence vectors."""
        if self.held is None:
            return None
        index, tuples = self._places()
        return triplet_accuracy(plain_means(self.store, index), tuples)

    def measured(self, method: FastDoc) -> dict[str, float]:
        """Held-out accuracy and the centred share of vectors, from sentences and from pieces.

        From sentences as the objective reads them; a masked one reads none, so its vectors enter as they are.
        """
        if self.held is None:
            return {}
        index, tuples = self._places()
        if method.lower is None:
            vectors = by_sentences(method, self.store, index)
        else:
            vectors = by_live_sentences(method, self.source.cut(apart(self.documents, self.held)))
        found = {"sentences": triplet_accuracy(vectors, tuples), "sentences_centred": centred_share(vectors)}
        few, inside = self._few
        if len(inside):
            cuts = self.base.cut(list(map(joined, few)))
            vectors = by_pieces(method.blocks, [windows_of([cut], [""]) for cut in cuts])
            found |= {"pieces": triplet_accuracy(vectors, inside), "pieces_centred": centred_share(vectors)}
            found |= {"pieces_documents": len(few), "pieces_tuples": len(inside)}
        return found

    @cached_property
    def _few(self) -> tuple[list[Document], np.ndarray]:
        """`token_documents` held-out documents, chosen by content, and tuples among them alone: as many as of all, or
        as there are; none where these have no partners."""
        few = sorted(self.documents, key=lambda document: document.key)[: self.config.token_documents]
        try:
            return few, sampled(few, self.config, self.config.sample.n_held_out, 0, False).tuples if few else NONE
        except DataError as problem:
            log.warning("no score from pieces: %s", problem)
            return few, NONE

    def _places(self) -> tuple[np.ndarray, np.ndarray]:
        """Where the documents scored are in the store, and the tuples of their numbers."""
        assert self.held is not None
        index = self.store.index(self.store.keys(apart(self.documents, self.held)))
        return index, np.searchsorted(np.unique(self.held.tuples), self.held.tuples)


def apart(documents: Sequence[Document], held: Sample | None) -> list[Document]:
    """The held-out documents that are scored."""
    return [] if held is None else [documents[i] for i in np.unique(held.tuples)]
