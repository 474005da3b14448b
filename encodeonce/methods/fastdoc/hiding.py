"""What hiding one more piece does to the probability of a hidden one (FastDoc, appendix G.4, Table 29; spec A16).

Axes: T pieces of a sentence, special ones included   N pieces that are hidden beside the target   V vocabulary
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float

from ...encoders.live import LiveBlocks
from ...encoders.masked_lm import MaskedLM
from ...errors import DataError
from .masking import Window
from .measure import still

__all__ = ["effects", "targets_of"]

TOGETHER = 64
"""Variants of a sentence that run together."""


def targets_of(windows: Sequence[Window], seed: int = 0) -> list[int]:
    """For each sentence the row of a piece drawn evenly from those that are not special."""
    rng = np.random.default_rng(seed)
    return [int(rng.choice(np.flatnonzero(window.word >= 0))) for window in windows]


def effects(
    blocks: LiveBlocks, head: MaskedLM, mask_id: int, windows: Sequence[Window], targets: Sequence[int]
) -> Iterator[Float[np.ndarray, " N"]]:
    """For each sentence p_j - p_0 for every other piece j that is not special, in their order: p_0 is the probability
    of the true piece at the target's row when that alone is hidden, p_j when j is hidden too. A sentence of one piece
    has none. No dropout. DataError for a target that is no row of its sentence, or special."""
    for window, target in zip(windows, targets, strict=True):
        if not 0 <= target < len(window.ids) or window.word[target] < 0:
            raise DataError(f"{window.place or 'a sentence'}: row {target} is no piece that can be hidden.")
        others = [j for j in np.flatnonzero(window.word >= 0).tolist() if j != target]
        shown = np.tile(window.ids, (1 + len(others), 1))
        shown[:, target] = mask_id
        shown[1 + np.arange(len(others)), others] = mask_id
        with still(blocks):
            parts = [
                _probabilities(blocks, head, shown[at : at + TOGETHER], target, int(window.ids[target]))
                for at in range(0, len(shown), TOGETHER)
            ]
        chances = np.concatenate(parts)
        yield chances[1:] - chances[0]


def _probabilities(
    blocks: LiveBlocks, head: MaskedLM, shown: np.ndarray, target: int, true: int
) -> Float[np.ndarray, " N"]:
    """Of the piece `true` at the row `target` of each line."""
    n, length = shown.shape
    ids, lengths = torch.from_numpy(shown.ravel()), (length,) * n
    rows = blocks(blocks.enter(ids, lengths), lengths, torch.arange(n) * length + target)
    return np.asarray(head(rows).softmax(-1)[:, true].double())
