"""Plain text as passages: a folder with a text a file (.txt, .md), or one such file. Cut them with `windows`.

A text's id is its path below the folder, its title the file's name without the ending. The text is kept as it is, so
that offsets are those of the file (read as UTF-8, a byte order mark apart).
"""

import logging
from collections.abc import Iterable
from pathlib import Path

from ...errors import DataError
from ...types import Passage
from .._files import BOM, Target, lines, write_text
from .._format import Format

__all__ = ["FORMATS", "read", "recognises", "write"]

log = logging.getLogger("encodeonce")

SUFFIXES = (".txt", ".text", ".md")


def read(path: str | Path) -> list[Passage]:
    """Every text in order of path; other files are counted in a warning, hidden ones apart.

    DataError naming the folder where it holds no text.
    """
    root = Path(path)
    if root.is_dir():
        files = sorted(file for file in root.rglob("*") if file.is_file())
        found = [file for file in files if _plain(file) in SUFFIXES]
        if not found:
            raise DataError(f"{root} holds no text: no file ends in {', '.join(SUFFIXES)} (or these with .gz).")
        other = [file for file in files if _plain(file) not in SUFFIXES and not file.name.startswith(".")]
        if other:
            log.warning(
                "%s: %d of %d files are no texts (%s) and are left out, the first %s. Give them by themselves.",
                root,
                len(other),
                len(files),
                ", ".join(SUFFIXES),
                other[0].relative_to(root),
            )
        named = [(file.relative_to(root).as_posix(), file) for file in found]
    else:
        named = [(root.name, root)]
    return [Passage(name, _title(file), _text(file), place=str(file)) for name, file in named]


def recognises(path: str | Path) -> bool:
    """Whether it is a folder of texts, or such a text."""
    root = Path(path)
    if (root / "corpus.jsonl").is_file():  # BEIR's folder, with a README beside it
        return False
    return root.is_file() or (root.is_dir() and any(_plain(file) in SUFFIXES for file in root.rglob("*")))


def write(target: Target, passages: Iterable[Passage]) -> None:
    """A text a file below the folder `target`, under the passage's id. DataError for an id that leads elsewhere."""
    if not isinstance(target, (str, Path)):
        raise DataError("a folder of texts cannot be written to a stream. Use jsonl.")
    root = Path(target)
    for passage in passages:
        file = root / (passage.id if _plain(Path(passage.id)) in SUFFIXES else f"{passage.id}.txt")
        if not file.resolve().is_relative_to(root.resolve()):
            raise DataError(f"{passage.place or passage.id}: id {passage.id!r} leads out of {root}. Use jsonl.")
        write_text(file, [passage.text])


def _plain(file: Path) -> str:
    return Path(file.name.removesuffix(".gz")).suffix.lower()


def _title(file: Path) -> str:
    return Path(file.name.removesuffix(".gz")).stem.replace("_", " ")


def _text(file: Path) -> str:
    return "".join(line for line in lines(file) if line != BOM)


FORMATS = (Format("folder", ("", *SUFFIXES), read, write, recognises),)
