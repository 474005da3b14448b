"""Document-level pre-training: the encoder being trained reads a document as a row of sentence vectors (FastDoc).

A sentence vector stands where a piece vector does: positions and the embedding norm are added by `place`, then all
blocks run. A document's vector is the mean over its sentences, and there is no padding in it (spec A4, A5), save where
the objective asks for the authors' arithmetic.

Axes: P sentences of all documents   E width of a sentence vector   F width of a piece vector   D width
K documents of a tuple   B tuples   M hidden pieces   N documents
"""

import logging
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ...encoders.live import LiveBlocks
from ...encoders.masked_lm import MaskedLM
from ...encoders.stack import Stack
from ...errors import ConfigError
from ...nn.segments import segment_means
from .examples import TASK, DocumentBatch, DocumentExamples, SentencePieces
from .losses import Hierarchy, distances, tuple_loss
from .masking import Masked, masked
from .objective import Objective
from .reading import over_sentences, shown_in

__all__ = ["FastDoc", "TripletScorer", "projection"]

log = logging.getLogger("encodeonce")

MODULE = "encoder"
COLLAPSED = 1e-3
"""Mean distance between documents under which a warning says that all vectors are one."""


class TripletScorer:
    """The share of tuples, in per cent, whose anchor is nearer to its (near) positive than to its negative."""

    metric = "triplet_accuracy"

    def score(self, gold: Any, predicted: Any) -> dict[str, float | None]:
        """None where there is no tuple."""
        hits = [bool(one) == bool(due) for one, due in zip(predicted, gold, strict=True)]
        return {self.metric: 100 * sum(hits) / len(hits) if hits else None}


class FastDoc(nn.Module):
    """A trainee of `train.fit`. `sentence_width` is that of the vectors read, `n_classes` the taxonomy's with null.

    `lower` is a sentence encoder that is trained too (it then reads pieces, not the store). `head` is the checkpoint's
    masked-language head, needed for a masked loss: a tied one reads the trained piece vectors. Piece vectors take no
    gradient without a masked loss, so an exported encoder keeps those of its start. Every `trace_every` batches
    `trace` gains the losses' parts, distances, and each part's gradient norm; 0: never. `seen` counts batches,
    sentences and positions, `seen_windows` pieces and positions of windows; both go into checkpoints.

    Raises ConfigError where widths differ and no projection was asked for.
    """

    def __init__(
        self,
        stack: Stack,
        objective: Objective,
        n_classes: tuple[int, ...] = (),
        *,
        sentence_width: int | None = None,
        token_scale: float = 1.0,
        lower: Stack | None = None,
        head: MaskedLM | None = None,
        mask_id: int = -1,
        seed: int = 42,
        trace_every: int = 0,
    ) -> None:
        super().__init__()
        self.objective, self.mask_id, self.trace_every = objective, mask_id, trace_every
        self.token_scale = token_scale if objective.scale == "token" else 1.0
        lora = (objective.lora, objective.lora_alpha) if objective.lora else None
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            whole = partial(LiveBlocks, final=True, embeddings=True, compute=objective.compute)
            self.blocks = whole(stack, range(stack.n_blocks), lora=lora)
            self.lower = None if lower is None else whole(lower, range(lower.n_blocks))
            entered = self.blocks.stack.model.get_input_embeddings().weight
            self.entered = int(entered.shape[1])
            self.projection = projection(sentence_width or (lower or stack).width, self.entered, objective.projection)
            wants_heads = objective.hierarchy and n_classes
            self.hierarchy = (
                Hierarchy(stack.width, n_classes, objective.head_hidden, objective.reduction == "mean")
                if wants_heads
                else None
            )
        if objective.hierarchy and not n_classes:
            raise ConfigError("the hierarchy loss needs a taxonomy: give n_classes, or an objective without it.")
        if not objective.masked:
            entered.requires_grad_(False)
        self.head = self._masked_head(head)
        self.trace: list[dict[str, float]] = []
        self.seen: Int[Tensor, " 3"]
        self.register_buffer("seen", torch.zeros(3, dtype=torch.int64))
        self.seen_windows: Int[Tensor, " 2"]
        self.register_buffer("seen_windows", torch.zeros(2, dtype=torch.int64))

    def _masked_head(self, head: MaskedLM | None) -> MaskedLM | None:
        if not self.objective.masked:
            return None
        if head is None or self.mask_id < 0:
            raise ConfigError("a masked loss needs the checkpoint's head (MaskedLM.load) and the mask's id (mask_id).")
        if head.tied and head.weight is not None:
            head.forget_table()
        return head

    @property
    def positions(self) -> dict[str, int]:
        """Sentences of all batches trained on, and the positions run for them: padding is the difference."""
        return {"real": int(self.seen[1]), "run": int(self.seen[2])}

    @property
    def window_positions(self) -> dict[str, int]:
        """The same of windows of pieces."""
        return {"real": int(self.seen_windows[0]), "run": int(self.seen_windows[1])}

    # what train.fit asks

    def described(self) -> dict[str, Any]:
        """Settings of the objective that are not left as they are by default, the scale of sentence vectors and the
        mask's id: none of this shows in the weights' names and shapes."""
        return {"objective": self.objective.chosen(), "token_scale": self.token_scale, "mask_id": self.mask_id}

    def modules_of(self) -> dict[str, nn.Module]:
        """Everything under one name."""
        return {MODULE: self}

    def tasks_of(self, name: str) -> tuple[str, ...]:
        """Tuples are scored where there is a loss over documents."""
        return (TASK,) if self.objective.of_documents else ()

    def groups(self, name: str) -> dict[str, list[nn.Parameter]]:
        """ "encoder": what was pre-trained; "head": classification heads, a projection and low-rank terms."""
        fresh = [*(self.hierarchy.parameters() if self.hierarchy else []), *(_own(self.projection))]
        blocks = [*_own(self.blocks), *_own(self.lower), *_own(self.head)]
        if self.objective.lora:
            fresh, blocks = [*fresh, *_own(self.blocks)], [*_own(self.lower), *_own(self.head)]
        return {kind: own for kind, own in (("head", fresh), ("encoder", blocks)) if own}

    def batches(
        self, examples: DocumentExamples, *, size: int, order: np.random.Generator | None
    ) -> Iterator[DocumentBatch]:
        """All tuples once; without tuples all windows. What is hidden of a window depends on `order` and its batch."""
        n = len(examples)
        plan = np.arange(n) if order is None else order.permutation(n)
        seed = 0 if order is None else int(order.integers(2**62))
        beside = np.random.default_rng([seed, 1]).permutation(len(examples.windows))
        return self._read(examples, plan, size, seed, beside)

    def _read(
        self, examples: DocumentExamples, plan: np.ndarray, size: int, seed: int, beside: np.ndarray
    ) -> Iterator[DocumentBatch]:
        for number, first in enumerate(range(0, len(plan), size)):
            chosen, own = plan[first : first + size], examples.windows_per_batch
            if not len(examples.tuples):
                shown = self._hide(examples, chosen, seed, number)
                places = tuple(examples.windows[i].place for i in chosen)
                yield DocumentBatch((), torch.zeros(0, 0, 0, dtype=torch.long), masked=shown, places=places)
                continue
            hide = own and len(beside) and self.objective.masked
            taken = beside[np.arange(number * own, number * own + own) % len(beside)] if hide else None
            yield examples.batch(chosen, None if taken is None else self._hide(examples, taken, seed, number))

    def _hide(self, examples: DocumentExamples, chosen: np.ndarray, seed: int, number: int) -> Masked:
        vocabulary = int(self.blocks.stack.model.get_input_embeddings().weight.shape[0])
        generator = np.random.default_rng([seed, 2, number])
        shown = [examples.windows[i] for i in chosen]
        made = self.objective
        return masked(shown, made.probability, made.whole_words, self.mask_id, vocabulary, generator)

    def losses(self, batch: DocumentBatch, names: Collection[str]) -> dict[str, Float[Tensor, ""]]:
        """The sum of the objective's parts, all weights 1."""
        parts = self.parts(batch)
        self._note(batch, parts)
        return {MODULE: torch.stack(list(parts.values())).sum()}

    def predict(self, batch: DocumentBatch) -> list[dict[str, Any]]:
        """For each tuple whether its anchor is nearer to the positive."""
        vectors = self.vectors(batch)
        near = distances(vectors[0], vectors[1]) < distances(vectors[0], vectors[-1])
        return [{TASK: one} for one in near.tolist()]

    # what is computed

    def parts(self, batch: DocumentBatch) -> dict[str, Float[Tensor, ""]]:
        """The loss's parts by name."""
        made, found = self.objective, {}
        if made.of_documents:
            rows, lengths = self.rows(batch)
            vectors = segment_means(rows, lengths).unflatten(0, (batch.labels.shape[0], -1))
            if made.triplet:
                compared = rows.unflatten(0, (len(vectors), -1)) if made.triplet_on == "positions" else vectors
                found["triplet"] = tuple_loss(compared, made.margin, made.far)
            if self.hierarchy is not None:
                found["hierarchy"] = self.hierarchy(vectors, batch.labels)
            self.compared = vectors.detach()
        if batch.masked is not None:
            found["masked"] = self.masked_loss(batch.masked)
        return found

    def vectors(self, batch: DocumentBatch) -> Float[Tensor, "K B D"]:
        """The documents' vectors."""
        rows, lengths = self.rows(batch)
        return segment_means(rows, lengths).unflatten(0, (batch.labels.shape[0], -1))

    def rows(self, batch: DocumentBatch) -> tuple[Float[Tensor, "P D"], tuple[int, ...]]:
        """The last view of every sentence, documents end to end, and their numbers of rows (`Objective.rows`)."""
        device = next(self.parameters()).device
        if batch.vectors is not None:
            sentences = batch.vectors.views[-1].to(device)
        else:
            assert batch.pieces is not None
            sentences = self.sentences(batch.pieces)
        vectors, lengths = self.entering(sentences), tuple(self.objective.rows(batch.lengths))
        if self.objective.padded:
            whole = zip(vectors.split(list(batch.lengths)), lengths, strict=True)
            vectors = torch.cat([nn.functional.pad(one, (0, 0, 0, n - len(one))) for one, n in whole])  # or cut
        if self.training:
            shown, real = shown_in(lengths, self.blocks.window), sum(map(min, batch.lengths, lengths))
            self.seen[1:] += torch.tensor([real, self.blocks.n_positions(shown)])
        return over_sentences(self.blocks, vectors, lengths), lengths

    def entering(self, vectors: Float[Tensor, "P E"]) -> Float[Tensor, "P F"]:
        """Sentence vectors as the blocks read them: projected and scaled, where the objective says so."""
        projected = vectors if self.projection is None else self.projection(vectors)
        return projected if self.token_scale == 1.0 else projected * self.token_scale

    def sentences(self, pieces: SentencePieces) -> Float[Tensor, "P E"]:
        """What the sentence encoder that is trained makes of them: means over all pieces."""
        assert self.lower is not None
        ids, lengths = pieces.ids.to(next(self.parameters()).device), pieces.lengths
        return segment_means(self.lower(self.lower.enter(ids, lengths), lengths), lengths)

    def masked_loss(self, shown: Masked) -> Float[Tensor, ""]:
        """Mean cross-entropy at the hidden pieces; logits are computed for these alone."""
        assert self.head is not None
        device = next(self.parameters()).device
        if self.training:
            self.seen_windows += torch.tensor([sum(shown.lengths), self.blocks.n_positions(shown.lengths)])
        states = self.blocks.enter(shown.ids.to(device), shown.lengths)
        rows = self.blocks(states, shown.lengths, shown.rows.to(device))
        table = self.blocks.stack.model.get_input_embeddings().weight if self.head.tied else None
        return nn.functional.cross_entropy(self.head(rows, None, table), shown.targets.to(device))

    def _note(self, batch: DocumentBatch, parts: Mapping[str, Tensor]) -> None:
        """Losses, distances and gradient norms of this batch; a warning where all documents became one vector."""
        number = int(self.seen[0])
        self.seen[0] += 1
        if not self.trace_every or number % self.trace_every:
            return
        entry = {"batch": float(number), **{name: part.item() for name, part in parts.items()}}
        trained = [p for p in self.blocks.parameters() if p.requires_grad]
        for name, part in parts.items():
            slopes = torch.autograd.grad(part, trained, retain_graph=True, allow_unused=True)
            squares = [slope.square().sum() for slope in slopes if slope is not None]
            entry[f"{name}_gradient"] = torch.stack(squares).sum().sqrt().item() if squares else 0.0
        if "triplet" in parts or "hierarchy" in parts:
            vectors = self.compared
            near, away = distances(vectors[0], vectors[1]), distances(vectors[0], vectors[-1])
            entry |= {"positive_distance": near.mean().item(), "negative_distance": away.mean().item()}
            entry["without_loss"] = (near - away + self.objective.margin <= 0).float().mean().item()
            if near.mean() + away.mean() < 2 * COLLAPSED:
                log.warning("batch %d: all documents have the same vector (collapse); lower the rate", number)
        self.trace.append(entry)


def projection(width: int, entered: int, kind: str) -> nn.Linear | None:
    """From the width of sentence vectors to that of piece vectors, at first an identity, padded or cut; trained where
    `kind` is "linear". None where it is "" and the widths are one; ConfigError where they then differ."""
    if not kind:
        if width == entered:
            return None
        raise ConfigError(
            f"sentence vectors have width {width}, the encoder's piece vectors {entered}. Take a sentence "
            "encoder of that width, or ask for projection='linear' (or 'frozen'; in a config options.projection), "
            "which changes what is tested."
        )
    made = nn.Linear(width, entered, bias=False)
    nn.init.eye_(made.weight)
    made.weight.requires_grad_(kind == "linear")
    return made


def _own(module: nn.Module | None) -> list[nn.Parameter]:
    return [] if module is None else [p for p in module.parameters() if p.requires_grad]
