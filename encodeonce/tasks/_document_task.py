"""One answer a document, single text or pair: what classification, regression and multilabel tasks share (A7, A-11)."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from ..errors import ConfigError, DataError
from ..resolve import nearest
from ..types import APART, Document
from . import Task

__all__ = ["DocumentTask"]

PIECES = ("document", "document-words", APART)


@dataclass(frozen=True)
class DocumentTask(Task):
    """`column` is the field or table column with the gold; `metric`, one of `metrics`, chooses between epochs.

    The head sees one row a document: the mean over all its pieces ("document"; A-11), or over those of its words only
    ("document-words"). With "document-apart" the two texts of a pair are read one by one, and the head compares their
    means (`batching.batch.Choice.seen`): what suits an encoder of single sentences. `called` is the task's name.
    `pairs` is learned: whether every training document has a second text (True) or none has (False); later ones must be
    alike.
    """

    column: str = "label"
    piece: str = "document"
    metric: str = ""
    called: str = ""
    pairs: bool | None = None
    labels: tuple[str, ...] = ()

    LEARNED: ClassVar[tuple[str, ...]] = ("labels", "pairs", "called")
    kind: ClassVar[str]
    """The file that `from_json` finds it by."""
    metrics: ClassVar[tuple[str, ...]]
    """Scores that may choose between epochs, the first by default."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "called", self.called or self.kind)
        object.__setattr__(self, "metric", self.metric or self.metrics[0])
        for field, allowed in (("piece", PIECES), ("metric", self.metrics)):
            value = getattr(self, field)
            if value not in allowed:
                listed = ", ".join(allowed)
                raise ConfigError(f"{field}={value!r} is not known. There is: {listed}.{nearest(value, list(allowed))}")

    @property
    def name(self) -> str:
        """As in settings."""
        return self.called

    def prepared(self, document: Document) -> Document:
        """With its two texts apart where they are read so, else together."""
        apart = bool(document.pair) and self.piece == APART
        return document if document.apart == apart else replace(document, apart=apart)

    def learn(self, documents: Sequence[Document]) -> "DocumentTask":
        """With what these documents say. DataError where there is none."""
        fresh = replace(self, pairs=None)
        gold = fresh.gold(documents)
        if not gold:
            raise DataError(f"task {self.name!r}: no examples.")
        kinds = {bool(document.pair) for document in documents}
        return replace(fresh, pairs=kinds.pop() if len(kinds) == 1 else None, **fresh.learned(gold, documents))

    @abstractmethod
    def learned(self, gold: Sequence[Any], documents: Sequence[Document]) -> dict[str, Any]:
        """Fields that training sets, from the gold of its documents; `labels` among them."""

    def gold(self, documents: Sequence[Document]) -> list[Any]:
        """The gold of each document. DataError with the place of one that has none or cannot be read."""
        for document in documents:
            self.check(document)
        return [self.value(document) for document in documents]

    @abstractmethod
    def value(self, document: Document) -> Any:
        """One document's gold."""

    def check(self, document: Document) -> None:
        """DataError for an empty text, either of a pair, and for a single text where training had pairs, or the other
        way round."""
        if document.empty:
            which = "second text of the pair" if document.words or document.text.strip() else "text"
            raise DataError(
                f"{place_of(document)}: task {self.name!r}: the {which} is empty. Give it one, or leave the item out."
            )
        if self.pairs is not None and self.pairs != bool(document.pair):
            trained, here = ("pairs", "no second text") if self.pairs else ("single texts", "a second text")
            further = "text=first,pair=second, or leave the item out."
            if not self.pairs:
                further = "text=first. A column 'pair' is the second text, unless it gets a name: --columns other=pair."
            raise DataError(
                f"{place_of(document)}: task {self.name!r} was trained on {trained}, and this item has {here}. Name "
                f"the columns as in training, such as --columns {further}"
            )
        if self.piece == APART and not document.pair:
            raise DataError(
                f"{place_of(document)}: task {self.name!r} compares two texts (piece={APART!r}), and this item "
                "has one. Name the second's column, such as --columns text=first,pair=second, or set piece='document'."
            )

    def read(self, document: Document) -> Any:
        """What stands under `column`. DataError with the names there are, or for a missing value.

        Only null, the empty string and the number NaN are missing: "NA", "null" and "none" are values like any other
        (CLS-1).
        """
        there = sorted({*document.meta, *document.columns})
        if self.column not in there:
            raise DataError(
                f"{place_of(document)}: task {self.name!r} reads {self.column!r}, and there is "
                f"{', '.join(there) or 'no such value'}.{nearest(self.column, there)} Set the task's column, or map it:"
                f" --columns {self.column}=NAME."
            )
        value = document.meta[self.column] if self.column in document.meta else document.columns[self.column]
        lacks = "null" if value is None else "NaN" if value != value else "empty" if value == "" else ""
        if lacks:
            raise DataError(
                f"{place_of(document)}: task {self.name!r}: {self.column!r} is {lacks}. "
                "Training and evaluation need gold: annotate the item or leave it out."
            )
        return value

    def refused(self, document: Document, value: Any, why: str) -> DataError:
        """The error about a value that cannot be this task's gold."""
        return DataError(f"{place_of(document)}: task {self.name!r}: {self.column!r} is {value!r}; {why}")

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"kind": self.kind, **{k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}}


def place_of(document: Document) -> str:
    """ "file:line (id x)"."""
    return f"{document.place} (id {document.id})" if document.place else document.id
