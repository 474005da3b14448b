"""Reading random batches: the store against a raw memory map, a plain map of its own file, and memcpy.

    python benchmarks/read.py [--items 4000] [--layers 7] [--width 384] [--batch 32] [--repeats 5] [--out results.json]

The same random bytes lie in a store (fp16, record layout) and in a raw file [T, l, d]; every candidate copies the same
random batches into one reused buffer of the stored type: `store` (hints, no hashes), `raw` (np.memmap of the raw file),
`plain` (np.memmap of the store's own file, no hints), `memcpy` (memory to memory). Candidates take turns within each
repeat; figures are medians, ratios are medians of ratios within a repeat. One thread.

warm         CPU seconds of one pass over all items, everything in memory
cold_sample  wall seconds of a few random batches, a small part of the files, after fsync and posix_fadvise(DONTNEED)
cold_last    the same for the last layer alone
cold_pass    wall seconds of one cold pass over everything

How cold reads compare hangs on the device's read-ahead (printed): a large one makes a plain map read the whole file in
sequence, which is the best there is for a whole pass and the worst for a sample. Prints the parts as JSON, then one
ratio: warm, store to raw.

Axes: T rows of all items   P rows of a batch   L layers   D width
"""

import argparse
import gc
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from parts import show

from encodeonce.report.results import now, provenance
from encodeonce.store import Store
from encodeonce.types import Document, Pieces, Spec

Read = Callable[[np.ndarray], None]
CANDIDATES = ("store", "raw", "plain", "memcpy")
KINDS = ("warm", "cold_sample", "cold_last", "cold_pass")


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


def make(folder: Path, items: int, layers: int, width: int, dtype: str) -> Store:
    """A filled store."""
    spec = Spec("noise", "w", "c", "t", layers - 1, width, tuple(range(layers)), 512, 0, dtype=dtype)
    documents = [Document(str(i), (f"word{i}",)) for i in range(items)]
    sizes = np.random.default_rng(1).gamma(2.5, 11.0, items).astype(int) + 3
    store = Store.open(folder, spec)
    store.fill(documents, Noise({d.key: int(n) for d, n in zip(documents, sizes, strict=True)}, layers, width))
    return store


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

    def reader(self, name: str, first: int = 0) -> Read:
        """A function that copies layers first ... L-1 of one batch, over files opened now."""
        return {"store": self.store, "raw": self.raw, "plain": self.plain, "memcpy": self.memcpy}[name](first)

    def store(self, first: int) -> Read:
        opened = Store.open(self.path, verify="never")
        layers = range(first, self.layers)

        def read(index: np.ndarray) -> None:
            opened.batch(index, layers, dtype=None, out=self.out)

        return read

    def raw(self, first: int) -> Read:
        states = np.memmap(self.raw_path, np.float16, "r").reshape(-1, self.layers, self.width)

        def read(index: np.ndarray) -> None:
            rows, chosen, position = int(self.lengths[index].sum()), self.layers - first, 0
            out = self.buffer[: rows * chosen * self.width].reshape(rows, chosen, self.width)
            for item in index:
                start, stop = self.offsets[item], self.offsets[item + 1]
                out[position : position + stop - start] = states[start:stop, first:]
                position += stop - start

        return read

    def plain(self, first: int) -> Read:
        """Our file, our layout, an ordinary map without hints or checks."""
        opened = Store.open(self.path, verify="never")
        shards = []
        for shard in opened._shards:
            place = shard.layout.arrays["states"]
            whole = np.memmap(shard.path, np.uint8, "r")
            shards.append((whole[place.start : place.start + place.nbytes].view(np.float16), shard.offsets))

        def read(index: np.ndarray) -> None:
            rows, chosen, position = int(self.lengths[index].sum()), self.layers - first, 0
            out = self.buffer[: rows * chosen * self.width].reshape(chosen, rows, self.width)
            for s, item in opened._locate(index):
                states, offsets = shards[s]
                start, stop = offsets[item] * self.layers * self.width, offsets[item + 1] * self.layers * self.width
                record = states[start:stop].reshape(self.layers, -1, self.width)[first:]
                out[:, position : position + record.shape[1]] = record
                position += record.shape[1]

        return read

    def memcpy(self, first: int) -> Read:
        source = np.zeros_like(self.buffer)

        def read(index: np.ndarray) -> None:
            n = int(self.lengths[index].sum()) * (self.layers - first) * self.width
            self.buffer[:n] = source[:n]

        return read


def timed(read: Read, batches: Sequence[np.ndarray], clock: Callable[[], float]) -> float:
    start = clock()
    for index in batches:
        read(index)
    return clock() - start


def measure(
    bench: Bench, batches: list[np.ndarray], sample: list[np.ndarray], repeats: int, files: list[Path]
) -> dict[str, dict[str, list[float]]]:
    """Seconds of every repeat by kind and candidate."""
    seconds: dict[str, dict[str, list[float]]] = {kind: {name: [] for name in CANDIDATES} for kind in KINDS}
    readers = {name: bench.reader(name) for name in CANDIDATES}
    for read in readers.values():
        timed(read, batches, time.perf_counter)
    for _ in range(repeats):
        for name, read in readers.items():
            seconds["warm"][name].append(timed(read, batches, time.process_time))
    readers.clear()
    del read  # a mapping that is still open keeps its pages in memory
    for _ in range(repeats):
        for kind, first, chosen in (
            ("cold_sample", 0, sample),
            ("cold_last", bench.layers - 1, sample),
            ("cold_pass", 0, batches),
        ):
            for name in CANDIDATES[:3]:
                gc.collect()
                drop(files)
                seconds[kind][name].append(timed(bench.reader(name, first), chosen, time.perf_counter))
    return seconds


def read_ahead(path: Path) -> int | None:
    """The device's read-ahead in kB, where the system tells."""
    device = os.stat(path).st_dev
    found = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/queue/read_ahead_kb")
    return int(found.read_text()) if found.exists() else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag, value in (("items", 4000), ("layers", 7), ("width", 384), ("batch", 32), ("repeats", 5)):
        parser.add_argument(f"--{flag}", type=int, default=value)
    parser.add_argument(
        "--folder", help="where to put the files (default: a temporary folder; give one on a real disk)"
    )
    parser.add_argument("--out", help="write the JSON here too")
    parser.add_argument("--sample", type=float, default=0.05, help="part of all batches that is read cold")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=args.folder) as scratch:
        result = run(Path(scratch), args)
    show(result, args.out, f"ratio: {result['warm_store_to_raw']:.3f}")


def run(scratch: Path, args: argparse.Namespace) -> dict[str, object]:
    """All figures of one run."""
    started = now()
    store = make(scratch / "fp16", args.items, args.layers, args.width, "fp16")
    raw = scratch / "raw.bin"
    write_raw(store, raw)
    order = np.random.default_rng(2).permutation(len(store))
    batches = [order[i : i + args.batch] for i in range(0, len(order) - args.batch + 1, args.batch)]
    rows = [int(store.rows(index).sum()) for index in batches]
    bench = Bench(scratch / "fp16", store, raw, max(rows))
    del store
    files = [raw, *sorted((scratch / "fp16").glob("*.safetensors"))]
    sample = batches[: max(1, round(args.sample * len(batches)))]
    seconds = measure(bench, batches, sample, args.repeats, files)
    make(scratch / "int8", args.items, args.layers, args.width, "int8")
    size = {name: sum(p.stat().st_size for p in (scratch / name).iterdir()) for name in ("fp16", "int8")}
    row = args.layers * args.width * 2
    result: dict[str, object] = {
        "settings": {name: value for name, value in vars(args).items() if name not in ("out", "folder")},
        "rows": sum(rows),
        "bytes": sum(rows) * row,
        "read_ahead_kb": read_ahead(scratch),
        **provenance(started),
    }
    for kind in KINDS:
        names = [name for name in CANDIDATES if seconds[kind][name]]
        useful = sum(rows if kind in ("warm", "cold_pass") else rows[: len(sample)]) * row
        useful //= args.layers if kind == "cold_last" else 1
        median = {name: statistics.median(seconds[kind][name]) for name in names}
        result[f"{kind}_MB_per_s"] = {name: round(useful / value / 1e6, 1) for name, value in median.items()}
        for name in names[1:]:
            pairs = zip(seconds[kind][name], seconds[kind]["store"], strict=True)
            result[f"{kind}_store_to_{name}"] = round(statistics.median(other / own for other, own in pairs), 3)
    result["int8_to_fp16_bytes"] = round(size["int8"] / size["fp16"], 4)
    return result


if __name__ == "__main__":
    main()
