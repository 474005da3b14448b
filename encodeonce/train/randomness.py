"""The random generators a run draws from: Python's, NumPy's and torch's, set together, saved together."""

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["generator_states", "restore_generators", "seed_generators"]


def seed_generators(seed: int) -> None:
    """Set all three."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def generator_states() -> tuple[dict[str, Tensor], dict[str, Any]]:
    """(tensors, JSON values) that `restore_generators` takes back."""
    version, numbers, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    tensors = {
        "torch": torch.get_rng_state(),
        "numpy": torch.from_numpy(np.asarray(keys, dtype=np.int64)),
        "python": torch.tensor(numbers, dtype=torch.int64),
    }
    values = {"python": [version, gauss], "numpy": [name, int(position), int(has_gauss), float(cached)]}
    return tensors, values


def restore_generators(tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
    """Put the three back where `generator_states` found them."""
    torch.set_rng_state(tensors["torch"])
    name, position, has_gauss, cached = values["numpy"]
    np.random.set_state((name, tensors["numpy"].numpy().astype(np.uint32), position, has_gauss, cached))
    version, gauss = values["python"]
    random.setstate((version, tuple(tensors["python"].tolist()), gauss))
