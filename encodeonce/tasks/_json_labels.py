"""Labels as JSON has them: a task's own are strings, and a file that has them as numbers gets numbers back."""

import json
import math
from collections.abc import Iterable

__all__ = ["JsonLabel", "as_label", "kept_as", "restored"]

JsonLabel = str | int | float | bool


def as_label(value: JsonLabel) -> str:
    """The label as a string; true and false as JSON writes them; 1.0 as 1, which is the same number in JSON."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def kept_as(values: Iterable[object]) -> str:
    """What these labels are in JSON: all "boolean", all "number" (finite, as JSON knows no other), else "text"."""
    kinds = {_kind(value) for value in values}
    return kinds.pop() if len(kinds) == 1 else "text"


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, (int, float)) and math.isfinite(value) else "text"


def restored(label: str, kind: str) -> JsonLabel:
    """The value that `as_label` made the label of, where all were of this kind (`kept_as`)."""
    value: JsonLabel = label if kind == "text" else json.loads(label)
    return value
