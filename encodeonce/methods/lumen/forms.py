"""What an encoder is shown of a question and of a passage, and where a passage's own characters stand in it.

"plain": the question; title and text. "fid": "question: Q" and "title: T context: X", as Fusion-in-Decoder has them
for T5 (spec L-06).
"""

from collections.abc import Mapping
from typing import Final

from ...errors import ConfigError
from ...resolve import nearest
from ...types import Document, Passage, Question

__all__ = ["FORMS", "passage_document", "question_document", "shift_of"]

FORMS: Final[Mapping[str, tuple[str, str, str]]] = {
    "plain": ("", "", " "),
    "fid": ("question: ", "title: ", " context: "),
}
"""Form -> what stands before a question, before a title, and between title and text."""


def question_document(question: Question, form: str = "plain") -> Document:
    """The question as an encoder is shown it."""
    return Document(question.id, text=_parts(form)[0] + question.text, place=question.place)


def passage_document(passage: Passage, form: str = "plain") -> Document:
    """The passage as an encoder is shown it, and as the memory stores it: its key is that of title and text."""
    return Document(passage.id, text=_before(passage, form) + passage.text, place=passage.place)


def shift_of(passage: Passage, form: str = "plain") -> int:
    """Characters before the passage's own text."""
    return len(_before(passage, form))


def _before(passage: Passage, form: str) -> str:
    _, title, context = _parts(form)
    return f"{title}{passage.title}{context}" if passage.title or title else ""


def _parts(form: str) -> tuple[str, str, str]:
    if form not in FORMS:
        raise ConfigError(f"form={form!r} is not known. There is: {', '.join(FORMS)}.{nearest(form, list(FORMS))}")
    return FORMS[form]
