"""The work behind `analyse`: weights side by side, and vectors of the same documents side by side.

Axes: N documents   D width
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from ..corpus import read
from ..corpus.taxonomy import path_of
from ..corpus.text import with_sentences
from ..encoders.live import LiveBlocks
from ..encoders.pooled import Pooled
from ..encoders.pretrained import Pretrained
from ..errors import ConfigError, DataError
from ..methods.fastdoc.agreement import agreement
from ..methods.fastdoc.analysis import change
from ..methods.fastdoc.masking import windows_of
from ..methods.fastdoc.measure import by_pieces
from ..nn.segments import segment_means
from ..types import Document
from .steps import recorded

__all__ = ["analysed"]

Vectors = Float[np.ndarray, "N D"]


def analysed(
    base: str,
    trained: Sequence[str],
    file: Path | None,
    field: str,
    limit: int,
    sentence_encoder: str | None,
    format: str | None = None,
    columns: Mapping[str, int | str] | None = None,
) -> dict[str, Any]:
    """ "change": encoder -> group -> (r1, r2); "agreement": what is compared -> numbers, empty without documents."""
    if sentence_encoder and file is None:
        raise ConfigError("a sentence encoder reads documents: give --documents.")
    named = {_named(name): Pretrained(name, overlap=0) for name in trained}
    if len(named) < len(trained):
        raise ConfigError(f"two encoders of one name among {', '.join(trained)}; give each once.")
    first = Pretrained(base, overlap=0)
    weights = first.stack().model.state_dict()
    found = {name: change(weights, one.stack().model.state_dict()) for name, one in named.items()}
    agreements: dict[str, Any] = {}
    if file is not None:
        documents = _documents(read(file, format=format, columns=columns), limit)
        groups = [" > ".join(path_of(document, field)[:1]) for document in documents]
        groups = groups if all(groups) and len(set(groups)) > 1 else []
        rows = _sentence_rows(documents, sentence_encoder) if sentence_encoder else []
        before = by_pieces(_blocks(first), _windows(first, documents))
        for name, one in {"base": first, **named}.items():
            pieces = before if one is first else by_pieces(_blocks(one), _windows(one, documents))
            if one is not first:
                agreements[f"{name}: pieces, base's pieces"] = agreement(before, pieces, groups).to_json()
            if rows:
                other = _by_sentences(_blocks(one), rows)
                agreements[f"{name}: pieces, sentences"] = agreement(pieces, other, groups).to_json()
    return {"change": found, "agreement": agreements}


def _named(name: str) -> str:
    """What an encoder is called: by its folder, by the run's where that is `encoder`."""
    own = recorded(name)
    if own != "encoder":
        return own
    return Path(name).resolve().parent.name


def _documents(documents: Sequence[Document], limit: int) -> list[Document]:
    """Those with sentences, at most `limit`, chosen by content."""
    cut = [document for document in with_sentences(documents) if document.sentences]
    chosen = sorted(cut, key=lambda document: document.key)[:limit]
    if len(chosen) < 4:
        raise DataError(f"{len(chosen)} documents with a sentence: at least 4 are compared.")
    return chosen


def _blocks(one: Pretrained) -> LiveBlocks:
    stack = one.stack()
    return LiveBlocks(stack, range(stack.n_blocks), final=True, embeddings=True).eval()


def _windows(one: Pretrained, documents: Sequence[Document]) -> list[Any]:
    plain = [Document(document.id, text=" ".join(document.sentences)) for document in documents]
    return [windows_of([cut], [""]) for cut in one.cut(plain)]


def _sentence_rows(documents: Sequence[Document], name: str) -> list[Float[np.ndarray, "S E"]]:
    """Each document's sentence vectors."""
    source = Pooled(Pretrained(name))
    rows = {i: views[-1] for i, views in source.encode(source.cut(documents))}
    return [rows[i] for i in range(len(documents))]


def _by_sentences(blocks: LiveBlocks, rows: Sequence[np.ndarray]) -> Vectors:
    found = []
    with torch.no_grad():
        for own in rows:
            vectors, lengths = torch.from_numpy(np.ascontiguousarray(own)), (len(own),)
            found.append(segment_means(blocks(blocks.place(vectors, lengths), lengths), lengths).numpy())
    return np.concatenate(found)
