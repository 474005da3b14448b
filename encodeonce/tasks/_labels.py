"""What all token tasks share: the label list, ids, and refusing a document whose gold is missing.

Axes: W words of one document
"""

import json
import logging
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Int

from ..corpus.diagnose import why_no_column
from ..errors import ConfigError, DataError
from ..resolve import available, nearest
from ..types import IGNORE, Document

__all__ = ["PIECES", "check_piece", "column_of", "ids_of", "inventory", "refuse_missing", "where"]

log = logging.getLogger("encodeonce")

PIECES = ("first", "last", "mean")
"""Which of a word's pieces may stand for it."""


def check_piece(piece: str) -> None:
    """ConfigError unless `piece` is one of PIECES."""
    if piece not in PIECES:
        raise ConfigError(f"piece={piece!r}: a word is represented by its {', '.join(PIECES)} piece.")


def column_of(document: Document, column: str, task: str) -> tuple[str, ...]:
    """One column of a document. DataError naming the columns there are, or what is wrong with this one."""
    if column in document.columns:
        return document.columns[column]
    if why := why_no_column(document, column):
        raise DataError(f"{where(document)}: task {task!r} reads column {column!r}: {why}.")
    if not document.words:
        raise DataError(f"{where(document)}: task {task!r} labels words, and {_wordless(document, column, task)}")
    there = sorted(document.columns)
    several = f" Several tasks are a list: tasks = {json.dumps(task.split(','))}." if "," in task else ""
    raise DataError(
        f"{where(document)}: task {task!r} reads column {column!r}, and there is "
        f"{', '.join(there) if there else 'no gold column'}.{several or nearest(column, there)} Say where it "
        f"stands with columns, such as {column}=NAME."
    )


def _wordless(document: Document, column: str, task: str) -> str:
    """Why a document has no words with labels, and what to do: the common first mistakes apart."""
    if not document.text:
        return "this document has none: leave it out."
    if column in document.meta:
        kinds = 'kind = "classification" (or "multilabel", "regression")'
        return f"{column!r} is of the whole text: say so with {kinds} under [task.{task}]."
    known = available("tasks")
    near = "" if task in known else nearest(task, [*document.meta, *known])
    if document.meta:
        fields = ", ".join(map(repr, document.meta))
        return f"this is a text with {fields}.{near} Tasks of whole texts: classification, multilabel, regression."
    return (
        f"this is running text.{near} Where a file has a word a line, name its format: "
        'format = "columns" under [data] (or --format columns).'
    )


def refuse_missing(document: Document, values: Sequence[str], column: str, missing: frozenset[str]) -> None:
    """DataError with sentence, line and column of the first value that stands for "not annotated"."""
    for i, value in enumerate(values):
        if value in missing:
            raise DataError(
                f"{where(document, i)}: column {column.upper()} of word {i + 1} ({document.words[i]!r}) is {value!r}, "
                "which means not annotated. Training and evaluation need gold: annotate it or leave the sentence out."
            )


def inventory(gold: Iterable[tuple[str, ...]], task: str) -> tuple[str, ...]:
    """The sorted label list of the training documents. DataError where there is no word at all."""
    labels = tuple(sorted({label for labels in gold for label in labels}))
    if not labels:
        raise DataError(f"task {task!r}: no examples: the training documents have no words.")
    if len(labels) == 1:
        log.warning("task %s: a single label, %r; every prediction will be it", task, labels[0])
    return labels


def ids_of(gold: tuple[str, ...], ids: dict[str, int]) -> Int[np.ndarray, " W"]:
    """int64 ids; IGNORE for a label that is not in the list."""
    return np.array([ids.get(label, IGNORE) for label in gold], dtype=np.int64)


def where(document: Document, word: int | None = None) -> str:
    """ "file:line (sent_id x)"; the line is the word's own where the reader recorded it."""
    place = document.place or "document"
    lines = document.meta.get("lines")
    if word is not None and lines:
        place = f"{place.rpartition(':')[0]}:{lines[word]}"
    return f"{place} (sent_id {document.id})"
