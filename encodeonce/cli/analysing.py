"""The work behind `analyse weights` and `analyse agreement`: weights, and vectors of the same documents, side by side.

Axes: N documents   D width   S sentences of a document   E width of their vectors
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from ..corpus.taxonomy import path_of
from ..corpus.text import joined, with_sentences
from ..encoders.live import LiveBlocks
from ..encoders.pooled import Pooled
from ..encoders.pretrained import Pretrained
from ..errors import ConfigError, DataError
from ..methods.fastdoc.agreement import Agreement, agreement
from ..methods.fastdoc.analysis import change
from ..methods.fastdoc.masking import windows_of
from ..methods.fastdoc.measure import by_pieces, by_vectors
from ..types import Document
from .steps import names_of

__all__ = ["BASE", "Views", "agreements", "beside", "blocks_of", "changes", "sentence_vectors", "views_of"]

BASE = "base"
"""What the encoder is called that others were trained from."""

log = logging.getLogger("encodeonce")

Vectors = Float[np.ndarray, "N D"]


@dataclass(frozen=True)
class Views:
    """`vectors` of the same documents: "base: pieces" and the like; `groups`, a name a document, may be none."""

    vectors: Mapping[str, Vectors]
    groups: tuple[str, ...]

    def __len__(self) -> int:
        return len(next(iter(self.vectors.values())))


def changes(base: str, trained: Sequence[str]) -> dict[str, dict[str, tuple[float, float]]]:
    """Encoder -> group of weights -> (r1, r2)."""
    (_, first), *others = beside(base, trained).items()
    return {name: change(first.stack(), one.stack()) for name, one in others}


def views_of(
    base: str,
    trained: Sequence[str],
    documents: Sequence[Document],
    field: str,
    limit: int,
    sentence_encoder: str | None,
) -> Views:
    """Of at most `limit` documents, from pieces, and from sentences where there is an encoder of these. ConfigError
    where its vectors have another width than an encoder's piece vectors."""
    chosen = _documents(documents, limit)
    groups = tuple(" > ".join(path_of(document, field)[:1]) for document in chosen)
    named, source = beside(base, trained), Pooled(Pretrained(sentence_encoder)) if sentence_encoder else None
    rows = [] if source is None else sentence_vectors(source, [d.sentences for d in chosen])
    vectors: dict[str, Vectors] = {}
    for name, one in named.items():
        blocks = blocks_of(one)
        entered = int(blocks.stack.model.get_input_embeddings().weight.shape[1])
        if rows and rows[0].shape[1] != entered:
            raise ConfigError(
                f"--sentence-encoder {sentence_encoder}: its vectors have width {rows[0].shape[1]}, the piece vectors "
                f"of {one.name} {entered}, in whose place they are read. Take a sentence encoder of that width."
            )
        vectors[f"{name}: pieces"] = by_pieces(blocks, _windows(one, chosen))
        if rows:
            vectors[f"{name}: sentences"] = by_vectors(blocks, rows)
    if all(groups) and len(set(groups)) > 1:
        return Views(vectors, groups)
    with_path = sum(map(bool, groups))
    held = f"all are in {groups[0]}" if with_path == len(groups) else f"{with_path} of {len(groups)} have {field}"
    log.info("no scores of groups, which need a category of every document and two at least: %s", held)
    return Views(vectors, ())


def agreements(views: Views) -> dict[str, Agreement]:
    """Every encoder's vectors from pieces beside the base's, and beside its own from sentences."""
    found, first = {}, views.vectors[f"{BASE}: pieces"]
    for view, vectors in views.vectors.items():
        name, kind = view.rsplit(": ", 1)
        if kind == "sentences":
            found[f"{name}: pieces, sentences"] = agreement(views.vectors[f"{name}: pieces"], vectors, views.groups)
        elif name != BASE:
            found[f"{name}: pieces, base's pieces"] = agreement(first, vectors, views.groups)
    return found


def beside(base: str, trained: Sequence[str]) -> dict[str, Pretrained]:
    """The base and the others by name; windows do not overlap."""
    named = zip((BASE, *names_of(trained, BASE)), (base, *trained), strict=True)
    return {name: Pretrained(encoder, overlap=0) for name, encoder in named}


def blocks_of(one: Pretrained) -> LiveBlocks:
    """All of it, in eval mode."""
    stack = one.stack()
    return LiveBlocks(stack, range(stack.n_blocks), final=True, embeddings=True).eval()


def sentence_vectors(source: Pooled, parts: Sequence[Sequence[str]]) -> list[np.ndarray]:
    """Of each document the vectors of its sentences (or whatever its parts are), [S E]; equal ones are encoded once."""
    cut = source.cut([Document(str(n), sentences=tuple(own)) for n, own in enumerate(parts)])
    rows = {i: views[-1] for i, views in source.encode(cut)}
    return [rows[i] for i in range(len(parts))]


def _documents(documents: Sequence[Document], limit: int) -> list[Document]:
    """Those with sentences, at most `limit`, chosen by content."""
    cut = [document for document in with_sentences(documents) if document.sentences]
    chosen = sorted(cut, key=lambda document: document.key)[:limit]
    if len(chosen) < 4:
        raise DataError(f"{len(chosen)} documents with a sentence: at least 4 are compared.")
    return chosen


def _windows(one: Pretrained, documents: Sequence[Document]) -> list[Any]:
    return [windows_of([cut], [""]) for cut in one.cut(list(map(joined, documents)))]
