"""FlashRAG's questions, an object a line: {"id", "question", "golden_answers": [...], "metadata": {...}}."""

from collections.abc import Iterable
from pathlib import Path

from ...types import Question
from .._files import Target, stem, write_text
from .._format import Format
from .._objects import Objects, has_fields, opens_with, written
from ._parts import answers_of, question_text

__all__ = ["FORMATS", "read", "recognises", "write"]


def read(path: str | Path) -> list[Question]:
    """Every question. DataError with file and line for fields of another kind."""
    found, name, questions = Objects.read(path), stem(path), []
    for i, (value, place) in enumerate(zip(found.values, found.places, strict=True), 1):
        own = value.get("id")
        meta = {key: content for key, content in value.items() if key not in ("id", "question", "golden_answers")}
        answers = answers_of(value, ("golden_answers",), place)
        name_of = f"{name}:{i}" if own is None else str(own)
        questions.append(Question(name_of, question_text(value, place), answers, (), meta, place))
    return questions


def recognises(path: str | Path) -> bool:
    """Whether the first object has golden answers."""
    return has_fields(opens_with(path), question=str, golden_answers=list)


def write(target: Target, questions: Iterable[Question]) -> None:
    """An object a question; passages have no place in this format and are left out, as its users expect."""
    values = [
        {"id": one.id, "question": one.text, "golden_answers": [answer.text for answer in one.answers], **one.meta}
        for one in questions
    ]
    write_text(target, written(values, target))


FORMATS = (Format("flashrag", (".json", ".jsonl"), read, write, recognises),)
