"""What formats of questions share: ids of passages that have none, answers where they stand, texts that are there."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...errors import ConfigError, DataError
from ...types import Answer, Passage, Question
from .._fields import string, strings
from .._files import Target

__all__ = ["answers_of", "content_id", "listed_answers", "located", "place_of", "question_text", "unwritable"]


def content_id(title: str, text: str) -> str:
    """16 hex digits of SHA-256: the same passage has the same id in every question and file."""
    return hashlib.sha256(json.dumps([title, text]).encode()).hexdigest()[:16]


def located(text: str, start: Any, passage: Passage, place: str) -> Answer:
    """A gold answer that stands at character `start` of the passage; DataError where another text stands there."""
    if isinstance(start, bool) or not isinstance(start, int):
        raise DataError(f"{place}: answer {text!r} starts at {start!r}; it must be a number of characters.")
    seen = passage.text[max(start, 0) : max(start, 0) + len(text)]
    if start < 0 or seen != text:
        raise DataError(
            f"{place}: answer {text!r} should stand at character {start} of passage {passage.id!r}, where {seen!r} "
            "stands. Offsets count characters (code points) of the text as it is in the file, from 0; not bytes."
        )
    return Answer(text, passage.id, start, start + len(text))


def listed_answers(values: Iterable[str]) -> tuple[Answer, ...]:
    """Strings that are right wherever they stand."""
    return tuple(Answer(value) for value in values)


def answers_of(value: Mapping[str, Any], names: Iterable[str], place: str) -> tuple[Answer, ...]:
    """The field that is there of `names`: a list of strings or one string; () where none is there."""
    for name in names:
        content = value.get(name)
        if content is not None:
            return listed_answers([content] if isinstance(content, str) else strings(content, name, place))
    return ()


def question_text(value: Mapping[str, Any], place: str) -> str:
    """The field "question"; DataError where there is none to be answered."""
    text = string(value, "question", place)
    if not text.strip():
        raise DataError(f"{place}: the question is empty. Give it a text, or leave it out.")
    return text


def place_of(question: Question) -> str:
    """Where a question was read, for an error."""
    return question.place or question.id


def unwritable(name: str) -> Callable[[Target, Iterable[Question]], None]:
    """The writer of a format that is only read."""

    def write(target: Target, questions: Iterable[Question]) -> None:
        raise ConfigError(f"format {name!r} is read, not written. Write 'questions' or 'fid'.")

    return write
