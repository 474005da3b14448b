"""A paper's values, to stand beside ours: a YAML or JSON file of task -> method -> value, or mean and deviation.

A file may hold several such tables under `tables`, with `source` beside them; one is chosen by its name.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ..errors import ConfigError, DataError
from ..report.table import Paper
from ..resolve import nearest

__all__ = ["published", "strangers"]


def published(path: Path, table: str | None = None) -> Paper:
    """The values. DataError where the file is neither YAML nor JSON, ConfigError where it holds something else."""
    values = _plain(path)
    if isinstance(values, dict) and isinstance(values.get("tables"), dict):
        tables = {str(name): own for name, own in values["tables"].items()}
        names = list(tables)
        if table not in names:
            hint = nearest(table, names) if table else ""
            raise ConfigError(f"{path} holds several tables: choose one with --paper-table {'|'.join(names)}.{hint}")
        values = tables[table]
    elif table is not None:
        raise ConfigError(f"{path} holds one table only, without a name: leave --paper-table out.")
    try:
        return {str(task): {str(m): _value(v) for m, v in by.items() if v is not None} for task, by in values.items()}
    except (AttributeError, TypeError, ValueError):
        raise ConfigError(
            f"{path} must map each task to methods and their values, such as upos: {{frozen: 90.1}}, or "
            "{frozen: [90.1, 0.2]} with a deviation."
        ) from None


def strangers(paper: Paper, table: Mapping[str, Mapping[str, object]]) -> list[str]:
    """What of a paper stands beside nothing of ours, task -> method -> anything: "task", or "task method"."""
    found = []
    for task, by in paper.items():
        own = {name.partition(" (")[0] for name in table.get(task, {})}
        found += [f"{task} {method}" for method in by if method not in own] if task in table else [task]
    return found


def _value(value: Any) -> float | list[float]:
    if not isinstance(value, list):
        return float(value)
    mean, sd = value
    return [float(mean), float(sd)]


def _plain(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise DataError(f"{path} cannot be read: {problem}.") from None
    if path.suffix == ".json":
        try:
            return json.loads(text)
        except ValueError as problem:
            raise DataError(f"{path} is not JSON: {problem}.") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as problem:
        raise DataError(f"{path} is not YAML: {problem}.") from None
