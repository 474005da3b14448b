"""CoNLL columns (2000, 2002, 2003 and their like): a word a row, a blank line after each sentence. Reader and writer.

Cells are divided by tabs or by blanks, one of them for the whole file: the first row decides, and a row with another
number of cells is refused. In a tab-separated file a word may hold blanks. `-DOCSTART-` rows are kept for writing and
are no words; each ends the sentence before it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..errors import ConfigError, DataError
from ..types import Document
from ._blocks import BLANK, Block, blocks, is_blank, rewritten
from ._files import BOM, Target, body, lines, stem, write_text
from ._format import Format, refuse_one_cell

__all__ = ["DOCSTART", "FORMATS", "Layout", "layout", "read", "sentences", "write"]

DOCSTART = "-DOCSTART-"
"""First cell of a row that begins a document (CoNLL-2003)."""

SEPARATORS = ("tab", "blank")

_GAP = re.compile("[ \t]+")
_EITHER = re.compile("([ \t]+)")


@dataclass(frozen=True, slots=True)
class Layout:
    """How a file is laid out: "tab" or "blank" between cells, cells a row, whether lines with # are comments, the line
    that says so, and whether it begins with # itself."""

    separator: str
    n_columns: int
    comments: bool
    line: int
    marked: bool = False

    def cells(self, text: str) -> list[str]:
        """The cells of one row, without its line end."""
        if self.separator == "tab":
            return text.split("\t")
        return [cell for cell in _GAP.split(text) if cell]


def layout(path: str | Path, *, separator: str | None = None, comments: bool = False) -> Layout:
    """Find a file's layout from its first row; `separator` ("tab" or "blank") overrules what is found."""
    if separator not in (None, *SEPARATORS):
        raise ConfigError(f"separator={separator!r} is not known. There is: {', '.join(SEPARATORS)}; None finds it.")
    number = 0
    for line in lines(path):
        number += line != BOM
        if line == BOM or is_blank(line) or _is_docstart(line) or (comments and line.startswith("#")):
            continue
        found = separator or ("tab" if "\t" in body(line).strip("\t ") else "blank")
        n_columns = len(Layout(found, 0, False, 0).cells(body(line)))
        return Layout(found, n_columns, comments, number, line.startswith("#"))
    return Layout(separator or "tab", 1, comments, 0)


def read(
    path: str | Path,
    *,
    columns: Mapping[str, int | str] | None = None,
    separator: str | None = None,
    comments: bool = False,
) -> list[Document]:
    """Every sentence of a file. `columns` names cells by number from 0 (negative: from the end), one of them "form".

    Without `columns`, the first cell is "form" and the last, where there are two, "tag". `meta` holds "lines", the line
    number of each word. With `comments`, a line that begins with # and has not a row's number of cells is a comment.
    Raises DataError with file:line for a row with another number of cells than the first.
    """
    shape = layout(path, separator=separator, comments=comments)
    where = _where(columns, shape, path)
    name = stem(path)
    known: dict[str, str] = {}
    documents: list[Document] = []
    for block in _blocks(path, shape):
        if not block.words:
            continue
        by_cell = [tuple(map(known.setdefault, column, column)) for column in zip(*block.cells, strict=True)]
        documents.append(
            Document(
                id=f"{name}:{len(documents) + 1}",
                words=by_cell[where["form"]],
                columns={column: by_cell[at] for column, at in where.items()},
                meta={"lines": block.numbers},
                place=block.place,
            )
        )
    return documents


def sentences(path: str | Path, *, separator: str | None = None, comments: bool = False) -> Iterator[Block]:
    """Stream the blocks of a file: sentences, and between them what belongs to none."""
    return _blocks(path, layout(path, separator=separator, comments=comments))


def write(
    target: Target,
    source: str | Path | Iterable[Document],
    columns: Mapping[str, Sequence[Sequence[str | int]]],
    *,
    layout_columns: Mapping[str, int | str] | None = None,
    separator: str | None = None,
    comments: bool = False,
) -> None:
    """Write `source` with columns replaced, or added on the right where the file has none of the name.

    `source` is a file of columns whose cells `layout_columns` names as `columns` does in `read`; every other byte is
    as it was. Or it is documents: their words, their columns and the given ones are written, divided by tabs.
    """
    if isinstance(source, (str, Path)):
        shape = layout(source, separator=separator, comments=comments)
        where = _where(layout_columns, shape, source)
        found = _blocks(source, shape)
    else:
        documents = list(source)
        names = list(dict.fromkeys(["form", *(name for d in documents for name in d.columns if name not in columns)]))
        shape = Layout("tab", len(names), False, 0)
        where = {name: at for at, name in enumerate(names)}
        found = (_built(document, names) for document in documents)
    write_text(target, rewritten(found, columns, partial(_replaced, where=where, shape=shape)))


def _where(columns: Mapping[str, int | str] | None, shape: Layout, path: str | Path) -> dict[str, int]:
    """Each named column's place, counted from the left."""
    if columns is None:
        return {"form": 0} if shape.n_columns == 1 else {"form": 0, "tag": shape.n_columns - 1}
    if "form" not in columns:
        raise ConfigError(f"columns={dict(columns)} must name the words' column: 'form'.")
    where = {}
    for name, at in columns.items():
        if isinstance(at, bool) or not isinstance(at, int):
            raise ConfigError(f"columns: {name!r} is {at!r}; columns of this format are numbers, counted from 0.")
        if shape.line and not -shape.n_columns <= at < shape.n_columns:
            raise DataError(
                f"{path}:{shape.line}: no column {at} ({name!r}): the row has {shape.n_columns} cells, "
                f"divided by {shape.separator}."
            )
        where[name] = at % shape.n_columns
    if shape.line:
        refuse_one_cell(where, f"{path}:{shape.line}", shape.n_columns)
    return where


def _blocks(path: str | Path, shape: Layout) -> Iterator[Block]:
    return blocks(str(path), partial(_cut, shape=shape), mark=DOCSTART)


def _is_docstart(line: str) -> bool:
    return re.split("[ \t\r\n]", line, maxsplit=1)[0] == DOCSTART


def _cut(path: str, prefix: str, start: int, held: list[str], *, shape: Layout) -> Block:
    at: list[int] = []
    cells: list[tuple[str, ...]] = []
    tabs = shape.separator == "tab"
    for index, line in enumerate(held):
        if not line.strip(BLANK) or (line.startswith(DOCSTART) and _is_docstart(line)):
            continue
        text = line.rstrip("\r\n")
        row = tuple(text.split("\t") if tabs else filter(None, _GAP.split(text)))
        if len(row) != shape.n_columns:
            if shape.comments and line.startswith("#"):
                continue
            comment = shape.marked or text.startswith("#")
            hint = " For comment lines, read with comments=True (--read comments=true)." if comment else ""
            raise DataError(
                f"{path}:{start + index}: {len(row)} cells divided by {shape.separator}; line {shape.line} has "
                f"{shape.n_columns}.{hint}"
            )
        at.append(index)
        cells.append(row)
    return Block(path, start, prefix, tuple(held), tuple(at), tuple(cells))


def _replaced(
    rows: list[str], columns: Mapping[str, list[str]], place: str, *, where: Mapping[str, int], shape: Layout
) -> list[str]:
    """Rows with cells changed in place, or added behind the last; what divides the others stays."""
    tabs = shape.separator == "tab"
    for name, values in columns.items():
        if not tabs and (bad := next((value for value in values if " " in value), None)):
            raise DataError(f"{place}: column {name!r}: {bad!r} holds a blank and blanks divide this file's cells.")
    out = []
    for ordinal, line in enumerate(rows):
        text = line.rstrip("\r\n")
        parts = _EITHER.split(text) if not tabs else re.split("(\t)", text)
        cells = range(0, len(parts), 2) if tabs else [i for i in range(0, len(parts), 2) if parts[i]]
        for name, values in columns.items():
            if name in where:
                parts[cells[where[name]]] = values[ordinal]
            else:
                parts += ["\t" if tabs else " ", values[ordinal]]
        out.append("".join(parts) + line[len(text) :])
    return out


def _built(document: Document, names: Sequence[str]) -> Block:
    """A document as tab-separated lines."""
    place = document.place or document.id
    if not document.words:
        raise DataError(f"{place}: a document without words cannot be written as columns.")
    empty = ("_",) * len(document.words)
    known = [document.words if name == "form" else document.columns.get(name, empty) for name in names]
    rows = tuple(zip(*known, strict=True))
    for row in rows:
        if any(is_blank(cell) or any(sign in cell for sign in "\t\r\n") for cell in row):
            raise DataError(f"{place}: row {row} cannot be written: a cell is blank, or holds a tab or a line end.")
    return Block(place, 1, "", (*("\t".join(row) + "\n" for row in rows), "\n"), tuple(range(len(rows))), rows)


FORMATS = (Format("columns", (".conll", ".iob", ".iob2", ".bio", ".col"), read, write),)
