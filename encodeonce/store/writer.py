"""Filling a store: plan shards, claim each, encode what is missing, make it visible at once.

A shard becomes visible in three steps: its data under a temporary name, fsync and rename, then its manifest in the
same way. Killed anywhere, a writer leaves at most a temporary file, or data without a manifest, which nobody reads.

Shards are planned greedily over the missing items in their given order, and a shard closes with the item that fills it.
So its bounds follow from its own items alone, and whoever resumes plans the same shards under the same names.

Axes: N items of a shard   R their rows   T rows of one item   L stored layers   D width
"""

import errno
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
import xxhash
from jaxtyping import Float
from torch import Tensor

from ..costs import item_bytes
from ..errors import ConfigError, StoreError, StoreFull
from ..types import Document, Spec
from .claim import Claim, free_bytes, is_held, room_for, write_atomically
from .format import Layout, Manifest, file_sizes, is_finished, key_bytes, shard_name, usual_shard
from .leftovers import leftovers
from .opening import nothing_yet
from .quantise import CALIBRATION_ROWS, calibrate, refuse_non_finite, stored_bytes
from .shard import Shard

__all__ = [
    "Described",
    "FillReport",
    "Item",
    "Job",
    "Source",
    "Uncoded",
    "check_room",
    "fill_shards",
    "plan",
    "runs_of",
]

log = logging.getLogger("encodeonce")

Progress = Callable[[int, int], None]
"""`progress(rows done, rows in all)`, called after every item."""


@runtime_checkable
class Uncoded(Protocol):
    """A document cut into T rows: `types.Pieces`, or `types.Texts` where a row is more than a piece."""

    @property
    def key(self) -> str: ...
    @property
    def word(self) -> np.ndarray: ...
    @property
    def n_windowed(self) -> int: ...
    @property
    def n_unknown(self) -> int: ...
    def __len__(self) -> int: ...


@runtime_checkable
class Source(Protocol):
    """What `fill` needs of an encoder. One that is `Described` too is held against the store's Spec."""

    def cut(self, documents: Sequence[Document]) -> Sequence[Uncoded]:
        """One a document, in order; the tokenizer's work only."""

    def encode(self, pieces: Sequence[Any], layers: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
        """`(position in pieces, fp32 [L, T, D])` once for each position, in any order; `pieces` are of `cut`."""


@runtime_checkable
class Described(Protocol):
    """A source that says what its vectors are of."""

    def spec(self, layers: Sequence[int], dtype: str) -> Spec:
        """The Spec of a store of these layers that it fills."""


@dataclass(frozen=True, slots=True)
class FillReport:
    """What one `fill` did, in items unless said otherwise. `asked = hits + duplicates + written + elsewhere`."""

    asked: int
    hits: int
    duplicates: int
    written: int
    elsewhere: int
    rows: int
    bytes: int
    shards: int
    windowed: int
    unknown_words: int
    """`elsewhere`: done by another writer meanwhile, or left to another part. `windowed`: written items (texts, where a
    row is one) longer than the encoder's window. `unknown_words`: words of written items without a piece of their own.
    """


@dataclass(frozen=True, slots=True)
class Item:
    """One missing document, cut: its position in the caller's list and the name errors call it by."""

    where: str
    pieces: Uncoded


@dataclass(frozen=True, slots=True)
class Job:
    """One shard to be written."""

    name: str
    keys: np.ndarray
    items: tuple[Item, ...]

    @classmethod
    def of(cls, items: Sequence[Item]) -> "Job":
        keys = key_bytes([item.pieces.key for item in items])
        return cls(shard_name(keys), keys, tuple(items))

    @property
    def rows(self) -> int:
        return sum(len(item.pieces) for item in self.items)


def plan(lengths: Sequence[int], spec: Spec, shard_bytes: int) -> list[range]:
    """Cut items of these lengths [rows] into runs; a run closes with the item that brings it to `shard_bytes`."""
    runs, start, size = [], 0, 0
    for position, rows in enumerate(lengths):
        size += item_bytes(spec, rows)
        if size >= shard_bytes:
            runs.append(range(start, position + 1))
            start, size = position + 1, 0
    if start < len(lengths):
        runs.append(range(start, len(lengths)))
    return runs


def runs_of(part: tuple[int, int], lengths: Sequence[int], spec: Spec, shard_bytes: int | None = None) -> list[range]:
    """Of the runs that items of these lengths [rows] make, stored or not, those that part (i, n) of a filling writes:
    every n-th, from the i-th. `shard_bytes` is the usual size where it is not given."""
    index, count = part
    return plan(lengths, spec, usual_shard(spec) if shard_bytes is None else shard_bytes)[index::count]


def check_room(folder: Path, items: int, rows: int, needed: int, max_bytes: int | None) -> None:
    """StoreFull where so many items and rows, `needed` bytes on disk, pass the cap of the store or the disk's room.

    The store need not exist yet. What dead writers left in it makes room: a fill removes it first.
    """
    sizes = file_sizes(folder) if folder.is_dir() else {}
    dead = sum(sizes.pop(file.name, 0) for file in leftovers(folder)) if sizes else 0
    held = sum(sizes.values())
    what = f"{items:,} items ({rows:,} rows) need {needed:,} bytes"
    if max_bytes is not None and held + needed > max_bytes:
        raise StoreFull(
            f"{folder}: {what} beside the {held:,} stored, over max_bytes={max_bytes:,} (--max-gb). Raise it, or store "
            f"less: fewer items, fewer layers, or dtype='int8'. Nothing was written.{nothing_yet(folder)}"
        )
    free = free_bytes(folder) + dead
    if needed > free:
        raise StoreFull(
            f"{folder}: {what}; the disk has {free:,} free. Free space, or store less: fewer items, fewer layers, or "
            f"dtype='int8'. Nothing was written.{nothing_yet(folder)}"
        )


def fill_shards(
    folder: Path, spec: Spec, jobs: Sequence[Job], source: Source, progress: Callable[[int, int], None] | None
) -> tuple[list[Job], int]:
    """Write every job that no other writer finishes first; returns those written here and their bytes on disk.

    A shard that a living writer has is left for later; when it dies, its lock is gone and the shard is written here.
    """
    pending, written, nbytes = list(jobs), [], 0
    meter = Meter(progress, sum(job.rows for job in jobs))
    pause = 0.02
    while pending:
        busy = []
        for job in pending:
            if not is_finished(folder, job.name):
                claim = Claim.take(folder / f"{job.name}.safetensors.tmp")
                if claim is None:
                    busy.append(job)
                    continue
                with claim:
                    # asked under the claim: between its shard and its manifest a writer has no temporary file any more
                    if is_held(folder / f"{job.name}.safetensors"):
                        busy.append(job)
                        continue
                    if not is_finished(folder, job.name):
                        nbytes += ShardWriter(folder, spec, job, claim).write(source, meter)
                        written.append(job)
                        pause = 0.02
                        continue
            meter.add(job.rows)
        if len(busy) == len(pending):
            time.sleep(pause)
            pause = min(2 * pause, 1.0)
        pending = busy
    return written, nbytes


class Meter:
    """Counts rows for `progress`."""

    def __init__(self, progress: Callable[[int, int], None] | None, total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0

    def add(self, rows: int) -> None:
        self.done += rows
        if self.progress is not None:
            self.progress(self.done, self.total)


class ShardWriter:
    """One claimed shard. All sizes are known from the pieces, so every item is written to its place as it comes."""

    def __init__(self, folder: Path, spec: Spec, job: Job, claim: Claim) -> None:
        self.folder, self.spec, self.job, self.claim = folder, spec, job, claim
        self.offsets = np.concatenate([[0], np.cumsum([len(item.pieces) for item in job.items])]).astype(np.int64)
        self.layout = Layout.of(spec, len(job.items), job.rows)
        self.hashes = np.zeros((len(job.items), len(spec.layers) + 1), np.uint64)
        self.rms: Float[Tensor, "L D"] | None = None
        self.seed = 0

    def write(self, source: Source, meter: Meter) -> int:
        """Encode, write, publish; returns the bytes of the shard and its manifest."""
        self.begin()
        for position, states in self.encoded(source):
            self.put(position, states)
            meter.add(len(self.job.items[position].pieces))
        return self.finish()

    def begin(self) -> None:
        """Take the room."""
        with self.room():
            self.claim.file.truncate(0)
            reserve(self.claim.file.fileno(), self.layout.size)

    def copy(self, position: int, shard: Shard, item: int) -> None:
        """One item's bytes from another shard of this Spec, checked and not decoded; `rms` and `seed` must be its."""
        L = len(self.spec.layers)
        shard.check(item, range(L + 1))
        mapping, (start, stop) = shard.mapping(), shard.record(item)
        first = int(self.offsets[position]) * L
        width = mapping.states.itemsize * self.spec.width
        with self.room():
            self.claim.write(mapping.states[start:stop].data, self.layout.arrays["states"].start + first * width)
            if mapping.scales is not None:
                self.claim.write(mapping.scales[start:stop].data, self.layout.arrays["scales"].start + 2 * first)
        self.hashes[position, :L] = shard.hashes[item, :L]

    def finish(self) -> int:
        """Write the index, publish data and manifest; returns their bytes."""
        data = self.folder / f"{self.job.name}.safetensors"
        with self.room():
            self.put_index()
            digest = self.digest()
            self.claim.publish(data)
        spec, n = self.spec, len(self.job.items)
        manifest = Manifest(
            self.job.name, n, self.job.rows, spec.layers, spec.width, spec.dtype, self.layout.size, digest
        ).to_bytes()
        try:
            write_atomically(self.folder / f"{self.job.name}.json", manifest)
        except BaseException:
            if not is_finished(self.folder, self.job.name):  # where nothing is locked, another may have finished it
                data.unlink(missing_ok=True)
            raise
        log.debug("wrote shard %s: %d items, %d rows, %d bytes", self.job.name, n, self.job.rows, self.layout.size)
        return self.layout.size + len(manifest)

    def room(self) -> AbstractContextManager[None]:
        """StoreFull, naming this shard, where the disk refuses."""
        path = self.folder / f"{self.job.name}.safetensors"
        return room_for(path, self.layout.size, f"A shard of {len(self.job.items):,} items")

    def encoded(self, source: Source) -> Iterator[tuple[int, Float[Tensor, "L T D"]]]:
        """Every item of the shard once, checked. For int8 the first rows come first: they set the channel scales."""
        if self.spec.dtype == "int8":
            first = int(np.searchsorted(self.offsets[1:], CALIBRATION_ROWS)) + 1
            head = sorted(self.part(source, range(min(first, len(self.job.items)))), key=lambda pair: pair[0])
            self.rms = calibrate([states for _, states in head])
            self.seed = xxhash.xxh3_64_intdigest(self.rms.numpy().tobytes())
            yield from head
            rest = range(len(head), len(self.job.items))
        else:
            rest = range(len(self.job.items))
        if rest:
            yield from self.part(source, rest)

    def part(self, source: Source, positions: range) -> Iterator[tuple[int, Float[Tensor, "L T D"]]]:
        """Encode a run of items; StoreError where the source gives something else than one array an item."""
        items = [self.job.items[position] for position in positions]
        missing = set(positions)
        for k, states in source.encode([item.pieces for item in items], self.spec.layers):
            if not 0 <= k < len(items):
                raise StoreError(f"the encoder gave position {k} for {len(items)} items.")
            position, item = positions[k], items[k]
            due = (len(self.spec.layers), len(item.pieces), self.spec.width)
            if states.shape != due or states.dtype != np.float32 or position not in missing:
                raise StoreError(
                    f"{item.where}: the encoder gave {states.dtype} {states.shape}; it must give float32 {due}, once."
                )
            missing.remove(position)
            block = torch.from_numpy(np.ascontiguousarray(states))
            refuse_non_finite(block, self.spec.dtype, self.spec.layers, item.where)
            yield position, block
        if missing:
            raise StoreError(
                f"{self.job.items[min(missing)].where}: the encoder gave nothing for {len(missing)} items."
            )

    def put(self, position: int, states: Float[Tensor, "L T D"]) -> None:
        """One item to its place, with its hashes."""
        values, scales = stored_bytes(states, self.spec.dtype, self.rms, self.job.items[position].where)
        first = int(self.offsets[position]) * len(self.spec.layers)
        rows = first * (values.shape[1] // states.shape[1])
        with self.room():
            self.claim.write(values.data, self.layout.arrays["states"].start + rows)
            if scales is not None:
                self.claim.write(scales.data, self.layout.arrays["scales"].start + 2 * first)
        for layer in range(len(values)):
            digest = xxhash.xxh3_64_intdigest(values[layer].data, seed=self.seed)
            if scales is not None:
                digest = xxhash.xxh3_64_intdigest(scales[layer].data, seed=digest)
            self.hashes[position, layer] = digest

    def put_index(self) -> None:
        """Everything but the states, the header last."""
        words = [np.ascontiguousarray(item.pieces.word, np.int32) for item in self.job.items]
        self.hashes[:, -1] = [xxhash.xxh3_64_intdigest(word.tobytes()) for word in words]
        arrays = {
            "offsets": self.offsets,
            "xxh3": self.hashes,
            "keys": self.job.keys,
            "word": np.concatenate(words),
            **({} if self.rms is None else {"channel_rms": self.rms.numpy()}),
        }
        for name, values in arrays.items():
            place = self.layout.arrays[name]
            assert values.nbytes == place.nbytes
            self.claim.write(values.tobytes(), place.start)
        self.claim.write(self.layout.header, 0)

    def digest(self) -> str:
        """xxh3_128 of the whole file, read back."""
        state, block = xxhash.xxh3_128(), bytearray(1 << 20)
        self.claim.file.seek(0)
        while count := self.claim.file.readinto(block):
            state.update(memoryview(block)[:count])
        return str(state.hexdigest())


def reserve(handle: int, size: int) -> None:
    """Ask for the whole file at once: a full disk is found before the encoder runs, and the file lies in one piece."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(handle, 0, size)
            return
        except OSError as problem:
            if problem.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise
    os.ftruncate(handle, size)


def check_part(part: tuple[int, int]) -> None:
    """ConfigError unless `part` is (index, count) with 0 <= index < count."""
    index, count = part
    if not 0 <= index < count:
        raise ConfigError(f"part={part} must be (index, count) with 0 <= index < count, e.g. (0, 4) ... (3, 4).")


def cut_items(documents: Iterable[Document], source: Source, unit: str) -> list[Item]:
    """Cut documents; StoreError where the cutter loses one, gives another key than this unit's, or gives no rows."""
    documents = list(documents)
    cut = source.cut(documents)
    if len(cut) != len(documents):
        raise StoreError(f"cut gave {len(cut)} Pieces for {len(documents)} documents.")
    items = []
    for document, pieces in zip(documents, cut, strict=True):
        key = document.key_in(unit)
        where = f"{document.place or document.id} (item {key[:12]})"
        if pieces.key != key:
            raise StoreError(
                f"{where}: cut gave the key {pieces.key!r}; it must be the document's own, as an item of a store whose "
                f"rows are {unit}s: {key!r}."
            )
        if len(pieces) == 0 or len(pieces.word) != len(pieces):
            raise StoreError(
                f"{where}: cut gave {len(pieces)} ids and {len(pieces.word)} words; it needs at least one row."
            )
        items.append(Item(where, pieces))
    return items
