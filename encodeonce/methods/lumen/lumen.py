"""LUMEN (de Jong et al. 2023): memory of passages, a question encoder, live blocks over [question; memory], a reader.

    H_i = [QEnc(Q); Mem(P_i)]      Z_i = Live(H_i)      answer = Reader(Z_1 ... Z_p)

Axes: R rows of all pairs of question and passage   D width   Q rows of all questions   P rows of different passages
B questions
"""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ...adapters.linear import Linear
from ...batching import Source, planned
from ...batching.ahead import ahead
from ...batching.buffers import Buffers
from ...encoders.checkpoint import VOCABULARY_FILES, weights_hash
from ...encoders.live import LiveBlocks
from ...encoders.pieces import load_tokenizer
from ...encoders.pretrained import Pretrained
from ...encoders.t5_decoder import T5Decoder
from ...encoders.warm_decoder import WarmDecoder
from ...errors import ConfigError
from ...nn.precision import at_least_fp32
from ...types import Answer, Document, Question
from ..multitask import start_seed
from .batch import ReadingBatch, collated
from .design import Design, Plan
from .examples import Cutting, ReadingExamples
from .generator import Generator
from .span_answers import SpanAnswers

__all__ = ["Lumen"]

TASK = "answer"


class Lumen(nn.Module):
    """Made by `build`. A `train.Trainee` with the one task "answer".

    `parts` are what is trained, by name: "question", "live", "memory" (where it is trained), "mix" (where views are
    mixed), "reader". What is frozen and runs on the fly lies in `frozen`, in eval mode, and is not saved.
    """

    _frozen: dict[str, LiveBlocks]

    def __init__(
        self,
        design: Design,
        plan: Plan,
        parts: nn.ModuleDict,
        frozen: dict[str, LiveBlocks],
        read_ahead: int = 1,
        form: str = "plain",
        decoder: Path | None = None,
    ) -> None:
        super().__init__()
        self.design, self.plan, self.read_ahead, self.form, self.decoder = design, plan, read_ahead, form, decoder
        self.parts = parts
        self.origin = ""  # SHA-256 of what was carried here from another reader
        for blocks in frozen.values():
            blocks.requires_grad_(False).eval()
        object.__setattr__(self, "_frozen", frozen)

    @classmethod
    def build(
        cls,
        design: Design,
        encoder: Pretrained,
        seed: int = 42,
        read_ahead: int = 1,
        form: str = "plain",
        decoder: Path | None = None,
    ) -> "Lumen":
        """Blocks as pre-trained; the start values of what is new depend on `seed` only.

        `decoder` is the checkpoint of a generative reader's decoder, by default the encoder's own. ConfigError for one
        that cannot be given the encoder's pieces, or as many as the design says, and for one of a span reader.
        """
        plan, stack = design.plan(encoder), encoder.stack()
        options: dict[str, Any] = {"compute": design.compute}
        top = plan.cut == plan.n_blocks
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(start_seed(seed, TASK))
            below = tuple(range(plan.cut))
            question = LiveBlocks(stack, below, final=top, embeddings=True, **options)
            parts = nn.ModuleDict()
            frozen: dict[str, LiveBlocks] = {}
            if design.question_encoder == "frozen":
                frozen["question"] = question
            else:
                parts["question"] = question
                if design.embeddings == "frozen":
                    question.kept["embeddings"].requires_grad_(False)
            if plan.blocks:
                parts["live"] = LiveBlocks(stack, plan.blocks, final=True, **options)
            if plan.cut and design.memory != "stored":
                memory = LiveBlocks(stack, below, final=top, embeddings=True, **options)
                if design.memory == "finetuned":
                    parts["memory"] = memory
                    if design.embeddings == "frozen":
                        memory.kept["embeddings"].requires_grad_(False)
                else:
                    frozen["memory"] = memory
            if len(plan.stored) > 1:
                parts["mix"] = _mix(plan)
            parts["reader"] = _reader(design, plan, encoder, parts, decoder)
        return cls(design, plan, parts, frozen, read_ahead, form, decoder)

    def described(self) -> dict[str, Any]:
        """Settings of the design that are not left as they are by default, how passages are shown, and what training
        starts from: none of this shows in the weights' names and shapes."""
        start = {"start": self.origin} if self.origin else {}
        decoder = {"decoder": weights_hash(self.decoder)} if self.decoder else {}
        return {"design": self.design.chosen(), "form": self.form, **start, **decoder}

    def modules_of(self) -> dict[str, nn.Module]:
        """Everything that is trained, as one."""
        return {TASK: self.parts}

    def tasks_of(self, name: str) -> tuple[str, ...]:
        """The one task."""
        return (TASK,)

    def groups(self, name: str) -> dict[str, list[nn.Parameter]]:
        """ "encoder": what was pre-trained, a decoder's part too; "head": what is new."""
        new = list(self.parts["mix"].parameters()) if "mix" in self.parts else []
        reader = self.reader
        new += reader.decoder.fresh() if isinstance(reader, Generator) else list(reader.parameters())
        known = {id(parameter) for parameter in new}
        rest = [parameter for parameter in self.parts.parameters() if id(parameter) not in known]
        found = {"head": new, "encoder": rest}
        trained = {kind: [p for p in own if p.requires_grad] for kind, own in found.items()}
        return {kind: own for kind, own in trained.items() if own}

    def read(self, questions: Sequence[Question], encoder: Cutting, store: Source | None = None) -> ReadingExamples:
        """`ReadingExamples.read`: `encoder` is `Design.encoder`'s, `store` what it filled with the passages."""
        return ReadingExamples.read(questions, encoder, self.design, self.plan, store, self.form)

    def states(self, batch: ReadingBatch) -> Float[Tensor, "R D"]:
        """Z: the live states of all pairs, each question's rows before its passage's."""
        questions, memory = self._questions(batch), self._memory(batch)
        if self.plan.cut and self.design.memory == "conditioned":
            met = memory.clone()
            asked = torch.from_numpy(batch.pairs.in_question)
            owner = batch.meeting[asked]
            met[asked] = questions.index_select(0, owner)
        else:
            met = torch.cat([questions, memory]).index_select(0, batch.meeting)
        if "live" not in self.parts:
            return met
        barrier, positions = batch.barrier(self.design.attention), self._together(batch)
        return self._live_part("live")(met, batch.lengths, None, barrier, positions)

    def losses(self, batch: ReadingBatch, names: Collection[str]) -> dict[str, Float[Tensor, ""]]:
        """A question's loss on average."""
        return {TASK: self.loss(batch)} if TASK in names else {}

    def loss(self, batch: ReadingBatch) -> Float[Tensor, ""]:
        """The sum over the batch, times a constant of the epoch."""
        return self.reader.loss(self.states(batch), batch) * batch.scale

    def predict(self, batch: ReadingBatch) -> list[dict[str, Answer]]:
        """An answer a question."""
        return [{TASK: answer} for answer in self.reader.answers(self.states(batch), batch)]

    def batches(
        self, examples: ReadingExamples, *, size: int, order: np.random.Generator | None
    ) -> Iterator[ReadingBatch]:
        """All questions once, in an order drawn from `order`, or as they stand where it is None."""
        if size < 1:
            raise ConfigError(f"batch size {size} must be at least 1.")
        plan = planned(len(examples), size, order)
        targets = examples.chosen(order)
        return ahead(self._read(examples, plan, targets, size), self.read_ahead)

    def _read(
        self, examples: ReadingExamples, plan: Sequence[np.ndarray], targets: np.ndarray, size: int
    ) -> Iterator[ReadingBatch]:
        buffers, layers = Buffers(), self.plan.stored
        for items in plan:
            own = np.unique(np.concatenate([examples.of_question[i] for i in items]))
            if not layers or not len(own):
                yield collated(examples, items, targets[items], layers, size, None)
                continue
            shape = (len(layers), int(examples.lengths[own].sum()), examples.source.spec.width)
            out, hold = buffers.take(shape)
            batch = collated(examples, items, targets[items], layers, size, out)
            hold(batch)
            yield batch
            del batch, out

    @property
    def reader(self) -> SpanAnswers | Generator:
        """What makes answers of live states."""
        reader = self.parts["reader"]
        assert isinstance(reader, (SpanAnswers, Generator))
        return reader

    def _live_part(self, name: str) -> LiveBlocks:
        part = self._frozen[name] if name in self._frozen else self.parts[name]
        assert isinstance(part, LiveBlocks)
        return part

    def _questions(self, batch: ReadingBatch) -> Float[Tensor, "Q D"]:
        """QEnc, once a question."""
        part = self._live_part("question")
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.design.question_encoder == "trained"):
            return part(part.enter(batch.question_ids, batch.question_lengths), batch.question_lengths)

    def _memory(self, batch: ReadingBatch) -> Float[Tensor, "_ D"]:
        """The different passages' rows; of a conditioned memory, the rows of all pairs."""
        memory = batch.memory
        if self.plan.stored:
            return self.parts["mix"](memory) if "mix" in self.parts else at_least_fp32(memory.views[0])
        if not self.plan.cut:
            return self._entered(self._live_part("question"), batch)
        part = self._live_part("memory")
        if self.design.memory == "finetuned":
            entered = self._entered(part, batch)
            return part(entered, memory.lengths) if len(entered) else entered
        with torch.no_grad():
            asked = part.enter(batch.question_ids, batch.question_lengths)
            met = torch.cat([asked, self._entered(part, batch)]).index_select(0, batch.meeting)
            return part(met, batch.lengths, positions=self._together(batch))

    def _together(self, batch: ReadingBatch) -> Int[Tensor, " R"] | None:
        """Where rows stand in their pair, unless one behind the other."""
        return None if self.plan.together is None else batch.positions(self.plan.together)

    def _entered(self, part: LiveBlocks, batch: ReadingBatch) -> Float[Tensor, "P D"]:
        """View 0 of the passages at their place behind a question."""
        ids, plan = batch.memory.ids, self.plan
        assert ids is not None
        if not len(ids):
            return ids.new_zeros(0, part.width, dtype=torch.float32)
        segments = torch.full_like(ids, plan.segment) if plan.segment else None
        return part.enter(ids, batch.memory.lengths, segments, plan.first_position)


def _mix(plan: Plan) -> Linear:
    """Starts as the view after the cut, nearly."""
    mix = Linear(len(plan.stored))
    with torch.no_grad():
        mix.alpha[plan.stored.index(plan.cut)] = 3.0
    return mix


def _reader(
    design: Design, plan: Plan, encoder: Pretrained, parts: nn.ModuleDict, folder: Path | None
) -> SpanAnswers | Generator:
    if design.reader == "span" and folder is not None:
        raise ConfigError(f"decoder={folder}: a reader that points at spans has none. Set reader='generate'.")
    if design.reader == "span":
        return SpanAnswers(encoder.width, design.dropout, design.longest)
    home = encoder.path if folder is None else folder
    decoder: T5Decoder | WarmDecoder
    if encoder.family == "t5":
        if design.decoder_blocks is not None:
            raise ConfigError(
                f"decoder_blocks={design.decoder_blocks} is of a decoder that starts from an encoder's blocks; {home} "
                "has one of its own. Leave it out."
            )
        decoder = T5Decoder.load(home)
        if "question" in parts:
            question = parts["question"]
            assert isinstance(question, LiveBlocks)
            decoder.shares(question.stack.model.get_input_embeddings())
    else:
        whole = encoder.cut([Document("a", text="a")])[0].ids
        decoder = WarmDecoder.load(home, int(whole[0]), int(whole[-1]), design.decoder_blocks)
    _same_pieces(decoder.pieces, home, encoder)
    shown = design.question_for_decoder(plan)
    prefix = design.question_pieces if shown == "prefix" else 0
    if decoder.longest is not None and prefix + design.longest > decoder.longest:
        before = f"question_pieces={prefix} before the output and " if prefix else ""
        raise ConfigError(
            f"{before}longest_answer={design.longest} are more pieces than the decoder can be given, "
            f"{decoder.longest} ({home}). Give less."
        )
    return Generator(
        decoder,
        shown,
        design.longest,
        design.n_beams,
        design.length_penalty,
        design.z_loss,
    )


def _same_pieces(known: int, decoder: Path, encoder: Pretrained) -> None:
    """ConfigError where the encoder's pieces are others to the decoder, or none of its `known` ones."""
    needed, advice = int(encoder.config["vocab_size"]), "Give one of the encoder's own vocabulary."
    if known < needed:
        raise ConfigError(
            f"the decoder {decoder} knows {known} pieces, the encoder {needed}: it would be given pieces that it has "
            f"not. {advice}"
        )
    if decoder != encoder.path and any((decoder / name).is_file() for name in VOCABULARY_FILES):
        ours, theirs = (load_tokenizer(path).get_vocab() for path in (encoder.path, decoder))
        strange = [piece for piece, number in ours.items() if theirs.get(piece) != number]
        if strange:
            raise ConfigError(
                f"{len(strange)} of the encoder's {len(ours)} pieces are others to the decoder {decoder}, such as "
                f"{min(strange)!r}: {ours[min(strange)]} here, {theirs.get(min(strange))} there. {advice}"
            )
