"""What tasks with one gold value a document share: where it is read, and refusing a document without it."""

from typing import Any

from ..errors import ConfigError, DataError
from ..resolve import nearest
from ..types import Document

__all__ = ["PIECES", "check_choice", "check_text", "place_of", "value_of"]

PIECES = ("document", "document-words")
"""The one row of a document: the mean over all its pieces (A-11), or over those of its words only."""


def check_choice(field: str, value: str, allowed: tuple[str, ...]) -> None:
    """ConfigError unless `value` is one of `allowed`."""
    if value not in allowed:
        raise ConfigError(
            f"{field}={value!r} is not known. There is: {', '.join(allowed)}.{nearest(value, [*allowed])}"
        )


def check_text(document: Document, task: str) -> None:
    """DataError for a document that has nothing to read."""
    if not document.words and not document.text.strip():
        raise DataError(f"{place_of(document)}: task {task!r}: the text is empty. Give it one, or leave the item out.")


def value_of(document: Document, column: str, task: str) -> Any:
    """The document's value under a name. DataError with the place and the names there are, or for a missing value.

    Only null and the empty string are missing: "NA", "null" and "none" are values like any other (CLS-1).
    """
    there = sorted({*document.meta, *document.columns})
    if column not in there:
        raise DataError(
            f"{place_of(document)}: task {task!r} reads {column!r}, and there is {', '.join(there) or 'no such value'}."
            f"{nearest(column, there)} Name another with column=..., or map it: columns={{{column!r}: 'NAME'}}."
        )
    value = document.meta[column] if column in document.meta else document.columns[column]
    if value is None or value == "":
        raise DataError(
            f"{place_of(document)}: task {task!r}: {column!r} is {'null' if value is None else 'empty'}. Training and "
            "evaluation need gold: annotate the item or leave it out."
        )
    return value


def place_of(document: Document) -> str:
    """ "file:line (id x)"."""
    return f"{document.place} (id {document.id})" if document.place else document.id
