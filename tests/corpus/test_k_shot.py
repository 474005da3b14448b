"""k examples a label: the published check value, sizes, and LM-BFF's own samples of a task whose full data are here."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encodeonce.corpus.k_shot import SEEDS, k_shot
from encodeonce.errors import ConfigError, DataError


def test_I33_seed_13_shuffles_ten_items_as_published() -> None:
    shuffled = [item for split in k_shot(range(10), "a" * 10, k=5, seed=13) for item, _ in split]
    assert shuffled == [3, 5, 6, 1, 4, 7, 8, 9, 0, 2]


def test_I33_sizes_are_k_a_label_train_and_dev_are_disjoint_and_a_seed_decides() -> None:
    labels = [str(label) for label in np.random.default_rng(0).integers(0, 3, 300)]
    train, dev = k_shot(range(300), labels, k=16, seed=42)
    for split in (train, dev):
        assert sorted(label for _, label in split) == sorted("012" * 16)
        assert all(labels[item] == label for item, label in split)
    assert not {item for item, _ in train} & {item for item, _ in dev}
    assert (train, dev) == k_shot(range(300), labels, k=16, seed=42)
    assert len({tuple(item for item, _ in k_shot(range(300), labels, 16, seed)[0]) for seed in SEEDS}) == 5


def test_too_few_of_a_label_is_an_error_that_names_it() -> None:
    with pytest.raises(DataError, match=r"needs 4 items of every label.*3 of 'b'"):
        k_shot(range(8), list("aaaaabbb"), k=2)
    with pytest.raises(DataError, match="no items"):
        k_shot([], [], k=2)
    with pytest.raises(ConfigError, match="k=0 must be at least 1"):
        k_shot(range(2), "ab", k=0)


def test_items_and_labels_that_are_not_as_many_and_odd_seeds_are_errors_of_ours() -> None:
    with pytest.raises(DataError, match="4 items and 3 labels: give every item one label"):
        k_shot(range(4), "aab", k=1)
    for seed in (-1, 2**32):
        with pytest.raises(ConfigError, match=rf"seed={seed} must be 0 or more"):
            k_shot(range(4), "aabb", k=1, seed=seed)


def rows(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.mark.parametrize("seed", SEEDS)
def test_I33_rte_samples_are_lm_bffs_own(shared: Path, seed: int) -> None:
    whole = rows(shared / "data" / "glue" / "rte" / "train.jsonl.gz")
    published = rows(shared / "data" / "fewshot_lmbff_k16" / "rte.jsonl.gz")
    drawn = k_shot([(row["text_a"], row["text_b"]) for row in whole], [row["label"] for row in whole], 16, seed)
    for split, found in zip(("train", "dev"), drawn, strict=True):
        own = [row for row in published if (row["seed"], row["split"]) == (seed, split)]
        assert [((row["text_a"], row["text_b"]), row["label"]) for row in own] == found
