"""The right to write one file: an advisory lock on the temporary file itself, which the kernel drops with its holder.

No lock file is ever left behind, so nothing has to be judged stale. Where there is no `fcntl` (Windows), or the file
system does not lock, every writer takes a temporary name of its own: two writers may then do the same work, and the
later rename replaces a file by an equal one.
"""

import errno
import io
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from ..errors import StoreError, StoreFull
from .format import sync_folder

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["Claim", "free_bytes", "is_held", "remove_unheld", "room_for", "writable", "write_atomically"]

NO_ROOM = {errno.ENOSPC, errno.EFBIG, *([errno.EDQUOT] if hasattr(errno, "EDQUOT") else [])}

READ_ONLY = {errno.EACCES, errno.EPERM, errno.EROFS}


def lock(handle: int) -> bool | None:
    """True: locked now. False: another living process holds it. None: this file system has no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def is_held(path: Path) -> bool:
    """Whether a living process holds `path`; a file that is not there is held by nobody."""
    try:
        try:
            handle = os.open(path, os.O_RDWR)  # some network file systems lock no other
        except OSError as problem:
            if problem.errno not in READ_ONLY:
                raise
            handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return lock(handle) is False
    finally:
        os.close(handle)


def remove_unheld(path: Path) -> bool:
    """Remove a file unless a living process holds it, or may hold it because nothing here can tell, or it may only be
    read."""
    try:
        handle = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    except OSError as problem:
        if problem.errno not in READ_ONLY:
            raise
        return False
    try:
        if fcntl is not None and lock(handle) is not True:
            return False
        if fcntl is None:
            os.close(handle)
            handle = -1
        # held while it is removed: whoever claims it next sees that the path is no longer this file
        path.unlink(missing_ok=True)
    except PermissionError:  # Windows refuses to remove an open file
        return False
    finally:
        if handle >= 0:
            os.close(handle)
    return True


class Claim:
    """An open, locked temporary file. Leaving the `with` block without `publish` removes it."""

    def __init__(self, file: io.FileIO, path: Path) -> None:
        self.file, self.path = file, path

    @classmethod
    def take(cls, path: Path) -> "Claim | None":
        """Claim `path`, which may be left over from a dead process; None where a living one has it.

        Raises StoreError where the folder may only be read, StoreFull where it takes no more files.
        """
        while True:
            with writable(path.parent), room_for(path, 0, "Another file"):
                handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            locked = lock(handle)
            if locked is False:
                os.close(handle)
                return None
            if locked is None:
                os.close(handle)
                with suppress(OSError):
                    path.unlink(missing_ok=True)
                own = path.with_name(f"{path.stem}.{uuid.uuid4().hex}.tmp")
                return cls(io.FileIO(os.open(own, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666), "r+"), own)
            # the last holder may have renamed or removed the file between our open and our lock
            try:
                if os.path.samestat(os.stat(path), os.fstat(handle)):
                    return cls(io.FileIO(handle, "r+"), path)
            except FileNotFoundError:
                pass
            os.close(handle)

    def write(self, data: bytes | memoryview, position: int) -> None:
        """All of `data` at `position`."""
        self.file.seek(position)
        view = memoryview(data).cast("B")
        while view:
            view = view[self.file.write(view) :]

    def publish(self, path: Path, replace: bool = True) -> None:
        """Give the file its real name; atomic, and durable before this returns. The lock is kept until the block ends.

        With `replace` false a file that is there already stands (FileExistsError is not raised: the caller reads it).
        """
        os.fsync(self.file.fileno())
        if fcntl is None:
            self.file.close()
        if replace or not link(self.path, path):
            os.replace(self.path, path)
            self.path = path
        sync_folder(path.parent)

    def __enter__(self) -> "Claim":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.path.suffix == ".tmp":
            if fcntl is None:
                self.file.close()
            self.path.unlink(missing_ok=True)
        self.file.close()


@contextmanager
def writable(folder: Path) -> Iterator[None]:
    """Turn "permission denied" and "read-only file system" into one StoreError that says what to do."""
    try:
        yield
    except OSError as problem:
        if problem.errno not in READ_ONLY:
            raise
        raise StoreError(
            f"{folder} cannot be written to: {problem.strerror}. What is there can be read; to change it, get the "
            "right to write there, or copy it."
        ) from None


def free_bytes(path: Path) -> int:
    """Of the disk where `path` is or would be."""
    there = next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())
    return shutil.disk_usage(there).free


@contextmanager
def room_for(path: Path, nbytes: int, what: str) -> Iterator[None]:
    """Turn "no space left", "file too large" and "quota exceeded" into one StoreFull that says what to do."""
    try:
        yield
    except OSError as problem:
        if problem.errno not in NO_ROOM:
            raise
        raise StoreFull(
            f"{what} needs {nbytes:,} bytes and could not be written to {path.parent}: {problem.strerror} "
            f"({free_bytes(path):,} bytes free). Nothing unfinished was kept; what was finished "
            "before is whole. Free space (or raise the limit of file size or number) and run the same again: it goes "
            "on from here."
        ) from None


def link(source: Path, target: Path) -> bool:
    """A second name for a file, never taking the name of another one; False where the file system has no such thing."""
    try:
        os.link(source, target)
    except FileExistsError:
        return True
    except OSError:
        return False
    return True


def write_atomically(path: Path, data: bytes, replace: bool = True) -> None:
    """`path` holds all of `data` or is not there, whenever the process or the machine stops.

    With `replace` false, a file that is there already stays.
    """
    claim = Claim.take(path.with_name(path.name + ".tmp"))
    while claim is None:
        claim = Claim.take(path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp"))
    with claim, room_for(path, len(data), path.name):
        claim.file.truncate(0)
        claim.write(data, 0)
        claim.publish(path, replace)
