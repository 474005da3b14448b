"""Passages as objects, one a line: our own form, BEIR's corpus and FlashRAG's.

ours      {"passage_id" or "id", "title"?, "text", "source"?, "start"?}
BEIR      {"_id", "title"?, "text"}; a folder with corpus.jsonl in it is read too
FlashRAG  {"id", "contents"}, where the first line of the contents is the title, in quotes, and the rest the text
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...errors import DataError
from ...types import Passage
from .._fields import kind, string
from .._files import Target, write_text
from .._format import Format
from .._objects import written
from ..jsonl import rows

__all__ = ["FORMATS", "read", "recognises", "write"]

IDS = ("passage_id", "_id", "id", "docid")


def read(path: str | Path) -> list[Passage]:
    """Every passage. DataError with file and line for one without id or text, or with fields of another kind."""
    folder = Path(path)
    return [_passage(value, place) for value, place in rows(folder / "corpus.jsonl" if folder.is_dir() else folder)]


def recognises(path: str | Path) -> bool:
    """Whether it is BEIR's folder."""
    return (Path(path) / "corpus.jsonl").is_file()


def write(target: Target, passages: Iterable[Passage]) -> None:
    """Our own form; a whole text has no source and no start."""
    values = [
        {"passage_id": one.id, "title": one.title, "text": one.text}
        | ({"source": one.source, "start": one.start} if one.source else {})
        for one in passages
    ]
    write_text(target, written(values, target))


def _passage(value: Mapping[str, Any], place: str) -> Passage:
    own = next((value[name] for name in IDS if value.get(name) is not None), None)
    if own is None:
        raise DataError(f"{place}: a passage without an id: one of {', '.join(IDS)}. There is: {', '.join(value)}.")
    if "contents" in value and "text" not in value:
        title, text = _contents(string(value, "contents", place))
    else:
        text, title = string(value, "text", place), value.get("title") or ""
    if not isinstance(title, str):
        raise DataError(f"{place}: 'title' is a {kind(title)}; it must be a string.")
    source = value.get("source")
    start = 0 if source is None else value.get("start", 0)
    if isinstance(start, bool) or not isinstance(start, int) or start < 0:
        raise DataError(f"{place}: 'start' is {start!r}; it must be a number of characters.")
    return Passage(str(own), title, text, "" if source is None else str(source), start, place)


def _contents(contents: str) -> tuple[str, str]:
    first, line_end, rest = contents.partition("\n")
    if line_end and len(first) > 1 and first[0] == first[-1] == '"':
        return first[1:-1], rest
    return "", contents


FORMATS = (
    Format("jsonl", (".jsonl", ".ndjson"), read, write),
    Format("beir", ("",), read, write, recognises),
)
