"""The tiny encoders of tests/encoders, here too, and two kinds of texts that differ in their words."""

import numpy as np
import pytest

from ..encoders.conftest import checkpoint

__all__ = ["checkpoint", "drawn", "labelled", "others"]

WORDS = {"animals": ["cat", "sat", "mat", "on"], "places": ["river", "bank", "cafe", "naive"]}


def drawn(n: int, seed: int) -> tuple[list[str], list[str]]:
    """n different texts of both kinds in turn, with their labels."""
    generator = np.random.default_rng(seed)
    texts, labels = list[str](), list[str]()
    while len(texts) < n:
        label = list(WORDS)[len(texts) % 2]
        text = " ".join(generator.choice(WORDS[label], 5).tolist())
        if text not in texts:
            texts.append(text)
            labels.append(label)
    return texts, labels


@pytest.fixture
def labelled() -> tuple[list[str], list[str]]:
    return drawn(24, seed=0)


@pytest.fixture
def others() -> tuple[list[str], list[str]]:
    return drawn(90, seed=1)
