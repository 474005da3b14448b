"""JSON objects of a file, one a line or in one array, and the same file with some of their values changed.

Nothing else changes when the file is written again: not the order of fields, the blanks, or how a number is spelt.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import DataError
from ._files import BOM, Target, ending, lines

__all__ = ["Objects", "has_fields", "opens_with", "written"]

_BLANK = " \t\r\n"
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Objects:
    """`values[i]` is object i, written at `spans[i]` of `text` and beginning on line `at[i]` of `path`."""

    path: str
    text: str
    values: tuple[dict[str, Any], ...]
    spans: tuple[tuple[int, int], ...]
    at: tuple[int, ...]

    @classmethod
    def read(cls, path: str | Path) -> "Objects":
        """Every object of a file. DataError with file:line for bad JSON and for what is no object."""
        text = "".join(lines(path))
        found = list(_objects(text, str(path)))
        return cls(
            str(path),
            text,
            tuple(value for value, _, _ in found),
            tuple((start, stop) for _, start, stop in found),
            tuple(_numbers(text, [start for _, start, _ in found])),
        )

    @property
    def places(self) -> list[str]:
        """ "file:line" of each object."""
        return [f"{self.path}:{number}" for number in self.at]

    def rewritten(self, changes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        """The text with fields of each object set; a field that says the same already keeps its bytes."""
        done = 0
        for value, (start, stop), change in zip(self.values, self.spans, changes, strict=True):
            where = _members(self.text, start)
            added = []
            for name, new in sorted(change.items(), key=lambda item: where.get(item[0], (stop, stop))):
                if name in value and value[name] == new:
                    continue
                written = json.dumps(new, ensure_ascii=False)
                if name in where:
                    yield self.text[done : where[name][0]]
                    yield written
                    done = where[name][1]
                else:
                    added.append(f"{json.dumps(name, ensure_ascii=False)}: {written}")
            if added:
                last = max((end for _, end in where.values()), default=start + 1)
                yield self.text[done:last]
                yield (", " if where else "") + ", ".join(added)
                done = last
        yield self.text[done:]


def opens_with(path: str | Path) -> dict[str, Any] | None:
    """The first object of a file, or None where there is none or it is not JSON."""
    head, number, tried = "", 0, 1
    try:
        for line in lines(path):
            head, number = head + line.removeprefix(BOM), number + 1
            if number < tried:
                continue
            tried *= 2  # an object over many lines is tried again seldom enough to stay linear
            if (value := _first(head)) is not None:
                return value
    except DataError:
        return None
    return _first(head)


def _first(text: str) -> dict[str, Any] | None:
    try:
        value, _ = _DECODER.raw_decode(text, _skip(text, 0, _BLANK + "["))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def has_fields(value: Any, **kinds: type) -> bool:
    """Whether a value of JSON is an object and has these fields, each of its kind."""
    return isinstance(value, Mapping) and all(isinstance(value.get(name), kind) for name, kind in kinds.items())


def written(values: Sequence[Mapping[str, Any]], target: Target) -> Iterator[str]:
    """New objects, one a line; in an array where the target is a path that ends in .json."""
    array = isinstance(target, (str, Path)) and ending(target) == ".json"
    if array:
        yield "["
    for i, value in enumerate(values):
        yield (",\n" if array and i else "") + json.dumps(value, ensure_ascii=False) + ("" if array else "\n")
    if array:
        yield "]\n"


def _objects(text: str, path: str) -> Iterator[tuple[dict[str, Any], int, int]]:
    """(object, start, stop) for each."""
    at = _skip(text, len(BOM) if text.startswith(BOM) else 0)
    in_array = text[at : at + 1] == "["
    at = _skip(text, at + in_array)
    while at < len(text):
        if in_array and text[at] == "]":
            if rest := text[at + 1 :].strip(_BLANK):
                raise DataError(f"{_place(text, at, path)}: {rest[:20]!r} after the end of the array.")
            return
        value, stop = _decoded(text, at, path)
        if not isinstance(value, dict):
            raise DataError(f"{_place(text, at, path)}: a {type(value).__name__}, not an object: {{...}}.")
        yield value, at, stop
        at = _skip(text, stop)
        if in_array and text[at : at + 1] not in (",", "]"):
            raise DataError(f"{_place(text, at, path)}: ',' or ']' was expected after an object of the array.")
        at = _skip(text, at + (in_array and text[at] == ","))
    if in_array:
        raise DataError(f"{_place(text, len(text), path)}: the array is not closed; the file may have been cut.")


def _decoded(text: str, at: int, path: str) -> tuple[Any, int]:
    try:
        value, stop = _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as problem:
        raise DataError(f"{_place(text, problem.pos, path)}: bad JSON: {problem.msg}.") from None
    except (ValueError, RecursionError) as problem:  # a number of thousands of digits, or as many brackets
        raise DataError(f"{_place(text, at, path)}: JSON that cannot be read: {problem}.") from None
    if "\\ud" in text[at:stop].lower():
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            raise DataError(f"{_place(text, at, path)}: half a surrogate pair, not a character.") from None
    return value, stop


def _members(text: str, start: int) -> dict[str, tuple[int, int]]:
    """Where each field's value stands in the object that begins at `start`; the text is known to be JSON."""
    where = {}
    at = _skip(text, start + 1)
    while text[at] != "}":
        name, at = _DECODER.raw_decode(text, at)
        begin = _skip(text, _skip(text, at) + 1)
        _, at = _DECODER.raw_decode(text, begin)
        where[name] = (begin, at)
        at = _skip(text, at)
        at = _skip(text, at + (text[at] == ","))
    return where


def _skip(text: str, at: int, characters: str = _BLANK) -> int:
    while at < len(text) and text[at] in characters:
        at += 1
    return at


def _numbers(text: str, starts: list[int]) -> Iterator[int]:
    """The line each place is on, counted from 1."""
    line, before = 1, 0
    for start in starts:
        line += text.count("\n", before, start)
        before = start
        yield line


def _place(text: str, at: int, path: str) -> str:
    line = text.count("\n", 0, at) + 1
    return f"{path}:{line}:{at - text.rfind(chr(10), 0, at)}"
