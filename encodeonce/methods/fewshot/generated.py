"""Fine-tuning of T5 that writes its label: encoder and decoder trained on prompted inputs (spec B12).

The source is the task's prompt without a gap, the target the label's words and the end piece, by teacher forcing.
Fusion goes into the encoder's blocks as into any other.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch

from ...batching import Examples, Supervised
from ...encoders.decoder import write
from ...encoders.live import LiveBlocks
from ...encoders.prompter import Prompter
from ...encoders.stack import Stack
from ...encoders.t5_decoder import T5Decoder
from ...errors import ConfigError, EncoderError
from ...heads.written_labels import WrittenLabels
from ...types import Spec
from ..finetune import Finetune, Live
from ..multitask import Part
from .prompted import Prompted, columns_of

__all__ = ["HasDecoder", "generated", "outputs"]


@runtime_checkable
class HasDecoder(Protocol):
    """A T5 checkpoint: `encoders.Pretrained`."""

    path: Path
    family: str

    def spec(self, layers: str | int | Sequence[int] = "all", dtype: str = "fp16") -> Spec:
        """What would make its vectors."""

    def stack(self) -> Stack:
        """The frozen encoder, of which all blocks are copied."""


def generated(encoder: HasDecoder, prompter: Prompter, task: Supervised, *, compute: str = "fp32") -> Prompted:
    """The method for a learned classification task over `source_of(...)`, `prompter` being one of written labels.

    Encoder and decoder are trained whole and share one table of pieces where the checkpoint does. Raises EncoderError
    for another family, ConfigError for a prompter with a gap and for labels that the prompt has no words for.
    """
    if encoder.family != "t5":
        raise EncoderError(
            f"{encoder.path}: a {encoder.family} model writes no label; use a T5 checkpoint, or `prompted` with a gap."
        )
    if not prompter.written:
        raise ConfigError("T5 writes its labels: make the prompter with written=True.")
    decoder = T5Decoder.load(encoder.path)
    stack, spec = encoder.stack(), encoder.spec()
    blocks = LiveBlocks(stack, range(stack.n_blocks), final=True, embeddings=True, compute=compute)
    decoder.shares(blocks.stack.model.get_input_embeddings())
    words = [prompter.label_words[column] for column in columns_of(prompter, task)]
    head = WrittenLabels(decoder, task.labels, words, decoder.start, decoder.end)
    return Prompted({task.name: Part(Live(blocks), head, "pieces")}, (), window=spec.window)


def outputs(
    method: Finetune, examples: Examples, spell: Callable[[Sequence[int]], str], longest: int = 3, size: int = 32
) -> list[str]:
    """What the method writes where nothing holds it to the labels: greedily, up to `longest` pieces, in small letters.

    The paper counts an output as right where it equals the label's words in small letters. `method` is of `generated`,
    or a fusion around one; `spell` is `Pretrained.spell`.
    """
    (name,) = method.names
    part, found = method.part(name), list[str]()
    head = part.head
    if not isinstance(head, WrittenLabels) or not isinstance(head.decoder, T5Decoder):
        raise ConfigError("only a method made by `generated` writes its answers.")
    method.eval()
    with torch.no_grad():
        for batch in method.batches(examples, size=size, order=None):
            choice = batch.choices[part.piece]
            memory, readable = head.memory(part.adapter(batch.packed, choice.packed), choice.rows)
            found += [spell(one.ids).lower() for one in write(head.decoder, memory, readable, longest=longest)]
    return found
