"""Named entities as spans of tagged words (A7: a word is its first piece; A16: lenient micro F1, strict beside it)."""

from dataclasses import dataclass
from typing import ClassVar

from ._span_task import SpanTask

__all__ = ["NER"]


@dataclass(frozen=True)
class NER(SpanTask):
    """See `SpanTask` for the settings."""

    piece: str = "first"

    kind: ClassVar[str] = "ner"
    usual: ClassVar[str] = "ner"
