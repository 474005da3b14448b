"""Questions as plain lines: `.txt` a question a line; `.tsv` and `.csv` DPR's two columns divided by a tab, the
question and a list of answers as Python or JSON writes it: who wrote it?<TAB>["Ana", "Ana Blandiana"]
"""

import ast
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ...errors import DataError
from ...types import Question
from .._files import BOM, Target, body, numbered, stem, write_text
from .._format import Format
from ._parts import listed_answers

__all__ = ["FORMATS", "read", "read_pairs", "write", "write_pairs"]


def read(path: str | Path) -> list[Question]:
    """A question a line; blank lines are none."""
    name = stem(path)
    return [Question(f"{name}:{n}", text, place=f"{path}:{n}") for n, text in _numbered(path)]


def write(target: Target, questions: Iterable[Question]) -> None:
    """The questions' texts alone, one a line."""
    write_text(target, (" ".join(question.text.split()) + "\n" for question in questions))


def read_pairs(path: str | Path) -> list[Question]:
    """A question and its answers a line. DataError with file and line where the second cell is no list of strings."""
    name, questions = stem(path), []
    for n, line in _numbered(path):
        place = f"{path}:{n}"
        text, tab, cell = line.partition("\t")
        answers = _listed(cell.strip()) if tab else None
        if not text.strip() or not isinstance(answers, list) or not all(isinstance(one, str) for one in answers):
            raise DataError(
                f'{place}: {line[:60]!r} is no question and list of answers, divided by a tab: who?<TAB>["Ana"].'
            )
        questions.append(Question(f"{name}:{n}", text.strip(), listed_answers(answers), place=place))
    return questions


def write_pairs(target: Target, questions: Iterable[Question]) -> None:
    """The questions' texts and answers, two columns."""
    cells = ((" ".join(one.text.split()), [answer.text for answer in one.answers]) for one in questions)
    write_text(target, (f"{text}\t{answers!r}\n" for text, answers in cells))


def _numbered(path: str | Path) -> Iterable[tuple[int, str]]:
    for number, line in numbered(path):
        if line.strip(BOM + " \t\r\n"):
            yield number, body(line)


def _listed(cell: str) -> Any:
    """What JSON or else Python writes so; None where neither does. They spell characters beyond 16 bits differently."""
    for parse in (json.loads, ast.literal_eval):
        try:
            return parse(cell)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
    return None


FORMATS = (
    Format("lines", (".txt",), read, write),
    Format("pairs", (".tsv", ".csv"), read_pairs, write_pairs),
)
