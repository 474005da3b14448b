"""A set of labels a document, which may be empty: topics, emotions, codes.

Axes: C labels
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from ..errors import ConfigError, DataError
from ..metrics.classification import multilabel_scores
from ..types import Document
from ._document_task import DocumentTask
from ._json_labels import JsonLabel, kept_as, restored

__all__ = ["Multilabel"]


@dataclass(frozen=True)
class Multilabel(DocumentTask):
    """`column` is a field with a list of labels, or a table column with labels divided by `separator`.

    An empty list and an empty cell say that the document has none; a field that is missing or null is refused. A label
    is predicted where its probability is above `threshold`. `kept_as` is learned: what labels are in JSON
    (`_json_labels`), so that files get back what they had. See `DocumentTask` for the other settings.
    """

    column: str = "labels"
    separator: str = "|"
    threshold: float = 0.5
    kept_as: str = "text"

    LEARNED: ClassVar[tuple[str, ...]] = (*DocumentTask.LEARNED, "kept_as")
    kind: ClassVar[str] = "multilabel"
    head: ClassVar[str] = "multilabel"
    metrics: ClassVar[tuple[str, ...]] = ("micro_f1", "macro_f1", "exact_match")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.separator:
            raise ConfigError("separator='' divides nothing. Give what stands between two labels, such as '|'.")

    @property
    def head_options(self) -> dict[str, Any]:
        """From which probability on a label is predicted."""
        return {"threshold": self.threshold}

    def learned(self, gold: Sequence[tuple[str, ...]], documents: Sequence[Document]) -> dict[str, Any]:
        """The labels, sorted, and what they are in JSON."""
        labels = sorted({label for own in gold for label in own})
        if not labels:
            raise DataError(
                f"task {self.name!r}: no training document has a label in {self.column!r}. Name the field that holds "
                f"them with column=..., or map it: --columns {self.column}=NAME."
            )
        kind = kept_as(label for document in documents for label in self._listed(document))
        return {"labels": tuple(labels), "kept_as": kind}

    def value(self, document: Document) -> tuple[str, ...]:
        """The labels, sorted, each once."""
        return tuple(sorted({str(label) for label in self._listed(document)}))

    def _listed(self, document: Document) -> Sequence[str | int]:
        """As the file has them. DataError for what is no list of labels."""
        value = "" if document.meta.get(self.column) == "" else self.read(document)
        if isinstance(value, str):
            value = [label for label in map(str.strip, value.split(self.separator)) if label]
        if not isinstance(value, (list, tuple)) or not all(map(_is_label, value)):
            raise self.refused(
                document,
                value,
                "it must be a list of labels, each a text that is not empty or a whole number, or a string of labels "
                f"divided by {self.separator!r}.",
            )
        return value

    def ids(self, gold: tuple[str, ...]) -> Float[np.ndarray, "1 C"]:
        """Float32 [1, C]: 1 where the document has the label. One that training never saw has no place in it."""
        return np.array([[label in gold for label in self.labels]], dtype=np.float32)

    def scored(self, ids: np.ndarray) -> int:
        """A decision a label: the loss is the mean over them."""
        return ids.size

    def unseen(self, gold: tuple[str, ...]) -> Iterable[str]:
        """Labels that training never saw."""
        return (label for label in gold if label not in self._known)

    def score(self, gold: Sequence[tuple[str, ...]], predicted: Sequence[tuple[str, ...]]) -> dict[str, float | None]:
        """micro_f1, macro_f1, exact_match and n (`multilabel_scores`); an unseen label counts as a miss."""
        return multilabel_scores(gold, predicted)

    def as_json(self, answer: tuple[str, ...]) -> tuple[JsonLabel, ...]:
        """The labels as training files had them."""
        return tuple(restored(label, self.kept_as) for label in answer)

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.labels)


def _is_label(value: Any) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool) and value != ""
