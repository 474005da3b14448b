"""TechQA: questions about 50 candidate documents each, one of which may hold the answer (Castelli et al. 2020).

An array of {"QUESTION_ID", "QUESTION_TITLE", "QUESTION_TEXT", "DOC_IDS": [...], "ANSWERABLE": "Y" or "N", "DOCUMENT",
"START_OFFSET", "END_OFFSET"}, the offsets in characters of the document's text; beside it one object of all documents,
{id: {"title", "text"}}, which is given as `passages`. A question's text is its title and its body, a line each.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from ...errors import ConfigError, DataError
from ...types import Answer, Passage, Question
from .._fields import string, strings
from .._format import Format
from .._objects import Objects, has_fields, opens_with
from ._parts import unwritable

__all__ = ["FORMATS", "read", "recognises"]


def read(path: str | Path, *, passages: str | Path | Literal[False] | None = None) -> list[Question]:
    """Every question with its candidates; False: without, and with its answer's text alone. An answer's own document
    that is none of them is `unlisted`.

    One that is not answerable has the empty answer; one that does not say (the test part) has none. ConfigError without
    `passages`; DataError with file and line for a document that is not there and an answer that stands nowhere in it.
    """
    if passages is None:
        raise ConfigError(f"{path} names documents by id. Give their file as passages: training_dev_technotes.json.")
    held = None if passages is False else _documents(passages)
    rows = Objects.read(path)
    return [_question(value, place, held) for value, place in zip(rows.values, rows.places, strict=True)]


def _documents(path: str | Path) -> dict[str, Passage]:
    held: dict[str, Passage] = {}
    documents = Objects.read(path)
    for value, place in zip(documents.values, documents.places, strict=True):
        for name, own in value.items():
            if not has_fields(own, text=str):
                raise DataError(f"{place}: document {name!r} has no text. The file holds an object: id -> title, text.")
            held[name] = Passage(name, str(own.get("title") or ""), own["text"], place=place)
    return held


def recognises(path: str | Path) -> bool:
    """Whether the first object is such a question."""
    return has_fields(opens_with(path), QUESTION_ID=str, QUESTION_TEXT=str, DOC_IDS=list)


def _question(value: Mapping[str, Any], place: str, held: Mapping[str, Passage] | None) -> Question:
    name = string(value, "QUESTION_ID", place)
    place = f"{place} (question {name})"
    own = string(value, "DOCUMENT", place) if value.get("ANSWERABLE") == "Y" else ""
    ids = list(dict.fromkeys(strings(value.get("DOC_IDS"), "DOC_IDS", place)))
    lost = next((one for one in (*ids, *([own] if own else [])) if held is not None and one not in held), None)
    if held is not None and lost is not None:
        raise DataError(f"{place}: document {lost!r} is not among the {len(held):,} of the passages' file.")
    answers: tuple[Answer, ...] = ()
    if own:
        answers = (Answer(string(value, "ANSWER", place)) if held is None else _answer(value, held[own], place),)
    elif value.get("ANSWERABLE") == "N":
        answers = (Answer(""),)
    parts = str(value.get("QUESTION_TITLE") or "").strip(), string(value, "QUESTION_TEXT", place).strip()
    text = "\n".join(filter(None, parts))
    if not text:
        raise DataError(f"{place}: the question is empty. Give it a text, or leave it out.")
    found = () if held is None else tuple(held[one] for one in ids if held[one].text.strip())
    unlisted = (held[own],) if held is not None and own and own not in ids else ()
    return Question(name, text, answers, found, {}, place, (own,) if own else (), unlisted)


def _answer(value: Mapping[str, Any], document: Passage, place: str) -> Answer:
    try:
        start, stop = int(value["START_OFFSET"]), int(value["END_OFFSET"])
    except (KeyError, TypeError, ValueError, OverflowError):
        raise DataError(f"{place}: START_OFFSET and END_OFFSET must be numbers of characters.") from None
    text = document.text[start:stop] if 0 <= start < stop <= len(document.text) else ""
    if not text.strip():
        raise DataError(
            f"{place}: characters {start} to {stop} of document {document.id!r}, which has {len(document.text):,}, are "
            "no answer."
        )
    said = value.get("ANSWER")
    if isinstance(said, str) and said.split() and "".join(said.split()) != "".join(text.split()):
        raise DataError(
            f"{place}: the answer {said[:60]!r} does not stand at characters {start} to {stop} of document "
            f"{document.id!r}; {text[:60]!r} does. Give the documents that the file was made of."
        )
    return Answer(text, document.id, start, start + len(text))


FORMATS = (Format("techqa", (".json",), read, unwritable("techqa"), recognises, by_id=True),)
