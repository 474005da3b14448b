"""A deterministic stand-in for an encoder, in NumPy; also run as a script, to be killed or to race with another.

Axes: L layers   T rows   D width
"""

import hashlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from encodeonce.store import Store
from encodeonce.types import Document, Pieces, Spec


def spec(**changes: object) -> Spec:
    values = {
        "encoder": "fake", "weights": "w" * 64, "config": "c" * 64, "tokenizer": "t" * 64, "n_blocks": 3, "width": 8,
        "layers": (0, 1, 2, 3), "window": 16, "overlap": 4, "dtype": "fp32",
    }  # fmt: skip
    return Spec(**{**values, **changes})


def documents(n: int, first: int = 0) -> list[Document]:
    """Documents of 1 to 9 words, all different."""
    return [
        Document(f"d{i}", tuple(f"word{i}-{k}" for k in range(1 + (i * 7) % 9)), place=f"fake.txt:{i + 1}")
        for i in range(first, first + n)
    ]


def states(key: str, layers: Sequence[int], rows: int, width: int) -> np.ndarray:
    """What the stand-in gives for an item: a function of its key and the layer, nothing else."""
    every = [
        np.random.default_rng([int(key[:12], 16), layer]).standard_normal((rows, width), np.float32) for layer in layers
    ]
    return np.stack(every)


class FakeSource:
    """One row a word between two special rows; gives the items of a call from the longest to the shortest."""

    def __init__(self, width: int = 8, pause: float = 0.0) -> None:
        self.width, self.pause = width, pause
        self.cut_documents = self.encoded = 0

    def cut(self, documents: Sequence[Document]) -> list[Pieces]:
        self.cut_documents += len(documents)
        cut = []
        for document in documents:
            n = len(document.words)
            word = np.array([-1, *range(n), -1], np.int32)
            cut.append(Pieces(document.key, np.arange(n + 2, dtype=np.int32), word, n, ((0, n + 2, 0, n + 2),)))
        return cut

    def encode(self, pieces: Sequence[Pieces], layers: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
        for position in sorted(range(len(pieces)), key=lambda p: (-len(pieces[p]), p)):
            time.sleep(self.pause)
            self.encoded += 1
            yield position, states(pieces[position].key, layers, len(pieces[position]), self.width)


def digest(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of a folder by name."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def main(path: str, n: str, shard_bytes: str, pause: str, dtype: str = "fp32") -> None:
    """Fill a store and print the report as JSON."""
    store = Store.open(path, spec(dtype=dtype))
    report = store.fill(documents(int(n)), FakeSource(pause=float(pause)), shard_bytes=int(shard_bytes))
    print(json.dumps({name: getattr(report, name) for name in report.__slots__}))


if __name__ == "__main__":
    main(*sys.argv[1:])
