"""Cutting the lines of a table into cells, with and without quoting, keeping the bytes of every cell."""

from dataclasses import dataclass

from ..errors import DataError
from ._files import body

__all__ = ["Row", "cut_plain", "cut_quoted", "quoted"]


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its first line's number, cells as values and as they stand in the file, and its line end.

    `doubtful`: a cell began with a quote that was never properly closed, and was read as it stands.
    """

    line: int
    values: tuple[str, ...]
    raw: tuple[str, ...]
    ending: str
    doubtful: bool = False


def cut_plain(lines: list[str], comma: str) -> list[Row]:
    """A row a line; quotes are characters."""
    rows = []
    for number, line in enumerate(lines, 1):
        text = body(line)
        cells = tuple(text.split(comma))
        rows.append(Row(number, cells, cells, line[len(text) :]))
    return rows


def cut_quoted(lines: list[str], comma: str, path: str, *, sure: bool) -> list[Row]:
    """Rows by RFC 4180. `sure`: quotes are meant as such; an open one is an error and nothing is ambiguous."""
    rows: list[Row] = []
    at = 0
    while at < len(lines):
        row, used = _row(lines, at, comma, path, sure)
        if used > 1 and not sure:
            plain = [body(line).count(comma) + 1 for line in lines[at : at + used]]
            if len(row.values) > 1 and set(plain) == {len(row.values)}:
                raise DataError(
                    f"{path}:{at + 1}: a quote opened here is closed {used - 1} lines on, but each of these lines is a "
                    "whole row by itself. Say how it is meant: quoting=False (quotes are characters) or "
                    "quoting=True (--read quoting=true)."
                )
        rows.append(row)
        at += used
    return rows


def _row(lines: list[str], at: int, comma: str, path: str, sure: bool) -> tuple[Row, int]:
    """The row that begins at a line, and how many lines it takes."""
    values: list[str] = []
    raw: list[str] = []
    line, used, position, doubtful = lines[at], 1, 0, False
    while True:
        text = body(line)
        if text[position : position + 1] == '"' and (closed := _closed(lines, at + used - 1, position, comma)):
            stop_line, stop, value = closed
            first = at + used - 1
            inner = [lines[i] for i in range(first, stop_line)]
            pieces = (lines[first][position:], *inner[1:], lines[stop_line][:stop])
            raw.append("".join(pieces) if inner else line[position:stop])
            values.append(value)
            used += stop_line - first
            line, position = lines[stop_line], stop
            text = body(line)
        else:
            if text[position : position + 1] == '"':
                if sure:
                    raise DataError(
                        f"{path}:{at + used}:{position + 1}: a quote opened here is not closed as it must be."
                    )
                doubtful = True
            stop = text.find(comma, position)
            stop = len(text) if stop < 0 else stop
            raw.append(text[position:stop])
            values.append(text[position:stop])
            position = stop
        if position == len(text):
            return Row(at + 1, tuple(values), tuple(raw), line[len(text) :], doubtful), used
        position += 1


def _closed(lines: list[str], at: int, position: int, comma: str) -> tuple[int, int, str] | None:
    """Where the quoted cell that begins at a position ends: (line, position behind it, value); None if nowhere."""
    value: list[str] = []
    start = position + 1
    for index in range(at, len(lines)):
        line = lines[index]
        while (quote := line.find('"', start)) >= 0:
            value.append(line[start:quote])
            if line[quote + 1 : quote + 2] == '"':
                value.append('"')
                start = quote + 2
                continue
            after = line[quote + 1 :]
            return (index, quote + 1, "".join(value)) if after[:1] == comma or not body(after) else None
        value.append(line[start:])
        start = 0
    return None


def quoted(value: str, comma: str, quotes: bool, place: str) -> str:
    """A value as a cell."""
    if quotes and (comma in value or '"' in value or "\n" in value or "\r" in value):
        return '"' + value.replace('"', '""') + '"'
    if not quotes and (comma in value or "\n" in value or "\r" in value):
        raise DataError(f"{place}: {value!r} cannot be written: it holds a line end or what divides cells, unquoted.")
    return value
