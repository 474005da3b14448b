"""Dependency trees against gold: attachment scores, with and without punctuation, per cent; None is undefined.

UAS is the share of words with the right head, LAS of those with the right head and label, micro over the corpus. What
punctuation is has three common definitions that differ (decision A-13), so each has its own named scores:

    form     every character of the word has a Unicode category that begins with P (Dozat and Manning's evaluation)
    upos     the gold UPOS is PUNCT
    deprel   the gold relation is punct (or a subtype of it)

The official CoNLL 2018 evaluator counts punctuation and leaves subtypes out: its LAS is `las_universal` here.
"""

import unicodedata
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..errors import ConfigError
from .accuracy import ratio

__all__ = ["PUNCTUATION", "Tree", "attachment", "is_punctuation", "universal"]


class Tree(NamedTuple):
    """`heads[i]` is the head of word i + 1 (0: the root), `labels[i]` its relation to it. Gold has words and UPOS too,
    as far as they are known: what punctuation is depends on them."""

    heads: tuple[int, ...] = ()
    labels: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    upos: tuple[str, ...] = ()


PUNCTUATION: dict[str, Callable[[Tree], list[bool] | None]] = {
    "form": lambda gold: [is_punctuation(word) for word in gold.words] if gold.words else None,
    "upos": lambda gold: [tag == "PUNCT" for tag in gold.upos] if gold.upos else None,
    "deprel": lambda gold: [universal(label) == "punct" for label in gold.labels],
}
"""Rule -> which words of a gold tree are punctuation; None where the tree does not say what the rule needs."""


def is_punctuation(word: str) -> bool:
    """Whether every character's Unicode category begins with P; "" is none."""
    return bool(word) and all(unicodedata.category(character)[0] == "P" for character in word)


def universal(label: str) -> str:
    """ "nsubj:pass" -> "nsubj"."""
    return label.partition(":")[0]


def attachment(gold: Sequence[Tree], predicted: Sequence[Tree]) -> dict[str, float | None]:
    """`uas`, `las` (full labels), `las_universal` (without subtypes) and `n`, the words counted: punctuation included.

    The same with `_no_punct_form`, `_no_punct_upos` and `_no_punct_deprel`: without what each rule calls punctuation;
    None where gold lacks what a rule needs. Raises ConfigError where gold and prediction differ in shape.
    """
    pairs = _paired(gold, predicted)
    scores = _counted([(g, p, None) for g, p in pairs])
    for rule, marks in PUNCTUATION.items():
        left_out = [marks(tree) for tree in gold]
        known = all(marked is not None or not tree.heads for marked, tree in zip(left_out, gold, strict=True))
        found = _counted([(g, p, out) for (g, p), out in zip(pairs, left_out, strict=True)] if known else [])
        scores |= {f"{name}_no_punct_{rule}": value if known else None for name, value in found.items()}
    return scores


def _paired(gold: Sequence[Tree], predicted: Sequence[Tree]) -> list[tuple[Tree, Tree]]:
    if len(gold) != len(predicted):
        raise ConfigError(f"{len(gold)} gold trees but {len(predicted)} predicted ones; each needs a prediction.")
    for index, (g, p) in enumerate(zip(gold, predicted, strict=True)):
        if len({len(g.heads), len(g.labels), len(p.heads), len(p.labels)}) > 1:
            raise ConfigError(
                f"item {index}: {len(g.heads)} gold heads, {len(g.labels)} labels; {len(p.heads)} predicted heads, "
                f"{len(p.labels)} labels; each word needs one of all four."
            )
    return list(zip(gold, predicted, strict=True))


def _counted(items: Sequence[tuple[Tree, Tree, list[bool] | None]]) -> dict[str, float | None]:
    """uas, las, las_universal and n over the words that are not marked."""
    n = head = full = short = 0
    for gold, predicted, marked in items:
        words = zip(gold.heads, predicted.heads, gold.labels, predicted.labels, strict=True)
        for word, (g_head, p_head, g_label, p_label) in enumerate(words):
            if marked is not None and marked[word]:
                continue
            n += 1
            if g_head == p_head:
                head += 1
                full += g_label == p_label
                short += universal(g_label) == universal(p_label)
    return {"uas": ratio(head, n), "las": ratio(full, n), "las_universal": ratio(short, n), "n": float(n)}
