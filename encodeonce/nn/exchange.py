"""Who is given whose in a control that shuffles: a random order in which nobody keeps their own.

Axes: N items
"""

import numpy as np
from jaxtyping import Int

__all__ = ["exchanged"]


def exchanged(n: int, seed: int = 0) -> Int[np.ndarray, " N"]:
    """For each of n >= 2 places another one, each given once: one round through all of them in random order.

    Not the neighbouring place: samples of few labels stand class by class, and a neighbour is of the same class.
    """
    order = np.random.default_rng(seed).permutation(n)
    given = np.empty(n, np.int64)
    given[order] = np.roll(order, 1)
    return given
