"""The best path through a chain of labels (Viterbi 1967).

Axes: T rows of one item   C labels
"""

import numpy as np
from jaxtyping import Float

__all__ = ["viterbi"]


def viterbi(
    scores: Float[np.ndarray, "T C"],
    start: Float[np.ndarray, " C"],
    step: Float[np.ndarray, "C C"],
    end: Float[np.ndarray, " C"],
) -> list[int]:
    """The labels that maximise start[y_0] + sum_t scores[t, y_t] + sum_t step[y_t, y_t+1] + end[y_T−1].

    Of equal paths the one with the smaller label wins, compared from the end. An item without rows has no labels.
    """
    if len(scores) == 0:
        return []
    best = scores[0].astype(np.float64) + start
    came_from = np.zeros(scores.shape, dtype=np.int64)
    for t in range(1, len(scores)):
        reached = best[:, None] + step
        came_from[t] = reached.argmax(0)
        best = reached.max(0) + scores[t]
    path = [int((best + end).argmax())]
    for t in range(len(scores) - 1, 0, -1):
        path.append(int(came_from[t, path[-1]]))
    return path[::-1]
