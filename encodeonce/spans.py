"""Tags to spans and back: one reading of IOB1, IOB2, BIOES and BILOU for readers, heads and metrics alike.

A tag is `O`, or a prefix (B I E S, or L U for E S) alone or followed by `-` and a type: everything after the first `-`
is the type, so `B-gene-mut` is of type `gene-mut`. A bare `B` or `I` is of the unnamed type `_`.

Two rules, and no switching between them:

lenient   conlleval's (Tjong Kim Sang and Buchholz, 2000): every tag but O is in a span; a span begins at B and S, after
          O, E and S, and where the type changes. It reads all four schemes.
strict    by the scheme: a span that breaks its scheme is no span (IOB2: one that begins with I; BIOES: one without E).
"""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

from .errors import ConfigError, DataError

__all__ = ["SCHEMES", "UNNAMED", "Span", "from_spans", "split_tag", "to_spans"]

SCHEMES = ("IOB1", "IOB2", "BIOES", "BILOU")
"""The schemes that are read and written."""

UNNAMED = "_"
"""Type of a span whose tags are bare."""

_PREFIXES = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S"}
_WRITTEN = {"BIOES": {"E": "E", "S": "S"}, "BILOU": {"E": "L", "S": "U"}}


class Span(NamedTuple):
    """Words start ... stop − 1 are one chunk of a type."""

    type: str
    start: int
    stop: int


def split_tag(tag: str, place: str = "") -> tuple[str, str]:
    """(prefix, type) with L and U read as E and S; ("O", "") for O.

    Raises DataError for anything that is no chunk tag, such as a part of speech; `place` goes into its message.
    """
    cut = _split(tag)
    if cut is None:
        raise DataError(
            f"{place + ': ' if place else ''}{tag!r} is no chunk tag. Chunk tags are O, or B, I, E, S, L or U alone or "
            "before '-' and a type, as in 'B-PER'. For labels without spans, use accuracy (a tagging task)."
        )
    return cut


@cache
def _split(tag: str) -> tuple[str, str] | None:
    if tag == "O":
        return "O", ""
    prefix = _PREFIXES.get(tag[:1])
    if prefix and len(tag) == 1:
        return prefix, UNNAMED
    return (prefix, tag[2:]) if prefix and tag[1] == "-" and len(tag) > 2 else None


def to_spans(tags: Sequence[str], scheme: str = "IOB2", *, strict: bool = False, place: str = "") -> list[Span]:
    """The spans of one sentence, in order. `scheme` is needed by the strict rule only, and checked by both.

    Raises ConfigError for an unknown scheme and DataError for a tag that is no chunk tag.
    """
    _check(scheme)
    cut = [_split(tag) or split_tag(tag, place) for tag in tags]
    found: list[Span] = []
    start = 0
    before, kind = "O", ""
    for here, (prefix, type_) in enumerate([*cut, ("O", "")]):
        begins = prefix != "O" and (prefix in "BS" or before in "OES" or type_ != kind)
        if before != "O" and (begins or prefix == "O"):
            if not strict or _keeps(scheme, [p for p, _ in cut[start:here]], start > 0 and cut[start - 1][1] == kind):
                found.append(Span(kind, start, here))
            start = here
        if begins:
            start = here
        before, kind = prefix, type_
    return found


def from_spans(spans: Iterable[Span | tuple[str, int, int]], n: int, scheme: str = "IOB2") -> list[str]:
    """n tags that say the spans in a scheme; the inverse of `to_spans` under both rules.

    Raises ConfigError for spans that overlap or lie outside the n words.
    """
    _check(scheme)
    tags = ["O"] * n
    last = Span("", 0, 0)
    for span in sorted((Span(*span) for span in spans), key=lambda span: span.start):
        if not last.stop <= span.start < span.stop <= n:
            raise ConfigError(
                f"{span} overlaps {last} or lies outside the {n} words; tags hold flat, non-empty spans only."
            )
        prefixes = _prefixes(scheme, span.stop - span.start, touches=last.stop == span.start and last.type == span.type)
        suffix = "" if span.type == UNNAMED else f"-{span.type}"
        tags[span.start : span.stop] = [prefix + suffix for prefix in prefixes]
        last = span
    return tags


def _prefixes(scheme: str, length: int, touches: bool) -> list[str]:
    """The prefixes of one span; `touches` says that a span of the same type ends right before it."""
    if scheme == "IOB1":
        return ["B" if touches else "I"] + ["I"] * (length - 1)
    if scheme == "IOB2":
        return ["B"] + ["I"] * (length - 1)
    written = _WRITTEN[scheme]
    return [written["S"]] if length == 1 else ["B"] + ["I"] * (length - 2) + [written["E"]]


def _keeps(scheme: str, prefixes: list[str], touches: bool) -> bool:
    """Whether a span found by the lenient rule is written as its scheme asks."""
    if scheme == "IOB1":
        return prefixes[0] == ("B" if touches else "I") and set(prefixes[1:]) <= {"I"}
    if scheme == "IOB2":
        return prefixes[0] == "B" and set(prefixes[1:]) <= {"I"}
    return [{"L": "E", "U": "S"}.get(p, p) for p in _prefixes(scheme, len(prefixes), touches)] == prefixes


def _check(scheme: str) -> None:
    if scheme not in SCHEMES:
        raise ConfigError(f"scheme={scheme!r} is not known. There is: {', '.join(SCHEMES)}.")
