"""One finished shard, opened for reading: checked at once where that is cheap, mapped when first read.

Axes: N items   R rows of all items   T rows of one item   L stored layers   D width
"""

import mmap
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from xxhash import xxh3_64_intdigest

from ..errors import CorruptStore
from ..types import Spec
from .format import Layout, Manifest, shard_name
from .quantise import NUMPY

__all__ = ["Mapping", "Shard"]

NEXT_STEP = "Delete this file and its .json and run the encoding again: only its items are redone."


class Mapping:
    """The bytes of a shard as arrays over one private mapping, without a copy. It lives as long as any view of it."""

    def __init__(self, path: Path, layout: Layout, dtype: str) -> None:
        with path.open("rb") as file:
            # copy-on-write: torch takes it as writable without a warning, and the file can never change through it
            self.buffer = mmap.mmap(file.fileno(), layout.size, access=mmap.ACCESS_COPY)
        if hasattr(mmap, "MADV_RANDOM"):
            self.buffer.madvise(mmap.MADV_RANDOM)
        self.bytes = np.frombuffer(self.buffer, np.uint8)
        self.raw = memoryview(self.buffer)
        self.states = self.array(layout, "states", np.dtype(NUMPY[dtype]))
        self.word = self.array(layout, "word", np.dtype("<i4"))
        self.scales: np.ndarray | None = None
        self.rms: Float[Tensor, "L D"] | None = None
        self.seed = 0
        if dtype == "int8":
            self.scales = self.array(layout, "scales", np.dtype("<f2"))
            rms = np.array(self.array(layout, "channel_rms", np.dtype("<f4")))
            self.rms = torch.from_numpy(rms)
            self.seed = xxh3_64_intdigest(rms.tobytes())

    def array(self, layout: Layout, name: str, kind: np.dtype) -> np.ndarray:
        place = layout.arrays[name]
        return self.bytes[place.start : place.start + place.nbytes].view(kind).reshape(place.shape)

    def will_need(self, start: int, stop: int) -> None:
        """Ask the kernel to fetch these bytes now; a hint, nothing where the system has none."""
        if hasattr(mmap, "MADV_WILLNEED"):
            start -= start % mmap.PAGESIZE
            self.buffer.madvise(mmap.MADV_WILLNEED, start, stop - start)


class Shard:
    """Keys, offsets and hashes of one shard in memory; its states behind `mapping()`."""

    def __init__(self, folder: Path, name: str, spec: Spec) -> None:
        """Raises CorruptStore naming the file where size, header, keys or offsets are not what the manifest says."""
        self.path, self.spec = folder / f"{name}.safetensors", spec
        self.manifest = Manifest.read(folder, name, spec)
        self.layout = Layout.of(spec, self.manifest.items, self.manifest.rows)
        arrays = self.layout.arrays
        try:
            size = self.path.stat().st_size
            if not size == self.layout.size == self.manifest.bytes:
                raise CorruptStore(
                    f"{self.path} has {size:,} bytes, its manifest says {self.manifest.bytes:,}. {NEXT_STEP}"
                )
            with self.path.open("rb") as file:
                header = file.read(len(self.layout.header))
                raw = {}
                for key in ("offsets", "xxh3", "keys"):
                    file.seek(arrays[key].start)
                    raw[key] = file.read(arrays[key].nbytes)
        except FileNotFoundError:
            raise CorruptStore(
                f"{self.path} is gone, its manifest is still there. Delete {name}.json too and run the encoding again."
            ) from None
        if header != self.layout.header:
            raise CorruptStore(f"{self.path}: the header is not that of this store's Spec and manifest. {NEXT_STEP}")
        self.offsets = np.frombuffer(raw["offsets"], "<i8").astype(np.int64)
        self.hashes = np.frombuffer(raw["xxh3"], "<u8").astype(np.uint64).reshape(arrays["xxh3"].shape)
        self.keys = np.frombuffer(raw["keys"], np.uint8).reshape(-1, 32)
        if self.offsets[0] != 0 or self.offsets[-1] != self.manifest.rows or (np.diff(self.offsets) < 1).any():
            raise CorruptStore(f"{self.path}: offsets do not rise from 0 to {self.manifest.rows}. {NEXT_STEP}")
        if shard_name(self.keys) != name:
            raise CorruptStore(f"{self.path}: the keys in it are not those of its name. {NEXT_STEP}")
        self.lengths = np.diff(self.offsets)
        self.checked = np.zeros(self.hashes.shape, bool)
        self.unchecked = self.checked.size
        self._mapping: Mapping | None = None

    def __len__(self) -> int:
        return self.manifest.items

    def mapping(self) -> Mapping:
        """The mapped file, opened at the first call."""
        if self._mapping is None:
            try:
                self._mapping = Mapping(self.path, self.layout, self.spec.dtype)
            except (FileNotFoundError, ValueError) as problem:
                raise CorruptStore(f"{self.path} was removed or cut after the store was opened: {problem}.") from None
        return self._mapping

    def unmap(self) -> None:
        """Forget the mapping; it is closed when the last view of it goes."""
        self._mapping = None

    def record(self, item: int) -> tuple[int, int]:
        """First and one past the last of the item's rows of `states`."""
        L = len(self.spec.layers)
        return int(self.offsets[item]) * L, int(self.offsets[item + 1]) * L

    def span(self, item: int, first: int, stop: int) -> tuple[int, int]:
        """Bytes of the file that hold layers first:stop of the item."""
        states = self.layout.arrays["states"]
        row = states.nbytes // states.shape[0]
        start, rows = states.start + self.record(item)[0] * row, int(self.lengths[item]) * row
        return start + first * rows, start + stop * rows

    def bad_layers(self, item: int, layers: Iterable[int]) -> list[int]:
        """Those of `layers` (positions in the stored ones; L is the word array) whose bytes do not have their hash."""
        mapping, L, n = self.mapping(), len(self.spec.layers), int(self.lengths[item])
        raw, seed, int8 = mapping.raw, mapping.seed, mapping.scales is not None
        first, stop = self.span(item, 0, 1)
        size, due = stop - first, self.hashes[item].tolist()
        scales = self.layout.arrays["scales"].start + 2 * self.record(item)[0] if int8 else 0
        wrong = []
        for layer in layers:
            if layer == L:
                digest = xxh3_64_intdigest(mapping.word[self.offsets[item] : self.offsets[item + 1]].tobytes())
            else:
                place = first + layer * size
                digest = xxh3_64_intdigest(raw[place : place + size], seed=seed)
                if int8:
                    place = scales + 2 * layer * n
                    digest = xxh3_64_intdigest(raw[place : place + 2 * n], seed=digest)
            if digest != due[layer]:
                wrong.append(layer)
        return wrong

    def check(self, item: int, layers: range, again: bool = False) -> None:
        """Hash what is about to be read, once unless `again`; CorruptStore naming file, item and layer."""
        done = self.checked[item]
        todo = list(layers) if again else [layer for layer in layers if not done[layer]]
        if not todo:
            return
        wrong = self.bad_layers(item, todo)
        if wrong:
            raise CorruptStore(
                f"{self.path}: {self.describe(item, wrong)} was changed after it was written. {NEXT_STEP}"
            )
        self.unchecked -= int((~done[todo]).sum())
        done[todo] = True

    def describe(self, item: int, layers: list[int]) -> str:
        """ "item 3 (key 0f3a...), layers [7]" for an error about these positions."""
        names = [self.spec.layers[layer] if layer < len(self.spec.layers) else "word" for layer in layers]
        return f"item {item} (key {self.keys[item].tobytes().hex()[:12]}...), layers {names}"
