"""What hiding one more piece does, against transformers, one sentence and one piece at a time (spec A16, number 2)."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from encodeonce.encoders.live import LiveBlocks
from encodeonce.encoders.masked_lm import MaskedLM
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.errors import DataError
from encodeonce.methods.fastdoc.hiding import effects, targets_of
from encodeonce.methods.fastdoc.masking import Window


@pytest.mark.parametrize("family", ["bert", "roberta", "modernbert"])
def test_fd19_effects_are_those_of_transformers(family: str, checkpoint: Callable[..., Path]) -> None:
    from transformers import AutoModelForMaskedLM

    folder = checkpoint(family, masked=True)
    stack, model = Pretrained(folder).stack(), AutoModelForMaskedLM.from_pretrained(folder).eval()
    blocks = LiveBlocks(stack, range(stack.n_blocks), final=True, embeddings=True).train()
    rng, mask = np.random.default_rng(0), 4
    windows = []
    for length in (3, 4, 9, 11):
        word = np.array([-1, *range(length - 2), -1])
        windows.append(Window(rng.integers(5, 30, length), word, f"of {length}"))
    targets = targets_of(windows, seed=3)
    assert all(window.word[t] >= 0 for window, t in zip(windows, targets, strict=True))
    assert targets == targets_of(windows, seed=3)
    found = list(effects(blocks, MaskedLM.load(folder), mask, windows, targets))
    assert blocks.training, "the mode of before"
    assert [len(one) for one in found] == [0, 1, 6, 8]

    def chance(ids: np.ndarray, hidden: list[int], target: int) -> float:
        shown = torch.from_numpy(ids.copy())[None]
        shown[0, hidden] = mask
        with torch.no_grad():
            return float(model(shown).logits[0, target].softmax(0)[int(ids[target])])

    for window, target, one in zip(windows, targets, found, strict=True):
        alone = chance(window.ids, [target], target)
        others = [j for j in range(1, len(window.ids) - 1) if j != target]
        due = [chance(window.ids, [target, j], target) - alone for j in others]
        np.testing.assert_allclose(one, due, atol=2e-6)
    with pytest.raises(DataError, match="of 3: row 0 is no piece that can be hidden"):
        list(effects(blocks, MaskedLM.load(folder), mask, windows[:1], [0]))


def test_a_sentence_that_runs_in_parts_has_the_same_effects(
    checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = checkpoint("bert", masked=True)
    stack, head = Pretrained(folder).stack(), MaskedLM.load(folder)
    blocks = LiveBlocks(stack, range(stack.n_blocks), final=True, embeddings=True)
    window = Window(np.arange(5, 17), np.array([-1, *range(10), -1]), "")
    (whole,) = effects(blocks, head, 4, [window], [2])
    monkeypatch.setattr("encodeonce.methods.fastdoc.hiding.TOGETHER", 3)
    (parts,) = effects(blocks, head, 4, [window], [2])
    np.testing.assert_allclose(parts, whole, atol=1e-7)
