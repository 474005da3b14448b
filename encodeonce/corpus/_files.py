"""Lines in, lines out: UTF-8 whatever the locale, .gz seen through, byte order mark apart, "\\n" the only line end.

Never `str.splitlines`: U+2028, U+0085 and their like are characters of a word here, not line ends.
"""

import gzip
import logging
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from tempfile import NamedTemporaryFile

from ..errors import DataError

__all__ = [
    "BOM",
    "TEXTS",
    "Target",
    "any_text",
    "body",
    "ending",
    "is_hidden",
    "is_text",
    "lines",
    "numbered",
    "stem",
    "text_files",
    "text_of",
    "write_text",
]

log = logging.getLogger("encodeonce")

BOM = "\ufeff"
UTF16 = (b"\xff\xfe", b"\xfe\xff")
"""How a file of UTF-16 begins."""

TEXTS = (".txt", ".text", ".md")
"""Files that hold one running text; ".gz" may follow."""

Target = str | Path | BufferedIOBase
"""Where to write: a path, or an open binary stream such as `sys.stdout.buffer`."""


def lines(path: str | Path) -> Iterator[str]:
    """Each line with its line end. A byte order mark comes alone, as a first line that is not counted.

    Raises DataError with file:line for bytes that are not UTF-8, and naming the path for a file that is not there.
    """
    with _opened(path) as stream:
        for number, raw in enumerate(stream, 1):
            try:
                line = raw.decode("utf-8")
            except UnicodeDecodeError as problem:
                raise DataError(
                    f"{path}:{number}:{problem.start + 1}: byte 0x{raw[problem.start]:02x} is not UTF-8. Convert the "
                    f"file, for instance with: iconv -f {'utf-16' if raw[:2] in UTF16 else 'latin1'} -t utf-8."
                ) from None
            if number == 1 and line.startswith(BOM):
                yield BOM
                line = line[1:]
                if not line:
                    continue
            yield line


def numbered(path: str | Path) -> Iterator[tuple[int, str]]:
    """Each of `lines` with its number; a byte order mark has 0."""
    number = 0
    for line in lines(path):
        number += line != BOM
        yield number, line


def ending(path: str | Path) -> str:
    """The suffix that says a file's format, in lower case, ".gz" apart; "" for none."""
    return Path(str(path).removesuffix(".gz")).suffix.lower()


def is_text(path: Path) -> bool:
    """Whether a path ends as a file of one running text does."""
    return ending(path) in TEXTS


def is_hidden(path: Path) -> bool:
    """Whether a part of a path, counted from the folder that is read, begins with a dot: .git, .ipynb_checkpoints."""
    return any(part.startswith(".") for part in path.parts)


def any_text(folder: Path) -> bool:
    """Whether there is such a file below a folder that is not hidden."""
    return any(is_text(file) and not is_hidden(file.relative_to(folder)) for file in folder.rglob("*"))


def text_files(folder: Path) -> list[Path]:
    """Every such file below a folder, in order of path, hidden ones apart; these and files of another kind are counted
    in a warning.

    DataError naming the folder where it holds none, and for a path whose bytes are not UTF-8: it names the text.
    """
    every = sorted(file for file in folder.rglob("*") if file.is_file())
    files = [file for file in every if not is_hidden(file.relative_to(folder))]
    found = [file for file in files if is_text(file)]
    hidden = sum(map(is_text, every)) - len(found)
    if not found:
        also = f"; {hidden} hidden ones (a part of the path begins with a dot) are not read" if hidden else ""
        raise DataError(f"{folder} holds no text: no file ends in {', '.join(TEXTS)} (or these with .gz){also}.")
    for file in found:
        if not _is_utf8(name := str(file.relative_to(folder))):
            raise DataError(
                f"{folder}: the file name {os.fsencode(name)!r} is not UTF-8, and texts are named by "
                "it. Rename the file."
            )
    if hidden:
        log.warning("%s: %d hidden texts (a part of the path begins with a dot) are left out", folder, hidden)
    other = [file for file in files if not is_text(file)]
    if other:
        log.warning(
            "%s: %d of %d files are no texts (%s) and are left out, the first %s. Give them by themselves.",
            folder,
            len(other),
            len(files),
            ", ".join(TEXTS),
            other[0].relative_to(folder),
        )
    return found


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def text_of(path: Path) -> str:
    """A file as it is, a byte order mark apart."""
    return "".join(line for line in lines(path) if line != BOM)


@contextmanager
def _opened(path: str | Path) -> Iterator[Iterable[bytes]]:
    """The file's bytes, decompressed. Reading errors become DataErrors that name the path."""
    try:
        with open(path, "rb") as plain:
            packed = plain.peek(2)[:2] == b"\x1f\x8b"
            if packed:
                with gzip.open(plain) as stream:
                    yield stream
            else:
                yield plain
    except FileNotFoundError:
        raise DataError(f"There is no file {path}.") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as problem:
        raise DataError(f"{path} is a damaged gzip file: {problem}.") from None
    except OSError as problem:
        raise DataError(f"{path} cannot be read: {problem.strerror or problem}.") from None


def body(line: str) -> str:
    """A line without its line end; `line[len(body(line)):]` is the line end."""
    return line.rstrip("\r\n")


def stem(path: str | Path) -> str:
    """The file's name without .gz and its format's suffix: names the items of a file that names none."""
    return Path(Path(path).name.removesuffix(".gz")).stem


def write_text(target: Target, chunks: Iterable[str]) -> None:
    """Write UTF-8, exactly as given; gzip for a path that ends in .gz.

    A path is written under a temporary name and renamed when complete: a reader never sees half a file, and the source
    of what is written may be the target itself.
    """
    if not isinstance(target, (str, Path)):
        for chunk in chunks:
            target.write(chunk.encode("utf-8"))
        return
    path = Path(target)
    if path.exists() and not path.is_file():  # a pipe or a device is written, not replaced
        with open(path, "wb") as stream:
            stream.writelines(chunk.encode("utf-8") for chunk in chunks)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = NamedTemporaryFile("wb", dir=path.parent, prefix=f".{path.name[:100]}.", delete=False)  # noqa: SIM115
    try:
        with raw:
            if path.suffix == ".gz":
                with gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed:
                    packed.writelines(chunk.encode("utf-8") for chunk in chunks)
            else:
                raw.writelines(chunk.encode("utf-8") for chunk in chunks)
        os.chmod(raw.name, _mode(path))
        os.replace(raw.name, path)  # closed by now: Windows renames no open file
    except BaseException:
        Path(raw.name).unlink(missing_ok=True)
        raise


def _mode(path: Path) -> int:
    """The permissions the file has, or that a new one would get."""
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
