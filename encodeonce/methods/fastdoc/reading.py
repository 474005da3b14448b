"""Documents as the encoder reads them: a row of sentence vectors each, in runs where it is longer than the positions.

Axes: P sentences of all documents   E width of what enters   D width
"""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from ...encoders.live import LiveBlocks

__all__ = ["over_sentences", "shown_in"]


def shown_in(lengths: Sequence[int], longest: int | None) -> tuple[int, ...]:
    """The lengths of the runs that documents are shown in: whole where they have at most `longest` sentences (None: any
    number), else in as few runs as that needs, as equal as possible, the longer first."""
    found: list[int] = []
    for length in lengths:
        n = -(-length // longest) if longest else 1
        found += [length // n + (i < length % n) for i in range(n)]
    return tuple(found)


def over_sentences(blocks: LiveBlocks, vectors: Float[Tensor, "P E"], lengths: Sequence[int]) -> Float[Tensor, "P D"]:
    """The last view of every sentence, in order. Sentences of two runs do not see each other; positions begin anew."""
    shown = shown_in(lengths, blocks.window)
    return blocks(blocks.place(vectors, shown), shown)
