"""A column of chunk tags: its scheme found or named, converted, scored. Shared by the span tasks."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from ..corpus.spans import SCHEMES, convert, detect, to_spans
from ..errors import ConfigError, DataError
from ..metrics.spans import all_pieces, span_scores
from ..types import Document
from ._labels import column_of, refuse_missing, where

__all__ = ["SpanColumn"]

log = logging.getLogger("encodeonce")


@dataclass(frozen=True)
class SpanColumn:
    """`source` is the scheme the files are written in ("": not known yet), `target` the one trained on and scored.

    Tags are converted where the two differ, and stand as they are where they agree. A source that was detected is held
    to, in either case: a span that breaks it is a DataError. A source that was named by the user is read leniently.
    """

    task: str
    column: str
    source: str
    target: str
    named: bool

    def __post_init__(self) -> None:
        for field, scheme in (("source", self.source), ("scheme", self.target)):
            if scheme not in SCHEMES and not (field == "source" and not scheme):
                raise ConfigError(
                    f"task {self.task!r}: {field}={scheme!r} is no tagging scheme. There is: {', '.join(SCHEMES)}."
                )

    def raw(self, documents: Sequence[Document]) -> list[tuple[str, ...]]:
        """The column as it is written; DataError where it or a value is missing."""
        columns = [column_of(document, self.column, self.task) for document in documents]
        for document, values in zip(documents, columns, strict=True):
            refuse_missing(document, values, self.column, frozenset({""}))
        return columns

    def detected(self, documents: Sequence[Document]) -> str:
        """The source scheme of these documents; logged with its evidence where it leads to a conversion."""
        found = detect(self.raw(documents))
        if found.name not in SCHEMES:
            raise DataError(
                f"task {self.task!r}: the tags of column {self.column!r} keep to no scheme: {found.evidence}. "
                "Name the one they are meant in (source='IOB2' trains on the tags as they stand). "
                f"There is: {', '.join(SCHEMES)}."
            )
        if found.name != self.target:
            log.info("task %s: tags are %s (%s), converted to %s", self.task, found.name, found.evidence, self.target)
        return found.name

    def gold(self, documents: Sequence[Document]) -> list[tuple[str, ...]]:
        """The tags in the target scheme."""
        columns = self.raw(documents)
        if self.source and not self.named:
            self._refuse_other_scheme(documents, columns)
        if self.source in ("", self.target):
            return columns
        return [
            tuple(convert(tags, self.source, self.target, strict=False, place=where(document)))
            for document, tags in zip(documents, columns, strict=True)
        ]

    def _refuse_other_scheme(self, documents: Sequence[Document], columns: Sequence[tuple[str, ...]]) -> None:
        for document, tags in zip(documents, columns, strict=True):
            kept = set(to_spans(tags, self.source, strict=True, place=where(document)))
            bad = next((span for span in to_spans(tags) if span not in kept), None)
            if bad is None:
                continue
            found = detect(columns)
            scheme = f"are {found.name}" if found.name in SCHEMES else "keep to no scheme"
            raise DataError(
                f"{where(document, bad.start)}: tags {list(tags[bad.start : bad.stop])} of words {bad.start + 1} to "
                f"{bad.stop} break {self.source}, in which task {self.task!r} found its training data; the tags here "
                f'{scheme} ({found.evidence}). Write them in {self.source}, or train with source = "{self.source}" '
                f"under [task.{self.task}], which reads them by the lenient rule."
            )

    def score(self, gold: Sequence[tuple[str, ...]], predicted: Sequence[tuple[str, ...]]) -> dict[str, float | None]:
        """Micro precision, recall and F1 by the lenient rule (conlleval's, A16) and by the strict one (the scheme)."""
        lenient = span_scores(gold, predicted, scheme=self.target)
        strict = span_scores(gold, predicted, scheme=self.target, strict=True)
        scores = {
            f"{name}_{rule}": values[name]
            for rule, values in (("lenient", lenient), ("strict", strict))
            for name in ("precision", "recall", "f1")
        }
        return {**scores, "macro_f1_lenient": lenient["macro_f1"], "n": lenient["gold"]}

    def score_of_pieces(
        self,
        gold: Sequence[tuple[str, ...]],
        predicted: Sequence[tuple[str, ...]],
        pieces: Sequence[Sequence[int]],
    ) -> float | None:
        """Lenient micro F1 where each word counts once for each of its pieces."""
        return span_scores(all_pieces(gold, pieces), all_pieces(predicted, pieces), scheme=self.target)["f1"]
