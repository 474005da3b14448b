"""What a store holds, whether it is whole, and what may go.

Axes: L stored layers
"""

import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from ..errors import CorruptStore, StoreError
from .format import Manifest, file_sizes, finished, is_finished, manifest_names
from .leftovers import files_of, leftovers, remove, removed, removing
from .opening import read_spec
from .reader import Store
from .shard import NEXT_STEP, Shard

__all__ = ["gc", "info", "ls", "verify"]

PathLike = str | os.PathLike[str]


def ls(path: PathLike) -> list[dict[str, Any]]:
    """One dict a finished shard: name, items, rows, bytes (of data and manifest)."""
    folder, spec = existing(path)
    return [
        {"name": one.name, "items": one.items, "rows": one.rows, "bytes": one.on_disk}
        for one in finished(folder, manifest_names(folder), lambda name: Manifest.read(folder, name, spec))
    ]


def info(path: PathLike) -> dict[str, Any]:
    """What `store info` shows. `bytes` is everything in the folder, `unfinished` the leftovers `gc` would remove."""
    shards = ls(path)
    store = Store.open(path, verify="never")
    spec = store.spec
    rows = sum(shard["rows"] for shard in shards)
    return {
        "path": str(store.path),
        "items": len(store),
        "rows": rows,
        "bytes": sum(file_sizes(store.path).values()),
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
        except (CorruptStore, FileNotFoundError) as problem:
            problems = [str(problem)]
        if not problems:
            sound.append(f"{name}: {len(shard)} items, {shard.manifest.rows} rows, {shard.manifest.bytes} bytes")
        elif is_finished(folder, name):  # else it was removed meanwhile, its manifest first
            damaged += problems
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
    With `max_bytes`, whole shards go too, the oldest first, until the rest takes no more than that. Raises StoreError
    where the store may only be read, and while another process removes something.
    """
    folder, spec = existing(path)
    dead = leftovers(folder)
    with nullcontext() if dry_run else removing(folder):
        shards = list(finished(folder, manifest_names(folder), lambda name: Shard(folder, name, spec)))
        gone = duplicates(shards)
        if max_bytes is not None:
            gone += beyond(folder, [shard for shard in shards if shard not in gone], max_bytes)
        files = [file for shard in gone for file in files_of(folder, shard.manifest.name)]
        if not dry_run:
            dead = [file for file in dead if removed(file)]
            remove(files)
    return [file.name for file in [*dead, *files]]


def beyond(folder: Path, shards: list[Shard], max_bytes: int) -> list[Shard]:
    """The oldest of these shards, until the rest takes no more than `max_bytes`."""
    size, gone = sum(shard.manifest.on_disk for shard in shards), []
    for shard in sorted(shards, key=lambda shard: (age(folder, shard), shard.manifest.name)):
        if size <= max_bytes:
            break
        size -= shard.manifest.on_disk
        gone.append(shard)
    return gone


def age(folder: Path, shard: Shard) -> int:
    """When the shard was finished, in nanoseconds of the file system's clock."""
    return (folder / f"{shard.manifest.name}.json").stat().st_mtime_ns


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


def existing(path: PathLike) -> tuple[Path, Any]:
    """Folder and Spec of a store; StoreError where there is none."""
    folder = Path(path)
    if not (folder / "store.json").exists():
        raise StoreError(f"There is no store at {folder}. Encode a corpus first.")
    return folder, read_spec(folder)
