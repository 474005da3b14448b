"""Files to documents and back. One reader and writer a format, one file a format, found by name or by suffix.

A format's file has `FORMATS`; nothing else lists them. Everything is UTF-8 whatever the locale,
`.gz` is seen through, and "\\n" is the only line end.
"""

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

import numpy as np

from ..errors import ConfigError, DataError
from ..resolve import available, nearest
from ..types import Document
from ._files import Target
from ._format import Format, by_name, by_suffix, holds_texts

__all__ = ["Format", "format_of", "formats", "options_of", "read", "write"]


@cache
def formats() -> dict[str, Format[Document]]:
    """Every format by name."""
    found = (importlib.import_module(f"{__name__}.{name}") for name in available("corpus"))
    return {format_.name: format_ for module in found for format_ in vars(module).get("FORMATS", ())}


def format_of(source: Any, name: str | None = None) -> Format[Document]:
    """The format called `name`, or the one that a path's suffix, a file's content or an object's kind says.

    Raises ConfigError listing the formats where none of them says one.
    """
    known = formats()
    if name is not None:
        return by_name(known, name)
    if not isinstance(source, (str, Path)):
        return known["hub"]
    if Path(source).is_dir():
        return known["folder" if holds_texts(source) else "hub"]
    return by_suffix(known, source)


def read(
    source: Any, *, format: str | None = None, columns: Mapping[str, int | str] | None = None, **options: Any
) -> list[Document]:
    """Every example of a file, a folder or an object, as documents.

    `columns` says where values stand, our name first: {"form": 0, "tag": 3} by number, {"text": "sentence"} by name.
    `options` go to the format's own `read`. Raises DataError where there is no example, ConfigError where there is no
    such format.
    """
    found = format_of(source, format)
    if "passages" in options and not found.by_id:
        known = ", ".join(name for name, one in formats().items() if one.by_id)
        raise ConfigError(
            f"passages={str(options['passages'])!r}: {source} is read as {found.name!r}, which names no passages by id."
            f" Leave passages out, or name a format that does: {known}."
        )
    _check_options(found, options)
    documents = found.read(source, columns=columns, **options)
    if not documents:
        named = source if isinstance(source, (str, Path)) else type(source).__name__
        raise DataError(f"no examples in {named}: it is empty or holds only a header, blank lines and comments.")
    return documents


def options_of(function: Callable[..., Any]) -> dict[str, tuple[type, ...]]:
    """The options that a format's `read` or `write` has of its own, with the types of their values."""
    found = inspect.signature(getattr(function, "func", function)).parameters.values()
    return {
        one.name: tuple(get_origin(kind) or kind for kind in get_args(one.annotation) or (one.annotation,))
        for one in found
        if one.default is not one.empty and one.name not in ("columns", "layout_columns", "passages")
    }


def _check_options(found: Format[Document], options: Mapping[str, Any]) -> None:
    """ConfigError for an option that a format's reader does not have, and for a value of another type."""
    known = options_of(found.read)
    for name, value in options.items():
        if name == "passages":
            continue
        if name not in known:
            listed = ", ".join(known) or "none"
            meant = nearest(name, list(known))
            raise ConfigError(f"{name}={value!r}: format {found.name!r} has no such option. It has: {listed}.{meant}")
        if not isinstance(value, known[name]):
            due = " or ".join(one.__name__ for one in known[name] if one is not type(None))
            raise ConfigError(f"{name}={value!r}: format {found.name!r} takes a {due} there.")


def write(
    target: Target,
    source: str | Path | Iterable[Document],
    columns: Mapping[str, Sequence[Any]],
    *,
    format: str | None = None,
    **options: Any,
) -> None:
    """Write `source` with `columns` put in: predictions in the format they came in.

    `source` is a path (all its other content is kept) or documents (`format`, or the target's suffix, says the format).
    `columns` hold one entry an item, in order: a sequence of labels, one a word, or one label.
    """
    columns = {name: [_plain(value) for value in column] for name, column in columns.items()}
    named = source if isinstance(source, (str, Path)) else target
    if format is None and not isinstance(named, (str, Path)):
        raise ConfigError(f"Documents for a stream: name a format=...; there is: {', '.join(formats())}.")
    format_of(named, format).write(target, source, columns, **options)


def _plain(value: Any) -> Any:
    """A NumPy number as Python's own; all else as it is."""
    return value.item() if isinstance(value, np.generic) else value
