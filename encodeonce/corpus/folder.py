"""A folder of text files: a document a file, its category path the folders it lies in."""

from collections.abc import Mapping
from pathlib import Path

from ..errors import ConfigError, DataError
from ..types import Document
from ._format import Format

__all__ = ["FORMATS", "read"]


def read(path: str | Path, *, columns: Mapping[str, int | str] | None = None) -> list[Document]:
    """Every `.txt` file below `path`, in the order of their names; `meta` has "category_path", the folders between.

    A file of white space is a document with an empty text: who needs a text counts these.
    DataError for a file that is not UTF-8, ConfigError where `path` is no folder.
    """
    folder = Path(path)
    if columns:
        raise ConfigError(f"columns={dict(columns)}: a folder of texts has none.")
    if not folder.is_dir():
        raise ConfigError(f"{folder} is no folder.")
    found = []
    for file in sorted(folder.rglob("*.txt")):
        inside = file.relative_to(folder)
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError as problem:
            raise DataError(f"{file}: not UTF-8 at byte {problem.start}.") from None
        meta = {"category_path": list(inside.parent.parts)}
        found.append(Document(inside.with_suffix("").as_posix(), text=text, meta=meta, place=str(file)))
    return found


def _unwritable(*args: object, **options: object) -> None:
    raise ConfigError("a folder of texts is only read: write predictions as jsonl (format='jsonl').")


FORMATS = (Format("folder", (), read, _unwritable),)
