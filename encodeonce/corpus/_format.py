"""What a reader's file says of itself; the folder is the list of formats (see `encodeonce.corpus`)."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..errors import DataError
from ..types import Document

__all__ = ["Format", "holds_texts", "refuse_empty_pair"]


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


def refuse_empty_pair(pair: str | None, place: str) -> None:
    """DataError where an item of a file of pairs has no second text (None: the file has no pairs)."""
    if pair is not None and not pair.strip():
        raise DataError(f"{place}: the second text of the pair is empty. Give it one, or leave the item out.")


def holds_texts(folder: str | Path) -> bool:
    """Whether a folder is one of text files, not a saved Dataset."""
    saved = any((Path(folder) / name).exists() for name in ("dataset_info.json", "dataset_dict.json", "state.json"))
    return not saved and next(Path(folder).rglob("*.txt"), None) is not None
