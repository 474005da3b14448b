"""Tables of texts: csv by RFC 4180, tsv without quoting. Reader and writer.

tsv: cells are divided by tabs, and a quote is a character like any other. csv: a cell that begins with a quote ends at
the closing quote and may hold commas and line ends. A cell whose quote is never closed, or is followed by text, is read
as it stands, with a warning that names its line. Where a quoted cell over several lines would swallow whole rows, the
file is ambiguous, and refused until `quoting` says how to read it. No cell is a missing value: "NA", "null" and "" are
texts.
"""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import ConfigError, DataError
from ..resolve import nearest
from ..types import Document
from ._fields import beside
from ._files import BOM, Target, ending, lines, stem, write_text
from ._format import Format, refuse_one_cell, second_text
from ._quotes import Row, cut_plain, cut_quoted, quoted

__all__ = ["FORMATS", "Table", "read", "table", "write"]

LOG = logging.getLogger("encodeonce")

OWN = ("text", "pair", "id")
"""Names that are parts of a document and no `meta`."""

UNCUT = (
    " Each line is one cell: if another character divides cells, say which, as in --read 'separator=;' (in a config "
    'options = { separator = ";" }).'
)
NO_HEADER = "In a table without a header name all by number, from 0: --columns text=0,label=1."
"""What to do about a header that lacks what is asked for."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table's rows, the header apart; `names` are numbers where there is no header; `prefix` a byte order mark."""

    names: tuple[str, ...]
    header: Row | None
    rows: tuple[Row, ...]
    prefix: str


def read(
    path: str | Path,
    *,
    columns: Mapping[str, int | str] | None = None,
    header: bool | None = None,
    quoting: bool | None = None,
    separator: str | None = None,
) -> list[Document]:
    """Every row as a text with its other cells as `meta`.

    `columns` names cells, our name first: {"text": "sentence1"} by the header's names, or {"label": 0, "text": 1} by
    number from 0, which says that there is no header (`header` overrules). Without `columns` the header names "text".
    "pair" is the second text of a pair, where there is such a column. `id` is the cell "id", or "name:ordinal". An
    empty second text is white space, so that the pair stays one. Raises DataError with file:line for a row with another
    number of cells.
    """
    found = table(path, header=_has_header(columns, header), quoting=quoting, separator=separator)
    if not found.names:
        return []
    where = _where(columns, found, path)
    name = stem(path)
    documents = []
    for ordinal, row in enumerate(found.rows, 1):
        meta: dict[str, Any] = {ours: row.values[at] for ours, at in where.items() if ours not in OWN}
        text, pair = row.values[where["text"]], row.values[where["pair"]] if "pair" in where else None
        own = row.values[where["id"]] if "id" in where else f"{name}:{ordinal}"
        documents.append(Document(own, (), text, {}, meta, f"{path}:{row.line}", second_text(pair)))
    return documents


def table(path: str | Path, *, header: bool = True, quoting: bool | None = None, separator: str | None = None) -> Table:
    """Cut a whole file into rows of equally many cells. Empty lines are no rows in a table of several columns."""
    comma = separator or ("," if _suffix(path) == ".csv" else "\t")
    if len(comma) != 1 or comma in '"\r\n':
        raise ConfigError(f"separator={separator!r} must be one character, no quote and no line end.")
    held = list(lines(path))
    prefix = BOM if held[:1] == [BOM] else ""
    held = held[len(prefix) :]
    if quoting is None and comma == "\t":
        quoting = False
    rows = cut_plain(held, comma) if quoting is False else cut_quoted(held, comma, str(path), sure=quoting is True)
    if any(len(row.values) > 1 for row in rows):
        rows = [row for row in rows if row.values != ("",)]
    for row in rows:
        if len(row.values) != len(rows[0].values):
            raise DataError(
                f"{path}:{row.line}: {len(row.values)} cells; line {rows[0].line} has {len(rows[0].values)}. Cells are "
                f"divided by {'a tab' if comma == chr(9) else repr(comma)}."
                f"{UNCUT if len(rows[0].values) == 1 else ''}"
            )
        if row.doubtful:
            LOG.warning("%s:%d: a quote that is not closed is read as a character.", path, row.line)
    first = rows[0] if rows and header else None
    names = first.values if first else tuple(map(str, range(len(rows[0].values) if rows else 0)))
    if len(set(names)) != len(names):
        raise DataError(f"{path}:1: the header names a column twice: {', '.join(names)}.")
    return Table(names, first, tuple(rows[1:] if first else rows), prefix)


def write(
    target: Target,
    source: str | Path | Iterable[Document],
    columns: Mapping[str, Sequence[Any]],
    *,
    header: bool | None = None,
    quoting: bool | None = None,
    separator: str | None = None,
    layout_columns: Mapping[str, int | str] | None = None,
) -> None:
    """Write `source` with cells replaced, or added on the right where the table has no column of the name.

    `source` is a table (all other cells keep their bytes) or documents (id, text, pair, meta and the given columns are
    written under a header). `columns` hold one value a row. `layout_columns` is what `columns` is in `read`; one of
    `columns` that it names and the table lacks is added under the name that it has there.
    """
    if not isinstance(source, (str, Path)):
        comma = separator or ("," if _suffix(target) == ".csv" else "\t")
        write_text(target, _from_documents(source, columns, comma))
        return
    found = table(source, header=_has_header(layout_columns, header), quoting=quoting, separator=separator)
    layout = dict(layout_columns or {})
    new = {name: layout.pop(name) for name in columns if name in layout and _lacks(found, layout[name])}
    where = {name: at for at, name in enumerate(found.names) if name not in new}
    where.update(_where(layout, found, source) if layout else {})
    columns = {at if isinstance(at := new.get(name), str) else name: column for name, column in columns.items()}
    comma = separator or ("," if _suffix(source) == ".csv" else "\t")
    quotes = quoting if quoting is not None else comma != "\t"
    write_text(target, _rewritten(found, columns, where, comma, quotes, str(source)))


def _rewritten(
    found: Table, columns: Mapping[str, Sequence[Any]], where: Mapping[str, int], comma: str, quotes: bool, path: str
) -> Iterator[str]:
    for name, column in columns.items():
        if len(column) != len(found.rows):
            raise DataError(f"{path}: column {name!r} has {len(column)} values for {len(found.rows)} rows.")
    yield found.prefix
    added = [name for name in columns if name not in where]
    if found.header:
        cells = [*found.header.raw, *(quoted(name, comma, quotes, path) for name in added)]
        yield comma.join(cells) + (found.header.ending or ("\n" if found.rows else ""))
    for ordinal, row in enumerate(found.rows):
        raw = list(row.raw)
        for name, column in columns.items():
            cell = quoted(_cell(column[ordinal]), comma, quotes, f"{path}:{row.line}")
            if name in where:
                raw[where[name]] = cell
            else:
                raw.append(cell)
        yield comma.join(raw) + row.ending


def _from_documents(documents: Iterable[Document], columns: Mapping[str, Sequence[Any]], comma: str) -> Iterator[str]:
    held = list(documents)
    for name, column in columns.items():
        if len(column) != len(held):
            raise DataError(f"column {name!r} has {len(column)} values for {len(held)} documents.")
    bare = next((document for document in held if document.words and not document.text), None)
    if bare is not None:
        raise DataError(
            f"{bare.place or bare.id}: words without a text cannot be written as a row of a table. Write jsonl, "
            "columns or conllu."
        )
    names = list(dict.fromkeys(name for d in held for name in d.meta if name not in columns))
    pairs = ["pair"] if any(document.pair for document in held) else []
    used = ["id", "text", "pair", *columns]
    for name in names:
        used.append(beside(name, used))
    written = ["id", "text", *pairs, *used[3 + len(columns) :], *columns]
    yield comma.join(quoted(name, comma, comma != "\t", "the header") for name in written) + "\n"
    for ordinal, document in enumerate(held):
        values = [
            document.id,
            document.text,
            *([document.pair] if pairs else []),
            *(document.meta.get(name, "") for name in names),
        ]
        values += [column[ordinal] for column in columns.values()]
        place = document.place or document.id
        yield comma.join(quoted(_cell(value), comma, comma != "\t", place) for value in values) + "\n"


def _cell(value: Any) -> str:
    """Text and numbers as they are, nothing as nothing, all else as JSON has it."""
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (bool, list, tuple, dict)) else str(value)


def _has_header(columns: Mapping[str, int | str] | None, header: bool | None) -> bool:
    kinds = {isinstance(at, int) for at in (columns or {}).values()}
    if kinds == {True, False}:
        raise ConfigError(f"columns={dict(columns or {})} mixes numbers and names; use one of them.")
    if header is False and kinds == {False}:
        raise ConfigError(f"columns={dict(columns or {})} names columns of a table that has no header; use numbers.")
    return header if header is not None else kinds != {True}


def _where(columns: Mapping[str, int | str] | None, found: Table, path: str | Path) -> dict[str, int]:
    """Place of each column under our names: those given, and the header's other ones."""
    where: dict[str, int] = {}
    uncut = UNCUT if len(found.names) == 1 else ""
    for ours, at in (columns or {}).items():
        if isinstance(at, str):
            if _lacks(found, at):
                raise DataError(
                    f"{path}:1: no column {at!r} ({ours}). The header has: {', '.join(found.names)}."
                    f"{nearest(at, list(found.names))}{uncut or ' ' + NO_HEADER}"
                )
            where[ours] = found.names.index(at)
        else:
            if _lacks(found, at):
                raise DataError(f"{path}:1: no column {at} ({ours!r}); the table has {len(found.names)}.{uncut}")
            where[ours] = at % max(len(found.names), 1)
    if found.names:
        refuse_one_cell(where, f"{path}:1", len(found.names))
    if found.header:
        taken = set(where.values())
        where.update((n, at) for at, n in enumerate(found.names) if at not in taken and n not in where)
    if "text" not in where and found.names:
        raise DataError(
            f"{path}:1: no column 'text' in: {', '.join(found.names)}.{uncut} Name it: --columns text=NAME (in a "
            f"config columns = {{ text = \"NAME\" }}, in Python columns={{'text': 'NAME'}}). {NO_HEADER}"
        )
    return where


def _lacks(found: Table, at: int | str) -> bool:
    """Whether there is no such column; of a table without rows that is not known of a number."""
    n = len(found.names)
    return at not in found.names if isinstance(at, str) else n > 0 and not -n <= at < n


def _suffix(path: Any) -> str:
    return ending(path) if isinstance(path, (str, Path)) else ""


FORMATS = (
    Format("csv", (".csv",), partial(read, separator=","), partial(write, separator=",")),
    Format("tsv", (".tsv",), partial(read, separator="\t"), partial(write, separator="\t")),
)
