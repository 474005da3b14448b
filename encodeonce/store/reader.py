"""The store: keyed, memory-mapped, never half written.

Axes: L read layers   P rows of a packed batch   T rows of one item   D width   N items   B items of a batch
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ..errors import ConfigError, NonFinite, NotStored, StoreError
from ..nn.packed import Packed
from ..types import Document, Encoding, Spec
from .format import estimate, finished, key_bytes, manifest_names, shard_size, usual_shard
from .leftovers import leftovers, removed
from .lookup import Lookup
from .opening import compare, create, read_spec, refuse_other_content
from .quantise import TORCH
from .shard import Mapping, Shard
from .writer import Described, FillReport, Item, Job, Source, check_part, check_room, cut_items, fill_shards, runs_of

__all__ = ["Store"]

CACHED = 1 << 19
"""Bytes converted at a time: they stay in the processor's second cache between the copy and the conversion."""

MAPPED = 512
"""Shards kept mapped at a time: each holds one file handle, and many systems allow a process 1024."""

Verify = Literal["first", "always", "never"]
Located = list[tuple[int, int]]
"""Shard number and number within the shard, one pair an item."""
Runs = list[tuple[int, int, int]]
"""(first, stop, where in the result) of neighbouring layers that are read as one range."""


class Store:
    """Encoded items by key. Positions (`index`) belong to this object; keys are for ever.

    A reader never writes, may be forked or pickled, and sees finished shards only. Made by `Store.open`.
    """

    def __init__(self, path: Path, spec: Spec, layers: tuple[int, ...], verify: Verify) -> None:
        self.path, self.spec, self.layers, self.verify = path, spec, layers, verify
        self._shards: list[Shard] = []
        self._gone: set[int] = set()
        self._mapped: dict[int, None] = {}
        self._local = threading.local()
        self._add([])

    @classmethod
    def open(cls, path: str | os.PathLike[str], spec: Spec | None = None, *, verify: Verify = "first") -> "Store":
        """Open the store at `path`; with a `spec`, make it where there is none, or compare.

        `verify` says when the hash of what is read is checked: the first time after opening, always, or never.
        A store that holds more layers than `spec.layers` is fine; `batch` and `get` then read those asked for.
        Raises SpecMismatch naming every difference, CorruptStore naming the file, StoreError for what is no store.
        """
        folder = Path(path)
        if verify not in ("first", "always", "never"):
            raise ConfigError(f"verify={verify!r}; there is 'first', 'always' and 'never'.")
        if not (folder / "store.json").exists():
            refuse_other_content(folder)
            if spec is None:
                raise StoreError(f"There is no store at {folder}. Encode a corpus first, or give the Spec to make one.")
            create(folder, spec)
        stored = read_spec(folder)
        layers = stored.layers if spec is None else compare(folder, stored, spec)
        store = cls(folder, stored, layers, verify)
        store.refresh()
        return store

    def __len__(self) -> int:
        """Different items."""
        return self._lookup.distinct

    def __contains__(self, key: str) -> bool:
        return bool(self._find([key])[0] >= 0)

    def __reduce__(self) -> tuple[Any, ...]:
        return reopen, (
            str(self.path.absolute()),
            self.layers,
            self.verify,
            [shard.manifest.name for shard in self._shards],
        )

    def refresh(self) -> None:
        """See the shards that were finished since, and forget the keys of those that were removed.

        Positions known before stay as they are.
        """
        names = manifest_names(self.path)
        there, known = set(names), {shard.manifest.name: number for number, shard in enumerate(self._shards)}
        gone = {number for name, number in known.items() if name not in there}
        new = [name for name in names if name not in known]
        fresh = list(finished(self.path, new, lambda name: Shard(self.path, name, self.spec)))
        if fresh or gone != self._gone:
            self._gone = gone
            self._add(fresh)

    def keys(self, documents: Sequence[Document]) -> list[str]:
        """The key of each document in a store with rows of this kind (`Spec.unit`)."""
        return [document.key_in(self.spec.unit) for document in documents]

    def missing(self, keys: Sequence[str]) -> list[int]:
        """Positions in `keys` of the first occurrence of every key that is not stored."""
        first: dict[str, int] = {}
        for position in np.flatnonzero(self._find(keys) < 0).tolist():
            first.setdefault(keys[position], position)
        return list(first.values())

    def estimate(self, rows: int, items: int) -> int:
        """Bytes on disk that `items` items of `rows` rows in all will take, within 1 %."""
        return estimate(self.spec, rows, items)

    def index(self, keys: Sequence[str]) -> np.ndarray:
        """Int64 [B]: where each key is. Raises NotStored naming the first that is missing and how many are."""
        found = self._find(keys)
        absent = np.flatnonzero(found < 0)
        if len(absent):
            raise NotStored(
                f"{self.path} lacks {len(absent)} of {len(keys)} items; the first is number {absent[0]}, key "
                f"{keys[absent[0]]}. Encode them into it first (Store.fill, or the encode command)."
            )
        return found

    def rows(self, index: np.ndarray | Sequence[int]) -> np.ndarray:
        """Int64 [B]: rows of each item."""
        return self._lengths[self._valid(index)]

    def word(self, position: int) -> np.ndarray:
        """Int32 [T]: the word of each row of one item, -1 for special pieces."""
        shard, item = self._locate(self._valid([position]))[0]
        mapping = self._map(shard)
        if self.verify != "never":
            L = len(self.spec.layers)
            self._shards[shard].check(item, range(L, L + 1), self.verify == "always")
        offsets = self._shards[shard].offsets
        return np.array(mapping.word[offsets[item] : offsets[item + 1]], np.int32)

    def get(self, key: str, layers: Sequence[int] | None = None) -> Encoding:
        """One item, fp32 [L, T, D], with its words."""
        index = self.index([key])
        return Encoding(key, self.batch(index, layers).views.numpy(), self.word(int(index[0])))

    def batch(
        self,
        index: np.ndarray | Sequence[int],
        layers: Sequence[int] | None = None,
        *,
        dtype: torch.dtype | None = torch.float32,
        out: Tensor | None = None,
    ) -> Packed:
        """Items at `index`, end to end, as views [l, P, D] of `layers` (ascending; None: those `open` was asked for).

        `dtype` None keeps the stored type (int8 has no meaning without its scales: it comes as fp32).
        `out` is memory to reuse: contiguous, of that dtype, with at least l*P*D numbers; the result lies in it.
        Raises NonFinite where a value is more than fp16 holds and that is asked for.
        """
        places = self._places(layers)
        index = self._valid(index)
        lengths = self._lengths[index]
        if dtype is None:
            dtype = torch.float32 if self.spec.dtype == "int8" else TORCH[self.spec.dtype]
        if not dtype.is_floating_point:
            raise ConfigError(f"dtype={dtype} has no place for states; ask for torch.float32, or another float type.")
        views = room(out, (len(places), int(lengths.sum()), self.spec.width), dtype)
        located, runs = self._locate(index), adjacent(places)
        self._hint(located, runs)
        if dtype == TORCH[self.spec.dtype]:
            self._gather(located, runs, bits(views), None)
        else:
            for group, first, stop in self._groups(located, len(places)):
                self._convert(group, runs, places, views[:, first:stop])
                if dtype == torch.float16:
                    self._refuse_infinite(group, views[:, first:stop])
        return Packed(views, tuple(lengths.tolist()))

    def prefetch(self, index: np.ndarray | Sequence[int], layers: Sequence[int] | None = None) -> None:
        """Ask the system to fetch these items from disk in the background; returns at once."""
        self._hint(self._locate(self._valid(index)), adjacent(self._places(layers)))

    def fill(
        self,
        documents: Sequence[Document],
        source: Source,
        *,
        shard_bytes: int | None = None,
        max_bytes: int | None = None,
        progress: Callable[[int, int], None] | None = None,
        part: tuple[int, int] = (0, 1),
    ) -> FillReport:
        """Encode what is missing. Where nothing is, `source` is not touched.

        `max_bytes` caps the whole store. `progress(rows done, rows in all)` is called after each item. `part=(i, n)`
        writes only every n-th shard, from the i-th, of those that all `documents` make together: n jobs with the same
        documents and i = 0 ... n-1 fill one store. Raises SpecMismatch where `source` is not what made the store,
        StoreFull, NonFinite, StoreError; finished shards stay.
        """
        check_part(part)
        shard_bytes = usual_shard(self.spec) if shard_bytes is None else shard_bytes
        if shard_bytes < 1:
            raise ConfigError(f"shard_bytes={shard_bytes} must be at least 1.")
        self.refresh()
        keys = self.keys(documents)
        found = self._find(keys)
        missing = self.missing(keys)
        distinct = len(set(keys))
        jobs: list[Job] = []
        if missing:
            if isinstance(source, Described):
                compare(self.path, self.spec, source.spec(self.spec.layers, self.spec.dtype))
            for leftover in leftovers(self.path):
                removed(leftover)
            items = dict(zip(missing, cut_items([documents[p] for p in missing], source, self.spec.unit), strict=True))
            jobs = self._jobs(keys, found, items, shard_bytes, part)
            sizes = [(len(job.items), job.rows) for job in jobs]
            needed = sum(shard_size(self.spec, items, rows) for items, rows in sizes)
            check_room(self.path, sum(n for n, _ in sizes), sum(rows for _, rows in sizes), needed, max_bytes)
        written, nbytes = fill_shards(self.path, self.spec, jobs, source, progress)
        self.refresh()
        done = [item.pieces for job in written for item in job.items]
        return FillReport(
            asked=len(keys),
            hits=distinct - len(missing),
            duplicates=len(keys) - distinct,
            written=len(done),
            elsewhere=len(missing) - len(done),
            rows=sum(len(pieces) for pieces in done),
            bytes=nbytes,
            shards=len(written),
            windowed=sum(pieces.n_windowed for pieces in done),
            unknown_words=sum(pieces.n_unknown for pieces in done),
        )

    def _jobs(
        self, keys: Sequence[str], found: np.ndarray, items: dict[int, Item], shard_bytes: int, part: tuple[int, int]
    ) -> list[Job]:
        """The shards of this part: all documents are cut into runs, stored or not, and each keeps its missing items.

        So neither other parts' progress nor a second writer's, nor how far a killed one came, moves a shard's edges.
        """
        first = {key: position for position, key in reversed(list(enumerate(keys)))}
        positions = sorted(first.values())
        lengths = [len(items[p].pieces) if p in items else int(self._lengths[found[p]]) for p in positions]
        jobs = []
        for run in runs_of(part, lengths, self.spec, shard_bytes):
            chosen = [items[positions[k]] for k in run if positions[k] in items]
            if chosen:
                jobs.append(Job.of(chosen))
        return jobs

    def _add(self, shards: Sequence[Shard]) -> None:
        """Give the items of these shards the next positions."""
        self._shards += shards
        sizes = [len(shard) for shard in self._shards]
        self._bases = np.cumsum([0, *sizes])
        none = np.zeros(0, np.int64)
        self._lengths = np.concatenate([none, *(shard.lengths for shard in self._shards)])
        keys = np.concatenate([np.zeros((0, 32), np.uint8), *(shard.keys for shard in self._shards)])
        there = np.repeat([number not in self._gone for number in range(len(sizes))], sizes) if self._gone else None
        self._lookup = Lookup(keys, there)

    def _find(self, keys: Sequence[str]) -> np.ndarray:
        """Int64 [B]: position of each key, -1 where it is not stored."""
        return self._lookup.find(key_bytes(keys))

    def _valid(self, index: np.ndarray | Sequence[int]) -> np.ndarray:
        """Positions as int64 [B]; NotStored where one is outside the store."""
        index = np.asarray(index, np.int64).reshape(-1)
        outside = (index < 0) | (index >= self._bases[-1])
        if outside.any():
            raise NotStored(f"{self.path}: position {index[outside][0]} is outside 0 ... {self._bases[-1] - 1}.")
        return index

    def _places(self, layers: Sequence[int] | None) -> list[int]:
        """Where the chosen layers stand among the stored ones."""
        chosen = self.layers if layers is None else tuple(layers)
        if not chosen or any(layer not in self.spec.layers for layer in chosen) or list(chosen) != sorted(set(chosen)):
            raise ConfigError(
                f"layers={chosen} must be ascending, without repeats, and among {self.spec.layers} ({self.path})."
            )
        return [self.spec.layers.index(layer) for layer in chosen]

    def _locate(self, index: np.ndarray) -> Located:
        """Shard number and number within the shard of each position."""
        shards = np.searchsorted(self._bases, index, side="right") - 1
        return list(zip(shards.tolist(), (index - self._bases[shards]).tolist(), strict=True))

    def _map(self, shard: int) -> Mapping:
        """The mapping of a shard; the one used longest ago is given up beyond MAPPED of them."""
        self._mapped.pop(shard, None)
        self._mapped[shard] = None
        if len(self._mapped) > MAPPED:
            oldest = next(iter(self._mapped))
            self._mapped.pop(oldest, None)
            self._shards[oldest].unmap()
        return self._shards[shard].mapping()

    def _hint(self, located: Located, runs: Runs) -> None:
        """Tell the kernel which byte ranges come next."""
        for s, item in located:
            mapping = self._map(s)
            for first, stop, _ in runs:
                mapping.will_need(*self._shards[s].span(item, first, stop))

    def _gather(
        self,
        located: Located,
        runs: Runs,
        out: np.ndarray,
        scales: np.ndarray | None,
    ) -> None:
        """Bytes of the chosen layers of each item, checked where that is due, into `out` [l, P, D] and `scales` [l, P].

        NumPy copies them, not torch: a slice of a small record costs it a third of the time.
        """
        L, D, again, position = len(self.spec.layers), self.spec.width, self.verify == "always", 0
        for s, item in located:
            shard, mapping = self._shards[s], self._map(s)
            start, stop = shard.record(item)
            until = position + (stop - start) // L
            record = mapping.states[start:stop].reshape(L, -1, D)
            for first, last, place in runs:
                if again or (self.verify == "first" and shard.unchecked):
                    shard.check(item, range(first, last), again)
                out[place : place + last - first, position:until] = record[first:last]
                if scales is not None and mapping.scales is not None:
                    kept = mapping.scales[start:stop].reshape(L, -1)[first:last]
                    scales[place : place + last - first, position:until] = kept
            position = until

    def _groups(self, located: Located, n_layers: int) -> Iterator[tuple[Located, int, int]]:
        """Neighbours of one shard that fit the cache together, with their first row and one past the last."""
        limit = CACHED // (n_layers * self.spec.width * TORCH[self.spec.dtype].itemsize)
        group: Located = []
        first = stop = 0
        for s, item in located:
            n = int(self._shards[s].lengths[item])
            if group and (group[-1][0] != s or stop - first + n > limit):
                yield group, first, stop
                group, first = [], stop
            group.append((s, item))
            stop += n
        if group:
            yield group, first, stop

    def _convert(self, group: Located, runs: Runs, places: list[int], out: Tensor) -> None:
        """A group of items into `out` [l, P, D] of another type than the stored one."""
        values = self._scratch(out.shape, TORCH[self.spec.dtype])
        rms = self._map(group[0][0]).rms
        scales = None if rms is None else np.empty(out.shape[:2], np.float16)
        self._gather(group, runs, bits(values), scales)
        out.copy_(values)
        if rms is not None:
            out.mul_(torch.from_numpy(scales).to(out.dtype)[..., None]).mul_(rms[places][:, None])

    def _refuse_infinite(self, group: Located, views: Tensor) -> None:
        """NonFinite with the item whose values fp16 cannot hold; what is stored is finite."""
        if all(bool(edge.isfinite()) for edge in torch.aminmax(views)) if views.numel() else True:
            return
        lengths = [int(self._shards[shard].lengths[item]) for shard, item in group]
        whole = [bool(own.isfinite().all()) for own in views.split(lengths, dim=1)]
        shard, item = group[whole.index(False)]
        key = self._shards[shard].keys[item].tobytes().hex()
        raise NonFinite(
            f"{self.path}: item {key[:12]} has a value beyond what fp16 holds (65504). Read it as torch.bfloat16 or "
            "torch.float32."
        )

    def _scratch(self, shape: torch.Size, dtype: torch.dtype) -> Tensor:
        """Memory of this thread for values on their way to another type."""
        needed = shape.numel()
        if getattr(self._local, "scratch", None) is None or self._local.scratch.numel() < needed:
            self._local.scratch = torch.empty(needed, dtype=dtype)
        return self._local.scratch[:needed].view(shape)


def bits(values: Tensor) -> np.ndarray:
    """The tensor's memory as an array; bfloat16 as its bits."""
    return (values.view(torch.int16) if values.dtype == torch.bfloat16 else values).numpy()


def room(out: Tensor | None, shape: tuple[int, int, int], dtype: torch.dtype) -> Tensor:
    """Memory for `shape`: new, or the beginning of `out`."""
    if out is None:
        return torch.empty(shape, dtype=dtype)
    needed = shape[0] * shape[1] * shape[2]
    if out.dtype != dtype or not out.is_contiguous() or out.numel() < needed:
        raise ConfigError(
            f"out is {out.dtype} with {out.numel():,} numbers; it must be contiguous {dtype} with at least {needed:,}."
        )
    return out.view(-1)[:needed].view(shape)


def adjacent(places: Sequence[int]) -> Runs:
    """(first, stop, where in the result) of each run of neighbouring layers: [0, 1, 4] -> [(0, 2, 0), (4, 5, 2)]."""
    runs: Runs = []
    for where, place in enumerate(places):
        if runs and runs[-1][1] == place:
            runs[-1] = (runs[-1][0], place + 1, runs[-1][2])
        else:
            runs.append((place, place + 1, where))
    return runs


def reopen(path: str, layers: tuple[int, ...], verify: Verify, names: list[str]) -> Store:
    """The store of another process with the same positions."""
    folder = Path(path)
    store = Store(folder, read_spec(folder), layers, verify)
    store._add([Shard(folder, name, store.spec) for name in names])
    return store
