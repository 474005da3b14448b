"""Plain text: one text a line, or paragraphs between blank lines; sentences and words by rules, with offsets.

The rules are few and the same everywhere: no model, no language setting. Spans are (start, stop) in code points;
sentences and words are in order, never overlap, and every character that is not white space is in exactly one of each.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any

from ..errors import ConfigError, DataError
from ..types import Document
from ._files import BOM, Target, body, lines, stem, write_text
from ._format import Format

__all__ = [
    "FORMATS",
    "MARKS",
    "UNITS",
    "UNSPACED",
    "joined",
    "occurrences",
    "paragraphs",
    "read",
    "sentences",
    "split",
    "with_sentences",
    "words",
    "write",
]

SINGLE = (str, int, float, NoneType)
"""One answer a text, or none; else there is one a word."""

UNITS = ("line", "paragraph", "sentence")

CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3041-\u30ff"
"""Chinese and Japanese characters, as ranges of a regular expression."""

UNSPACED = CJK + "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
"""Characters of all scripts that put no blank between words: those, Thai, Lao, Burmese and Khmer."""

MARKS = "".join(
    chr(code)
    for code in (*range(0x300, 0xFE00), *range(0x10000, 0x1F000))
    if unicodedata.category(chr(code)) in ("Mn", "Mc")
)
"""Vowel signs and accents: parts of letters, which `re` counts as none; without them Hindi falls into consonants."""

NEVER = frozenset(
    [
        "dr",
        "mr",
        "mrs",
        "ms",
        "mx",
        "prof",
        "rev",
        "hon",
        "gen",
        "col",
        "capt",
        "lt",
        "sgt",
        "gov",
        "sen",
        "rep",
        "pres",
        "st",
        "mt",
        "fig",
        "figs",
        "eq",
        "eqs",
        "sec",
        "ch",
        "vol",
        "ed",
        "eds",
        "pp",
        "vs",
        "cf",
        "viz",
        "e.g",
        "i.e",
        "ca",
        "approx",
        "al",
        "resp",
        "nr",
        "art",
        "mme",
        "mlle",
        "bzw",
        "z.b",
        "d.h",
        "u.a",
    ]
)
"""Abbreviations that do not end a sentence."""

BEFORE_NUMBERS = frozenset(
    ["no", "nos", "p", "jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep", "sept", "oct", "nov", "dec"]
)
"""Abbreviations that do not end a sentence when a number follows."""

_END = re.compile(r"""(?P<cjk>[。！？｡]+)[”’"'」』）)\]]*|(?P<end>[.!?…]+)[”’"'»)\]]*(?=\s)""")
_HARD = re.compile(r"\n[ \t\r\f\v]*\n|\n(?=[ \t]*(?:[•‣◦▪·*–—-]|\(?\d{1,3}[.)])[ \t])")
_BLANK = re.compile(r"\n[ \t\r\f\v]*\n")
_UNSPACED = re.compile(rf"[{UNSPACED}]")
_LAST = re.compile(r"[^\s(\[\"'“‘«]+$")
_OPENING = "\"'“‘«([¿¡"


def sentences(text: str) -> list[tuple[int, int]]:
    """Spans of the sentences of a text; none for a text of white space.

    A sentence ends at . ! ? … (with closing quotes and brackets) before white space and anything but a lower-case
    letter, unless the dot belongs to an abbreviation or an initial; at 。！？ wherever they stand; at a blank line; and
    at a line end before a bullet or an item number.
    """
    found = []
    start = 0
    for hard in [*(match.span() for match in _HARD.finditer(text)), (len(text), len(text))]:
        for match in _END.finditer(text, start, hard[0]):
            if match["cjk"] or _ends(text[start : match.start()], match["end"], text[match.end() : hard[0]].lstrip()):
                found.append((start, match.end()))
                start = match.end()
        found.append((start, hard[0]))
        start = hard[0]
    return [span for span in (_stripped(text, *span) for span in found) if span[0] < span[1]]


def paragraphs(text: str) -> list[tuple[int, int]]:
    """Spans of the paragraphs of a text: what stands between blank lines, or, in a text without any, its lines."""
    found, start = [], 0
    inside = text.strip()
    divider = _BLANK if _BLANK.search(inside) else re.compile("\n")
    for match in divider.finditer(text):
        found.append((start, match.start()))
        start = match.end()
    found.append((start, len(text)))
    return [span for span in (_stripped(text, *span) for span in found) if span[0] < span[1]]


def _ends(before: str, mark: str, after: str) -> bool:
    """Whether a mark between two parts of a text ends a sentence."""
    following = after.lstrip(_OPENING)[:1]
    if not following or following.islower():
        return not following
    if mark != ".":
        return True
    match = _LAST.search(before)
    last = match[0] if match else ""
    if last.lower() in NEVER or (last.lower() in BEFORE_NUMBERS and after[:1].isdigit()):
        return False
    if len(last) == 1 and last.isupper() and last != "I":  # an initial
        return False
    return not (last.isdigit() and len(last) < 3 and not before[: -len(last)].strip())  # the number of an item


def _stripped(text: str, start: int, stop: int) -> tuple[int, int]:
    piece = text[start:stop]
    return start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip()) if piece.strip() else start


def words(text: str) -> list[tuple[int, int]]:
    """Spans of the words of a text, punctuation marks being words.

    A word is a run of letters, digits and marks, with single hyphens, dots, apostrophes or commas between digits
    inside; an address of the web or of mail; a dotted abbreviation; an English clitic (n't, 's, 're ...); one Chinese
    or Japanese character; or one mark of punctuation, a run of the same mark being one.
    """
    return [match.span() for match in _pattern().finditer(text)]


@cache
def _pattern() -> re.Pattern[str]:
    marks = "".join(
        chr(i) for i in [*range(0x300, 0x10000), *range(0x11000, 0x12000)] if unicodedata.category(chr(i))[0] == "M"
    )
    letter = rf"(?:(?![{CJK}])[\w{marks}\u200c\u200d])"
    return re.compile(
        rf"""(?:https?://|www\.)[^\s<>"]*[\w/]            # the web
        |[\w.+-]+@[\w-]+(?:\.[\w-]+)+                      # mail
        |(?:[^\W\d_]\.){{2,}}                              # U.S.
        |{letter}+?(?=n['’]t\b)|n['’]t\b                   # do n't
        |['’](?:s|re|ve|ll|d|m)\b                          # it 's
        |{letter}+(?:(?:[-.·]|['’](?!(?:s|re|ve|ll|d|m)\b)|(?<=\d)[,:/](?=\d)){letter}+(?!['’]t\b))*
        |[{CJK}]
        |([^\w\s])\1*
        |\S""",
        re.VERBOSE,
    )


def occurrences(text: str, phrase: str) -> list[tuple[int, int]]:
    """Spans where a phrase stands in a text as whole words, upper and lower case alike, however its blanks are written;
    none of a phrase of white space. Where it begins or ends with a character of a script without blanks between words,
    the words of the text have no end there to be seen: any place will do."""
    wanted = phrase.split()
    if not wanted:
        return []
    before = "" if _UNSPACED.match(wanted[0][0]) else rf"(?<![^\W{UNSPACED}])(?<![{MARKS}])"
    after = rf"(?![{MARKS}])" if _UNSPACED.match(wanted[-1][-1]) else rf"(?![^\W{UNSPACED}]|[{MARKS}])"
    pattern = before + r"\s+".join(map(re.escape, wanted)) + after
    return [match.span() for match in re.finditer(pattern, text, re.IGNORECASE)]


def split(document: Document, *, cut: bool = True) -> list[Document]:
    """A text as documents of words, a sentence each (`cut=False`: one document), for models that read words.

    `meta` gains "offsets", (start, stop) of each word in the text, and "source", the id of the text ("source.ordinal").
    DataError for a pair, of which only one text would be left.
    """
    if document.pair:
        raise DataError(f"{document.place or document.id}: a pair of texts is not cut into sentences.")
    spans = sentences(document.text) if cut else [(0, len(document.text))]
    found = []
    for ordinal, (start, stop) in enumerate(spans, 1):
        offsets = tuple((start + a, start + b) for a, b in words(document.text[start:stop]))
        found.append(
            Document(
                f"{document.id}.{ordinal}" if cut else document.id,
                tuple(document.text[a:b] for a, b in offsets),
                document.text[start:stop],
                meta={**document.meta, "offsets": offsets, "source": document.id},
                place=document.place,
            )
        )
    return [d for d in found if d.words]


def with_sentences(documents: Iterable[Document]) -> list[Document]:
    """The documents with the sentences of their texts; a document that has its own keeps them, blank ones apart.

    A text without a sentence (white space) stays without. DataError for words without a text and for a pair.
    """
    found = []
    for document in documents:
        if document.pair or (document.words and not document.text):
            what = "a pair of texts" if document.pair else "a list of words without a text"
            raise DataError(f"{document.place or document.id}: {what} is not cut into sentences.")
        own = tuple(sentence for sentence in document.sentences if sentence.strip())
        cut = own or tuple(document.text[a:b] for a, b in sentences(document.text))
        found.append(replace(document, sentences=cut))
    return found


def joined(document: Document) -> Document:
    """The document with its sentences, spaces between, as its text, and no words."""
    return replace(document, words=(), columns={}, text=" ".join(document.sentences))


def read(
    path: str | Path, *, unit: str = "line", words: bool = False, columns: Mapping[str, int | str] | None = None
) -> list[Document]:
    """The texts of a file: one a line, one a paragraph (blank lines between), or one a sentence of its paragraphs.

    With `words`, each text is cut into words too (see `words` and `split`). Blank lines are no texts.
    """
    if columns:
        raise ConfigError(
            f"columns={dict(columns)}: a text file has none. Formats with columns: columns, conllu, csv, tsv."
        )
    if unit not in UNITS:
        raise ConfigError(f"unit={unit!r} is not known. There is: {', '.join(UNITS)}.")
    name = stem(path)
    documents = [
        Document(f"{name}:{ordinal}", text=text, place=f"{path}:{line}")
        for ordinal, (line, text) in enumerate(_texts(path, unit), 1)
    ]
    if unit == "sentence":
        cut = [part for document in documents for part in split(document)]
        return cut if words else [Document(d.id, (), d.text, {}, {}, d.place) for d in cut]
    return [part for document in documents for part in split(document, cut=False)] if words else documents


def _texts(path: str | Path, unit: str) -> Iterator[tuple[int, str]]:
    """(number of its first line, text), stripped of white space at its ends."""
    held: list[str] = []
    number = first = 0
    for line in lines(path):
        if line == BOM:
            continue
        number += 1
        text = body(line)
        if unit != "line" and text.strip():
            first = first if held else number
            held.append(text)
        elif unit == "line" and text.strip():
            yield number, text.strip()
        elif held:
            yield first, "\n".join(held).strip()
            held = []
    if held:
        yield first, "\n".join(held).strip()


def write(
    target: Target,
    source: str | Path | Iterable[Document],
    columns: Mapping[str, Sequence[Any]],
    *,
    unit: str = "line",
    words: bool = True,
) -> None:
    """Write texts with their predictions: plain text itself has no room for any.

    One label a word: a word a line, a tab and its label (and so on for each column), a blank line after each text: the
    format "columns". One label a text: the labels, then the text, divided by tabs, line ends in it written as blanks.
    `source` is a file, read as `read` does, or documents. DataError for a label that holds a tab or a line end.
    """
    per_word = any(not isinstance(value, SINGLE) for column in columns.values() for value in column)
    documents = read(source, unit=unit, words=per_word) if isinstance(source, (str, Path)) else list(source)
    for name, column in columns.items():
        if len(column) != len(documents):
            raise DataError(f"column {name!r} has values for {len(column)} texts; there are {len(documents)}.")
    write_text(target, (_block if per_word else _line)(documents, columns))


def _block(documents: Sequence[Document], columns: Mapping[str, Sequence[Sequence[str]]]) -> Iterator[str]:
    for ordinal, document in enumerate(documents):
        labels = [column[ordinal] for column in columns.values()]
        for name, values in zip(columns, labels, strict=True):
            if isinstance(values, SINGLE):
                raise DataError(
                    f"{document.place}: column {name!r} has {values!r:.60}, one label, and other texts have one a word."
                )
            if len(values) != len(document.words):
                raise DataError(
                    f"{document.place}: column {name!r} has {len(values)} labels for {len(document.words)} words."
                )
        for word, *row in zip(document.words, *labels, strict=True):
            yield "\t".join([word, *(_cell(label, document.place) for label in row)]) + "\n"
        yield "\n"


def _line(documents: Sequence[Document], columns: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    for ordinal, document in enumerate(documents):
        text = re.sub(r"[\t\r\n]+", " ", document.text)
        labels = [_cell(column[ordinal], document.place) for column in columns.values()]
        yield "\t".join([*labels, text]) + "\n"


def _cell(label: Any, place: str) -> str:
    cell = "" if label is None else str(label)
    if any(sign in cell for sign in "\t\r\n"):
        raise DataError(f"{place}: the label {cell!r} holds a tab or a line end, which divide labels. Write jsonl.")
    return cell


FORMATS = (Format("text", (".txt", ".text"), read, write),)
