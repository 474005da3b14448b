"""Questions about a manual, each answered by one of its sections, as the S10 set has them (Nandy et al. 2021).

{"question", "section_path": [heading, ...], "answer"?}, one a line or in an array; beside it the sections, {
"section_path": [...], "text", "title"?}, which are given as `passages`. Every section is a passage of every question.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import DataError
from ...types import Passage, Question
from .._fields import string
from .._files import stem
from .._format import Format
from .._objects import Objects, has_fields, opens_with
from ._parts import listed_answers, question_text, unwritable

__all__ = ["FORMATS", "path_id", "read", "recognises", "sections_of"]

OWN = ("id", "question", "section_path", "answer")


def read(path: str | Path, *, passages: str | Path | None = None) -> list[Question]:
    """Every question; the section that answers it is relevant. Without `passages` a question has none. DataError with
    file and line for a section that is not there."""
    rows = Objects.read(path)
    sections: tuple[Passage, ...] = ()
    if passages is not None:
        held = Objects.read(passages)
        sections = sections_of(zip(held.values, held.places, strict=True))
    known = {section.id for section in sections}
    found = []
    for n, (value, place) in enumerate(zip(rows.values, rows.places, strict=True), 1):
        name = f"{stem(path)}:{n}" if value.get("id") is None else str(value["id"])
        wanted = path_id(value.get("section_path"), place)
        if sections and wanted and wanted not in known:
            raise DataError(f"{place}: no section has the path {wanted!r}; there are {len(sections):,} sections.")
        answer = value.get("answer")
        meta = {key: content for key, content in value.items() if key not in OWN}
        if isinstance(answer, str):
            meta["answer"] = answer
        answers = listed_answers([answer]) if isinstance(answer, str) and answer else ()
        relevant = (wanted,) if wanted else ()
        found.append(Question(name, question_text(value, place), answers, sections, meta, place, relevant))
    return found


def recognises(path: str | Path) -> bool:
    """Whether the first object is such a question."""
    return has_fields(opens_with(path), question=str, section_path=list)


def sections_of(rows: Iterable[tuple[Mapping[str, Any], str]]) -> tuple[Passage, ...]:
    """(section, place) -> passages, named by their paths: texts of equal paths are one, and none is without a path."""
    found: dict[str, Passage] = {}
    for value, place in rows:
        name = path_id(value.get("section_path"), place)
        if name:
            title = value.get("title")
            own = Passage(name, title if isinstance(title, str) else "", string(value, "text", place), place=place)
            if name in found:
                found[name] = replace(found[name], text=f"{found[name].text}\n{own.text}")
            elif own.text.strip():
                found[name] = own
    return tuple(found.values())


def path_id(path: Any, place: str = "a section") -> str:
    """A section's path as the name of its passage: "A > B"; "" for none. DataError, with `place`, for another kind."""
    if not isinstance(path, (str, list, type(None))):
        raise DataError(
            f"{place}: 'section_path' is {path!r}; it must be a list of headings, from the top, or one string such as "
            "'A > B'."
        )
    return path if isinstance(path, str) else " > ".join(map(str, path or ()))


FORMATS = (Format("sections", (".jsonl", ".json"), read, unwritable("sections"), recognises),)
