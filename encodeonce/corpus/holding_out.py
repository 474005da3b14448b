"""Splitting a corpus in two by its contents alone: the same items are held out on every machine, in every order.

Decision A-18: where a data set has no part of its own to choose between epochs, 10 % of its training part is held out,
stratified by label, with a fixed seed.
"""

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from ..errors import ConfigError, DataError
from ..types import Document

__all__ = ["held_out"]


def held_out(
    documents: Sequence[Document], part: float = 0.1, *, by: str | None = "label", seed: int = 0
) -> tuple[list[Document], list[Document]]:
    """(kept, held out), each in the order of `documents`; about `part` of them is held out, and of every stratum.

    `by` names a value in `meta`: one stratum for each (numbers with fractions are rounded to whole ones first); None,
    or a name that no document has: no strata. Within a stratum, items come in the order of the SHA-256 of seed and
    content, and the first are held out. Items of the same content stay together, so that none of it is on both sides.
    Raises ConfigError unless 0 < part < 1, DataError where either side would be empty.
    """
    if not 0 < part < 1:
        raise ConfigError(f"part={part} must lie between 0 and 1, both excluded.")
    strata: dict[str, set[str]] = defaultdict(set)
    for key, stratum in _strata(documents, by).items():
        strata[stratum].add(key)
    copies = Counter(document.key for document in documents)
    held: set[str] = set()
    for keys, quota in zip(strata.values(), _quotas(strata, copies, part), strict=True):
        for key in sorted(keys, key=lambda key: hashlib.sha256(f"{seed}/{key}".encode()).digest()):
            if quota <= 0:
                break
            held.add(key)
            quota -= copies[key]
    sides = ([d for d in documents if d.key not in held], [d for d in documents if d.key in held])
    if not all(sides):
        raise DataError(
            f"{len(documents)} documents ({len(copies)} different) cannot be split at {part}: one side would be empty."
        )
    return sides


def _strata(documents: Sequence[Document], by: str | None) -> dict[str, str]:
    """Key of each different content -> its stratum; of copies that disagree, the first in the alphabet."""
    found: dict[str, str] = {}
    for document in documents:
        stratum = "" if by is None else _stratum(document.meta.get(by))
        found[document.key] = min(stratum, found.get(document.key, stratum))
    return found


def _stratum(value: Any) -> str:
    text = str(value)
    try:
        number = float(text)
    except ValueError:
        return text
    return str(round(number)) if math.isfinite(number) else text


def _quotas(strata: dict[str, set[str]], copies: Counter[str], part: float) -> list[int]:
    """How many documents of each stratum are held out: shares rounded so that they sum to the whole's (Hamilton)."""
    share = Fraction(part).limit_denominator(10**6)
    sizes = [sum(copies[key] for key in keys) for keys in strata.values()]
    quotas = [math.floor(size * share) for size in sizes]
    left = round(sum(sizes) * share) - sum(quotas)
    names = list(strata)
    order = sorted(range(len(sizes)), key=lambda i: (quotas[i] - sizes[i] * share, names[i]))
    for i in order[:left]:
        quotas[i] += 1
    return quotas
