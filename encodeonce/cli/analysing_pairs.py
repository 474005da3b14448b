"""The work behind `analyse paragraphs` and `analyse windows`: documents of one category, and of different ones.

Axes: Q pairs   R rows of a document   D width
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from jaxtyping import Int

from ..corpus.taxonomy import path_of
from ..corpus.text import joined, paragraphs, with_sentences
from ..encoders.pooled import Pooled
from ..encoders.pretrained import Pretrained
from ..errors import ConfigError, DataError
from ..methods.fastdoc.analysis import paragraph_similarity, window_length
from ..methods.fastdoc.sampling import triplets
from ..methods.fastdoc.similarity import SharedGroup
from ..types import Document
from .analysing import sentence_vectors
from .steps import names_of

__all__ = [
    "CHANCE",
    "DISSIMILAR",
    "SIMILAR",
    "Pairs",
    "above",
    "paired",
    "paragraph_scores",
    "spread",
    "window_lengths",
]

log = logging.getLogger("encodeonce")

SIMILAR, DISSIMILAR = "similar", "dissimilar"
CHANCE = "chance"
"""Of documents whose vectors are in no order."""

Rows = Sequence[np.ndarray]
"""Of every document [R D], R its own."""
Scores = dict[str, dict[str, list[float]]]
"""What is compared -> kind of pair -> its scores."""


@dataclass(frozen=True)
class Pairs:
    """`drawn` [Q 3] numbers `documents`: one, one of its category, one of another."""

    documents: list[Document]
    drawn: Int[np.ndarray, "Q 3"]

    def __len__(self) -> int:
        return len(self.drawn)

    def scored(self, score: Callable[[int, int], Sequence[float]]) -> dict[str, list[float]]:
        """The scores of all similar pairs, and of all dissimilar ones."""
        return {
            kind: [float(s) for row in self.drawn for s in score(int(row[0]), int(row[k]))]
            for k, kind in ((1, SIMILAR), (2, DISSIMILAR))
        }


def paired(documents: Sequence[Document], field: str, levels: int, n: int, seed: int) -> Pairs:
    """Drawn as `pretrain` draws triplets by category. DataError without categories, or where nothing has a partner."""
    kept = _with_sentences(documents)
    paths = [path_of(document, field)[: levels or None] for document in kept]
    if not any(paths):
        known = sorted({name for document in kept for name in document.meta})
        if field in known:
            raise DataError(f"--path {field}: it is empty in all {len(kept)} documents, so there are no categories.")
        raise DataError(
            f"--path {field}: none of {len(kept)} documents has this field. There is: {', '.join(known) or 'none'}."
        )
    keys = [document.key_in("sentence") for document in kept]
    rule = SharedGroup.of(keys, [[" > ".join(path)] if path else [] for path in paths])
    drawn = triplets(rule, n, seed).tuples
    used = np.unique(drawn)
    return Pairs([kept[i] for i in used], np.searchsorted(used, drawn))


def paragraph_scores(encoders: Sequence[str], pairs: Pairs, unit: str) -> Scores:
    """Encoder -> scores of every paragraph (or sentence) of both documents; of one that brought its sentences, of
    these."""
    sources = [Pooled(Pretrained(encoder)) for encoder in encoders]  # all are there before the first encodes
    parts = [_parts(document, unit) for document in pairs.documents]
    found = {}
    for name in names_of(encoders):
        rows = sentence_vectors(sources.pop(0), parts)
        found[name] = pairs.scored(partial(_nearest, rows))
    return found


def window_lengths(
    encoder: str,
    sentence_encoder: str | None,
    documents: Sequence[Document],
    field: str,
    levels: int,
    n: int,
    pieces: tuple[int, int] | None,
    seed: int,
) -> tuple[Scores, Pairs]:
    """ "pieces" and "sentences" -> one length a pair, of similar and dissimilar ones, and by chance of each."""
    model, source = Pretrained(encoder, overlap=0), Pooled(Pretrained(sentence_encoder or encoder))
    least, most = pieces or (1, model.window)
    if least > most:
        raise ConfigError(f"--pieces {least} {most}: the least comes first; write --pieces {most} {least}.")
    kept = _with_sentences(documents)
    cut = model.cut(list(map(joined, kept)))
    fit = [(d, one.ids[one.word >= 0]) for d, one in zip(kept, cut, strict=True) if least <= len(one) <= most]
    if len(fit) < 3:
        raise DataError(
            f"{len(fit)} of {len(kept)} documents have {least} to {most} pieces; three are needed. Give other --pieces."
        )
    if len(fit) < len(kept):
        log.info("%d of %d documents have %d to %d pieces; the others are left out", len(fit), len(kept), least, most)
    ids = {document.key_in("sentence"): own for document, own in fit}
    pairs = paired([document for document, _ in fit], field, levels, n, seed)
    table = model.stack().model.get_input_embeddings().weight.detach()
    by_piece = [table[torch.from_numpy(ids[d.key_in("sentence")].astype(np.int64))].numpy() for d in pairs.documents]
    by_sentence = sentence_vectors(source, [d.sentences for d in pairs.documents])
    found = {}
    for name, rows in (("pieces", by_piece), ("sentences", by_sentence)):
        own, chance = pairs.scored(partial(_apart, rows)), pairs.scored(partial(_by_chance, rows))
        found[name] = {**own, **{f"{CHANCE}, {kind}": values for kind, values in chance.items()}}
    return found, pairs


def spread(values: Sequence[float]) -> dict[str, int | float]:
    """How many, their mean, standard deviation and quartiles."""
    low, middle, high = np.percentile(values, (25, 50, 75))
    return {
        "n": len(values),
        "mean": float(np.mean(values)),
        "sd": float(np.std(values)),
        "quarter": float(low),
        "median": float(middle),
        "three_quarters": float(high),
    }


def above(by: dict[str, list[float]]) -> float:
    """How often a score of a similar pair is above one of a dissimilar one; equal to six places counts half."""
    from scipy.stats import rankdata

    n, m = len(by[SIMILAR]), len(by[DISSIMILAR])
    ranks = rankdata(np.round([*by[SIMILAR], *by[DISSIMILAR]], 6))
    return float((ranks[:n].sum() - n * (n + 1) / 2) / (n * m))


def _with_sentences(documents: Sequence[Document]) -> list[Document]:
    """Those that have one, cut into them; what brought its own has no other text. DataError where there is none."""
    cut = zip(documents, with_sentences(documents), strict=True)
    kept = [replace(one, text="") if document.sentences else one for document, one in cut if one.sentences]
    if not kept:
        raise DataError(f"none of {len(documents)} documents has a sentence, so there is nothing to compare.")
    return kept


def _nearest(rows: Rows, one: int, other: int) -> list[float]:
    return paragraph_similarity(rows[one], rows[other]).tolist()


def _apart(rows: Rows, one: int, other: int) -> list[float]:
    return [window_length(rows[one], rows[other])]


def _by_chance(rows: Rows, one: int, other: int) -> list[float]:
    """Mean of 1 + |i - j| over all places of both documents."""
    places = np.arange(len(rows[one]))[:, None] - np.arange(len(rows[other]))[None]
    return [float(np.mean(1 + np.abs(places)))]


def _parts(document: Document, unit: str) -> tuple[str, ...]:
    if unit == "sentence" or not document.text:
        return document.sentences
    return tuple(document.text[start:stop] for start, stop in paragraphs(document.text))
