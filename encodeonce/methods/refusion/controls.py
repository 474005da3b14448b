"""What stands in the neighbours' place to see whether it is the neighbours that help (spec B11).

    random     k rows of the corpus drawn for each example
    shuffled   the neighbours of another example, of whatever class
    constant   the mean of the corpus, k times

If these do as well as the neighbours, what was retrieved is not what helps. An example gets its own texts from neither
of the first two.

Axes: N examples   S texts of an example   K neighbours   D width
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Int

from ...errors import ConfigError
from ...nn.exchange import exchanged
from ...resolve import nearest
from ...store import Search
from .near import Near

__all__ = ["CONTROLS", "instead"]

CONTROLS = ("random", "shuffled", "constant")


def instead(kind: str, near: Near, seed: int = 0) -> Near:
    """The same examples with other vectors, as many. Random rows depend on the seed and the example's key alone.

    Raises ConfigError for an unknown kind, and where no other example's neighbours can be taken.
    """
    if kind not in CONTROLS:
        raise ConfigError(
            f"control {kind!r} is not known. There is: {', '.join(CONTROLS)}.{nearest(kind, list(CONTROLS))}"
        )
    if kind == "constant":
        sums = [near.search.vectors(part).sum(0, dtype=np.float64) for part in _runs(len(near.search))]
        mean = Search((np.sum(sums, axis=0) / len(near.search)).astype(np.float32)[None])
        return Near(near.keys, np.zeros_like(near.ids), np.zeros_like(near.scores), mean)
    own = near.own or [()] * len(near.keys)
    if kind == "shuffled":
        others = _others(near, own, seed)
        return replace(near, ids=near.ids[others], scores=near.scores[others])
    _, n_texts, k = near.ids.shape
    every, drawn = np.arange(len(near.search)), []
    for key, left_out in zip(near.keys, own, strict=True):
        draw = np.random.default_rng([seed, int(key[:12], 16)])
        rows = np.setdiff1d(every, left_out) if len(left_out) else every
        drawn.append([draw.choice(rows, k, replace=False) for _ in range(n_texts)])
    return replace(near, ids=np.array(drawn, np.int64), scores=np.zeros_like(near.scores))


def _others(near: Near, own: Sequence[Sequence[int]], seed: int) -> Int[np.ndarray, " N"]:
    """Whose neighbours each example gets: those of the next in one round through all that is another one and has none
    of the example's own texts among them."""
    if len(set(near.keys)) < 2:
        raise ConfigError(f"{len(set(near.keys))} different example cannot be given another's neighbours.")
    following = exchanged(len(near.keys), seed)
    others = following.copy()
    for n, left_out in enumerate(own):
        while others[n] != n and (
            near.keys[others[n]] == near.keys[n] or bool(np.isin(near.ids[others[n]], left_out).any())
        ):
            others[n] = following[others[n]]
        if others[n] == n:
            raise ConfigError(
                f"example {n} is among the neighbours of all others, so none can be given to it; retrieve fewer than "
                f"{near.ids.shape[2]}, or from more texts."
            )
    return others


def _runs(n: int, size: int = 1 << 16) -> list[np.ndarray]:
    return [np.arange(start, min(start + size, n)) for start in range(0, n, size)]
