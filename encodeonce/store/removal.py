"""Taking items out of a store that nobody asks for any more, without encoding anything again.

A shard whose items all stay is not touched. One whose items all go is removed. Of any other, the bytes of the items
that stay are copied into a new shard, as they are (int8 too), and then the old one is removed: killed in between, the
store holds some items twice, which readers and `gc` are used to.
"""

from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import ConfigError, StoreError
from .claim import Claim
from .format import finished, is_finished, key_bytes, manifest_names
from .leftovers import files_of, remove, removing
from .shard import Shard
from .upkeep import PathLike, existing
from .writer import Item, Job, ShardWriter

__all__ = ["Removal", "keep_only"]


@dataclass(frozen=True, slots=True)
class Removal:
    """What went: `items` and the `bytes` they freed; `waiting` items are unwanted too, but their shards hold too few of
    them to be rewritten. `removed` and `rewritten` shards."""

    items: int
    bytes: int
    waiting: int
    removed: int
    rewritten: int


def keep_only(path: PathLike, keys: Collection[str], *, slack: float = 0.0, dry_run: bool = False) -> Removal:
    """Remove every item whose key is not in `keys`.

    A shard is rewritten only where more than the share `slack` of its rows is unwanted (0: wherever there is one).
    Raises CorruptStore where a shard to be rewritten is damaged, StoreError while another writer works on one, or
    another process removes something.
    """
    if not 0 <= slack <= 1:
        raise ConfigError(f"slack={slack} must lie between 0 (rewrite every shard with a hole) and 1 (none).")
    folder, spec = existing(path)
    wanted = {row.tobytes() for row in key_bytes(list(keys))}
    items = nbytes = waiting = removed = rewritten = 0
    with nullcontext() if dry_run else removing(folder):
        for shard in finished(folder, manifest_names(folder), lambda name: Shard(folder, name, spec)):
            stays = np.array([row.tobytes() in wanted for row in shard.keys], bool)
            gone = int((~stays).sum())
            if not gone:
                continue
            if stays.any() and shard.lengths[~stays].sum() <= slack * shard.manifest.rows:
                waiting += gone
                continue
            before = shard.manifest.on_disk
            after = 0
            if stays.any():
                after = _share(before, shard, stays) if dry_run else _copied(folder, shard, np.flatnonzero(stays))
                rewritten += 1
            else:
                removed += 1
            shard.unmap()
            if not dry_run:
                remove(files_of(folder, shard.manifest.name))
            items, nbytes = items + gone, nbytes + before - after
    return Removal(items, nbytes, waiting, removed, rewritten)


@dataclass(frozen=True, slots=True)
class Held:
    """An item that is stored already, as a writer needs it."""

    key: str
    word: np.ndarray
    n_windowed: int = 0
    n_unknown: int = 0

    def __len__(self) -> int:
        return len(self.word)


def _share(size: int, shard: Shard, stays: np.ndarray) -> int:
    return int(size * shard.lengths[stays].sum() / shard.manifest.rows)


def _copied(folder: Path, shard: Shard, chosen: np.ndarray) -> int:
    """Write a shard of these items; returns its bytes."""
    mapping, offsets = shard.mapping(), shard.offsets
    words = [np.array(mapping.word[offsets[item] : offsets[item + 1]], np.int32) for item in chosen]
    held = [Held(shard.keys[item].tobytes().hex(), word) for item, word in zip(chosen, words, strict=True)]
    job = Job.of([Item(f"item {one.key[:12]}", one) for one in held])
    if not is_finished(folder, job.name):
        claim = Claim.take(folder / f"{job.name}.safetensors.tmp")
        if claim is None:
            raise StoreError(f"{folder}: another process is writing shard {job.name}. Run this again when it is done.")
        with claim:
            writer = ShardWriter(folder, shard.spec, job, claim)
            writer.rms, writer.seed = mapping.rms, mapping.seed
            writer.begin()
            for position, item in enumerate(chosen.tolist()):
                writer.copy(position, shard, item)
            writer.finish()
    return sum(file.stat().st_size for file in files_of(folder, job.name))
