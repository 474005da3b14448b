"""Dependency trees: a biaffine score for every head of every word, and the best tree (Dozat and Manning 2017; spec A8).

The rows of an item are its root and then its words. Labels are scored for the pairs that are asked for, the gold ones
in training and those of the tree afterwards, never for all pairs of words.

Axes: R rows of all items, end to end   D width   W words of all items (R without the roots)   A, E arc, relation width
h possible heads of a word: the root, then words; as many as the longest item has   C labels
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, leaky_relu, pad

from ..errors import ConfigError
from ..metrics.attachment import Tree
from ..nn.arborescence import arborescence
from ..nn.biaffine import Biaffine
from ..nn.bilstm import BiLSTM
from ..nn.eisner import eisner
from ..nn.linear import Linear
from ..nn.rows import Rows
from ..nn.shared_dropout import RowDropout, SharedDropout
from ..nn.trees import is_projective, is_tree
from ..resolve import nearest
from . import IGNORE, Head

__all__ = ["BiaffineParser", "TREES", "TreeScores"]  # noqa: RUF022 (found by name: the class first)

TREES = ("mst", "eisner", "greedy-then-tree")
"""Ways to decode: the best tree; the best projective tree; each word's best head, and where that is no tree, the best
projective tree (the paper's)."""

GROUP = 16
"""Items whose arcs are scored in one padded product, neighbours in order of length: little padding, few products."""


@dataclass(frozen=True, eq=False)
class TreeScores:
    """`arcs[w, j]` scores word w with head j of its item, -inf where there is no such head. `dependent` and `governor`
    are what labels are scored from; `lengths` counts rows, so the words of item b are `lengths[b]` - 1."""

    arcs: Float[Tensor, "W h"]
    dependent: Float[Tensor, "R E"]
    governor: Float[Tensor, "R E"]
    lengths: tuple[int, ...]


class BiaffineParser(Head):
    """Row dropout, BiLSTM, shared dropout, four leaky layers (arc and relation, dependent and head), two biaffines.

    `labels` are the relations. `dropout` is the rate before and after the layers, `lstm_dropout` that inside the LSTM,
    `token_dropout` that of whole input rows. `n_lstm_layers` 0 leaves the LSTM out. `mask_self` forbids a word as its
    own head in training too; no tree ever has one. `compute` is the number type of the matrix products.
    ConfigError where labels are missing or repeat, or a setting is out of range.
    """

    def __init__(
        self,
        width: int,
        labels: Sequence[str],
        tree: str = "mst",
        n_lstm_layers: int = 3,
        lstm_width: int = 400,
        arc_width: int = 500,
        rel_width: int = 100,
        dropout: float = 0.33,
        lstm_dropout: float = 0.33,
        token_dropout: float = 0.33,
        mask_self: bool = True,
        compute: str = "fp32",
    ) -> None:
        super().__init__()
        repeated = sorted({label for label in labels if list(labels).count(label) > 1})
        if not labels or repeated:
            seen = f"repeated: {repeated}" if repeated else "there is none"
            raise ConfigError(f"a parser needs at least one relation and each once; {seen}.")
        if tree not in TREES:
            raise ConfigError(f"tree={tree!r} is not known. There is: {', '.join(TREES)}.{nearest(tree, list(TREES))}")
        if min(arc_width, rel_width) < 1:
            raise ConfigError(f"arc_width={arc_width} and rel_width={rel_width} must be at least 1.")
        self.labels, self.tree, self.mask_self = tuple(labels), tree, mask_self
        self.token_dropout = RowDropout(token_dropout)
        self.lstm = BiLSTM(width, lstm_width, n_lstm_layers, lstm_dropout, compute)
        self.dropout = SharedDropout(dropout)
        self.widths = (arc_width, arc_width, rel_width, rel_width)
        self.layers = Linear(self.lstm.width, sum(self.widths), compute)
        for block in self.layers.weight.split(self.widths):
            nn.init.orthogonal_(block.data)
        nn.init.zeros_(self.layers.bias)
        self.arc = Biaffine(arc_width, bias_y=False, compute=compute)
        self.relation = Biaffine(rel_width, len(labels), compute=compute)

    def forward(self, vectors: Float[Tensor, "R D"], rows: Rows) -> TreeScores:
        """Scores of all arcs, and what labels are scored from."""
        lengths = rows.lengths
        found = self.lstm(self.token_dropout(vectors), lengths)
        found = leaky_relu(self.layers(self.dropout(found, lengths)), 0.1)
        arc_dependent, arc_head, dependent, governor = self.dropout(found, lengths).split(self.widths, 1)
        return TreeScores(self._arcs(self.arc.inner(arc_dependent), arc_head, lengths), dependent, governor, lengths)

    def _arcs(
        self, inner: Float[Tensor, "R A"], head: Float[Tensor, "R A"], lengths: tuple[int, ...]
    ) -> Float[Tensor, "W h"]:
        """Every word of an item with every row of it. Items are grouped by length and padded within their group."""
        longest, counts = max(lengths, default=1), np.array(lengths, dtype=np.int64)
        starts = np.cumsum(counts) - counts
        by_length = np.argsort(counts, kind="stable")
        parts, words = [], []
        for items in np.split(by_length, range(GROUP, len(by_length), GROUP)):
            n = int(counts[items].max(initial=1))
            row = np.arange(n)
            inside = row < counts[items][:, None]
            at = torch.from_numpy(np.where(inside, starts[items][:, None] + row, 0)).to(inner.device)
            barred = np.broadcast_to(~inside[:, None], (len(items), n - 1, n)).copy()
            if self.mask_self:
                barred |= row[1:, None] == row
            scores = self.arc.between(inner[at[:, 1:]], head[at])
            scores = scores.masked_fill(torch.from_numpy(barred).to(scores.device), -torch.inf)
            real = torch.from_numpy(inside[:, 1:]).to(scores.device)
            parts.append(pad(scores[real], (0, longest - n), value=-torch.inf))
            words.append(((starts[items] - items)[:, None] + row[:-1])[inside[:, 1:]])
        back = torch.from_numpy(np.argsort(np.concatenate(words)))
        return torch.cat(parts).index_select(0, back.to(inner.device))

    def _relations(self, scores: TreeScores, heads: Int[Tensor, " W"]) -> Float[Tensor, "W C"]:
        """Scores of all labels for every word under its given head."""
        counts = np.array(scores.lengths, dtype=np.int64) - 1
        root = torch.from_numpy(np.repeat(np.cumsum(counts + 1) - counts - 1, counts)).to(heads.device)
        before = torch.from_numpy(np.repeat(np.arange(1, len(counts) + 1), counts)).to(heads.device)  # roots so far
        word = torch.arange(len(heads), device=heads.device) + before
        return self.relation.at(scores.dependent.index_select(0, word), scores.governor.index_select(0, root + heads))

    def loss(self, scores: TreeScores, gold: Int[Tensor, "W 2"], counts: tuple[int, ...]) -> Float[Tensor, ""]:
        """Cross-entropy in nats of the head and of the label under the gold head, SUMMED over all words.

        A gold row is (head, label). Where the label is IGNORE the head is still learned.
        """
        heads, labels = gold.unbind(1)
        arcs = cross_entropy(scores.arcs, heads, reduction="sum")
        return arcs + cross_entropy(self._relations(scores, heads), labels, ignore_index=IGNORE, reduction="sum")

    def decode(self, scores: TreeScores, rows: Rows) -> list[Tree]:
        """A tree an item, with exactly one word on the root; each label is the best one under the tree's head.

        ConfigError where a score is NaN or +inf.
        """
        arcs = scores.arcs.detach().double().cpu().numpy()
        heads: list[list[int]] = []
        start = 0
        for length in scores.lengths:
            heads.append(self._tree(arcs[start : start + length - 1, :length]))
            start += length - 1
        flat = torch.tensor([head for item in heads for head in item], dtype=torch.int64, device=scores.arcs.device)
        best = self._relations(scores, flat).argmax(1).tolist()
        labels = iter([self.labels[index] for index in best])
        return [Tree(tuple(item), tuple(next(labels) for _ in item)) for item in heads]

    def _tree(self, arcs: Float[np.ndarray, "n h"]) -> list[int]:
        """The heads of one sentence. Every word's best head is taken where that is a tree: none is better."""
        if np.isfinite(arcs.max(initial=0.0)):
            greedy: list[int] = arcs.argmax(1).tolist()
            if is_tree(greedy) and (self.tree != "eisner" or is_projective(greedy)):
                return greedy
        return arborescence(arcs) if self.tree == "mst" else eisner(arcs)
