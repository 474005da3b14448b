"""A small corpus with random states whose labels can be learned: what a word's vectors say; the tiny encoders too."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from encodeonce.batching import Encodings
from encodeonce.types import Document, Encoding, Spec

from ..encoders.conftest import checkpoint

__all__ = ["checkpoint", "corpus", "make_corpus"]

sys.path.insert(0, str(Path(__file__).parent))

WIDTH, BLOCKS = 8, 2


def spec() -> Spec:
    return Spec("tiny", "w" * 64, "c" * 64, "t" * 64, BLOCKS, WIDTH, tuple(range(BLOCKS + 1)), 512, 128, dtype="fp32")


def encoding(document: Document, pieces: list[int], seed: int) -> Encoding:
    """Random states [L, T, D]: a special row, `pieces[w]` rows of word w, a special row."""
    word = np.array([-1, *np.repeat(np.arange(len(pieces)), pieces), -1], dtype=np.int32)
    random = np.random.default_rng(seed)
    states = random.normal(size=(BLOCKS + 1, len(word), WIDTH)).astype(np.float32)
    return Encoding(document.key, states, word)


def corpus(n: int, seed: int = 0) -> tuple[list[Document], Encodings]:
    """`n` documents of 1 to 6 words of 1 to 3 pieces, with columns "upos", "deprel" and "tag"."""
    random = np.random.default_rng(seed)
    documents, encodings = [], []
    for i in range(n):
        n_words = int(random.integers(1, 7))
        words = tuple(f"w{seed}-{i}-{j}" for j in range(n_words))
        columns = {
            "upos": tuple(random.choice(["NOUN", "VERB", "DET"], n_words).tolist()),
            "deprel": tuple(random.choice(["nsubj", "root"], n_words).tolist()),
            "tag": tuple(random.choice(["O", "B-A", "B-B"], n_words).tolist()),
        }
        documents.append(Document(f"s{i}", words, columns=columns, place=f"corpus:{i + 1}"))
        encodings.append(encoding(documents[-1], random.integers(1, 4, n_words).tolist(), seed * 1000 + i))
    return documents, Encodings(spec(), encodings)


@pytest.fixture
def make_corpus() -> Callable[..., tuple[list[Document], Encodings]]:
    return corpus
