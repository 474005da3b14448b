"""Which passages may hold the answer: one small interface, one way a file, found by name.

A retriever is made over passages once and asked for many questions; what it gives are hits, best first, each passage at
most once, and fewer than k where there are no more (case RETR-1).
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from ..errors import ConfigError
from ..types import Passage

__all__ = ["Hit", "Retriever", "check_ids", "check_k", "shown"]


class Hit(NamedTuple):
    """A passage's id, and how well it fits: the more the better, on the retriever's own scale."""

    passage: str
    score: float


@runtime_checkable
class Retriever(Protocol):
    """Finds passages by a question's text."""

    def find(self, questions: Sequence[str], k: int) -> list[list[Hit]]:
        """At most k hits a question, best first."""


def check_k(k: int) -> None:
    """ConfigError for a number of passages that is none."""
    if k < 1:
        raise ConfigError(f"k={k} must be at least 1.")


def check_ids(ids: Sequence[str]) -> None:
    """ConfigError for an id that two passages have: a hit would not say which."""
    if len(set(ids)) == len(ids):
        return
    twice = next(one for one, n in Counter(ids).items() if n > 1)
    raise ConfigError(f"{len(ids)} passages have {len(set(ids))} ids, {twice!r} several times. Give each its own.")


def shown(passage: Passage) -> str:
    """What is searched of a passage: title and text."""
    return f"{passage.title} {passage.text}" if passage.title else passage.text
