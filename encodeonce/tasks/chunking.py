"""Syntactic chunks as spans of tagged words (A7: a word is its last piece; A16: lenient micro F1, strict beside it)."""

from dataclasses import dataclass
from typing import ClassVar

from ._span_task import SpanTask

__all__ = ["Chunking"]


@dataclass(frozen=True)
class Chunking(SpanTask):
    """See `SpanTask` for the settings."""

    piece: str = "last"

    kind: ClassVar[str] = "chunking"
    usual: ClassVar[str] = "chunk"
