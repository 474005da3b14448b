"""The work behind `analyse masking`: the same hidden pieces asked of several encoders."""

import logging
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from ..corpus.text import with_sentences
from ..encoders.masked_lm import MaskedLM
from ..encoders.pieces import load_tokenizer
from ..encoders.pretrained import Pretrained
from ..errors import ConfigError, DataError, EncoderError
from ..methods.fastdoc.analysis import Perturbation, perturbation
from ..methods.fastdoc.hiding import effects, targets_of
from ..methods.fastdoc.masking import Window, windows_of
from ..types import Document
from .analysing import BASE, beside, blocks_of

__all__ = ["hidden_pieces"]

log = logging.getLogger("encodeonce")


def hidden_pieces(
    base: str, trained: Sequence[str], documents: Sequence[Document], limit: int, seed: int
) -> tuple[dict[str, Perturbation], int]:
    """For each two encoders how far they agree, and how many sentences were longer than the window.

    ConfigError where tokenizers differ, EncoderError where one has no mask, DataError without a sentence.
    """
    named = beside(base, trained)
    first = named[BASE]
    for name, one in named.items():
        if one.spec().tokenizer != first.spec().tokenizer or one.window != first.window:
            raise ConfigError(
                f"{name} has another tokenizer or window than the base: the same pieces must be asked of both. Compare "
                "encoders trained from one base."
            )
    heads = {name: MaskedLM.load(one.path) for name, one in named.items()}
    mask = load_tokenizer(first.path).mask_token_id
    if mask is None:
        raise EncoderError(f"{first.path}: its tokenizer has no mask, so no piece can be hidden.")
    windows, left_out = _sentences(first, documents, limit, seed)
    if left_out:
        whole = len(windows) + left_out
        log.info("%d of %d drawn sentences are longer than %d pieces and left out", left_out, whole, first.window)
    targets = targets_of(windows, seed)
    log.info("%d sentences of %.1f pieces", len(windows), np.mean([(w.word >= 0).sum() for w in windows]))
    found = {name: _effects(one, heads[name], int(mask), windows, targets) for name, one in named.items()}
    return {f"{a}, {b}": perturbation(found[a], found[b]) for a, b in combinations(named, 2)}, left_out


def _sentences(first: Pretrained, documents: Sequence[Document], limit: int, seed: int) -> tuple[list[Window], int]:
    """Different sentences drawn evenly, those over the window left out and counted."""
    different = list(dict.fromkeys(s for document in with_sentences(documents) for s in document.sentences))
    if not different:
        raise DataError(f"none of {len(documents)} documents has a sentence.")
    order = np.random.default_rng(seed).permutation(len(different))[:limit]
    cut = first.cut([Document(f"sentence {i}", text=different[i]) for i in order])
    kept = [one for one in cut if len(one.windows) == 1]
    if not kept:
        raise DataError(f"all of {len(cut)} drawn sentences are longer than the window of {first.window} pieces.")
    return windows_of(kept, [""] * len(kept)), len(cut) - len(kept)


def _effects(
    one: Pretrained, head: MaskedLM, mask: int, windows: Sequence[Window], targets: Sequence[int]
) -> list[list[float]]:
    from tqdm import tqdm

    found = effects(blocks_of(one), head, mask, windows, targets)
    bar = tqdm(found, total=len(windows), desc=one.name, unit=" sentences", disable=None, leave=False)
    return [one.tolist() for one in bar]
