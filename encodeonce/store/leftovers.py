"""What dead writers left in a store, and taking anything out of one.

Nothing here removes what a living writer holds.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import StoreError
from .claim import Claim, is_held, remove_unheld, writable
from .format import NAME, is_finished, manifest_names

__all__ = ["files_of", "leftovers", "remove", "removed", "removing"]


def leftovers(folder: Path) -> list[Path]:
    """Temporary files and data without a manifest that no living writer holds."""
    finished = set(manifest_names(folder))
    held, found = set(), []
    for file in sorted(folder.iterdir()):
        name = file.name.split(".")[0]
        if file.suffix == ".tmp" and is_held(file):
            held.add(name)
        elif file.suffix == ".tmp" and (NAME.fullmatch(name) or name == "store"):
            found.append(file)
    for file in sorted(folder.glob("*.safetensors")):
        unfinished = NAME.fullmatch(file.stem) and file.stem not in finished and file.stem not in held
        # whether it is finished is asked once more, last: a writer lets go of its data when the manifest is there
        if unfinished and not is_held(file) and not is_finished(folder, file.stem):
            found.append(file)
    return found


def removed(leftover: Path) -> bool:
    """Remove a leftover, unless a writer took up its shard after it was found."""
    if leftover.suffix == ".tmp":
        return remove_unheld(leftover)
    claim = Claim.take(leftover.with_name(f"{leftover.name}.tmp"))
    if claim is None:
        return False
    with claim:  # nobody begins the shard meanwhile
        return not is_finished(leftover.parent, leftover.stem) and remove_unheld(leftover)


def files_of(folder: Path, name: str) -> list[Path]:
    """Manifest, then data: in this order they are removed, so that a half removed shard is an unfinished one."""
    return [folder / f"{name}.json", folder / f"{name}.safetensors"]


def remove(files: Iterable[Path]) -> None:
    """Remove files of finished shards. StoreError where they may only be read."""
    for file in files:
        with writable(file.parent):
            file.unlink(missing_ok=True)


@contextmanager
def removing(folder: Path) -> Iterator[None]:
    """One process at a time takes finished shards out of a store: of two, each could remove the copy of an item that
    the other leaves. StoreError while another one does."""
    claim = Claim.take(folder / "store.removal.tmp")
    if claim is None:
        raise StoreError(f"{folder}: another process is removing items from it. Run this again when it is done.")
    with claim:
        yield
