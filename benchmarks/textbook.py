"""The method as a textbook would port it: padded batches, fp32, torch's own modules, random batches, mean loss a batch.

This is what the library is measured against, so it is plain but fair: nothing is slow on purpose.
It shares no code with the library. States arrive as one array [L, T, D] a sentence, fp16, as a store would hold them.

Axes: B sentences   L views   N pieces of the longest sentence   D width
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

__all__ = [
    "AdaptedModel",
    "Example",
    "FinetuneModel",
    "FrozenModel",
    "autocast",
    "collate_ids",
    "collate_states",
    "length_buckets",
    "random_batches",
]

IGNORE = -100


def autocast(on: bool = True) -> torch.autocast:
    """bf16 where the processor has instructions for it (AMX, AVX-512 BF16): elsewhere it is slower than fp32."""
    units = torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
    return torch.autocast("cpu", torch.bfloat16, enabled=on and units)


@dataclass(frozen=True)
class Example:
    """One sentence: its pieces, its stored states, the row that stands for each word, and each word's label."""

    ids: np.ndarray
    states: Tensor
    rows: np.ndarray
    gold: np.ndarray


def random_batches(n: int, size: int, order: np.random.Generator) -> Iterator[np.ndarray]:
    """Indices of every example once, in random batches."""
    shuffled = order.permutation(n)
    for start in range(0, n, size):
        yield shuffled[start : start + size]


def length_buckets(lengths: Sequence[int], size: int, order: np.random.Generator) -> Iterator[np.ndarray]:
    """Indices of every example once, in batches of neighbouring lengths, the batches in random order."""
    noisy = np.asarray(lengths) + order.random(len(lengths))
    by_length = np.argsort(noisy, kind="stable")
    batches = [by_length[start : start + size] for start in range(0, len(by_length), size)]
    for index in order.permutation(len(batches)):
        yield batches[index]


def _labels(examples: Sequence[Example], longest: int) -> Tensor:
    labels = torch.full((len(examples), longest), IGNORE)
    for index, example in enumerate(examples):
        labels[index, torch.from_numpy(example.rows)] = torch.from_numpy(example.gold)
    return labels


def collate_states(examples: Sequence[Example]) -> tuple[Tensor, Tensor, Tensor]:
    """States fp32 [B L N D], mask [B N], labels [B N]."""
    longest = max(len(example.ids) for example in examples)
    n_views, _, width = examples[0].states.shape
    states = torch.zeros(len(examples), n_views, longest, width)
    mask = torch.zeros(len(examples), longest, dtype=torch.bool)
    for index, example in enumerate(examples):
        states[index, :, : len(example.ids)] = example.states
        mask[index, : len(example.ids)] = True
    return states, mask, _labels(examples, longest)


def collate_ids(examples: Sequence[Example]) -> tuple[Tensor, Tensor, Tensor]:
    """Piece ids [B N], mask [B N], labels [B N]."""
    longest = max(len(example.ids) for example in examples)
    ids = torch.zeros(len(examples), longest, dtype=torch.int64)
    mask = torch.zeros(len(examples), longest, dtype=torch.bool)
    for index, example in enumerate(examples):
        ids[index, : len(example.ids)] = torch.from_numpy(example.ids)
        mask[index, : len(example.ids)] = True
    return ids, mask, _labels(examples, longest)


class Adapter(nn.Module):
    """Aggregation and tailoring over padded states."""

    def __init__(self, width: int, key_width: int = 16, n_heads: int = 2, dropout: float = 0.1) -> None:
        super().__init__()
        self.to_query = nn.Linear(width, key_width)
        self.to_key = nn.Linear(width, key_width)
        self.over_layers = nn.MultiheadAttention(key_width, n_heads, batch_first=True)
        self.feed = nn.Sequential(
            nn.LayerNorm(width, eps=1e-12), nn.Linear(width, width), nn.Dropout(dropout), nn.ReLU()
        )
        self.dropout = nn.Dropout(dropout)
        self.reduce = nn.Linear(width, key_width)
        self.over_pieces = nn.MultiheadAttention(key_width, n_heads, batch_first=True)
        nn.init.xavier_uniform_(self.reduce.weight)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """States [B L N D], mask [B N] -> [B N D]."""
        real = mask.unsqueeze(-1).to(states.dtype)
        query = self.to_query(states.mean(1))
        token_means = (states * real.unsqueeze(1)).sum(2) / real.sum(1, keepdim=True)
        key = self.to_key(token_means)
        _, weights = self.over_layers(query, key, key, need_weights=True)
        mixed = torch.einsum("bnl,blnd->bnd", weights * real, states)
        full = self.dropout(mixed + self.feed(mixed))
        reduced = self.reduce(full)
        _, maps = self.over_pieces(reduced, reduced, reduced, key_padding_mask=~mask, need_weights=True)
        return (mixed + maps @ full) * real


class Head(nn.Sequential):
    """The tagging head over every piece."""

    def __init__(self, width: int, n_labels: int, dropout: float = 0.1) -> None:
        super().__init__(
            nn.Dropout(dropout), nn.Linear(width, width), nn.Tanh(), nn.Dropout(dropout), nn.Linear(width, n_labels)
        )


def mean_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy, mean over the labelled pieces of the batch."""
    return cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=IGNORE)


class AdaptedModel(nn.Module):
    """Adapter and head over stored states, or over an encoder that runs frozen in front of them."""

    def __init__(self, width: int, n_labels: int, encoder: nn.Module | None = None) -> None:
        super().__init__()
        self.adapter, self.head = Adapter(width), Head(width, n_labels)
        self.encoder = [] if encoder is None else [encoder.eval()]

    def forward(self, inputs: Tensor, mask: Tensor) -> Tensor:
        """States [B L N D], or ids [B N] where there is an encoder -> scores [B N C]."""
        for encoder in self.encoder:
            with torch.no_grad():
                out = encoder(input_ids=inputs, attention_mask=mask.long(), output_hidden_states=True)
                inputs = torch.stack(out.hidden_states, 1)
        return self.head(self.adapter(inputs, mask))


class FrozenModel(nn.Module):
    """The head on the last stored view."""

    def __init__(self, width: int, n_labels: int) -> None:
        super().__init__()
        self.head = Head(width, n_labels)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """States [B L N D] -> scores [B N C]."""
        return self.head(states[:, -1])


class FinetuneModel(nn.Module):
    """The head on the last view of an encoder that is trained with it."""

    def __init__(self, encoder: nn.Module, width: int, n_labels: int) -> None:
        super().__init__()
        self.encoder, self.head = encoder, Head(width, n_labels)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Ids [B N] -> scores [B N C]."""
        return self.head(self.encoder(input_ids=ids, attention_mask=mask.long()).last_hidden_state)
