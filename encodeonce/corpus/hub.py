"""Hugging Face `datasets`: objects in memory and folders written by `save_to_disk`. Class ids become their names."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import ConfigError, DataError, MissingExtra
from ..types import Document
from ._files import TEXTS, Target
from ._format import Format
from .jsonl import document, fields_of

__all__ = ["FORMATS", "read", "write"]


def read(source: Any, *, columns: Mapping[str, int | str] | None = None, split: str | None = None) -> list[Document]:
    """Every row of a Dataset, or of one split of a DatasetDict, given as object or as a saved folder.

    Fields are read as those of a JSON line (see `jsonl.read`), ClassLabel ids by name; the id −1 (unlabelled) is None.
    Raises MissingExtra where `datasets` is not installed, DataError naming row and field for fields of the wrong kind.
    """
    found, name = _opened(source)
    if isinstance(found, Mapping):
        found, name = _split_of(found, split, source, name), f"{name}[{split}]"
    elif split is not None:
        raise ConfigError(f"split={split!r}: {name} is one Dataset without splits; leave split out.")
    named = {field: _class_names(feature) for field, feature in (getattr(found, "features", None) or {}).items()}
    documents = []
    for ordinal, row in enumerate(found, 1):
        values = {field: _named(value, named.get(field)) for field, value in row.items()}
        documents.append(document(values, f"{name}:{ordinal}", f"{Path(name).name}:{ordinal}", columns or {}))
    return documents


def write(target: Target, source: Any, columns: Mapping[str, Sequence[Any]], *, split: str | None = None) -> None:
    """Save a Dataset (or one split) with fields set or added to the folder `target`, by `save_to_disk`.

    `source` is as in `read`, or documents. `columns` hold one value a row. ConfigError where `target` is a stream.
    """
    if not isinstance(target, (str, Path)):
        raise ConfigError(f"a Dataset is saved as a folder, and the target is a {type(target).__name__}: name a path.")
    if isinstance(source, Iterable) and not hasattr(source, "save_to_disk") and not isinstance(source, (str, Path)):
        found = _rows(list(source))
    else:
        found, name = _opened(source)
        if isinstance(found, Mapping):
            found = _split_of(found, split, source, name)
    for name, column in columns.items():
        if len(column) != len(found):
            raise DataError(f"column {name!r} has {len(column)} values for {len(found)} rows.")
        if name in found.column_names:
            found = found.remove_columns(name)
        found = found.add_column(name, [list(v) if isinstance(v, tuple) else v for v in column])
    found.save_to_disk(str(target))


def _split_of(found: Mapping[str, Any], split: str | None, source: Any, name: str) -> Any:
    if split is not None and split in found:
        return found[split]
    folder = f", or give its folder: {source}/{next(iter(found), '')}" if isinstance(source, (str, Path)) else ""
    raise ConfigError(f"split={split!r} of {name}: name one of its splits: {', '.join(map(str, found))}{folder}.")


def _rows(documents: Sequence[Document]) -> Any:
    """A Dataset with every field that any of the documents has, None where one has it not."""
    package = _import()
    rows = [{"text": "", "words": [], **fields_of(one)} for one in documents]
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names}
    try:
        return package.Dataset.from_dict(columns)
    except Exception:
        for name, column in columns.items():
            try:
                package.Dataset.from_dict({name: column})
            except Exception as problem:  # of the package's own table, by whatever name
                raise DataError(
                    f"field {name!r} cannot be a column of a Dataset, whose values are of one kind: {problem}. Write "
                    "jsonl, or make them alike."
                ) from None
        raise


def _opened(source: Any) -> tuple[Any, str]:
    """The object, and what to call it in messages."""
    if not isinstance(source, (str, Path)):
        if not type(source).__module__.partition(".")[0] == "datasets":
            raise ConfigError(
                f"{type(source).__name__} cannot be read: give a path, or a datasets Dataset or DatasetDict."
            )
        return source, type(source).__name__
    if not any((Path(source) / mark).is_file() for mark in ("state.json", "dataset_dict.json")):
        raise DataError(
            f"{source} is no folder written by save_to_disk: neither state.json nor dataset_dict.json is there. "
            f"A folder of texts holds {', '.join(TEXTS)} files."
        )
    load = _import().load_from_disk
    try:
        return load(str(source)), str(source)
    except Exception as problem:  # whatever a missing table, a cut one or a data set without rows brings up there
        raise DataError(
            f"{source} holds no data set that can be read ({problem!r}): it is empty, or was not copied whole. Save it "
            "again with save_to_disk."
        ) from None


def _import() -> Any:
    try:
        import datasets
    except ImportError:
        raise MissingExtra(
            "Hugging Face data sets need the package datasets. Install it with: pip install 'encodeonce[datasets]'"
        ) from None
    return datasets


def _class_names(feature: Any) -> list[str] | None:
    """Names of a ClassLabel, or of the ClassLabels of a list."""
    inner = getattr(feature, "feature", feature)
    return getattr(inner, "names", None)


def _named(value: Any, names: list[str] | None) -> Any:
    if names is None or value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return names[value] if value >= 0 else None
    return [_named(item, names) for item in value]


FORMATS = (Format("hub", (), read, write),)
