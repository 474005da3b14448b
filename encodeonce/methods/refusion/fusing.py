"""Settings of retrieval fusion, and the named ones: the paper's, its ablations, what the authors released (spec B3-B5).

Slots are linear maps inside a block, by the names of `encoders`: "query", "key", "value", and "feed_forward", the
second of the two (the first is as a rule four times as wide as any stored vector).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ...errors import ConfigError
from ...resolve import nearest

__all__ = ["FUSINGS", "POSITIONS", "SCHEMES", "SLOTS", "Fusing"]

SLOTS: Mapping[str, str] = {"query": "query", "key": "key", "value": "value", "feed_forward": "down"}
"""Name here -> slot of an encoder."""

SCHEMES = ("identity", "add", "reranker", "mask", "released_mask")
"""What a module may add: nothing, the mean (RF-add), eqs. 5-6, eqs. 7-10, what the release computes for the latter."""

POSITIONS = ("first", "mask", "all")
SCALES = ("paper", "convex")
PROJECTIONS = ("none", "linear")
QUERIES = ("input", "hidden")
ENDINGS = ("argmax", "soft")


@dataclass(frozen=True)
class Fusing:
    """One fused module for each of `slots` in each of `blocks` (none: all), fed with `k` neighbours, nearest first.

    `schemes` are a module's candidates; where there are several an architecture of one number a candidate is searched
    (eq. 11), `order` 1 or 2, and predictions use the likeliest (`ending` "argmax", ties to the earlier) or the mixture
    ("soft"). `choice` fixes one scheme a module instead, slot after slot inside block after block: what "retrain"
    trains. `position`: the vector goes to an item's "first" row, the row the head reads ("mask"), or "all".

    `scale` "paper" divides a ranked sum by k although its weights sum to 1; "convex" does not, and divides the ordered
    mask's by what it keeps; "released_mask" has the released scale alone. `temperature` is tau of the ordered mask.
    `project` "linear" maps vectors of another width by a matrix that starts at 0. `queries` "hidden" searches anew in
    every module, by its own input; over a `Retrieved` source no text gets its own rows.

    `leak` adds gradients of the dev loss to the weights' and leaves the architecture at its random start, as released
    (once a step: with gradient accumulation the release does so for every part of it);
    `xavier` draws start values of ranks and masks as released.

    Raises ConfigError for values out of range, for keys at all positions, for a convex "released_mask", and for a leak
    where nothing is searched.
    """

    slots: Sequence[str] = ("key", "value")
    blocks: Sequence[int] = ()
    schemes: Sequence[str] = ("identity", "reranker", "mask")
    k: int = 64
    position: str = "first"
    scale: str = "paper"
    temperature: float = 1.0
    project: str = "none"
    queries: str = "input"
    order: int = 1
    ending: str = "argmax"
    choice: Sequence[str] = ()
    leak: bool = False
    xavier: bool = False

    def __post_init__(self) -> None:
        for name in ("slots", "blocks", "schemes", "choice"):
            if isinstance(getattr(self, name), str):
                raise ConfigError(f"{name}={getattr(self, name)!r} is a text. Give a list: [{getattr(self, name)!r}].")
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for what, values, known in (
            ("slot", self.slots, list(SLOTS)),
            ("scheme", (*self.schemes, *self.choice), list(SCHEMES)),
            ("position", (self.position,), list(POSITIONS)),
            ("scale", (self.scale,), list(SCALES)),
            ("project", (self.project,), list(PROJECTIONS)),
            ("queries", (self.queries,), list(QUERIES)),
            ("ending", (self.ending,), list(ENDINGS)),
        ):
            for value in values:
                if value not in known:
                    raise ConfigError(
                        f"{what} {value!r} is not known. There is: {', '.join(known)}.{nearest(value, known)}"
                    )
        for name in ("slots", "blocks", "schemes"):
            values = getattr(self, name)
            if len(set(values)) != len(values) or (not values and name != "blocks"):
                raise ConfigError(f"{name}={list(values)}: give at least one, each once.")
        whole = isinstance(self.k, int) and not isinstance(self.k, bool)
        if not whole or self.k < 1 or not 0 < self.temperature < math.inf or self.order not in (1, 2):
            raise ConfigError(
                f"k={self.k}, temperature={self.temperature}, order={self.order}: k must be a whole number of at least "
                "1, the temperature finite and greater than 0, the order 1 or 2."
            )
        if self.leak and not (self.searched and self.order == 1):
            raise ConfigError(
                f"leak=True with schemes={list(self.schemes)}, order={self.order}: dev gradients leak in the search's "
                "first-order step, so give several schemes, order=1 and no choice; or train on train and dev together."
            )
        if self.scale == "convex" and "released_mask" in (self.choice or self.schemes):
            raise ConfigError(
                "scale='convex' with the scheme 'released_mask': it is what the released code computes, which divides "
                "by k. Use scale='paper', or the scheme 'mask', which can be convex."
            )
        if self.position == "all" and "key" in self.slots:
            raise ConfigError(
                "slots with 'key' at position='all' change nothing: every score of a query moves by the same amount, "
                "which the softmax ignores. Use position='first' or 'mask', or leave 'key' out."
            )

    @property
    def searched(self) -> bool:
        """Whether there is an architecture to search."""
        return len(self.schemes) > 1 and not self.choice

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}


FUSINGS: Mapping[str, Fusing] = {
    "refusion": Fusing(),
    "refusion_reranker": Fusing(schemes=("identity", "reranker")),
    "refusion_mask": Fusing(schemes=("identity", "mask")),
    "add": Fusing(schemes=("add",)),
    "reranker": Fusing(schemes=("reranker",)),
    "mask": Fusing(schemes=("mask",)),
    "convex": Fusing(scale="convex"),
    "release": Fusing(schemes=("identity", "reranker", "released_mask"), temperature=5.0, leak=True, xavier=True),
}
"""Rows of the paper's Table 2 by name, the search without the second division by k, and the released code's."""
