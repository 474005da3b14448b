"""Files of rows: blocks of lines that end at a blank line, kept whole so that a writer changes only cells."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..errors import DataError
from ._files import BOM, lines

__all__ = ["BLANK", "Block", "blocks", "is_blank", "rewritten"]

BLANK = " \t\r\n"
"""What a line may hold and still be blank."""


@dataclass(frozen=True, slots=True)
class Block:
    """Lines that belong together: what stands before a sentence, its rows, and the blank line that ends it.

    `lines` are as in the file, line ends included, the first of them being number `line`; `prefix` is a byte order mark
    or nothing; `words` are the places in `lines` of the rows that are words, and `cells` the cells of those rows.
    A block without words holds the comments and blank lines of no sentence.
    """

    path: str
    line: int
    prefix: str
    lines: tuple[str, ...]
    words: tuple[int, ...]
    cells: tuple[tuple[str, ...], ...]

    @property
    def numbers(self) -> Sequence[int]:
        """Line number of each word's row; a `range` where the rows follow each other, as nearly all do."""
        if self.words and self.words[-1] - self.words[0] + 1 == len(self.words):
            return range(self.line + self.words[0], self.line + self.words[-1] + 1)
        return tuple(self.line + at for at in self.words)

    @property
    def place(self) -> str:
        """file:line of the first word (of the block where it has none)."""
        return f"{self.path}:{self.line + (self.words[0] if self.words else 0)}"


Cut = Callable[[str, str, int, list[str]], Block]
"""`cut(path, prefix, line, lines) -> Block`: what a format makes of the lines of one block."""


def is_blank(line: str) -> bool:
    """Whether a line ends a sentence: only blanks, tabs and its line end. NBSP is a character, not a blank."""
    return not line.strip(BLANK)


def blocks(path: str, cut: Cut, mark: str | None = None) -> Iterator[Block]:
    """Stream the blocks of a file; every line is in exactly one. A line that begins with `mark` ends a sentence too."""
    held: list[str] = []
    prefix, start, full = "", 1, False
    for line in lines(path):
        if line == BOM:
            prefix = BOM
            continue
        held.append(line)
        blank = not line.strip(BLANK)
        full = full or not blank
        if (blank and full) or (mark and line.startswith(mark)):
            yield cut(path, prefix, start, held)
            start += len(held)
            held, prefix, full = [], "", False
    if held or prefix:
        yield cut(path, prefix, start, held)


Replace = Callable[[list[str], Mapping[str, list[str]], str], list[str]]
"""`replace(rows, columns, place) -> rows`: the rows of one sentence with new cells by column name."""


def rewritten(
    source: Iterable[Block], columns: Mapping[str, Sequence[Sequence[str | int]]], replace: Replace
) -> Iterator[str]:
    """The lines of a file with the given columns replaced; `columns` hold one sequence a sentence, one value a word.

    Raises DataError naming the sentence where the numbers differ, and for values that would break the file.
    """
    ordinal = 0
    for block in source:
        yield block.prefix
        out = list(block.lines)
        if block.words and columns:
            values = {name: _of_sentence(name, column, ordinal, block) for name, column in columns.items()}
            rows = replace([out[at] for at in block.words], values, block.place)
            for at, row in zip(block.words, rows, strict=True):
                out[at] = row
        ordinal += bool(block.words)
        yield from out
    for name, column in columns.items():
        if len(column) != ordinal:
            raise DataError(f"column {name!r} holds {len(column)} sentences; the file has {ordinal}.")


def _of_sentence(name: str, column: Sequence[Sequence[str | int]], ordinal: int, block: Block) -> list[str]:
    """The values of one column for one sentence, checked."""
    if ordinal >= len(column):
        raise DataError(f"{block.place}: column {name!r} holds {len(column)} sentences; the file has more.")
    if isinstance(column[ordinal], str):
        raise DataError(
            f"{block.place}: column {name!r} has {column[ordinal]!r:.60}, one value for {len(block.words)} words; it "
            "must be a list, a value a word. One value a document has a place in jsonl, csv and tsv."
        )
    values = [str(value) for value in column[ordinal]]
    if len(values) != len(block.words):
        raise DataError(f"{block.place}: column {name!r} has {len(values)} values for {len(block.words)} words.")
    for value in values:
        if not value or "\t" in value or "\n" in value or "\r" in value:
            raise DataError(
                f"{block.place}: column {name!r}: {value!r} cannot be written; "
                "a cell is neither empty nor holds a tab or a line end."
            )
    return values
