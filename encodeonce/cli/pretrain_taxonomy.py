"""Categories of documents put into a taxonomy file: by name, else by the sentence encoder's nearest leaf (spec A8)."""

import logging
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from ..corpus.taxonomy import Mapped, last_nodes, map_categories, path_of, read_taxonomy, spelled
from ..encoders.pooled import Pooled
from ..types import Document
from .pretrain_config import DocumentsSection

__all__ = ["placed"]

log = logging.getLogger("encodeonce")


def placed(
    documents: Sequence[Document], data: DocumentsSection, source: Pooled
) -> tuple[list[Document], list[dict[str, Any]]]:
    """The documents with a path of `data.taxonomy` in the place of their own, and where each category went.

    A category is the last name of a document's own path; documents without one stay so.
    """
    assert data.taxonomy is not None
    leaves = read_taxonomy(data.taxonomy)
    own = [path_of(document, data.path) for document in documents]
    found = _mapped(list(dict.fromkeys(path[-1] for path in own if path)), leaves, source, data.min_cosine)
    nowhere = [one.category for one in found if not one.leaf]
    log.info(
        "taxonomy: %d categories, %d of them a leaf's name, %d nowhere%s",
        len(found),
        sum(one.exact for one in found),
        len(nowhere),
        f": {', '.join(nowhere[:5])}{' ...' if len(nowhere) > 5 else ''}" if nowhere else "",
    )
    to = {one.category: list(one.leaf) for one in found}
    moved = [
        replace(document, meta={**document.meta, data.path: to[path[-1]]}) if path else document
        for document, path in zip(documents, own, strict=True)
    ]
    return moved, [{**asdict(one), "leaf": list(one.leaf)} for one in found]


def _mapped(
    categories: Sequence[str], leaves: Sequence[tuple[str, ...]], source: Pooled, least: float | None
) -> list[Mapped]:
    """Every text is encoded once."""
    texts = [text for text in dict.fromkeys(map(spelled, [*categories, *map(last_nodes, leaves)])) if text]
    rows = Pooled(source.model, "text", source.pooling, normalize=True)
    cut = rows.cut([Document(text, text=text) for text in texts])
    vectors = {texts[i]: views[-1, 0] for i, views in rows.encode(cut)}
    return map_categories(categories, leaves, vectors.get, least)
