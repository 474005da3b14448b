"""Which tagging scheme a column is written in, with the evidence, and its conversion to another, by name.

The reading itself (`to_spans`, `from_spans`) stands in `encodeonce.spans`, for metrics and heads read tags too.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..errors import DataError
from ..spans import SCHEMES, Span, from_spans, split_tag, to_spans

__all__ = ["SCHEMES", "Scheme", "Span", "convert", "detect", "from_spans", "split_tag", "to_spans"]


@dataclass(frozen=True, slots=True)
class Scheme:
    """A scheme's name and why it was chosen.

    `name` is one of SCHEMES, or "mixed" where no scheme fits all spans. `begins_b` and `begins_i` count the spans that
    follow O or another type and begin with B and with I: IOB2 knows only the first, IOB1 only the second.
    """

    name: str
    evidence: str
    spans: int
    begins_b: int
    begins_i: int


def detect(tags: Iterable[Sequence[str]]) -> Scheme:
    """Find the scheme of a whole column (all sentences of a file).

    Raises DataError for a tag that is no chunk tag.
    """
    sentences = [sentence for sentence in tags if any(tag != "O" for tag in sentence)]
    letters: Counter[str] = Counter()
    begins: Counter[str] = Counter()
    n_spans = 0
    for sentence in sentences:
        letters.update(tag[:1] for tag in sentence)
        spans = to_spans(sentence)
        n_spans += len(spans)
        ends = {span.stop: span.type for span in spans}
        begins.update(sentence[span.start][:1] for span in spans if ends.get(span.start) != span.type)
    name, evidence = _decide(sentences, letters, begins, n_spans)
    return Scheme(name, evidence, n_spans, begins["B"], begins["I"])


def _decide(
    sentences: list[Sequence[str]], letters: Counter[str], begins: Counter[str], n_spans: int
) -> tuple[str, str]:
    """The name and its reason, from what was counted."""
    if not n_spans:
        return "IOB2", "no spans, so every scheme fits; IOB2 by convention"
    ends = {"BIOES": letters["E"] + letters["S"], "BILOU": letters["L"] + letters["U"]}
    if all(ends.values()):
        return "mixed", f"{ends['BIOES']} tags of BIOES (E, S) and {ends['BILOU']} tags of BILOU (L, U)"
    for scheme, count in ends.items():
        if count and (broken := _broken(sentences, scheme)):
            return "mixed", f"{count} tags of {scheme}, but {broken} of {n_spans} spans break it"
        if count:
            return scheme, f"{count} tags that only {scheme} has; all {n_spans} spans keep it"
    if not _broken(sentences, "IOB2"):
        return "IOB2", f"all {n_spans} spans begin with B"
    if not _broken(sentences, "IOB1"):
        return "IOB1", f"{begins['I']} spans begin with I, and B stands only right after a span of the same type"
    return "mixed", (
        f"of {n_spans} spans, {begins['B']} begin with B where IOB1 has I, {begins['I']} with I where IOB2 has B"
    )


def _broken(sentences: list[Sequence[str]], scheme: str) -> int:
    """How many spans, found by the lenient rule, are not written as a scheme asks."""
    return sum(len(to_spans(tags)) - len(to_spans(tags, scheme, strict=True)) for tags in sentences)


def convert(tags: Sequence[str], source: str, target: str, *, strict: bool = True, place: str = "") -> list[str]:
    """One sentence from a scheme to another: the same spans, other tags.

    A span that breaks the source scheme is an error (`strict`), or is read by the lenient rule if that is asked for.
    """
    spans = to_spans(tags, source, place=place)
    if strict and to_spans(tags, source, strict=True) != spans:
        kept = set(to_spans(tags, source, strict=True))
        bad = next(span for span in spans if span not in kept)
        raise DataError(
            f"{place + ': ' if place else ''}tags {list(tags[bad.start : bad.stop])} of words {bad.start} to "
            f"{bad.stop - 1} break {source}. Name the scheme they are in, or read them leniently (strict=False)."
        )
    return from_spans(spans, len(tags), target)
