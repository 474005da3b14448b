"""Prompt-based fine-tuning with a manual prompt (LM-BFF, Gao et al. 2021; spec B7, B10, B11).

The whole masked language model is trained, its head restricted to the label words; nothing starts from random values.
With texts laid before each prompt it is the concatenation baseline (CA-512).
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import nn

from ...batching import Cut, Supervised
from ...encoders.live import LiveBlocks
from ...encoders.masked_lm import MaskedLM
from ...encoders.prompter import Prompter
from ...encoders.stack import Stack
from ...errors import ConfigError
from ...heads.label_words import LabelWords
from ...types import Document, Spec
from ..finetune import Finetune, Live
from ..multitask import Part

__all__ = ["HasMaskedLM", "HasSpec", "Prompted", "columns_of", "prompted", "source_of"]

PIECE = "document-words"
"""The rows that the head sees: in a prompted input the gap is the only row of a word."""


@runtime_checkable
class HasMaskedLM(Protocol):
    """A checkpoint with a masked-language-model head: `encoders.Pretrained`."""

    def spec(self, layers: str | int | Sequence[int] = "all", dtype: str = "fp16") -> Spec:
        """What would make its vectors."""

    def stack(self) -> Stack:
        """The frozen model, of which all blocks are copied."""

    def masked_lm(self) -> MaskedLM:
        """Its head, a fresh copy."""


@runtime_checkable
class HasSpec(Protocol):
    """What is asked of an encoder whose inputs are laid: `encoders.Pretrained`."""

    def spec(self, layers: str | int | Sequence[int] = "all", dtype: str = "fp16") -> Spec:
        """What would make its vectors."""


class Prompted(Finetune):
    """`Finetune` over prompted inputs: all was pre-trained, but for low-rank terms where only these are trained."""

    def groups(self, name: str) -> dict[str, list[nn.Parameter]]:
        """One group: "encoder", or "head" for low-rank terms, which start from nothing."""
        part = self.part(name)
        own = [parameter for parameter in part.parameters() if parameter.requires_grad]
        low_rank = any(isinstance(module, LiveBlocks) and module.lora is not None for module in part.modules())
        return {"head" if low_rank else "encoder": own}


def prompted(
    encoder: HasMaskedLM,
    prompter: Prompter,
    task: Supervised,
    *,
    compute: str = "fp32",
    lora: tuple[int, float] | None = None,
) -> Prompted:
    """The method for a learned classification task of `piece="document-words"`, over `source_of(...)`.

    Label words come in the order of the task's labels. `lora=(rank, alpha)` freezes encoder and head and trains
    low-rank terms beside the query and value projections (spec B13). Raises ConfigError for another piece, or for
    labels that the prompt has no word for; EncoderError for a checkpoint without a head.
    """
    if task.piece != PIECE:
        raise ConfigError(f"task {task.name!r} has piece={task.piece!r}; a prompted task needs piece={PIECE!r}.")
    if prompter.written:
        raise ConfigError("a masked language model fills a gap: make the prompter without written=True.")
    columns = torch.from_numpy(prompter.label_pieces)[columns_of(prompter, task)]
    head = LabelWords(encoder.masked_lm().only(columns), task.labels).requires_grad_(lora is None)
    stack, spec = encoder.stack(), encoder.spec()
    blocks = LiveBlocks(stack, range(stack.n_blocks), final=True, embeddings=True, compute=compute, lora=lora)
    return Prompted({task.name: Part(Live(blocks), head, PIECE)}, (), window=spec.window)


def columns_of(prompter: Prompter, task: Supervised) -> list[int]:
    """The place of each of the task's labels among the prompt's. ConfigError for labels that it has no word for."""
    known = prompter.prompt.labels
    without = [label for label in task.labels if label not in known]
    if without or not task.labels:
        raise ConfigError(
            f"task {task.name!r}: the prompt {prompter.prompt.name!r} has no word for {', '.join(without) or 'labels'}."
            f" It has words for: {', '.join(known)}."
        )
    return [known.index(label) for label in task.labels]


def source_of(
    encoder: HasSpec, prompter: Prompter, documents: Sequence[Document], before: Sequence[Sequence[str]] = ()
) -> Cut:
    """The prompted inputs of documents, as the method reads them; equal documents once."""
    distinct = {document.key: place for place, document in reversed(list(enumerate(documents)))}
    places = sorted(distinct.values())
    laid = prompter([documents[place] for place in places], [before[place] for place in places] if before else ())
    return Cut(encoder.spec(), laid.pieces)
