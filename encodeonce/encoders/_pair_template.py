"""Where a tokenizer puts its special pieces around the two texts of a pair, and how it numbers the segments.

BERT: [CLS] first [SEP] second [SEP], segments 0 and 1. RoBERTa: <s> first </s> </s> second </s>, no segments. T5: first
</s> second </s>. GPT-2: first second. The tokenizer itself is asked; no family is written down here.

Axes: T pieces of a pair
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int

from ..errors import EncoderError

__all__ = ["PairTemplate"]


@dataclass(frozen=True)
class PairTemplate:
    """Ids of the special pieces `before` the first text, `between` the two and `after` the second.

    `segments` are the segments of these five parts in their order (one number for each text); None where the tokenizer
    gives its model none.
    """

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    segments: tuple[tuple[int, ...], int, tuple[int, ...], int, tuple[int, ...]] | None

    @classmethod
    def of(cls, tokenizer: Any, word: str, source: str) -> "PairTemplate":
        """The template of a `transformers` tokenizer, shown by a pair of the same `word`.

        Raises EncoderError naming `source` where the tokenizer does not show both texts.
        """
        ids, owner, segments = (_fast if tokenizer.is_fast else _slow)(tokenizer, word)
        places = [[at for at, text in enumerate(owner) if text == which] for which in (0, 1)]
        if not all(places) or places[0][-1] >= places[1][0] or len(segments) != len(ids):
            raise EncoderError(
                f"{source}: the tokenizer has no form for a pair of texts; given {word!r} twice it makes {ids}, texts"
                f" {owner}, segments {segments}. Give single texts, or use a tokenizer with a pair template."
            )
        (start, end), (middle, stop) = ((text[0], text[-1] + 1) for text in places)
        parts = (slice(0, start), slice(end, middle), slice(stop, len(ids)))
        before, between, after = (tuple(ids[part]) for part in parts)
        if "token_type_ids" not in tokenizer.model_input_names:
            return cls(before, between, after, None)
        one, two, three = (tuple(segments[part]) for part in parts)
        return cls(before, between, after, (one, segments[start], two, segments[middle], three))

    def filled(
        self, first: Sequence[int], second: Sequence[int]
    ) -> tuple[Int[np.ndarray, " T"], Int[np.ndarray, " T"] | None]:
        """Ids of the pair and its segments, int32, for ids of its texts."""
        ids = np.array([*self.before, *first, *self.between, *second, *self.after], np.int32)
        if self.segments is None:
            return ids, None
        before, one, between, two, after = self.segments
        numbers = [*before, *[one] * len(first), *between, *[two] * len(second), *after]
        return ids, np.array(numbers, np.int32)

    def bounds(self, n_first: int, n_rows: int) -> tuple[int, int, int]:
        """Where the first text starts, where the second starts and where it stops, in a pair of `n_rows` pieces."""
        return len(self.before), len(self.before) + n_first + len(self.between), n_rows - len(self.after)


Shown = tuple[list[int], list[int | None], list[int]]
"""Ids, text (0, 1, None: a special piece) and segment of every piece."""


def _fast(tokenizer: Any, word: str) -> Shown:
    row = tokenizer.backend_tokenizer.encode([word], [word], is_pretokenized=True)
    return list(row.ids), list(row.sequence_ids), list(row.type_ids)


def _slow(tokenizer: Any, word: str) -> Shown:
    ids = list(tokenizer.build_inputs_with_special_tokens([-1], [-2]))
    segments = list(tokenizer.create_token_type_ids_from_sequences([-1], [-2]))
    return ids, [{-1: 0, -2: 1}.get(i) for i in ids], segments
