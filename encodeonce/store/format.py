"""What lies on disk, byte by byte.

    STORE/
      store.json                     the Spec and the format version; written once, first
      0f3a...c1.safetensors          one shard; NAME = first 32 hex digits of SHA-256 over the keys it holds, in order
      0f3a...c1.json                 its manifest, written last: a shard without one does not exist for readers

A shard is an ordinary safetensors file; its header is padded with spaces so that `states` begins on a page boundary.

    states       [R*L, D]  item i is the rows offsets[i]*L : offsets[i+1]*L, seen as [L, T, D]
    offsets      int64  [N+1]      in rows of T
    xxh3         uint64 [N, L+1]   a hash for every (item, layer): its states, then its scales; the last is of `word`
    keys         uint8  [N, 32]    SHA-256 of what the encoder was shown
    channel_rms  fp32   [L, D]     int8 only
    word         int32  [R]        word of each row, -1 for special pieces
    scales       fp16   [R*L]      int8 only

Nothing in these files depends on the time, the machine or the folder: equal content is equal bytes.

Axes: N items   R rows of all items   T rows of one item   L stored layers   D width
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import xxhash

from ..costs import item_bytes
from ..errors import ConfigError, CorruptStore, StoreError
from ..types import Spec

__all__ = [
    "FORMAT",
    "Layout",
    "Manifest",
    "estimate",
    "file_sizes",
    "finished",
    "is_finished",
    "key_bytes",
    "manifest_names",
    "parse_sealed",
    "sealed",
    "shard_name",
    "shard_size",
    "usual_shard",
]

Found = TypeVar("Found")

FORMAT = 1
SHARD_BYTES = 256 * 2**20
"""Of pieces. A row of a sentence or of a text takes as long to make as dozens or hundreds of pieces, so their shards
are 1/128 of it: a killed writer loses a minute or two, not hours."""
PAGE = 4096
NAME = re.compile(r"[0-9a-f]{32}")

TAGS = {"fp32": "F32", "fp16": "F16", "bf16": "BF16", "int8": "I8"}
SIZES = {"F32": 4, "F16": 2, "BF16": 2, "I8": 1, "I64": 8, "U64": 8, "U8": 1, "I32": 4}


def key_bytes(keys: Sequence[str]) -> np.ndarray:
    """Hex keys -> uint8 [N, 32]. Raises ConfigError for anything that is no SHA-256."""
    for position, key in enumerate(keys):
        if len(key) != 64:
            raise ConfigError(f"key {position} is {key!r}; a key has 64 hex digits (Document.key or types.item_key).")
    try:
        return np.frombuffer(bytes.fromhex("".join(keys)), np.uint8).reshape(-1, 32)
    except ValueError as problem:
        raise ConfigError(f"a key is not hexadecimal: {problem}.") from None


def shard_name(keys: np.ndarray) -> str:
    """Name of the shard that holds these keys (uint8 [N, 32]) in this order."""
    return hashlib.sha256(np.ascontiguousarray(keys).tobytes()).hexdigest()[:32]


def manifest_names(folder: Path) -> list[str]:
    """Names of the finished shards of a store, sorted."""
    return sorted(path.stem for path in folder.glob("*.json") if NAME.fullmatch(path.stem))


def is_finished(folder: Path, name: str) -> bool:
    """A shard is finished when its manifest is there."""
    return (folder / f"{name}.json").exists()


def finished(folder: Path, names: Iterable[str], read: Callable[[str], Found]) -> Iterator[Found]:
    """`read(name)` of each of these finished shards; what is removed since they were listed, manifest first, is left
    out."""
    for name in names:
        try:
            found = read(name)
        except (CorruptStore, FileNotFoundError):
            if is_finished(folder, name):
                raise
            continue
        yield found


def file_sizes(folder: Path) -> dict[str, int]:
    """Bytes of every file of a folder by name; what other processes remove or rename meanwhile is left out."""
    sizes = {}
    for path in folder.iterdir():
        with suppress(FileNotFoundError):
            if path.is_file():
                sizes[path.name] = path.stat().st_size
    return sizes


def sealed(values: Mapping[str, Any]) -> bytes:
    """Readable JSON with a checksum of itself in "check"; the same values always give the same bytes."""
    digest = xxhash.xxh3_64_hexdigest(json.dumps(dict(values), sort_keys=True).encode())
    return (json.dumps({**values, "check": digest}, indent=1, sort_keys=True) + "\n").encode()


def parse_sealed(path: Path) -> dict[str, Any]:
    """The values `sealed` wrote at `path`.

    Raises CorruptStore where a single byte differs from what was written, StoreError where another version wrote it.
    """
    raw = path.read_bytes()
    try:
        values = json.loads(raw)
        version = values["format"]
        values.pop("check")
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        raise CorruptStore(f"{path} was cut or changed: {problem!r}.") from None
    if sealed(values) != raw:
        if isinstance(version, int) and version != FORMAT:
            raise StoreError(f"{path} has format {version}; this version reads format {FORMAT}. Upgrade encodeonce.")
        raise CorruptStore(f"{path} was changed after it was written: its checksum does not fit.")
    if version != FORMAT:
        raise StoreError(f"{path} has format {version!r}; this version reads format {FORMAT}. Upgrade encodeonce.")
    return dict(values)


@dataclass(frozen=True, slots=True)
class Array:
    """Place of one array in a shard file: safetensors dtype tag, shape, first byte, number of bytes."""

    tag: str
    shape: tuple[int, ...]
    start: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything is in a shard of `items` items and `rows` rows: fixed by these two numbers and the Spec alone.

    So a writer knows every byte's place before it starts and may write items in any order, and a reader compares the
    whole header with the one there must be.
    """

    header: bytes
    arrays: dict[str, Array]
    size: int

    @classmethod
    def of(cls, spec: Spec, items: int, rows: int) -> "Layout":
        L, D, int8 = len(spec.layers), spec.width, spec.dtype == "int8"
        shapes: dict[str, tuple[str, tuple[int, ...]]] = {
            "states": (TAGS[spec.dtype], (rows * L, D)),
            "offsets": ("I64", (items + 1,)),
            "xxh3": ("U64", (items, L + 1)),
            "keys": ("U8", (items, 32)),
            **({"channel_rms": ("F32", (L, D))} if int8 else {}),
            "word": ("I32", (rows,)),
            **({"scales": ("F16", (rows * L,))} if int8 else {}),
        }
        metadata = {"format": f"encodeonce-{FORMAT}", "spec": json.dumps(spec.to_json(), sort_keys=True)}
        entries: dict[str, Any] = {"__metadata__": metadata}
        places, position = {}, 0
        for name, (tag, shape) in shapes.items():
            nbytes = math.prod(shape) * SIZES[tag]
            entries[name] = {"dtype": tag, "shape": list(shape), "data_offsets": [position, position + nbytes]}
            places[name] = (tag, shape, position, nbytes)
            position += nbytes
        text = json.dumps(entries, separators=(",", ":")).encode()
        start = math.ceil((8 + len(text)) / PAGE) * PAGE
        header = (start - 8).to_bytes(8, "little") + text.ljust(start - 8)
        arrays = {name: Array(tag, shape, start + first, n) for name, (tag, shape, first, n) in places.items()}
        return cls(header, arrays, start + position)


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a finished shard says of itself; `bytes` and `xxh3_128` are of the data file."""

    name: str
    items: int
    rows: int
    layers: tuple[int, ...]
    width: int
    dtype: str
    bytes: int
    xxh3_128: str

    @property
    def on_disk(self) -> int:
        """Bytes of the shard and of this."""
        return self.bytes + len(self.to_bytes())

    def to_bytes(self) -> bytes:
        values = {field: getattr(self, field) for field in self.__slots__}
        return sealed({**values, "layers": list(self.layers), "format": FORMAT})

    @classmethod
    def read(cls, folder: Path, name: str, spec: Spec) -> "Manifest":
        """The manifest of shard `name`. Raises CorruptStore naming the file where it is not as written, or gone."""
        path = folder / f"{name}.json"
        try:
            values = parse_sealed(path)
        except FileNotFoundError:
            raise CorruptStore(f"{path} is gone: its shard was removed meanwhile. Open the store again.") from None
        values.pop("format")
        try:
            manifest = cls(**{**values, "layers": tuple(values["layers"])})
        except (TypeError, KeyError) as problem:
            raise CorruptStore(f"{path} is no manifest of a shard: {problem}.") from None
        for field, seen, due in (
            ("name", manifest.name, name),
            ("layers", manifest.layers, spec.layers),
            ("width", manifest.width, spec.width),
            ("dtype", manifest.dtype, spec.dtype),
        ):
            if seen != due:
                raise CorruptStore(f"{path} belongs to another store: {field} is {seen!r}, here it must be {due!r}.")
        return manifest


def usual_shard(spec: Spec) -> int:
    """The bytes at which a shard is closed where nobody says otherwise."""
    return SHARD_BYTES if spec.unit == "piece" else SHARD_BYTES // 128


def estimate(spec: Spec, rows: int, items: int, shard_bytes: int | None = None) -> int:
    """Bytes on disk of `items` items with `rows` rows in all, headers and manifests included; within 1 %."""
    if items == 0:
        return 0
    shard_bytes = shard_bytes or usual_shard(spec)
    total = item_bytes(spec, rows) + (items - 1) * item_bytes(spec, 0)
    # a shard closes with the item that brings it to shard_bytes, so it holds half an item more on average
    shards = min(items, max(1, math.ceil(total / (shard_bytes + total / items / 2))))
    each = shard_size(spec, math.ceil(items / shards), math.ceil(rows / shards))
    surplus = item_bytes(spec, math.ceil(rows / shards)) + (math.ceil(items / shards) - 1) * item_bytes(spec, 0)
    return total + shards * (each - surplus)


def shard_size(spec: Spec, items: int, rows: int) -> int:
    """Exact bytes on disk of one shard and its manifest."""
    size = Layout.of(spec, items, rows).size
    manifest = Manifest("0" * 32, items, rows, spec.layers, spec.width, spec.dtype, size, "0" * 32)
    return size + len(manifest.to_bytes())


def sync_folder(folder: Path) -> None:
    """Make renames in `folder` durable (nothing to do where folders cannot be opened)."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
