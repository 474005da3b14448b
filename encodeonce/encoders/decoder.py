"""Decoders that read a memory of states, and the two ways of writing an answer with one: greedily, or with beams.

Axes: B items   T pieces given   S pieces given and in the cache   M states of an item's memory   D width   V vocabulary
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ..errors import ConfigError

__all__ = ["Decoder", "Written", "write"]


class Decoder(nn.Module, ABC):
    """`start` is the piece that an output begins with, `end` the one that ends it, `pieces` how many there are,
    `longest` the most that it can be given (None: any number)."""

    start: int
    end: int
    pieces: int
    longest: int | None = None

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        memory: Float[Tensor, "B M D"],
        readable: Bool[Tensor, "B M"],
        real: Bool[Tensor, "B S"] | None = None,
        cache: Any = None,
    ) -> Float[Tensor, "B T V"]:
        """A logit for every piece that may follow. `real` marks the given pieces, those in the cache too, that are no
        padding; padding stands before them. With a `cache`, `ids` are only the new ones."""
        given = {"attention_mask": real, "encoder_hidden_states": memory, "encoder_attention_mask": readable}
        return self.logits(ids, real, {**given, "cache": cache, "use_cache": cache is not None})

    @abstractmethod
    def logits(
        self, ids: Int[Tensor, "B T"], real: Bool[Tensor, "B S"] | None, given: dict[str, Any]
    ) -> Float[Tensor, "B T V"]:
        """What `forward` gives, by a model of `transformers`; `given` is all else that it is called with."""

    def new_cache(self) -> Any:
        """For one output, step by step."""
        from transformers import DynamicCache, EncoderDecoderCache

        return EncoderDecoderCache(DynamicCache(), DynamicCache())

    @abstractmethod
    def fresh(self) -> list[nn.Parameter]:
        """Parameters that were not pre-trained."""

    def shares(self, table: nn.Embedding) -> None:
        """From now on read and write by this table of piece vectors, which is trained elsewhere (spec L-05)."""
        raise ConfigError(f"{type(self).__name__} has a table of piece vectors of its own.")


@dataclass(frozen=True)
class Written:
    """Pieces of an output, without start and end, and its log probability, the end's included."""

    ids: tuple[int, ...]
    log_probability: float


@torch.no_grad()
def write(
    decoder: Decoder,
    memory: Float[Tensor, "B M D"],
    readable: Bool[Tensor, "B M"],
    *,
    longest: int = 32,
    n_beams: int = 1,
    length_penalty: float = 1.0,
    prefix: Int[Tensor, "B F"] | None = None,
    real: Bool[Tensor, "B F"] | None = None,
) -> list[Written]:
    """The best output of every item, at most `longest` pieces with the end; one beam is greedy.

    `prefix` stands before the output, padded at its left (`real` False). As `transformers` does, outputs are ranked by
    log probability / length^`length_penalty`, the end counted, and a search ends where the best running score is no
    better than the worst of the finished.
    """
    if longest < 1 or n_beams < 1:
        raise ConfigError(f"longest={longest} and n_beams={n_beams} must be at least 1.")
    return _Search(decoder, memory, readable, longest, n_beams, length_penalty, prefix, real).run()


class _Search:
    def __init__(
        self,
        decoder: Decoder,
        memory: Tensor,
        readable: Tensor,
        longest: int,
        n_beams: int,
        length_penalty: float,
        prefix: Tensor | None,
        real: Tensor | None,
    ) -> None:
        self.decoder, self.longest, self.n, self.penalty = decoder, longest, n_beams, length_penalty
        self.items, device = len(memory), memory.device
        starts = torch.full((self.items, 1), decoder.start, device=device)
        ids = starts if prefix is None else torch.cat([prefix, starts], 1)
        known = torch.ones_like(ids, dtype=torch.bool)
        if prefix is not None and real is not None:
            known[:, :-1] = real
        self.memory, self.readable = (x.repeat_interleave(n_beams, 0) for x in (memory, readable))
        self.ids, self.real = ids.repeat_interleave(n_beams, 0), known.repeat_interleave(n_beams, 0)
        self.cache = decoder.new_cache()
        self.running = torch.full((self.items, n_beams), -1e9, device=device)
        self.running[:, 0] = 0
        self.outputs: list[list[list[int]]] = [[[] for _ in range(n_beams)] for _ in range(self.items)]
        self.finished: list[list[tuple[float, float, list[int]]]] = [[] for _ in range(self.items)]
        self.done = [False] * self.items

    def run(self) -> list[Written]:
        for length in range(1, self.longest + 1):
            real = None if bool(self.real.all()) else self.real
            logits = self.decoder(self.ids, self.memory, self.readable, real, self.cache)[:, -1]
            self.step(logits.float().log_softmax(-1), length)
            if all(self.done) or length == self.longest:
                break
        return [self.best(item) for item in range(self.items)]

    def step(self, log_probabilities: Float[Tensor, "_ V"], length: int) -> None:
        """One more piece for every beam."""
        size = log_probabilities.shape[-1]
        together = self.running[:, :, None] + log_probabilities.view(self.items, self.n, size)
        k = min(2 * self.n, self.n * size)
        scores, places = together.view(self.items, -1).topk(k)
        chosen_beams, chosen_ids = [], []
        for item in range(self.items):
            beams, ids = self.sort_out(item, scores[item].tolist(), places[item].tolist(), size, length)
            chosen_beams += [item * self.n + beam for beam in beams]
            chosen_ids += ids
        order = torch.tensor(chosen_beams, device=self.ids.device)
        self.ids = torch.tensor(chosen_ids, device=self.ids.device)[:, None]
        self.real = torch.cat([self.real[order], torch.ones_like(self.ids, dtype=torch.bool)], 1)
        if self.n > 1:
            self.cache.reorder_cache(order)

    def sort_out(
        self, item: int, scores: Sequence[float], places: Sequence[int], size: int, length: int
    ) -> tuple[list[int], list[int]]:
        """The best continuations of one item: which of them end, and which go on as its beams."""
        last = length == self.longest
        on: list[tuple[float, int, int]] = []
        outputs = self.outputs[item]
        for rank, (score, place) in enumerate(zip(scores, places, strict=True)):
            beam, piece = divmod(place, size)
            if piece == self.decoder.end or last:
                if rank < self.n and not self.done[item] and score > -1e8:
                    ids = outputs[beam] if piece == self.decoder.end else [*outputs[beam], piece]
                    self.finished[item].append((score / length**self.penalty, score, ids))
            elif len(on) < self.n:
                on.append((score, beam, piece))
        on += [(-1e9, 0, self.decoder.end)] * (self.n - len(on))
        self.finished[item] = sorted(self.finished[item], key=lambda one: -one[0])[: self.n]
        self.outputs[item] = [[*outputs[beam], piece] for _, beam, piece in on]
        self.running[item] = torch.tensor([score for score, _, _ in on])
        full = len(self.finished[item]) == self.n
        if full and on[0][0] / length**self.penalty <= self.finished[item][-1][0]:
            self.done[item] = True
        return [beam for _, beam, _ in on], [piece for _, _, piece in on]

    def best(self, item: int) -> Written:
        _, log_probability, ids = self.finished[item][0]
        return Written(tuple(ids), log_probability)
