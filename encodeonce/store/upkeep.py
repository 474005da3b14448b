"""What a store holds, whether it is whole, and what may go.

Axes: L stored layers
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from ..errors import CorruptStore, StoreError
from .claim import Claim, is_held, remove_unheld
from .format import NAME, Manifest, manifest_names
from .opening import read_spec
from .reader import Store
from .shard import NEXT_STEP, Shard
from .writer import is_finished

__all__ = ["gc", "info", "ls", "verify"]

PathLike = str | os.PathLike[str]


def ls(path: PathLike) -> list[dict[str, Any]]:
    """One dict a finished shard: name, items, rows, bytes (of data and manifest)."""
    folder, spec = existing(path)
    lines = []
    for name in manifest_names(folder):
        manifest = Manifest.read(folder, name, spec)
        size = sum(file.stat().st_size for file in files_of(folder, name))
        lines.append({"name": name, "items": manifest.items, "rows": manifest.rows, "bytes": size})
    return lines


def info(path: PathLike) -> dict[str, Any]:
    """What `store info` shows. `bytes` is everything in the folder, `unfinished` the leftovers `gc` would remove."""
    store = Store.open(path, verify="never")
    shards, spec = ls(path), store.spec
    rows = sum(shard["rows"] for shard in shards)
    nbytes = sum(file.stat().st_size for file in store.path.iterdir() if file.is_file())
    return {
        "path": str(store.path),
        "items": len(store),
        "rows": rows,
        "bytes": nbytes,
        "bytes_per_row": sum(shard["bytes"] for shard in shards) / rows if rows else None,
        "layers": list(spec.layers),
        "width": spec.width,
        "dtype": spec.dtype,
        "encoder": spec.encoder,
        "spec": spec.to_json(),
        "shards": len(shards),
        "unfinished": [file.name for file in leftovers(store.path)],
    }


def verify(path: PathLike) -> list[str]:
    """Hash everything; one line for each sound shard. Raises CorruptStore naming every damaged file and item."""
    folder, spec = existing(path)
    sound, damaged = [], []
    for name in manifest_names(folder):
        try:
            shard = Shard(folder, name, spec)
            problems = damage(shard)
        except CorruptStore as problem:
            damaged.append(str(problem))
            continue
        damaged += problems
        if not problems:
            sound.append(f"{name}: {len(shard)} items, {shard.manifest.rows} rows, {shard.manifest.bytes} bytes")
    if damaged:
        raise CorruptStore("\n".join(damaged))
    return sound


def damage(shard: Shard) -> list[str]:
    """What is wrong with the bytes of an opened shard."""
    state = xxhash.xxh3_128()
    with shard.path.open("rb") as file:
        while block := file.read(1 << 20):
            state.update(block)
    if state.hexdigest() == shard.manifest.xxh3_128:
        return []
    L = len(shard.spec.layers)
    wrong = [(item, shard.bad_layers(item, range(L + 1))) for item in range(len(shard))]
    named = [shard.describe(item, layers) for item, layers in wrong if layers]
    shard.unmap()
    if len(named) == len(shard) > 1 and shard.spec.dtype == "int8":
        named = ["every item (channel_rms)"]
    where = "; ".join(named) if named else "no item's own bytes"
    return [f"{shard.path} was changed after it was written: {where}. {NEXT_STEP}"]


def gc(path: PathLike, *, max_bytes: int | None = None, dry_run: bool = False) -> list[str]:
    """Remove what nobody reads; returns the names of the files removed (or, with `dry_run`, that would be).

    That is: temporary files and data without a manifest whose writer is dead, and shards whose items all are in others.
    With `max_bytes`, whole shards go too, the oldest first, until the rest takes no more than that.
    """
    folder, spec = existing(path)
    shards = [Shard(folder, name, spec) for name in manifest_names(folder)]
    dead = leftovers(folder)
    twins = duplicates(shards)
    gone = [file for shard in twins for file in files_of(folder, shard.manifest.name)]
    if max_bytes is not None:
        kept = [shard for shard in shards if shard not in twins]
        size = sum(file.stat().st_size for shard in kept for file in files_of(folder, shard.manifest.name))
        for shard in sorted(kept, key=lambda shard: (age(folder, shard), shard.manifest.name)):
            if size <= max_bytes:
                break
            files = files_of(folder, shard.manifest.name)
            size -= sum(file.stat().st_size for file in files)
            gone += files
    if not dry_run:
        dead = [file for file in dead if removed(file)]
        for file in gone:
            file.unlink(missing_ok=True)
    return [file.name for file in [*dead, *gone]]


def age(folder: Path, shard: Shard) -> int:
    """When the shard was finished, in nanoseconds of the file system's clock."""
    return (folder / f"{shard.manifest.name}.json").stat().st_mtime_ns


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


def duplicates(shards: list[Shard]) -> list[Shard]:
    """Shards all of whose items are in shards that stay; the smallest are looked at first."""
    counts: dict[bytes, int] = {}
    for shard in shards:
        for key in keys_of(shard):
            counts[key] = counts.get(key, 0) + 1
    gone = []
    for shard in sorted(shards, key=lambda shard: (len(shard), shard.manifest.name)):
        if all(counts[key] > 1 for key in keys_of(shard)):
            gone.append(shard)
            for key in keys_of(shard):
                counts[key] -= 1
    return gone


def keys_of(shard: Shard) -> Iterator[bytes]:
    """The keys of a shard as bytes."""
    return (key.tobytes() for key in np.unique(shard.keys, axis=0))


def files_of(folder: Path, name: str) -> list[Path]:
    """Manifest, then data: in this order they are removed, so that a half removed shard is an unfinished one."""
    return [folder / f"{name}.json", folder / f"{name}.safetensors"]


def existing(path: PathLike) -> tuple[Path, Any]:
    """Folder and Spec of a store; StoreError where there is none."""
    folder = Path(path)
    if not (folder / "store.json").exists():
        raise StoreError(f"There is no store at {folder}. Encode a corpus first.")
    return folder, read_spec(folder)
