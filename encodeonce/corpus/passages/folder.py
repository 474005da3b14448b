"""Plain text as passages: a folder with a text a file (.txt, .md; hidden ones apart), or one such file. Cut them with
`windows`.

A text's id is its path below the folder, its title the file's name without the ending. The text is kept as it is, so
that offsets are those of the file (read as UTF-8, a byte order mark apart).
"""

from collections.abc import Iterable
from pathlib import Path

from ...errors import DataError
from ...types import Passage
from .._files import TEXTS, Target, any_text, is_hidden, is_text, text_files, text_of, write_text
from .._format import Format

__all__ = ["FORMATS", "read", "recognises", "write"]


def read(path: str | Path) -> list[Passage]:
    """Every text in order of path; DataError naming the folder where it holds none."""
    root = Path(path)
    if root.is_dir():
        named = [(file.relative_to(root).as_posix(), file) for file in text_files(root)]
    else:
        named = [(root.name, root)]
    return [Passage(name, _title(file), text_of(file), place=str(file)) for name, file in named]


def recognises(path: str | Path) -> bool:
    """Whether it is a folder of texts, or such a text."""
    root = Path(path)
    if (root / "corpus.jsonl").is_file():  # BEIR's folder, with a README beside it
        return False
    return root.is_file() or (root.is_dir() and any_text(root))


def write(target: Target, passages: Iterable[Passage]) -> None:
    """A text a file below the folder `target`, under the passage's id. DataError for an id that leads elsewhere, or to
    a hidden file, which is not read again."""
    if not isinstance(target, (str, Path)):
        raise DataError("a folder of texts cannot be written to a stream. Use jsonl.")
    root = Path(target)
    for passage in passages:
        file = root / (passage.id if is_text(Path(passage.id)) else f"{passage.id}.txt")
        place, within = file.resolve(), root.resolve()
        if not place.is_relative_to(within):
            raise DataError(f"{passage.place or passage.id}: id {passage.id!r} leads out of {root}. Use jsonl.")
        if is_hidden(place.relative_to(within)):
            raise DataError(f"{passage.place or passage.id}: id {passage.id!r} would be a hidden file. Use jsonl.")
        write_text(file, [passage.text])


def _title(file: Path) -> str:
    return Path(file.name.removesuffix(".gz")).stem.replace("_", " ")


FORMATS = (Format("folder", ("", *TEXTS), read, write, recognises),)
