"""Categories of documents put into a taxonomy file: by name, else by the sentence encoder's nearest leaf (spec A8)."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from ..corpus.taxonomy import (
    Mapped,
    last_name,
    last_nodes,
    map_categories,
    path_of,
    read_codes,
    read_taxonomy,
    spelled,
)
from ..encoders.pooled import Pooled
from ..types import Document
from .pretrain_config import DocumentsSection

__all__ = ["placed"]

log = logging.getLogger("encodeonce")

Leaf = tuple[str, ...]


def placed(
    documents: Sequence[Document], data: DocumentsSection, source: Pooled
) -> tuple[list[Document], list[dict[str, Any]]]:
    """The documents with a path of `data.taxonomy` in the place of their own, and where each category went.

    A category is a document's own path: one of the taxonomy stays, of any other the last name counts, which may be one
    of the file's codes. Documents without one stay so.
    """
    assert data.taxonomy is not None
    leaves, codes = read_taxonomy(data.taxonomy), read_codes(data.taxonomy)
    own = [" > ".join(path_of(document, data.path)) for document in documents]
    found = _mapped([path for path in dict.fromkeys(own) if path], leaves, codes, source, data.min_cosine)
    nowhere = [one.category for one in found if not one.leaf]
    log.info(
        "taxonomy: %d categories, %d of them a leaf's path, code or name, %d nowhere%s",
        len(found),
        sum(one.exact for one in found),
        len(nowhere),
        f": {', '.join(nowhere[:5])}{' ...' if len(nowhere) > 5 else ''}" if nowhere else "",
    )
    to = {one.category: list(one.leaf) for one in found}
    moved = [
        replace(document, meta={**document.meta, data.path: to[path]}) if path else document
        for document, path in zip(documents, own, strict=True)
    ]
    return moved, [{**asdict(one), "leaf": list(one.leaf)} for one in found]


def _mapped(
    categories: Sequence[str],
    leaves: Sequence[Leaf],
    codes: Mapping[str, Leaf],
    source: Pooled,
    least: float | None,
) -> list[Mapped]:
    """Every text is encoded once; nothing is where all categories are known."""
    known = map_categories(categories, leaves, {}, least, codes)
    if all(one.exact for one in known):
        return known
    asked = [last_name(one.category) for one in known if not one.exact]
    texts = [text for text in dict.fromkeys(map(spelled, [*asked, *map(last_nodes, leaves)])) if text]
    rows = Pooled(source.model, "text", source.pooling, normalize=True)
    cut = rows.cut([Document(text, text=text) for text in texts])
    vectors = {texts[i]: views[-1, 0] for i, views in rows.encode(cut)}
    return map_categories(categories, leaves, vectors.get, least, codes)
