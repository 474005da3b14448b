"""Passages as a table divided by tabs: DPR's form, a header and the columns id, text, title (in any order).

A cell that stands in quotes with its inner quotes doubled, as DPR's own dump has them, is read without them; any other
quote is a character like all others.
"""

from collections.abc import Iterable
from pathlib import Path

from ...errors import DataError
from ...types import Passage
from .._files import BOM, Target, body, numbered, write_text
from .._format import Format

__all__ = ["FORMATS", "read", "write"]

COLUMNS = ("id", "text", "title")


def read(path: str | Path) -> list[Passage]:
    """Every row. Without a header the columns are id, text, title. DataError with file and line for too few cells, and
    for a first row that names one of the columns and lacks another."""
    passages: list[Passage] = []
    names: tuple[str, ...] = ()
    for number, line in numbered(path):
        if line == BOM:
            continue
        cells = [_unquoted(cell) for cell in body(line).split("\t")]
        if not names:
            names = tuple(cells) if {"id", "text"} <= set(cells) else COLUMNS
            if names == tuple(cells):
                continue
            _refuse_other_header(cells, f"{path}:{number}")
        if not body(line):
            continue
        place = f"{path}:{number}"
        if len(cells) not in (len(names), len(names) - (names[-1] == "title")):
            raise DataError(f"{place}: {len(cells)} cells; there must be {len(names)}: {', '.join(names)}.")
        row = dict(zip(names, cells, strict=False))
        passages.append(Passage(row["id"], row.get("title", ""), row["text"], place=place))
    return passages


def write(target: Target, passages: Iterable[Passage]) -> None:
    """Header and rows; DataError for a passage that holds a tab or a line end. Windows lose their source: use jsonl."""

    def rows() -> Iterable[str]:
        yield "\t".join(COLUMNS) + "\n"
        for passage in passages:
            cells = (passage.id, passage.text, passage.title)
            if any(sign in cell for cell in cells for sign in "\t\r\n"):
                raise DataError(f"{passage.place or passage.id}: a tab or line end in a cell of a table. Use .jsonl.")
            yield "\t".join(_quoted(cell) for cell in cells) + "\n"

    write_text(target, rows())


def _refuse_other_header(cells: list[str], place: str) -> None:
    """A header of other names would be read as a passage, and its columns by their order."""
    named = [cell for cell in cells if cell.strip().lower() in COLUMNS]
    if named:
        raise DataError(
            f"{place}: {cells} look like the names of columns, which must be id, text and, if there is one, title, "
            "spelt so. Rename them, or take the row out: without it the columns are id, text, title."
        )


def _unquoted(cell: str) -> str:
    inner = cell[1:-1]
    if len(cell) > 1 and cell[0] == cell[-1] == '"' and '"' not in inner.replace('""', ""):
        return inner.replace('""', '"')
    return cell


def _quoted(cell: str) -> str:
    """In quotes where it would be read otherwise without."""
    doubled = cell.replace('"', '""')
    return f'"{doubled}"' if _unquoted(cell) != cell else cell


FORMATS = (Format("tsv", (".tsv",), read, write),)
