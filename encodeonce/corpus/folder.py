"""A folder of text files: a document a file, its category path the folders it lies in."""

from collections.abc import Mapping
from pathlib import Path

from ..errors import ConfigError, DataError
from ..types import Document
from ._files import text_files, text_of
from ._format import Format

__all__ = ["FORMATS", "read"]


def read(path: str | Path, *, columns: Mapping[str, int | str] | None = None) -> list[Document]:
    """Every text below `path` (.txt, .text, .md, or these with .gz) in the order of their names, hidden ones apart;
    `meta` has "category_path", the folders between.

    A file of white space is a document with an empty text: who needs a text counts these.
    DataError for a file that is not UTF-8, for two that differ in their endings alone, and where there is none,
    ConfigError where `path` is no folder.
    """
    folder = Path(path)
    if columns:
        raise ConfigError(f"columns={dict(columns)}: a folder of texts has none.")
    if not folder.is_dir():
        raise ConfigError(f"{folder} is no folder.")
    found: dict[str, Document] = {}
    for file in text_files(folder):
        inside = file.relative_to(folder)
        meta = {"category_path": list(inside.parent.parts)}
        name = Path(inside.as_posix().removesuffix(".gz")).with_suffix("").as_posix()
        if name in found:
            raise DataError(f"{found[name].place} and {file} would both be the text {name!r}. Rename one of them.")
        found[name] = Document(name, text=text_of(file), meta=meta, place=str(file))
    return list(found.values())


def _unwritable(*args: object, **options: object) -> None:
    raise ConfigError("a folder of texts is only read: write predictions as jsonl (format='jsonl').")


FORMATS = (Format("folder", (), read, _unwritable),)
