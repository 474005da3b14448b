"""What a reader's file says of itself; the folder is the list of formats (see `encodeonce.corpus`)."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..types import Document

__all__ = ["Format"]


@dataclass(frozen=True, slots=True)
class Format:
    """A format's name, the suffixes it is known by (".gz" apart), and its two functions.

    `read(path, *, columns=None, **options) -> list[Document]`; `write(target, source, columns, **options)`, where
    `source` is a path in the format or documents, and `columns` hold the values to put in, one entry an item.
    `recognises(path)` looks into a file: formats that have it come before the one that a suffix says otherwise.
    """

    name: str
    suffixes: tuple[str, ...]
    read: Callable[..., list[Document]]
    write: Callable[..., None]
    recognises: Callable[[str | Path], bool] | None = None
