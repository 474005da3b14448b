"""A task's settings as a file gives them: each one known by name and of the kind that the task's class declares."""

from collections.abc import Mapping
from dataclasses import fields
from types import UnionType
from typing import Any, get_args, get_origin

from ..errors import ConfigError
from ..resolve import nearest

__all__ = ["checked_options"]

SAID = {str: "text", bool: "true or false", int: "a whole number", float: "a number", tuple: "a list of texts"}
"""How a message calls a kind of value."""


def checked_options(cls: Any, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options for `cls`, a class of tasks, lists as tuples. ConfigError names one that the task `name` has not or
    that is of another kind."""
    kinds = {field.name: _kinds(field.type) for field in fields(cls) if field.name not in cls.LEARNED}
    plain = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
    for key, value in plain.items():
        if key not in kinds:
            raise ConfigError(
                f"task {name!r} has no setting {key!r}.{nearest(key, list(kinds))} It has: {', '.join(kinds)}."
            )
        if not any(_fits(value, kind) for kind in kinds[key]):
            wanted = " or ".join(SAID[kind] for kind in kinds[key])
            raise ConfigError(f"task {name!r}: {key} = {options[key]!r} must be {wanted}.")
    return plain


def _kinds(annotation: Any) -> tuple[type, ...]:
    """The classes of `str | tuple[str, ...]`: (str, tuple)."""
    if isinstance(annotation, UnionType):
        return tuple(kind for one in get_args(annotation) for kind in _kinds(one))
    return (get_origin(annotation) or annotation,)


def _fits(value: Any, kind: type) -> bool:
    if isinstance(value, bool):
        return kind is bool
    if kind is tuple:
        return isinstance(value, tuple) and all(isinstance(one, str) for one in value)
    return isinstance(value, (int, float) if kind is float else kind)
