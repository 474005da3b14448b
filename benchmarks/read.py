"""Reading random batches: the store against a raw memory map, a plain map of its own file, and memcpy.

    python benchmarks/read.py [--items 2000] [--layers 7] [--width 384] [--batch 32] [--repeats 9] [--out results.json]

The same random bytes lie in a store (fp16, record layout) and in a raw file [T, l, d]; every candidate copies the same
random batches into one reused buffer of the stored type. Warm is CPU seconds with everything in memory, cold is wall seconds
after fsync and posix_fadvise(DONTNEED) on every file, newly opened. Candidates take turns within each repeat; the figures are
medians, the ratios medians of ratios within a repeat. One thread. Prints the parts as JSON, then one ratio: warm store to raw.

Axes: T rows of all items   P rows of a batch   L layers   D width
"""

import argparse
import json
import mmap
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from encodeonce.store import Store
from encodeonce.types import Document, Pieces, Spec

Read = Callable[[np.ndarray], None]
CANDIDATES = ("store", "raw", "plain", "memcpy")


class Noise:
    """A source of random states that costs little: windows of one pool."""

    def __init__(self, lengths: dict[str, int], layers: int, width: int) -> None:
        self.lengths, self.layers = lengths, layers
        longest = max(lengths.values())
        self.pool = np.random.default_rng(0).standard_normal((layers, 16 * longest, width), np.float32)

    def cut(self, documents: Sequence[Document]) -> list[Pieces]:
        sizes = [self.lengths[document.key] for document in documents]
        return [
            Pieces(document.key, np.zeros(n, np.int32), np.arange(n, dtype=np.int32), n, ((0, n, 0, n),))
            for document, n in zip(documents, sizes, strict=True)
        ]

    def encode(self, pieces: Sequence[Pieces], layers: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
        room = self.pool.shape[1]
        for position, item in enumerate(pieces):
            first = int(item.key[:8], 16) % (room - len(item))
            yield position, self.pool[:, first : first + len(item)]


def make(folder: Path, items: int, layers: int, width: int, dtype: str) -> tuple[Store, list[Document]]:
    """A filled store and its documents."""
    spec = Spec("noise", "w", "c", "t", layers - 1, width, tuple(range(layers)), 512, 0, dtype=dtype)
    documents = [Document(str(i), (f"word{i}",)) for i in range(items)]
    sizes = np.random.default_rng(1).gamma(2.5, 11.0, items).astype(int) + 3
    store = Store.open(folder, spec)
    store.fill(documents, Noise({d.key: int(n) for d, n in zip(documents, sizes, strict=True)}, layers, width))
    return store, documents


def write_raw(store: Store, path: Path) -> None:
    """The same bytes as [T, l, d], items in the order of the store's positions."""
    with path.open("wb") as file:
        for position in range(len(store)):
            views = store.batch([position], dtype=None).views
            file.write(views.transpose(0, 1).contiguous().numpy().tobytes())


def drop(paths: Sequence[Path]) -> None:
    """Write back and forget the cached pages of these files."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)


class Bench:
    """Opens each candidate anew; `reader(name)` gives a function that copies one batch."""

    def __init__(self, folder: Path, store: Store, raw: Path, largest: int) -> None:
        self.path, self.raw_path, self.layers, self.width = folder, raw, len(store.spec.layers), store.spec.width
        self.lengths = store.rows(np.arange(len(store)))
        self.offsets = np.concatenate([[0], np.cumsum(self.lengths)])
        self.out = torch.empty(largest * self.layers * self.width, dtype=torch.float16)
        self.buffer = self.out.numpy()

    def reader(self, name: str) -> Read:
        return {"store": self.store, "raw": self.raw, "plain": self.plain, "memcpy": self.memcpy}[name]()

    def store(self) -> Read:
        opened = Store.open(self.path, verify="never")

        def read(index: np.ndarray) -> None:
            opened.batch(index, dtype=None, out=self.out)

        return read

    def raw(self) -> Read:
        states = np.memmap(self.raw_path, np.float16, "r").reshape(-1, self.layers, self.width)

        def read(index: np.ndarray) -> None:
            rows = int(self.lengths[index].sum())
            out = self.buffer[: rows * self.layers * self.width].reshape(rows, self.layers, self.width)
            start = 0
            for item in index:
                first, stop = self.offsets[item], self.offsets[item + 1]
                out[start : start + stop - first] = states[first:stop]
                start += stop - first

        return read

    def plain(self) -> Read:
        """Our file, our layout, an ordinary map without hints or checks."""
        opened = Store.open(self.path, verify="never")
        shards = []
        for shard in opened._shards:
            place = shard.layout.arrays["states"]
            whole = np.memmap(shard.path, np.uint8, "r")
            shards.append((whole[place.start : place.start + place.nbytes].view(np.float16), shard.offsets))

        def read(index: np.ndarray) -> None:
            rows = int(self.lengths[index].sum())
            out = self.buffer[: rows * self.layers * self.width].reshape(self.layers, rows, self.width)
            start = 0
            for s, item in opened._locate(index):
                states, offsets = shards[s]
                first, stop = offsets[item] * self.layers * self.width, offsets[item + 1] * self.layers * self.width
                record = states[first:stop].reshape(self.layers, -1, self.width)
                out[:, start : start + record.shape[1]] = record
                start += record.shape[1]

        return read

    def memcpy(self) -> Read:
        source = np.zeros_like(self.buffer)

        def read(index: np.ndarray) -> None:
            n = int(self.lengths[index].sum()) * self.layers * self.width
            self.buffer[:n] = source[:n]

        return read


def timed(read: Read, batches: Sequence[np.ndarray], clock: Callable[[], float]) -> float:
    start = clock()
    for index in batches:
        read(index)
    return clock() - start


def measure(
    bench: Bench, batches: list[np.ndarray], repeats: int, files: list[Path]
) -> dict[str, dict[str, list[float]]]:
    """Seconds of every repeat, warm and cold, by candidate."""
    seconds: dict[str, dict[str, list[float]]] = {kind: {name: [] for name in CANDIDATES} for kind in ("warm", "cold")}
    readers = {name: bench.reader(name) for name in CANDIDATES}
    for read in readers.values():
        timed(read, batches, time.perf_counter)
    for _ in range(repeats):
        for name, read in readers.items():
            seconds["warm"][name].append(timed(read, batches, time.process_time))
    readers.clear()
    for _ in range(repeats):
        for name in CANDIDATES[:3]:
            drop(files)
            seconds["cold"][name].append(timed(bench.reader(name), batches, time.perf_counter))
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag, value in (("items", 2000), ("layers", 7), ("width", 384), ("batch", 32), ("repeats", 9)):
        parser.add_argument(f"--{flag}", type=int, default=value)
    parser.add_argument(
        "--folder", help="where to put the files (default: a temporary folder; give one on a real disk)"
    )
    parser.add_argument("--out", help="write the JSON here too")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=args.folder) as scratch:
        result = run(Path(scratch), args)
    text = json.dumps(result, indent=1)
    if args.out:
        Path(args.out).write_text(text + "\n")
    print(text)
    print(f"ratio: {result['warm_store_to_raw']:.3f}")


def run(scratch: Path, args: argparse.Namespace) -> dict[str, object]:
    """All figures of one run."""
    store, documents = make(scratch / "fp16", args.items, args.layers, args.width, "fp16")
    raw = scratch / "raw.bin"
    write_raw(store, raw)
    order = np.random.default_rng(2).permutation(len(store))
    batches = [order[i : i + args.batch] for i in range(0, len(order) - args.batch + 1, args.batch)]
    rows = [int(store.rows(index).sum()) for index in batches]
    bench = Bench(scratch / "fp16", store, raw, max(rows))
    del store
    files = [raw, *sorted((scratch / "fp16").glob("*.safetensors"))]
    seconds = measure(bench, batches, args.repeats, files)
    useful = sum(rows) * args.layers * args.width * 2
    quantised, _ = make(scratch / "int8", args.items, args.layers, args.width, "int8")
    size = {name: sum(p.stat().st_size for p in (scratch / name).iterdir()) for name in ("fp16", "int8")}
    result: dict[str, object] = {
        "settings": {**vars(args), "out": None, "folder": None, "rows": int(sum(rows)), "bytes": useful},
        "machine": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "page": mmap.PAGESIZE,
    }
    for kind, names in (("warm", CANDIDATES), ("cold", CANDIDATES[:3])):
        median = {name: statistics.median(seconds[kind][name]) for name in names}
        result[f"{kind}_MB_per_s"] = {name: round(useful / value / 1e6) for name, value in median.items()}
        for name in names[1:]:
            pairs = zip(seconds[kind][name], seconds[kind]["store"], strict=True)
            result[f"{kind}_store_to_{name}"] = round(statistics.median(other / own for other, own in pairs), 3)
    result["int8_to_fp16_bytes"] = round(size["int8"] / size["fp16"], 4)
    result["items"] = len(quantised)
    assert len(documents) == len(quantised)
    return result


if __name__ == "__main__":
    main()
