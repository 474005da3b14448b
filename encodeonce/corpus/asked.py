"""Questions whose answer is a part of a document that stands in a list: sections, sentences or clauses to be ranked.

Three forms, told apart by the fields of the questions' file (JSON lines or an array):

sections   `question`, `section_path`, perhaps `answer`; the documents are sections: `section_path`, `text`, perhaps
           `title` (S10); a section without either is not looked for
sentences  `question`, `sentences`: each with `text`, `start`, `end`, and `answer`, true (or 1) in those of the answer:
           a question may have none (TechQA); blank ones are passed over
clauses    `contract`, `category`, `spans` with `text`; the documents are contracts: `id`, `text` (CUAD). Every category
           of the file is asked of every contract; where there is no row it has no such clause.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import DataError
from ..types import Document
from ._fields import truth
from ._objects import Objects, has_fields
from .questions.sections import path_id
from .text import with_sentences

__all__ = ["FORMS", "Asked", "Part", "Ranking", "read_ranking"]

FORMS: Mapping[str, Mapping[str, type]] = {
    "sections": {"question": str, "section_path": list},
    "sentences": {"question": str, "sentences": list},
    "clauses": {"contract": str, "category": str, "spans": list},
}
"""Form -> fields of every question, and what they hold."""


@dataclass(frozen=True, slots=True)
class Part:
    """What is ranked: characters `start` to `stop` of its document, where the file says so."""

    id: str
    text: str
    start: int = 0
    stop: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """`gold` are ids of parts (clauses: texts, none where there is no such clause); `document` is where they are of,
    `answer` what is to be said, where the file has it."""

    query: str
    document: str
    parts: tuple[Part, ...]
    gold: tuple[str, ...]
    answer: str = ""


@dataclass(frozen=True, slots=True)
class Ranking:
    """The questions of one form; `left_out` had no part that could be right in the documents given."""

    form: str
    questions: tuple[Asked, ...]
    left_out: int = 0


def read_ranking(
    path: str | Path, documents: Sequence[Document] = (), *, split: str = "", limit: int | None = None
) -> Ranking:
    """The questions of a file, with what they choose from.

    `split` keeps documents of that value in the field `split`; `limit` keeps so many questions (contracts for clauses),
    chosen by content. DataError for a file of none of the forms, with what the forms have; for a place where a value is
    wrong; and where nothing is left.
    """
    rows = Objects.read(path)
    form = next((n for n, kinds in FORMS.items() if rows.values and has_fields(rows.values[0], **kinds)), None)
    if form is None:
        there = ", ".join(sorted(rows.values[0])) if rows.values else "nothing"
        raise DataError(f"{path}: no questions to rank parts for. A row has {there}; it should have {_forms()}.")
    for value, place in zip(rows.values, rows.places, strict=True):
        if not has_fields(value, **FORMS[form]):
            raise DataError(f"{place}: a row of {form} has {_fields(form)}; this one has {', '.join(sorted(value))}.")
        asked = "category" if form == "clauses" else "question"
        if not value[asked].strip():
            raise DataError(f"{place}: the {asked} is empty.")
    if form == "sentences":
        if documents or split:
            raise DataError(f"{path}: sentences stand in this very file; --documents and --split are for other forms.")
        found = _sentences(rows)
    else:
        kept = [one for one in documents if not split or one.meta.get("split") == split]
        if not kept:
            there = ", ".join(sorted({str(one.meta["split"]) for one in documents if "split" in one.meta}))
            which = f"none of {len(documents)} has split = {split!r}. There is: {there or 'none'}"
            which = which if documents else "none are given"
            raise DataError(f"{path}: {form} are looked for in documents (--documents), and {which}.")
        found = _sections(rows, kept) if form == "sections" else _clauses(rows, kept, limit)
    questions = found.questions
    if limit is not None and form != "clauses":
        questions = tuple(sorted(questions, key=lambda one: Document("", text=one.query).key)[:limit])
    if not any(one.gold for one in questions):
        raise DataError(f"{path}: none of {len(rows.values)} questions has an answer in the documents given.")
    return Ranking(form, questions, found.left_out)


def _fields(form: str) -> str:
    return ", ".join(FORMS[form])


def _forms() -> str:
    return "; or ".join(f"{_fields(form)} ({form})" for form in FORMS)


def _sentences(rows: Objects) -> Ranking:
    questions = []
    for number, (row, place) in enumerate(zip(rows.values, rows.places, strict=True)):
        parts, gold = [], []
        for n, one in enumerate(row["sentences"]):
            if not has_fields(one, text=str, start=int, end=int) or one["start"] >= one["end"]:
                raise DataError(f"{place}: sentence {n + 1} needs text, start and a later end; it is {one!r}.")
            answers = truth(one, "answer", f"{place}: sentence {n + 1}")
            if one["text"].strip():  # blank lines between sentences are kept by some files
                parts.append(Part(str(n), one["text"], one["start"], one["end"]))
                gold += [str(n)] if answers else []
        questions.append(Asked(row["question"], _name(row, number), tuple(parts), tuple(gold)))
    kept = tuple(one for one in questions if one.parts)
    return Ranking("sentences", kept, len(questions) - len(kept))


def _name(row: Mapping[str, Any], number: int) -> str:
    """A question's id, or its number where it has none: an empty name is no document's."""
    found = row.get("id")
    return str(number) if found is None or found == "" else str(found)


def _sections(rows: Objects, documents: Sequence[Document]) -> Ranking:
    parts = []
    for document in documents:
        path = path_id(document.meta.get("section_path"), document.place or document.id)
        title = document.meta.get("title")
        text = f"{title if isinstance(title, str) else ''}\n{document.text}".strip()
        if path and text:
            parts.append(Part(path, text))
    if not parts:
        raise DataError(
            f"{rows.path}: none of {len(documents)} documents has a section_path and a text to be found by."
        )
    shared, known = tuple(parts), {part.id for part in parts}
    asked = [
        Asked(row["question"], "", shared, (path_id(row["section_path"], place),), str(row.get("answer") or ""))
        for row, place in zip(rows.values, rows.places, strict=True)
    ]
    kept = tuple(one for one in asked if one.gold[0] in known)
    return Ranking("sections", kept, len(asked) - len(kept))


def _clauses(rows: Objects, documents: Sequence[Document], limit: int | None) -> Ranking:
    gold: dict[tuple[str, str], list[str]] = {}
    for row, place in zip(rows.values, rows.places, strict=True):
        texts = [span.get("text") if isinstance(span, Mapping) else None for span in row["spans"]]
        if not all(isinstance(text, str) for text in texts):
            raise DataError(f"{place}: every span needs a text; the spans are {row['spans']!r:.200}.")
        gold.setdefault((row["contract"], row["category"]), []).extend(map(str, texts))
    categories = list(dict.fromkeys(category for _, category in gold))
    chosen = sorted(documents, key=lambda one: one.key)[:limit]
    asked = []
    for document in with_sentences(chosen):
        parts = tuple(Part(str(n), text) for n, text in enumerate(document.sentences))
        for category in categories if parts else ():
            asked.append(Asked(category, document.id, parts, tuple(gold.get((document.id, category), ()))))
    known = {document.id for document in documents}
    absent = sum(bool(texts) and contract not in known for (contract, _), texts in gold.items())
    return Ranking("clauses", tuple(asked), len(chosen) * len(categories) - len(asked) + absent)
