"""Files of questions to `Question`s and back: one file a format, each with `FORMATS`, found by name or by suffix.

As for documents, everything is UTF-8, `.gz` is seen through, and an error names file and line.
"""

import importlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from ...errors import DataError
from ...resolve import available
from ...types import Question
from .._files import Target
from .._format import Format, by_name, by_suffix

__all__ = ["question_format", "question_formats", "read_questions", "write_questions"]


@cache
def question_formats() -> dict[str, Format[Question]]:
    """Every format by name."""
    found = (importlib.import_module(f"{__name__}.{name}") for name in available("corpus/questions"))
    return {format_.name: format_ for module in found for format_ in vars(module).get("FORMATS", ())}


def question_format(source: str | Path, format: str | None = None) -> Format[Question]:
    """The format called `format`, or that of this file or folder; ConfigError where there is none."""
    known = question_formats()
    return by_suffix(known, source) if format is None else by_name(known, format)


def read_questions(
    source: str | Path, *, format: str | None = None, bare: bool = False, **options: Any
) -> list[Question]:
    """Every question of a file or folder, with the answers and passages that are given there.

    `options` go to the format's own `read`. With `bare`, passages that a file names by id are not looked up: answers
    are their texts alone. Raises DataError where there is no question, one is empty, or two
    have one id, ConfigError where there is no such format.
    """
    form = question_format(source, format)
    questions = form.read(source, **options, **({"passages": False} if bare and form.by_id else {}))
    if not questions:
        raise DataError(f"no questions in {source}: it is empty or holds only blank lines.")
    seen: dict[str, str] = {}
    for question in questions:
        if not question.text.strip():
            raise DataError(f"{question.place}: the question is empty. Give it a text, or leave it out.")
        if question.id in seen:
            raise DataError(
                f"{question.place}: a second question {question.id!r}; the first is at {seen[question.id]}."
            )
        seen[question.id] = question.place
    return questions


def write_questions(target: Target, questions: Iterable[Question], *, format: str | None = None) -> None:
    """Write questions with their answers and passages, in the format named or that the target's suffix says."""
    known = question_formats()
    if format is None:
        format = "fid" if str(target).removesuffix(".gz").endswith(".json") else by_suffix(known, target).name
    by_name(known, format).write(target, questions)
