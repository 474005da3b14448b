"""SQuAD: questions whose answers are spans of a paragraph (Rajpurkar et al. 2016; "is_impossible" by SQuAD 2.0, 2018).

{"version", "data": [{"title", "paragraphs": [{"context", "qas": [{"id", "question", "answers": [{"text",
"answer_start"}], "is_impossible"}]}]}]}, or flat, an object a question: {"id", "title", "context", "question",
"answers": {"text": [...], "answer_start": [...]}}. A paragraph without an id of its own is named by its content.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ...errors import DataError
from ...types import Answer, Passage, Question
from .._fields import objects, string, strings, truth
from .._files import Target, stem, write_text
from .._format import Format
from .._objects import Objects, has_fields, opens_with
from ._parts import content_id, located, place_of, question_text

__all__ = ["FORMATS", "read", "recognises", "write"]

OWN = ("id", "question", "answers", "is_impossible", "context", "title")


def read(path: str | Path) -> list[Question]:
    """Every question with its paragraph. An impossible one has the empty answer as its only one.

    DataError with file and line where an answer does not stand at its place, or a field is missing or of another kind.
    """
    found = Objects.read(path)
    questions: list[Question] = []
    for value, place in zip(found.values, found.places, strict=True):
        if "data" in value:
            for article in objects(value, "data", place):
                questions += _article(article, place)
        else:
            passage = _passage(value, value.get("title"), place)
            questions.append(_question(value, passage, place, f"{stem(path)}:{len(questions) + 1}"))
    return questions


def recognises(path: str | Path) -> bool:
    """Whether the first object is a whole data set, or a question with its context."""
    first = opens_with(path)
    return has_fields(first, data=list) or has_fields(first, context=str, question=str)


def write(target: Target, questions: Iterable[Question]) -> None:
    """A data set of one article a title. DataError for a question without exactly one passage, or answers elsewhere."""
    titles: dict[str, dict[str, tuple[Passage, list[dict[str, Any]]]]] = {}
    for question in questions:
        if len(question.passages) != 1:
            raise DataError(
                f"{place_of(question)}: {len(question.passages)} passages; a question of SQuAD has one. Write 'fid'."
            )
        passage = question.passages[0]
        articles = titles.setdefault(passage.title, {})
        first, qas = articles.setdefault(passage.id, (passage, []))
        if first.text != passage.text:
            raise DataError(
                f"{place_of(question)}: passage {passage.id!r} is another text than that of an earlier question. "
                "Give it an id of its own, or write 'fid'."
            )
        qas.append(_written(question))
    data = [
        {
            "title": title,
            "paragraphs": [{"id": passage.id, "context": passage.text, "qas": qas} for passage, qas in own.values()],
        }
        for title, own in titles.items()
    ]
    write_text(target, [json.dumps({"version": "v2.0", "data": data}, ensure_ascii=False), "\n"])


def _article(article: Mapping[str, Any], place: str) -> Iterator[Question]:
    title = article.get("title")
    for paragraph in objects(article, "paragraphs", place):
        passage = _passage(paragraph, title, place)
        for value in objects(paragraph, "qas", place):
            yield _question(value, passage, place, "")


def _passage(value: Mapping[str, Any], title: Any, place: str) -> Passage:
    text, title = string(value, "context", place), title if isinstance(title, str) else ""
    own = value.get("id") if "qas" in value else None
    return Passage(content_id(title, text) if own in (None, "") else str(own), title, text, place=place)


def _question(value: Mapping[str, Any], passage: Passage, place: str, ordinal: str) -> Question:
    own = value.get("id")
    if own is None and not ordinal:
        raise DataError(f"{place}: a question without an 'id': {value.get('question')!r}.")
    name = ordinal if own is None else str(own)
    place = f"{place} (question {name})"
    answers = _answers(value, passage, place)
    meta = {key: content for key, content in value.items() if key not in OWN}
    relevant = (passage.id,) if any(answer.located for answer in answers) else ()
    return Question(name, question_text(value, place), answers, (passage,), meta, place, relevant)


def _answers(value: Mapping[str, Any], passage: Passage, place: str) -> tuple[Answer, ...]:
    content = value.get("answers")
    if isinstance(content, dict):
        texts, starts = strings(content.get("text"), "answers.text", place), content.get("answer_start")
        if not isinstance(starts, list) or len(starts) != len(texts):
            raise DataError(f"{place}: {len(texts)} answers; 'answer_start' must be a list of as many numbers.")
        none = truth(value, "is_impossible", place, not texts)
    else:
        pairs = objects(value, "answers", place) if content is not None else []
        texts = tuple(string(pair, "text", place) for pair in pairs)
        starts = [pair.get("answer_start") for pair in pairs]
        none = truth(value, "is_impossible", place)
    if none and texts:
        raise DataError(f"{place}: 'is_impossible' is true, and there are answers, such as {texts[0]!r}.")
    if none:
        return (Answer(""),)
    return tuple(located(text, start, passage, place) for text, start in zip(texts, starts, strict=True))


def _written(question: Question) -> dict[str, Any]:
    none = bool(question.answers) and all(not answer.text for answer in question.answers)
    for answer in question.answers:
        if answer.text and not answer.located:
            raise DataError(
                f"{place_of(question)}: {answer.text!r} stands nowhere; SQuAD needs its place. Write 'fid'."
            )
    spans = [{"text": answer.text, "answer_start": answer.start} for answer in question.answers if answer.text]
    own = {"id": question.id, "question": question.text, "answers": spans, "is_impossible": none}
    return own | {name: value for name, value in question.meta.items() if name not in OWN}


FORMATS = (Format("squad", (".json", ".jsonl"), read, write, recognises),)
