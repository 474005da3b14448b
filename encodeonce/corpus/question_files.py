"""Files of questions as documents: what `corpus.questions` reads, for tasks that find answers or rank passages.

A document's text is the question. A question's one passage is its second text; of one with several passages only the
task that reads it makes pairs. `meta["asked"]` is the `Question` itself, its other fields are `meta` too.

squad      SQuAD 1.1 and 2.0, and CUAD's file of that form, nested as published or flat as `datasets` exports it
techqa     TechQA's questions; `passages` is the file of its documents
sections   questions about a manual; `passages` is the file of its sections
questions  our own form: `passages` is a file of passages, by default the one beside the questions

The last two are read by name only: a file of theirs may be meant as plain texts.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import ConfigError, DataError
from ..types import Document, Question
from ._files import Target, write_text
from ._format import Format
from ._objects import Objects, has_fields, opens_with
from .questions import read_questions, techqa

__all__ = ["FORMATS", "document", "read"]

ANSWERS, PLACES = ("answers", "answer_starts"), ("answer_starts", "answer_passages")


def read(
    path: str | Path, form: str, *, columns: Mapping[str, int | str] | None = None, passages: str | Path | None = None
) -> list[Document]:
    """Every question of a file in this form. ConfigError for columns: the forms' fields have fixed names."""
    if columns:
        raise ConfigError(f"columns={dict(columns)}: the fields of {form!r} have fixed names; leave columns out.")
    options: dict[str, Any] = {} if passages is None else {"passages": passages}
    return [document(question) for question in read_questions(path, format=form, **options)]


def document(question: Question) -> Document:
    """A question as a document."""
    pair = question.passages[0].text if len(question.passages) == 1 else ""
    meta = {**question.meta, "asked": question}
    return Document(question.id, text=question.text, pair=pair, meta=meta, place=question.place)


def write(
    target: Target, source: str | Path | Iterable[Document], columns: Mapping[str, Sequence[Any]], *, form: str
) -> None:
    """The source's file again with fields set, one value a question; answers as the form has them. ConfigError for
    documents without a file: `write_questions` writes these."""
    if not isinstance(source, (str, Path)):
        raise ConfigError(f"{form!r} is written from a file of questions. Write jsonl, or use write_questions.")
    found = Objects.read(source)
    nested = form == "squad" and bool(found.values) and "data" in found.values[0]
    asked = list(_nested(found.values)) if nested else [dict(value) for value in found.values]
    for name, column in columns.items():
        if len(column) != len(asked):
            raise DataError(f"field {name!r} has {len(column)} values; {source} has {len(asked)} questions.")
    changes = [_changed({n: column[i] for n, column in columns.items()}, form, nested) for i in range(len(asked))]
    if not nested:
        write_text(target, found.rewritten(changes))
        return
    for value, change in zip(asked, changes, strict=True):
        value.update(change)
    write_text(target, [json.dumps(value, ensure_ascii=False) + "\n" for value in found.values])


def _nested(values: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The objects of the questions, in the order that they are read in."""
    for value in values:
        for article in value["data"]:
            for paragraph in article["paragraphs"]:
                yield from paragraph["qas"]


def _changed(values: dict[str, Any], form: str, nested: bool) -> dict[str, Any]:
    """Fields to set: answers and their places under the form's own names, all else as it is called."""
    change = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
    if form == "sections" or not all(name in change for name in ANSWERS):
        return change
    if form == "questions":  # an empty list would say that the answers are not known
        return change if change["answers"] else {**change, "answers": [""], **dict.fromkeys(PLACES)}
    texts, starts, passages = (change.pop(name, None) or [] for name in (*ANSWERS, "answer_passages"))
    if form == "techqa":
        own = {
            "ANSWERABLE": "Y" if texts else "N",
            "DOCUMENT": "-",
            "ANSWER": "-",
            "START_OFFSET": "-",
            "END_OFFSET": "-",
        }
        if texts:
            stop = starts[0] + len(texts[0])
            own |= {"DOCUMENT": passages[0], "ANSWER": texts[0], "START_OFFSET": starts[0], "END_OFFSET": stop}
        return change | own
    pairs = [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
    listed = pairs if nested else {"text": texts, "answer_start": starts}
    return change | {"answers": listed, "is_impossible": not texts}


def _is_squad(path: str | Path) -> bool:
    """Whether the first object is a whole data set, or a question with its context and places of answers."""
    first = opens_with(path)
    if has_fields(first, data=list):
        assert first is not None
        return all(has_fields(one, paragraphs=list) for one in first["data"][:1])
    return has_fields(first, context=str, question=str, answers=dict)


def _by_name_only(path: str | Path) -> bool:
    return False


def _format(name: str, suffixes: tuple[str, ...], recognises: Any) -> Format[Document]:
    return Format(name, suffixes, partial(read, form=name), partial(write, form=name), recognises, name != "squad")


FORMATS = (
    _format("squad", (".json", ".jsonl"), _is_squad),
    _format("techqa", (".json",), techqa.recognises),
    _format("sections", (".jsonl", ".json"), _by_name_only),
    _format("questions", (".jsonl", ".json"), _by_name_only),
)
