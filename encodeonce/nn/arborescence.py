"""The best dependency tree, crossing arcs allowed, with exactly one word on the root (Chu and Liu 1965, Edmonds 1967).

A tree has at least one arc from the root, and what is wanted is the best tree with no second one. So the root is a last
resort: cycles are contracted (Tarjan 1977, a path grown over a dense matrix) until all words are one node, and only
then one arc from the root enters it. That is the algorithm on pairs (minus the number of root arcs, score), compared
in this order, without a large constant that would eat the precision of the scores.

Axes: n words, and nodes made of them   h heads (n + 1: the root, then the words)
"""

import numpy as np
from jaxtyping import Float, Float64

from .trees import safe_scores

__all__ = ["arborescence"]


def arborescence(scores: Float[np.ndarray, "n h"]) -> list[int]:
    """heads [n] of the single-rooted tree with the highest sum of scores[word, head]; head 0 is the root.

    -inf forbids an arc; where no tree does without forbidden arcs, one with the fewest is returned. Equal scores give
    the same tree every time. Raises ConfigError for NaN and +inf. Time O(n^2).
    """
    safe = safe_scores(scores)
    return _Contraction(safe).heads() if len(safe) > 1 else [0] * len(safe)


class _Contraction:
    """The nodes still there: a contracted cycle takes over row and column of the node at which it closed.

    `into[v, u]` is what the best arc from a word inside u to a word inside v adds to the tree, -inf where there is none
    any more, and `arc[v, u]` says which arc that is: n x word + head. `root` and `root_word` say the same of the root.
    """

    def __init__(self, scores: Float64[np.ndarray, "n h"]) -> None:
        n = len(scores)
        self.n = self.left = n
        self.root, self.root_word = scores[:, 0].copy(), np.arange(n)
        self.into = scores[:, 1:].copy()
        np.fill_diagonal(self.into, -np.inf)
        self.arc = np.arange(n * n).reshape(n, n)
        self.node = list(range(n))  # which node a row stands for: a word, or n + the place of a cycle in `cycles`
        self.above = [-1] * n  # the cycle that a node lies in
        self.cycles: list[list[tuple[int, int]]] = []  # its nodes, each with the arc that enters it

    def heads(self) -> list[int]:
        """Follow best heads; close every cycle that comes about; enter the last node from the root."""
        path, best = [0], [0] * self.n
        on_path = [False] * self.n
        on_path[0] = True
        while self.left > 1:
            at = path[-1]
            up = int(self.into[at].argmax())
            best[at] = up
            if not on_path[up]:
                path.append(up)
                on_path[up] = True
                continue
            first = path.index(up)
            self.contract(path[first:], best)
            for gone in path[first + 1 :]:
                on_path[gone] = False
            del path[first + 1 :]
        return self.opened(path[0])

    def contract(self, members: list[int], best: list[int]) -> None:
        """Make one node of a cycle, in the row and column of its first member."""
        kept, gone = members[0], members[1:]
        chosen = [best[member] for member in members]
        inside = self.into[members, chosen]
        arcs = self.arc[members, chosen].tolist()
        for member in members:
            self.above[self.node[member]] = self.n + len(self.cycles)
        self.above.append(-1)
        self.cycles.append([(self.node[member], arc) for member, arc in zip(members, arcs, strict=True)])
        self.node[kept] = self.n + len(self.cycles) - 1

        every = np.arange(self.n)
        gain = self.into[members] - inside[:, None]  # what entering here adds, in place of the cycle's own arc
        here = gain.argmax(0)
        entering, entering_arc = gain[here, every], self.arc[members][here, every]
        leaving = self.into[:, members]
        there = leaving.argmax(1)
        self.arc[:, kept] = self.arc[:, members][every, there]
        self.into[:, kept] = leaving[every, there]
        self.into[kept], self.arc[kept] = entering, entering_arc
        self.into[:, gone] = -np.inf
        self.into[kept, kept] = -np.inf
        from_root = self.root[members] - inside
        place = int(from_root.argmax())
        self.root[kept], self.root_word[kept] = from_root[place], self.root_word[members[place]]
        self.left -= len(gone)

    def opened(self, last: int) -> list[int]:
        """Inside every cycle the arc into the node that is entered from outside goes; the others stay."""
        heads = [0] * self.n
        entered = [(self.node[last], int(self.root_word[last]), 0)]
        while entered:
            node, word, head = entered.pop()
            if node < self.n:
                heads[node] = head
                continue
            at = word
            while self.above[at] != node:
                at = self.above[at]
            for inner, arc in self.cycles[node - self.n]:
                entered.append((inner, word, head) if inner == at else (inner, arc // self.n, arc % self.n + 1))
        return heads
