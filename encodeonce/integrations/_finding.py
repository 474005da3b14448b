"""Which methods find as many unlabelled texts as are asked for, whatever text is asked."""

import logging
from collections import Counter
from collections.abc import Sequence

from ..errors import TooFewVectors
from ..methods.fewshot import PROBES
from ..methods.refusion.near import same, texts_of
from ..types import Document
from ._fused import FUSED
from ._material import content

__all__ = ["finding"]

log = logging.getLogger("encodeonce")

SIDES = ("neighbours", "shuffled", "random")
"""Sides of a probe that are as many unlabelled texts as were asked for."""


def finding(
    names: Sequence[str], corpus: Sequence[Document], pairs: bool, neighbours: int, required: bool
) -> Sequence[str]:
    """The methods less those that would find too few texts of `corpus` for a text that is itself among them, which may
    be any that is labelled, or asked when all is trained: said, or TooFewVectors where all are `required`."""
    texts = {same(text) for document in corpus for text in texts_of(document)}
    copied = sorted(Counter(map(content, corpus)).values(), reverse=True)
    kept = []
    for name in names:
        if name in FUSED:  # of texts that are the same it keeps one
            n, most = len(texts), 1 + pairs
        elif name in PROBES and PROBES[name].side in SIDES:
            n, most = len(corpus), sum(copied[: 1 + (PROBES[name].side == "shuffled")])  # nor another's, there
        else:
            n, most = neighbours, 0
        if n - most >= neighbours:
            kept.append(name)
            continue
        found = (
            f"{neighbours} neighbours asked for, but there are {n} unlabelled texts, and {most} of them may be copies "
            "of a text that is asked, which are no neighbours of it. "
        )
        ask = f"Ask for at most {n - most} with --neighbours (in Python neighbours=...), or give" * (n > most)
        if required:
            raise TooFewVectors(f"method {name!r}: {found}{ask or 'Give'} more texts, or leave the method out.")
        log.warning("%s not tried: %s%s more texts.", name, found, ask or "Give")
    return kept
