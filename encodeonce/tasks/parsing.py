"""Dependency parsing: a head and a relation for every word (spec A8).

Axes: W words of one document
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int

from ..errors import ConfigError, DataError
from ..heads.biaffine import TREES
from ..metrics.attachment import Tree, attachment
from ..nn.trees import cycle_of, roots_of
from ..resolve import nearest
from ..types import Document
from . import Task
from ._labels import column_of, ids_of, inventory, refuse_missing, where

__all__ = ["Parsing"]

log = logging.getLogger("encodeonce")


@dataclass(frozen=True)
class Parsing(Task):
    """Gold is columns "head" (0: the root) and "deprel"; `labels` are the relations. The rest are the parser's settings
    (`heads.biaffine`), the defaults those of decision A-12; `dropout` is its own, whatever the adapter's is.
    """

    piece: str = "root+mean"
    tree: str = "mst"
    n_lstm_layers: int = 3
    lstm_width: int = 400
    arc_width: int = 500
    rel_width: int = 100
    dropout: float = 0.33
    lstm_dropout: float = 0.33
    token_dropout: float = 0.33
    mask_self: bool = True
    called: str = "parsing"
    labels: tuple[str, ...] = ()

    LEARNED: ClassVar[tuple[str, ...]] = ("labels", "called")
    head: ClassVar[str] = "biaffine"
    metric: ClassVar[str] = "las"

    def __post_init__(self) -> None:
        if self.piece != "root+mean":
            raise ConfigError(
                f"piece={self.piece!r}: a parser reads the root and the mean of each word's pieces: piece='root+mean'."
            )
        if self.tree not in TREES:
            close = nearest(self.tree, list(TREES))
            raise ConfigError(f"tree={self.tree!r} is not known. There is: {', '.join(TREES)}.{close}")

    @property
    def name(self) -> str:
        """As in settings."""
        return self.called

    @property
    def head_options(self) -> dict[str, Any]:
        """The parser's settings."""
        names = [field.name for field in fields(self) if field.name not in ("piece", *self.LEARNED)]
        return {name: getattr(self, name) for name in names}

    def learn(self, documents: Sequence[Document]) -> "Parsing":
        """With the sorted relations of these documents."""
        return replace(self, labels=inventory((tree_of(document).labels for document in documents), self.name))

    def gold(self, documents: Sequence[Document]) -> list[Tree]:
        """The tree of each document, with its words and its UPOS where there is one.

        DataError with file and line for a head that is missing, no number, out of range, or part of a cycle. Several
        roots are read as they stand, and a warning counts them: predictions have one.
        """
        trees = [tree_of(document) for document in documents]
        several = [i for i, tree in enumerate(trees) if len(roots_of(tree.heads)) > 1]
        if several:
            roots = ", ".join(map(str, roots_of(trees[several[0]].heads)))
            log.warning(
                "task %s: %d of %d trees have several roots, the first: %s (words %s). Predictions have one root.",
                self.name, len(several), len(trees), where(documents[several[0]]), roots,
            )  # fmt: skip
        return trees

    def ids(self, gold: Tree) -> Int[np.ndarray, "W 2"]:
        """(head, label) of every word. A label that training never saw is IGNORE; its head is learned all the same."""
        return np.stack([np.array(gold.heads, dtype=np.int64), ids_of(gold.labels, self._ids)], axis=1)

    def scored(self, ids: Int[np.ndarray, "W 2"]) -> int:
        """Words."""
        return len(ids)

    def unseen(self, gold: Tree) -> Iterable[str]:
        """Relations that training never saw."""
        return (label for label in gold.labels if label not in self._ids)

    def score(self, gold: Sequence[Tree], predicted: Sequence[tuple[Any, ...]]) -> dict[str, float | None]:
        """UAS and LAS, with punctuation and without it by three rules (`metrics.attachment`); LAS with it decides."""
        return attachment(gold, [Tree(*one) for one in predicted])  # a document without words is answered by ()

    def columns(self, documents: Sequence[Document], predicted: Sequence[tuple[Any, ...]]) -> dict[str, Sequence[Any]]:
        """HEAD and DEPREL."""
        trees = [Tree(*one) for one in predicted]
        return {
            "head": [tuple(map(str, tree.heads)) for tree in trees],
            "deprel": [tree.labels for tree in trees],
        }

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        plain = {"piece": self.piece, **self.head_options, "called": self.called}
        return {"kind": "parsing", **plain, "labels": list(self.labels)}

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {label: i for i, label in enumerate(self.labels)}


def tree_of(document: Document) -> Tree:
    """A document's gold. DataError naming file and line of what makes it no tree."""
    for column in ("head", "deprel"):
        refuse_missing(document, column_of(document, column, "parsing"), column, frozenset({"", "_"}))
    n = len(document.words)
    heads = []
    for i, value in enumerate(document.columns["head"]):
        if not (value.isascii() and value.isdecimal()) or int(value) > n:
            raise DataError(
                f"{where(document, i)}: column HEAD of word {i + 1} ({document.words[i]!r}) is {value!r}, not a number "
                f"from 0 (the root) to {n}, the number of words."
            )
        heads.append(int(value))
    cycle = cycle_of(heads)
    if cycle:
        path = " -> ".join(f"{word} ({document.words[word - 1]!r})" for word in (*cycle, cycle[0]))
        raise DataError(
            f"{where(document, cycle[0] - 1)}: the heads run in a circle, each word under the next: {path}. "
            "A tree leads from every word to the root; correct the heads or leave the sentence out."
        )
    upos = document.columns.get("upos", ())
    return Tree(tuple(heads), document.columns["deprel"], document.words, () if "_" in upos else upos)
