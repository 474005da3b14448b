"""CoNLL-U (universaldependencies.org/format): reader and writer that lose nothing.

Words are the syntactic words. Multiword tokens (`2-3`) and empty nodes (`6.1`) are checked, kept for writing, and are
never words. Cells stay as they are, "_" included; a FORM may hold any character but tab and line end.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice, pairwise
from pathlib import Path

from ..errors import ConfigError, DataError
from ..types import Document
from ._blocks import BLANK, Block, blocks, is_blank, rewritten
from ._files import Target, body, stem, write_text
from ._format import Format

__all__ = ["COLUMNS", "FORMATS", "feature", "gold_heads", "multiword_tokens", "read", "sentences", "write"]

COLUMNS = ("form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
"""Our names of the columns after ID, in order."""


def read(path: str | Path, *, columns: Mapping[str, int | str] | None = None) -> list[Document]:
    """Every sentence of a file, with all nine columns.

    `id` is the sent_id, or "name:ordinal" without one; `meta` holds "text" and "sent_id" where the file does, and
    "lines", the line number of each word. `columns` renames: {"tag": "upos"} adds a column "tag".
    Raises DataError with file:line:column for rows that break the format.
    """
    extra = {name: _position(column) for name, column in (columns or {}).items()}
    name = stem(path)
    known: dict[str, str] = {}
    documents: list[Document] = []
    for block in sentences(path):
        if block.words:
            documents.append(_document(block, f"{name}:{len(documents) + 1}", known, extra))
    return documents


def sentences(path: str | Path) -> Iterator[Block]:
    """Stream the blocks of a file: sentences, and between them what belongs to none."""
    return blocks(str(path), _cut)


def write(
    target: Target, source: str | Path | Iterable[Document], columns: Mapping[str, Sequence[Sequence[str | int]]]
) -> None:
    """Write `source` with the given columns replaced, every other byte as it was.

    `source` is a CoNLL-U file, or documents (then their columns are written, and "_" where they have none).
    `columns` hold one sequence a sentence, one value a syntactic word.
    """
    wrong = sorted(set(columns) - set(COLUMNS))
    if wrong:
        raise ConfigError(f"CoNLL-U has no column {wrong[0]!r}. There is: {', '.join(COLUMNS)}.")
    found = sentences(source) if isinstance(source, (str, Path)) else map(_built, source)
    write_text(target, rewritten(found, columns, _replaced))


def feature(document: Document, name: str) -> tuple[str, ...]:
    """One FEATS attribute, a value a word: feature(d, "Number") -> ("Sing", "_", ...); "_" where it is absent."""
    if "feats" not in document.columns:
        raise DataError(
            f"{document.place}: {document.id!r} has no column 'feats'; FEATS attributes need a CoNLL-U file."
        )
    mark = f"{name}="
    return tuple(
        next((pair[len(mark) :] for pair in feats.split("|") if pair.startswith(mark)), "_")
        for feats in document.columns["feats"]
    )


def gold_heads(document: Document) -> tuple[int, ...]:
    """The heads as numbers, 0 the root. Raises DataError naming sentence, line and column where one is "_"."""
    heads = document.columns.get("head")
    if heads is None:
        raise DataError(f"{document.place}: {document.id!r} has no column 'head'.")
    if "_" in heads:
        at = heads.index("_")
        file, line = document.place.rpartition(":")[0], document.meta["lines"][at]
        raise DataError(
            f"{file}:{line}: sentence {document.id!r}, line {line}, column HEAD is '_': no gold head. The sentence can "
            "be predicted, not trained on or scored; fill the column or leave the sentence out."
        )
    return tuple(map(int, heads))


def multiword_tokens(block: Block) -> list[tuple[int, int, str]]:
    """(first word, last word, form) of each multiword token of a sentence, words counted from 1 as in the file."""
    rows = (body(line).split("\t") for line in block.lines if not is_blank(line) and not line.startswith("#"))
    return [(*map(int, row[0].split("-")), row[1]) for row in rows if "-" in row[0]]  # type: ignore[misc]


def _position(column: int | str) -> int:
    if isinstance(column, str) and column in COLUMNS:
        return COLUMNS.index(column)
    if isinstance(column, int) and 1 <= column <= 9:
        return column - 1
    raise ConfigError(f"CoNLL-U has no column {column!r}. There is: {', '.join(COLUMNS)} (numbers 1 to 9).")


def _document(block: Block, ordinal: str, known: dict[str, str], extra: Mapping[str, int]) -> Document:
    """`known` keeps one copy of each distinct cell: a treebank's two million cells are few strings."""
    by_column = [
        tuple(map(known.setdefault, column, column)) for column in islice(zip(*block.cells, strict=True), 1, 10)
    ]
    meta: dict[str, object] = {"lines": block.numbers}
    for line in block.lines[: block.words[0]]:
        if line.startswith("#"):
            key, equals, value = body(line)[1:].partition("=")
            if equals and key.strip() in ("sent_id", "text"):
                meta[key.strip()] = value.strip(" ")
    columns = dict(zip(COLUMNS, by_column, strict=True))
    columns.update((name, by_column[at]) for name, at in extra.items())
    return Document(
        id=str(meta.get("sent_id") or ordinal), words=by_column[0], columns=columns, meta=meta, place=block.place
    )


def _cut(path: str, prefix: str, start: int, lines: list[str]) -> Block:
    """Rows of ten cells, ids in order."""
    at: list[int] = []
    cells: list[tuple[str, ...]] = []
    others: list[tuple[int, str]] = []
    for index, line in enumerate(lines):
        if line.startswith("#") or not line.strip(BLANK):
            continue
        row = tuple(line.rstrip("\r\n").split("\t"))
        if len(row) != 10:
            raise DataError(
                f"{path}:{start + index}:{len(row)}: a row of {len(row)} tab-separated columns; CoNLL-U has 10."
            )
        if row[0] == str(len(cells) + 1):
            at.append(index)
            cells.append(row)
        else:
            _check_other(row[0], len(cells), others, f"{path}:{start + index}:1")
            others.append((index, row[0]))
        if "" in row:
            raise DataError(
                f"{path}:{start + index}:{row.index('') + 1}: an empty cell; CoNLL-U writes '_' for nothing."
            )
    block = Block(path, start, prefix, tuple(lines), tuple(at), tuple(cells))
    _check_heads(block)
    if others and not cells:
        raise DataError(f"{path}:{start + others[0][0]}:1: {others[0][1]!r} in a sentence without words.")
    for index, mark in others:
        if "-" in mark and int(mark.partition("-")[2]) > len(cells):
            raise DataError(f"{path}:{start + index}:1: multiword token {mark!r} in a sentence of {len(cells)} words.")
    return block


def _check_other(mark: str, n_words: int, before: list[tuple[int, str]], place: str) -> None:
    """A row that is not the next word must be the next multiword token or the next empty node."""
    first, dash, last = mark.partition("-")
    reached = max((int(other.partition("-")[2]) for _, other in before if "-" in other), default=0)
    if dash and first == str(n_words + 1) and last.isascii() and last.isdecimal() and int(last) >= int(first) > reached:
        return
    word, dot, node = mark.partition(".")
    nodes = sum(other.startswith(f"{n_words}.") for _, other in before)
    if dot and word == str(n_words) and node == str(nodes + 1):
        return
    raise DataError(
        f"{place}: id {mark!r} where {str(n_words + 1)!r} was expected (or a multiword token {n_words + 1}-..., or the "
        f"empty node {n_words}.{nodes + 1}). Ids count up from 1; a blank line ends a sentence."
    )


def _check_heads(block: Block) -> None:
    """HEAD is "_" or the number of a word of the sentence, or 0."""
    n = len(block.words)
    allowed = _heads(n)
    for row, number in zip(block.cells, block.numbers, strict=True):
        if row[6] not in allowed:
            raise DataError(
                f"{block.path}:{number}:7: HEAD {row[6]!r} is not '_' or a number from 0 to {n}, the number of words."
            )


@cache
def _heads(n: int) -> frozenset[str]:
    """What HEAD may say in a sentence of n words."""
    return frozenset(["_", *map(str, range(n + 1))])


def _replaced(rows: list[str], columns: Mapping[str, list[str]], place: str) -> list[str]:
    cells = [row.split("\t") for row in rows]  # the line end stays on the last cell
    for name, values in columns.items():
        at = COLUMNS.index(name) + 1
        for row, value in zip(cells, values, strict=True):
            row[at] = value if at < 9 else value + row[at][len(row[at].rstrip("\r\n")) :]
    return ["\t".join(row) for row in cells]


def _spacing(document: Document) -> tuple[str, ...]:
    """MISC of words that were cut out of a text (`corpus.text.split`): SpaceAfter=No where the next one touches."""
    places = document.meta.get("offsets", ())
    touched = [stop == start for (_, stop), (start, _) in pairwise(places)]
    return tuple("SpaceAfter=No" if one else "_" for one in [*touched, False][: len(places)])


def _built(document: Document) -> Block:
    """A document as CoNLL-U lines."""
    if not document.words:
        raise DataError(f"{document.place or document.id}: a document without words cannot be written as CoNLL-U.")
    empty = ("_",) * len(document.words)
    made = {"form": document.words, "misc": _spacing(document) or empty}
    known = [document.columns.get(name, made.get(name, empty)) for name in COLUMNS]
    rows = [(str(i), *cells) for i, cells in enumerate(zip(*known, strict=True), 1)]
    for row in rows:
        if any(not cell or any(sign in cell for sign in "\t\r\n") for cell in row):
            raise DataError(
                f"{document.place or document.id}: row {row} cannot be written: an empty cell, a tab or a line end."
            )
    if any(sign in document.id for sign in "\r\n"):
        raise DataError(
            f"{document.place or document.id}: the id {document.id!r} holds a line end and stands in one line."
        )
    head = [f"# sent_id = {document.id}\n"]
    if isinstance(text := document.meta.get("text", document.text or None), str) and "\n" not in text:
        head.append(f"# text = {text}\n")
    lines = (*head, *("\t".join(row) + "\n" for row in rows), "\n")
    at = tuple(range(len(head), len(head) + len(rows)))
    return Block(document.place or document.id, 1, "", lines, at, tuple(rows))


FORMATS = (Format("conllu", (".conllu",), read, write),)
