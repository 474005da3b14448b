"""What stands in the neighbours' place to see whether it is the neighbours that help (spec B11).

    random     k rows of the corpus drawn for each example
    shuffled   the neighbours of another example, of whatever class
    constant   the mean of the corpus, k times

If these do as well as the neighbours, what was retrieved is not what helps.

Axes: N examples   S texts of an example   K neighbours   D width
"""

from dataclasses import replace

import numpy as np

from ...errors import ConfigError
from ...nn.exchange import exchanged
from ...resolve import nearest
from ...store import Search
from .near import Near

__all__ = ["CONTROLS", "instead"]

CONTROLS = ("random", "shuffled", "constant")


def instead(kind: str, near: Near, seed: int = 0) -> Near:
    """The same examples with other vectors, as many. Random rows depend on the seed and the example's key alone.

    Raises ConfigError for an unknown kind, and where there is no other example to take neighbours from.
    """
    if kind not in CONTROLS:
        raise ConfigError(
            f"control {kind!r} is not known. There is: {', '.join(CONTROLS)}.{nearest(kind, list(CONTROLS))}"
        )
    if kind == "constant":
        sums = [near.search.vectors(part).sum(0, dtype=np.float64) for part in _runs(len(near.search))]
        mean = Search((np.sum(sums, axis=0) / len(near.search)).astype(np.float32)[None])
        return Near(near.keys, np.zeros_like(near.ids), np.zeros_like(near.scores), mean)
    if kind == "shuffled":
        if len(set(near.keys)) < 2:
            raise ConfigError(f"{len(set(near.keys))} different example cannot be given another's neighbours.")
        others = exchanged(len(near.keys), seed)
        return replace(near, ids=near.ids[others], scores=near.scores[others])
    _, n_texts, k = near.ids.shape
    drawn = [
        [draw.choice(len(near.search), k, replace=False) for _ in range(n_texts)]
        for draw in (np.random.default_rng([seed, int(key[:12], 16)]) for key in near.keys)
    ]
    return replace(near, ids=np.array(drawn, np.int64), scores=np.zeros_like(near.scores))


def _runs(n: int, size: int = 1 << 16) -> list[np.ndarray]:
    return [np.arange(start, min(start + size, n)) for start in range(0, n, size)]
