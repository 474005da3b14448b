"""The classes that an estimator's labels name, and whether there is enough of each to learn from.

Axes: N items
"""

import logging
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from ..errors import DataError, RunError
from ..types import Document
from ._material import content

__all__ = ["check_classes", "check_kept", "classes_of"]

log = logging.getLogger("encodeonce")


def classes_of(labels: Sequence[Any]) -> tuple[np.ndarray, Int[np.ndarray, " N"]]:
    """The different labels in order, and the place of each one among them. DataError for one that is missing, for one
    that is several, for labels that are partly strings, and for what has no order."""
    kinds = list | tuple | set | dict | np.ndarray
    several = next((n for n, label in enumerate(labels, 1) if isinstance(label, kinds)), None)
    if several is not None:
        raise DataError(f"label {several} is {labels[several - 1]!r}: give text {several} one label, not a list.")
    missing = next((n for n, label in enumerate(labels, 1) if _is_missing(label)), None)
    if missing is not None:
        raise DataError(f"label {missing} is {labels[missing - 1]!r}: give text {missing} a label, or leave it out.")
    other = [n for n, label in enumerate(labels, 1) if isinstance(label, str) != isinstance(labels[0], str)]
    if other:
        shown = f"label 1 is {labels[0]!r} and label {other[0]} is {labels[other[0] - 1]!r}"
        raise DataError(f"{shown}: give strings, or values of one other kind.")
    try:
        classes, index = np.unique(np.asarray(labels), return_inverse=True)
    except TypeError as problem:
        raise DataError(f"labels cannot be put in order: {problem}. Give strings, numbers, or str(label).") from None
    return classes, index


def _is_missing(label: Any) -> bool:
    """None, NaN and NaT, which differ from themselves, and pandas's NA, which does not say whether it does."""
    try:
        return label is None or bool(label != label)
    except TypeError:
        return True


def check_classes(documents: Sequence[Document], index: Int[np.ndarray, " N"], classes: Sequence[Any]) -> None:
    """DataError where there are not two classes of two different texts each; texts with several labels are said."""
    if len(classes) < 2:
        raise DataError(f"all {len(index)} labels are {classes}: a classifier needs two classes.")
    labels: dict[str, set[int]] = {}
    for document, label in zip(documents, index.tolist(), strict=True):
        labels.setdefault(content(document), set()).add(label)
    different = [sum(label in own for own in labels.values()) for label in range(len(classes))]
    if min(different) < 2:
        poorest = int(np.argmin(different))
        n = int(np.sum(index == poorest))
        shown = "has one example" if n == 1 else f"has one text, {n} times"
        raise DataError(
            f"class {classes[poorest]!r} {shown}; cross-validation needs two different texts of each. Give another one,"
            " or leave the class out."
        )
    torn = [next(d for d in documents if content(d) == key) for key, own in labels.items() if len(own) > 1]
    if torn:
        log.warning("%d texts have several labels, the first: %s %r", len(torn), torn[0].id, torn[0].text[:60])


def check_kept(classes: np.ndarray, own: np.ndarray) -> None:
    """RunError for classes that would not come out of a file as they were (it keeps strings, truth values and finite
    numbers), that are not one for each of `own`, and for two that are one."""
    if classes.shape != own.shape:
        raise RunError(f"{len(classes)} classes are given for the {len(own)} that were learned, {own.tolist()}.")
    known = str | int | float
    for one in list(classes) if classes.dtype.kind in "mM" else classes.tolist():
        if not isinstance(one, known) or (isinstance(one, float) and not math.isfinite(one)):
            raise RunError(
                f"class {one!r} cannot be saved; a file keeps strings, truth values and finite numbers. Fit with labels"
                " of these, such as str(label)."
            )
    if len(set(classes.tolist())) < len(classes):
        raise RunError(f"classes {classes.tolist()} hold one twice; two of {own.tolist()} would be one.")
