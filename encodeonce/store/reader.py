"""The store: keyed, memory-mapped, never half written.

Axes: L read layers   P rows of a packed batch   T rows of one item   D width   N items   B items of a batch
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ..errors import ConfigError, CorruptStore, NotStored, SpecMismatch, StoreError
from ..nn.packed import Packed
from ..types import Document, Encoding, Spec
from .claim import write_atomically
from .format import FORMAT, SHARD_BYTES, estimate, key_bytes, manifest_names, parse_sealed, sealed
from .lookup import Lookup
from .quantise import TORCH, dequantise
from .shard import Mapping, Shard
from .writer import FillReport, Item, Job, Source, check_part, check_room, cut_items, fill_shards, plan

__all__ = ["Store"]

MAPPED = 512
"""Shards kept mapped at a time: each holds one file handle, and many systems allow a process 1024."""

Verify = Literal["first", "always", "never"]


class Store:
    """Encoded items by key. Positions (`index`) belong to this object; keys are for ever.

    A reader never writes, may be forked or pickled, and sees finished shards only. Made by `Store.open`.
    """

    def __init__(self, path: Path, spec: Spec, layers: tuple[int, ...], verify: Verify) -> None:
        self.path, self.spec, self.layers, self.verify = path, spec, layers, verify
        self._shards: list[Shard] = []
        self._mapped: dict[int, None] = {}
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
        """See the shards that other writers finished since; positions known before stay as they are."""
        known = {shard.manifest.name for shard in self._shards}
        self._add([name for name in manifest_names(self.path) if name not in known])

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
        """
        places = self._places(layers)
        index = self._valid(index)
        lengths = self._lengths[index]
        if dtype is None:
            dtype = torch.float32 if self.spec.dtype == "int8" else TORCH[self.spec.dtype]
        views = room(out, (len(places), int(lengths.sum()), self.spec.width), dtype)
        runs = adjacent(places)
        located = self._locate(index)
        self._hint(located, runs)
        start = 0
        for (s, item), n in zip(located, lengths.tolist(), strict=True):
            self._copy(s, item, runs, views[:, start : start + n])
            start += n
        return Packed(views, tuple(lengths.tolist()))

    def prefetch(self, index: np.ndarray | Sequence[int], layers: Sequence[int] | None = None) -> None:
        """Ask the system to fetch these items from disk in the background; returns at once."""
        self._hint(self._locate(self._valid(index)), adjacent(self._places(layers)))

    def fill(
        self,
        documents: Sequence[Document],
        source: Source,
        *,
        shard_bytes: int = SHARD_BYTES,
        max_bytes: int | None = None,
        progress: Callable[[int, int], None] | None = None,
        part: tuple[int, int] = (0, 1),
    ) -> FillReport:
        """Encode what is missing. Where nothing is, `source` is not touched.

        `max_bytes` caps the whole store. `progress(rows done, rows in all)` is called after each item. `part=(i, n)`
        writes only every n-th shard, from the i-th, of those that all `documents` make together: n jobs with the same
        documents and i = 0 ... n-1 fill one store. Raises StoreFull, NonFinite, StoreError; finished shards stay.
        """
        check_part(part)
        if shard_bytes < 1:
            raise ConfigError(f"shard_bytes={shard_bytes} must be at least 1.")
        self.refresh()
        keys = [document.key for document in documents]
        found = self._find(keys)
        missing = self.missing(keys)
        distinct = len(set(keys))
        jobs: list[Job] = []
        if missing:
            items = dict(zip(missing, cut_items([documents[p] for p in missing], source), strict=True))
            jobs = self._jobs(keys, found, items, shard_bytes, part)
            check_room(self.path, self.spec, jobs, shard_bytes, max_bytes)
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
            windowed=sum(len(pieces.windows) > 1 for pieces in done),
            unknown_words=sum(len(pieces.unknown_words) for pieces in done),
        )

    def _jobs(
        self, keys: Sequence[str], found: np.ndarray, items: dict[int, Item], shard_bytes: int, part: tuple[int, int]
    ) -> list[Job]:
        """The shards of this part.

        Alone, the missing items are cut into shards. In parts, all documents are, stored or not, and each shard then
        keeps its missing items: so the shards' numbers do not depend on how far the other parts are.
        """
        index, count = part
        if count == 1:
            positions = sorted(items)
            lengths = [len(items[position].pieces) for position in positions]
        else:
            first = {key: position for position, key in reversed(list(enumerate(keys)))}
            positions = sorted(first.values())
            lengths = [len(items[p].pieces) if p in items else int(self._lengths[found[p]]) for p in positions]
        jobs = []
        for run in plan(lengths, self.spec, shard_bytes)[index::count]:
            chosen = [items[positions[k]] for k in run if positions[k] in items]
            if chosen:
                jobs.append(Job.of(chosen))
        return jobs

    def _add(self, names: Sequence[str]) -> None:
        """Open these shards and give their items the next positions."""
        self._shards += [Shard(self.path, name, self.spec) for name in names]
        sizes = [len(shard) for shard in self._shards]
        self._bases = np.cumsum([0, *sizes])
        none = np.zeros(0, np.int64)
        self._lengths = np.concatenate([none, *(shard.lengths for shard in self._shards)])
        self._lookup = Lookup(np.concatenate([np.zeros((0, 32), np.uint8), *(shard.keys for shard in self._shards)]))

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

    def _locate(self, index: np.ndarray) -> list[tuple[int, int]]:
        """Shard number and number within the shard of each position."""
        shards = np.searchsorted(self._bases, index, side="right") - 1
        return list(zip(shards.tolist(), (index - self._bases[shards]).tolist(), strict=True))

    def _map(self, shard: int) -> Mapping:
        """The mapping of a shard; the one used longest ago is given up beyond MAPPED of them."""
        self._mapped.pop(shard, None)
        self._mapped[shard] = None
        if len(self._mapped) > MAPPED:
            oldest = next(iter(self._mapped))
            del self._mapped[oldest]
            self._shards[oldest].unmap()
        return self._shards[shard].mapping()

    def _hint(self, located: list[tuple[int, int]], runs: list[tuple[int, int, int]]) -> None:
        """Tell the kernel which byte ranges come next."""
        for s, item in located:
            mapping = self._map(s)
            for first, stop, _ in runs:
                mapping.will_need(*self._shards[s].span(item, first, stop))

    def _copy(self, s: int, item: int, runs: list[tuple[int, int, int]], out: Tensor) -> None:
        """The chosen layers of one item into `out` [l, T, D], checked first where that is due."""
        shard, mapping = self._shards[s], self._map(s)
        start, stop = shard.record(item)
        record = mapping.states[start:stop].view(len(self.spec.layers), -1, self.spec.width)
        for first, last, place in runs:
            if self.verify == "always" or (self.verify == "first" and shard.unchecked):
                shard.check(item, range(first, last), self.verify == "always")
            target = out[place : place + last - first]
            if mapping.scales is None or mapping.rms is None:
                target.copy_(record[first:last])
            else:
                scales = mapping.scales[start:stop].view(len(self.spec.layers), -1)[first:last]
                dequantise(record[first:last], scales, mapping.rms[first:last], target)


def refuse_other_content(folder: Path) -> None:
    """StoreError where `folder` is something else than an empty place for a new store."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise StoreError(f"{folder} is a file; a store is a folder.")
    content = sorted(path.name for path in folder.iterdir() if not path.name.startswith("store.json."))
    if any(name.endswith(".safetensors") for name in content):
        raise StoreError(
            f"{folder} has shards but no store.json, so nothing says what made them. Encode into a new folder."
        )
    if content:
        raise StoreError(f"{folder} is no store and not empty (it holds {content[0]!r}). Choose a new or empty folder.")


def create(folder: Path, spec: Spec) -> None:
    """Write store.json first; where another process was faster, its file stands and is compared next."""
    if spec.format != FORMAT:
        raise StoreError(f"Spec.format is {spec.format}; this version writes format {FORMAT}.")
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "store.json", sealed({"format": FORMAT, "spec": spec.to_json()}), replace=False)


def read_spec(folder: Path) -> Spec:
    """The Spec in store.json."""
    values = parse_sealed(folder / "store.json")
    try:
        return Spec.from_json(values["spec"])
    except (ConfigError, KeyError) as problem:
        raise CorruptStore(f"{folder / 'store.json'} holds no Spec: {problem}") from None


def compare(folder: Path, stored: Spec, asked: Spec) -> tuple[int, ...]:
    """The layers to read; SpecMismatch with every difference where the store was made by something else."""
    if set(asked.layers) <= set(stored.layers):
        differences = replace(asked, layers=stored.layers).differences(stored)
    else:
        differences = asked.differences(stored)
    if differences:
        lines = "\n".join(f"  {line}" for line in differences)
        raise SpecMismatch(
            f"{folder} was made by something else (here: what you ask for; there: the store, by {stored.encoder}):\n"
            f"{lines}\nAsk for what the store holds, or encode into another folder."
        )
    return asked.layers


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


def adjacent(places: Sequence[int]) -> list[tuple[int, int, int]]:
    """(first, stop, where in the result) of each run of neighbouring layers: [0, 1, 4] -> [(0, 2, 0), (4, 5, 2)]."""
    runs: list[tuple[int, int, int]] = []
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
    store._add(names)
    return store
