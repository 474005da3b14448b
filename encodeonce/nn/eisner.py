"""The best dependency tree without crossing arcs and with exactly one word on the root (Eisner 1996).

The dynamic programme runs over the words alone: a word with everything it heads on one side is a complete span, two
facing complete spans joined by an arc are an incomplete one. The root comes last: one word r takes all words left and
right of it, and hangs on the root. All spans of one width are computed at once.

Axes: n words   h heads (n + 1: the root, then the words)   w width of a span (words minus one)
"""

import numpy as np
from jaxtyping import Float, Float64

from .trees import safe_scores

__all__ = ["eisner"]


def eisner(scores: Float[np.ndarray, "n h"]) -> list[int]:
    """heads [n] of the projective single-rooted tree with the highest sum of scores[word, head]; head 0 is the root.

    -inf forbids an arc; where no tree does without forbidden arcs, one with the fewest is returned. Equal scores give
    the same tree every time. Raises ConfigError for NaN and +inf. Time O(n^3) in O(n) steps.
    """
    safe = safe_scores(scores)
    return _Spans(safe).heads() if len(safe) > 1 else [0] * len(safe)


class _Spans:
    """Best scores of spans. Right: the leftmost word heads the span; left: the rightmost does.

    `x_by_start[i, w]` and `x_by_end[j, w]` are the same number for the span of words i ... j, w = j - i: what is summed
    over split points then lies side by side in memory. `arc` holds the split points of incomplete spans (either side:
    they differ by the arc only), `right` and `left` those of complete ones.
    """

    def __init__(self, scores: Float64[np.ndarray, "n h"]) -> None:
        n = len(scores)
        self.root, self.arcs = scores[:, 0], scores[:, 1:]
        self.right_by_start, self.right_by_end = np.zeros((n, n)), np.zeros((n, n))
        self.left_by_start, self.left_by_end = np.zeros((n, n)), np.zeros((n, n))
        self.right_open, self.left_open = np.zeros((n, n)), np.zeros((n, n))  # incomplete: by start, by end
        self.joint, self.right, self.left = (np.zeros((n, n), dtype=np.int64) for _ in range(3))
        for w in range(1, n):
            self.widen(w)

    def widen(self, w: int) -> None:
        """All spans of width w; their parts are narrower and known. Row i of every array is the span from word i."""
        n = len(self.root)
        starts, ends = np.arange(n - w), np.arange(w, n)
        # the left part has width 0 ... w-1, the right part what is left of w-1
        both = self.right_by_start[: n - w, :w] + self.left_by_end[w:, w - 1 :: -1]
        self.joint[starts, ends] = split = both.argmax(1)
        joined = both[starts, split]
        self.right_open[starts, w] = joined + self.arcs[ends, starts]
        self.left_open[ends, w] = joined + self.arcs[starts, ends]

        whole = self.right_open[: n - w, 1 : w + 1] + self.right_by_end[w:, w - 1 :: -1]  # open part 1 ... w
        self.right[starts, ends] = split = whole.argmax(1)
        self.right_by_start[starts, w] = self.right_by_end[ends, w] = whole[starts, split]

        whole = self.left_by_start[: n - w, :w] + self.left_open[w:, w:0:-1]  # closed part 0 ... w-1
        self.left[starts, ends] = split = whole.argmax(1)
        self.left_by_start[starts, w] = self.left_by_end[ends, w] = whole[starts, split]

    def heads(self) -> list[int]:
        """From the best root down through the split points."""
        n = len(self.root)
        places = np.arange(n)
        top = int((self.root + self.left_by_end[places, places] + self.right_by_start[places, n - 1 - places]).argmax())
        heads = [0] * n
        rights, lefts = [(top, n - 1)], [(0, top)]
        while rights or lefts:
            if rights:
                i, j = rights.pop()
                if i == j:
                    continue
                middle = i + 1 + int(self.right[i, j])
                heads[middle] = i + 1
                rights.append((middle, j))
                j = middle
            else:
                i, j = lefts.pop()
                if i == j:
                    continue
                middle = i + int(self.left[i, j])
                heads[middle] = j + 1
                lefts.append((i, middle))
                i = middle
            split = i + int(self.joint[i, j])
            rights.append((i, split))
            lefts.append((split + 1, j))
        return heads
