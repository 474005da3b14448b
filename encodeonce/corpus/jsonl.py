"""JSON lines: one object a line, with `words` and labels a word, or `text` and a label. Reader and writer.

A list of strings as long as `words` is a column; every other field is `meta`, of whatever type, in whatever row: there
is no schema to break (a field may be null in one row and a string in the next).
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import ConfigError, DataError
from ..types import Document
from ._fields import as_questions, beside, kind, strings
from ._files import BOM, Target, numbered, stem, write_text
from ._format import Format, second_text

__all__ = ["FORMATS", "document", "fields_of", "read", "rows", "write"]

WORDS = ("words", "tokens")
"""Fields that are words where `columns` names none."""

_BLANK = BOM + " \t\r\n"


def read(path: str | Path, *, columns: Mapping[str, int | str] | None = None) -> list[Document]:
    """Every object of a file. `columns` names fields, our name first: {"words": "tokens", "labels": "ner"}.

    Without it, "words" (or "tokens"), "text", "pair", the second text of a pair, and "sentences", those of the text
    (which is them with blanks between where there is none), are found by name; a field that `columns` gives another
    name is none of these. `id` is the object's "id", or "name:ordinal".
    Raises DataError with file:line for bad JSON, for a line that is no object, and for fields of the wrong kind.
    """
    name = stem(path)
    return [document(value, place, f"{name}:{i}", columns or {}) for i, (value, place) in enumerate(rows(path), 1)]


def rows(path: str | Path) -> Iterator[tuple[dict[str, Any], str]]:
    """Stream (object, "file:line"); blank lines are no rows."""
    for number, line in numbered(path):
        if line.strip(_BLANK):
            yield _parsed(line, f"{path}:{number}"), f"{path}:{number}"


def write(target: Target, source: str | Path | Iterable[Document], columns: Mapping[str, Sequence[Any]]) -> None:
    """Write `source` with fields set: one value an object, a list (a label a word) or a single value.

    `source` is a file (other fields keep their values and order) or documents (id, words or text, pair, columns, meta).
    """
    write_text(target, _written(source, columns))


def _written(source: str | Path | Iterable[Document], columns: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    if isinstance(source, (str, Path)):
        values = _file_objects(source)
    else:
        values = ((item.place or item.id, fields_of(item), "") for item in source)
    ordinal = 0
    for place, value, line in values:
        if value is None:
            yield line
            continue
        for name, column in columns.items():
            if ordinal >= len(column):
                raise DataError(f"{place}: field {name!r} has values for {len(column)} objects; there are more.")
            value[name] = list(column[ordinal]) if isinstance(column[ordinal], (list, tuple)) else column[ordinal]
        yield json.dumps(value, ensure_ascii=False) + "\n" if columns or not line else line
        ordinal += 1
    for name, column in columns.items():
        if len(column) != ordinal:
            raise DataError(f"field {name!r} has values for {len(column)} objects; there are {ordinal}.")


def _file_objects(path: str | Path) -> Iterator[tuple[str, dict[str, Any] | None, str]]:
    """(place, object, line) of every line; no object for a blank line."""
    for number, line in numbered(path):
        place = f"{path}:{number}"
        yield place, _parsed(line, place) if line.strip(_BLANK) else None, line


def fields_of(item: Document) -> dict[str, Any]:
    """A document as the fields of an object, those that it has."""
    value: dict[str, Any] = {"id": item.id}
    if item.words:
        value["words"] = list(item.words)
    if item.text or not item.words:
        value["text"] = item.text
    if item.pair:
        value["pair"] = item.pair
    if item.sentences:
        value["sentences"] = list(item.sentences)
    more: dict[str, Any] = {name: list(column) for name, column in item.columns.items() if name != "form"}
    more |= {k: v for k, v in item.meta.items() if v is None or isinstance(v, (str, int, float, list, dict))}
    for name, content in more.items():
        taken = name in ("id", "text", *WORDS) or _is_part(name, content)
        value[beside(name, value, taken)] = content
    return value


def _is_part(name: str, content: Any) -> bool:
    """Whether this field would be read as a document's second text or sentences."""
    listed = isinstance(content, list) and all(isinstance(one, str) for one in content)
    return (name == "pair" and isinstance(content, str)) or (name == "sentences" and listed)


def _parsed(line: str, place: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as problem:
        raise DataError(
            f"{place}:{problem.colno}: bad JSON: {problem.msg}. Each line holds one whole object."
        ) from None
    except (ValueError, RecursionError) as problem:  # a number of thousands of digits, brackets in thousands of others
        raise DataError(f"{place}: JSON that cannot be read: {problem}.") from None
    if not isinstance(value, dict):
        raise DataError(f"{place}: a {type(value).__name__}, not an object. Each line holds one object: {{...}}.")
    if "\\ud" in line.lower():
        _check_unicode(json.dumps(value, ensure_ascii=False), place)
    return value


def document(value: dict[str, Any], place: str, ordinal: str, columns: Mapping[str, int | str]) -> Document:
    """One object as a document, under the rules of `read`; `ordinal` is its id where it has none."""
    named = {name: _field(name, field) for name, field in columns.items()}
    for name, field in named.items():
        if field not in value:
            raise DataError(f"{place}: no field {field!r} ({name}). There is: {', '.join(value)}.")
    free = {field: field for field in ("text", "pair", "sentences", "id", *WORDS) if field not in named.values()}
    words_field = named.get("words") or next((field for field in WORDS if field in value and field in free), "")
    text_field, pair_field = named.get("text", free.get("text", "")), named.get("pair", free.get("pair", ""))
    words = strings(value[words_field], words_field, place) if words_field else ()
    sentences_field = named.get("sentences", free.get("sentences", ""))
    sentences = _sentences(value, sentences_field, place, bool(words_field), "sentences" in named)
    text = value.get(text_field, " ".join(sentences))
    if not words_field and text_field not in value and not sentences:
        where = "Say where they stand with columns, such as text=text_a,pair=text_b. "
        raise DataError(
            f"{place}: neither 'words' (or 'tokens') nor 'text' nor 'sentences'. There is: "
            f"{', '.join(value) or 'nothing'}. {'' if 'section_path' in value else where}{as_questions(value)}".rstrip()
        )
    id_field, pair = named.get("id", free.get("id", "")), value.get(pair_field)
    if pair is not None and not isinstance(pair, str) and "pair" not in named:
        pair, pair_field = None, ""  # a field of that name which is something else
    for field, content in ((text_field, text), (pair_field, "" if pair is None else pair)):
        if not isinstance(content, str):
            raise DataError(f"{place}: {field!r} is a {kind(content)}; it must be a string.")
    per_word: dict[str, tuple[str, ...]] = {}
    meta: dict[str, Any] = {}
    ours = {field: name for name, field in named.items()}
    for field, content in value.items():
        part = field in (words_field, text_field, pair_field, id_field) or (field == "id" and "id" in free)
        if part or (sentences and field == sentences_field):
            continue
        name = ours.get(field, field)
        labels = isinstance(content, list) and bool(words_field) and (field == "labels" or field in ours)
        if labels or (words and _is_column(content, len(words))):
            per_word[name] = _labels(content, field, len(words), place)
        else:
            meta[name] = content
    own = value.get(id_field)
    name = ordinal if own is None else str(own)
    return Document(name, words, text, per_word, meta, place, second_text(pair), sentences)


def _sentences(value: dict[str, Any], field: str, place: str, has_words: bool, asked: bool) -> tuple[str, ...]:
    """The sentences of an object; none where a field of that name is something else and was not asked for."""
    content = value.get(field)
    if content is None or has_words:
        return ()
    listed = isinstance(content, list) and all(isinstance(item, str) for item in content)
    return strings(content, field, place) if listed or asked else ()


def _is_column(content: Any, n: int) -> bool:
    return isinstance(content, list) and len(content) == n and all(isinstance(item, str) for item in content)


def _labels(content: Any, field: str, n: int, place: str) -> tuple[str, ...]:
    values = strings(content, field, place)
    if len(values) != n:
        raise DataError(f"{place}: {field!r} has {len(values)} labels for {n} words.")
    return values


def _check_unicode(string: str, place: str) -> None:
    """JSON can spell half a surrogate pair, which is no character and breaks tokenizers and writers."""
    try:
        string.encode("utf-8")
    except UnicodeEncodeError as problem:
        raise DataError(f"{place}: {string[problem.start]!a} is half a surrogate pair, not a character.") from None


def _field(name: str, field: int | str) -> str:
    if not isinstance(field, str):
        raise ConfigError(f"columns: {name!r} is {field!r}; fields of this format are named.")
    return field


FORMATS = (Format("jsonl", (".jsonl", ".ndjson"), read, write),)
