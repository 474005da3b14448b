"""Fields of a JSON object, of the kind they must be or an error with file and line."""

import logging
from collections.abc import Container, Mapping
from functools import cache
from typing import Any

from ..errors import DataError

__all__ = ["as_questions", "beside", "kind", "objects", "string", "strings", "truth"]


log = logging.getLogger("encodeonce")


def beside(name: str, used: Container[str], taken: bool = False) -> str:
    """A field's name beside those `used`, itself unless it is among them or `taken` by a part of the document: then
    with as many "_" behind it as it takes, which is said once a name."""
    free = name + "_" * taken
    while free in used:
        free += "_"
    if free != name:
        _say_renamed(name, free)
    return free


@cache
def _say_renamed(name: str, free: str) -> None:
    log.warning("field %r is written as %r: %r is where a document's own is read from", name, free, name)


def string(value: Mapping[str, Any], field: str, place: str) -> str:
    """A field that must be there and be a string."""
    if field not in value:
        raise DataError(f"{place}: no field {field!r}. There is: {', '.join(value) or 'nothing'}.")
    if not isinstance(value[field], str):
        raise DataError(f"{place}: {field!r} is a {kind(value[field])}; it must be a string.")
    return str(value[field])


def strings(content: Any, field: str, place: str) -> tuple[str, ...]:
    """A field's content that must be a list of strings."""
    if not isinstance(content, list):
        raise DataError(f"{place}: {field!r} is a {kind(content)}; it must be a list of strings.")
    for index, item in enumerate(content):
        if not isinstance(item, str):
            raise DataError(f"{place}: {field!r}[{index}] is a {kind(item)} ({item!r}); it must be a string.")
    return tuple(content)


def objects(value: Mapping[str, Any], field: str, place: str) -> list[dict[str, Any]]:
    """A field that must be there and be a list of objects."""
    content = value.get(field)
    if not isinstance(content, list) or not all(isinstance(item, dict) for item in content):
        raise DataError(f"{place}: {field!r} is a {kind(content)}; it must be a list of objects: [{{...}}, ...].")
    return content


def truth(value: Mapping[str, Any], field: str, place: str, default: bool = False) -> bool:
    """A field that is true or false, or 1 or 0; `default` where it is null or absent. "false" is a word, not false."""
    content = value.get(field)
    if content is None:
        return default
    if content not in (0, 1):
        raise DataError(f"{place}: {field!r} is {content!r:.40}; it must be true or false, or 1 or 0.")
    return bool(content)


def as_questions(value: Mapping[str, Any] | None) -> str:
    """How a file is read whose first object is this one, where that is a question: for a message; "" for any other."""
    if value is None or not isinstance(value.get("question"), str):
        return ""
    form, what = ("sections", "their sections") if "section_path" in value else ("questions", "their passages")
    return (
        f"A file of questions is read by name: --format {form} --passages FILE (data.format and data.passages in a "
        f"config, format= and passages= in Python), where FILE holds {what}."
    )


def kind(value: Any) -> str:
    """What a JSON value is, for a message."""
    return "null" if value is None else type(value).__name__
