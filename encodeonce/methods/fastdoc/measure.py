"""What an encoder makes of documents: vectors from sentences or from pieces, and what is read off them.

Axes: N documents   C some of them   P their sentences   D width   E width of a sentence vector   Q tuples
K documents of a tuple
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ...batching import Source
from ...encoders.live import LiveBlocks
from ...encoders.stack import Stack
from ...errors import DataError
from ...nn.segments import segment_means
from ...types import Texts
from .examples import SentencePieces
from .fastdoc import FastDoc
from .masking import Window
from .reading import over_sentences

__all__ = [
    "Norms",
    "by_live_sentences",
    "by_pieces",
    "by_sentences",
    "by_vectors",
    "centred_share",
    "norms",
    "plain_means",
    "still",
    "triplet_accuracy",
]

Vectors = Float[np.ndarray, "N D"]
Ids = Int[np.ndarray, " C"]


@dataclass(frozen=True)
class Norms:
    """Mean lengths of what is added up at the entrance: piece vectors, positions (0: the family has none there) and
    sentence vectors. A sentence vector much longer than the others drowns the position (spec A2)."""

    piece: float
    position: float
    sentence: float

    @property
    def token_scale(self) -> float:
        """What makes sentence vectors as long as piece vectors."""
        return self.piece / self.sentence

    def to_json(self) -> dict[str, float]:
        """Plain values."""
        return asdict(self)


def norms(stack: Stack, vectors: Float[np.ndarray, "N E"]) -> Norms:
    """Of an encoder's own tables and of these sentence vectors."""
    table = stack.model.get_input_embeddings().weight
    named = dict(module for part in stack.entrance() for module in part.named_modules())
    places = named.get("position_embeddings", getattr(stack.model, "wpe", None))
    position = 0.0 if places is None else float(places.weight.norm(dim=1).mean())
    return Norms(float(table.norm(dim=1).mean()), position, float(np.linalg.norm(vectors, axis=1).mean()))


def plain_means(source: Source, index: Int[np.ndarray, " N"], size: int = 256) -> Vectors:
    """The mean of each document's stored sentence vectors, with no encoder above: what is to be beaten."""
    means = [
        segment_means(batch.views[-1], batch.lengths).numpy()
        for batch in (source.batch(index[at : at + size], dtype=torch.float32) for at in range(0, len(index), size))
    ]
    return np.concatenate(means)


def by_sentences(method: FastDoc, source: Source, index: Int[np.ndarray, " N"], size: int = 64) -> Vectors:
    """Each document's vector from its stored sentence vectors, as they enter in training: the mean of the last view; no
    dropout, no padding."""

    def stored(chosen: Ids) -> Float[Tensor, "P E"]:
        return method.entering(source.batch(index[chosen], dtype=torch.float32).views[-1])

    with still(method):
        return _by_sentences(method.blocks, np.asarray(source.rows(index)), stored, size)


def by_live_sentences(method: FastDoc, texts: Sequence[Texts], size: int = 16) -> Vectors:
    """The same where the sentence encoder is trained too, and reads the sentences themselves."""

    def read(chosen: Ids) -> Float[Tensor, "P E"]:
        return method.entering(method.sentences(SentencePieces.of([texts[n] for n in chosen])))

    with still(method):
        return _by_sentences(method.blocks, np.array([len(one) for one in texts]), read, size)


def by_vectors(blocks: LiveBlocks, vectors: Sequence[Float[np.ndarray, "_ E"]], size: int = 64) -> Vectors:
    """The same from any sentence vectors, which enter as they are."""

    def given(chosen: Ids) -> Float[Tensor, "P E"]:
        return torch.from_numpy(np.concatenate([vectors[n] for n in chosen]).astype(np.float32, copy=False))

    with still(blocks):
        return _by_sentences(blocks, np.array([len(one) for one in vectors]), given, size)


def _by_sentences(
    blocks: LiveBlocks, lengths: Int[np.ndarray, " N"], entered: Callable[[Ids], Float[Tensor, "P E"]], size: int
) -> Vectors:
    """`entered` gives what enters the blocks, of some documents; like lengths go together."""
    order = np.argsort(-lengths, kind="stable")
    found = np.empty((len(lengths), blocks.width), np.float32)
    for at in range(0, len(order), size):
        chosen = order[at : at + size]
        own = tuple(lengths[chosen].tolist())
        found[chosen] = segment_means(over_sentences(blocks, entered(chosen), own), own).numpy()
    return found


def by_pieces(blocks: LiveBlocks, windows: Sequence[Sequence[Window]], size: int = 16) -> Vectors:
    """Each document's vector from its pieces: the mean over the rows of all its windows; no dropout."""
    flat = [(n, window) for n, own in enumerate(windows) for window in own]
    order = sorted(range(len(flat)), key=lambda i: -len(flat[i][1].ids))
    sums, counts = np.zeros((len(windows), blocks.width), np.float64), np.zeros(len(windows))
    with still(blocks):
        for at in range(0, len(order), size):
            chosen = [flat[i] for i in order[at : at + size]]
            lengths = tuple(len(window.ids) for _, window in chosen)
            ids = torch.from_numpy(np.concatenate([window.ids for _, window in chosen]))
            means = segment_means(blocks(blocks.enter(ids, lengths), lengths), lengths).numpy()
            for (n, _), length, mean in zip(chosen, lengths, means, strict=True):
                sums[n] += length * mean
                counts[n] += length
    if not counts.all():
        raise DataError(f"document {int(np.flatnonzero(counts == 0)[0])} has no window of pieces.")
    return (sums / counts[:, None]).astype(np.float32)


def triplet_accuracy(vectors: Vectors, tuples: Int[np.ndarray, "Q K"]) -> float:
    """Per cent of tuples whose anchor is nearer to its (near) positive than to its negative, by Euclidean distance."""
    anchor, positive, negative = (vectors[tuples[:, k]].astype(np.float64) for k in (0, 1, -1))
    near, away = np.linalg.norm(anchor - positive, axis=1), np.linalg.norm(anchor - negative, axis=1)
    return 100 * float(np.mean(near < away))


def centred_share(vectors: Vectors) -> float:
    """Mean length about the mean vector over mean length: near 0 where all documents point one way (collapse)."""
    length = float(np.linalg.norm(vectors, axis=1).mean())
    return float(np.linalg.norm(vectors - vectors.mean(0), axis=1).mean()) / length if length else 0.0


@contextmanager
def still(module: nn.Module) -> Iterator[None]:
    """Eval mode and no gradient inside, the mode of before after it."""
    before = module.training
    module.eval()
    with torch.no_grad():
        yield
    module.train(before)
