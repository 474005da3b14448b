"""What a reader's file says of itself; the folder is the list of formats (see `encodeonce.corpus`)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from ..errors import ConfigError, DataError
from ..resolve import nearest
from ._fields import as_questions
from ._files import any_text, ending
from ._objects import opens_with

__all__ = ["Format", "by_name", "by_suffix", "holds_texts", "refuse_one_cell", "second_text"]

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Format(Generic[Item]):
    """A format's name, the suffixes it is known by (".gz" apart), and its two functions.

    `read(path, *, columns=None, **options) -> list[Document]`; `write(target, source, columns, **options)`, where
    `source` is a path in the format or documents, and `columns` hold the values to put in, one entry an item.
    Formats of passages and of questions have no columns: `read(path, **options)`, `write(target, items)`.
    With `by_id`, `read` takes `passages` too: a file of what its items name by id.
    `recognises(path)` looks into a file: formats that have it come before the one that a suffix says otherwise.
    """

    name: str
    suffixes: tuple[str, ...]
    read: Callable[..., list[Item]]
    write: Callable[..., None]
    recognises: Callable[[str | Path], bool] | None = None
    by_id: bool = False


def by_name(known: Mapping[str, Format[Item]], name: str) -> Format[Item]:
    """The format called `name`; ConfigError listing the formats where there is none."""
    if name not in known:
        raise ConfigError(f"format={name!r} is not known. There is: {', '.join(known)}.{nearest(name, list(known))}")
    return known[name]


def by_suffix(known: Mapping[str, Format[Item]], source: Any) -> Format[Item]:
    """The format that a path's suffix or the file's content says; ConfigError listing the formats where none does."""
    suffix = "" if Path(source).is_dir() else ending(source)
    fitting = [format_ for format_ in known.values() if suffix in format_.suffixes]
    seen = (f for f in fitting if f.recognises is not None and Path(source).exists() and f.recognises(source))
    found = next(seen, None) or next((format_ for format_ in fitting if format_.recognises is None), None)
    if found is not None:
        return found
    listed = ", ".join(
        f"{f.name} ({' '.join(filter(None, f.suffixes)) or 'objects and folders'})" for f in known.values()
    )
    what = "what the folder holds" if Path(source).is_dir() else f"suffix {suffix!r}"
    asked = as_questions(opens_with(source)) if "questions" in known and Path(source).is_file() else ""
    raise ConfigError(
        f"{source}: {what} says no format. Name one with format=...; there is: {listed}. {asked}".rstrip()
    )


def second_text(pair: str | None) -> str:
    """`Document.pair` of what a file has as the second text: one that is empty stays one (None: there is no pair)."""
    return "" if pair is None else pair or " "


def refuse_one_cell(where: Mapping[str, int], place: str, n: int) -> None:
    """DataError where two names are one cell of a row of `n`: what is written as one would be lost as the other."""
    first: dict[int, str] = {}
    for name, at in where.items():
        if (other := first.setdefault(at, name)) != name:
            raise DataError(
                f"{place}: {other!r} and {name!r} are both column {at} of {n}, counted from 0. Give each its own, or "
                "leave out (of --columns) the one that the file has not."
            )


def holds_texts(folder: str | Path) -> bool:
    """Whether a folder is one of text files, not a saved Dataset."""
    saved = any((Path(folder) / name).exists() for name in ("dataset_info.json", "dataset_dict.json", "state.json"))
    return not saved and any_text(Path(folder))
