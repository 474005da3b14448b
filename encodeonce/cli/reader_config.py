"""The config file of `memory train`: questions and passages, the design of the reader, the loop."""

from typing import Any, Literal

from pydantic import Field

from .config import EncoderName, FileName, Files, LoopSection, Section

__all__ = ["DesignSection", "QuestionsSection", "ReaderConfig", "ReaderTrainSection", "SearchSection"]


class QuestionsSection(Section):
    """`[data]`: files of questions, and the passages that they are read with."""

    train: Files = Field(default_factory=list, description="what is learned from")
    dev: Files = Field(default_factory=list, description="what chooses between epochs; none: the last epoch is kept")
    test: Files = Field(default_factory=list, description="what is scored at the end")
    format: str | None = Field(default=None, description="format of questions; by ending and content where not given")
    passages: Files = Field(default_factory=list, description="passages that questions are read with beside their own")
    passages_format: str | None = Field(default=None, description="tsv, jsonl, beir or folder; by the file's ending")
    words: int = Field(default=100, ge=0, description="words of a window that longer passages are cut into; 0: never")
    overlap: int = Field(default=0, ge=0, description="words that two windows share")
    k: int = Field(
        default=4,
        ge=0,
        description="passages a question: its own that hold an answer, then what BM25 finds; 0: as the file has them",
    )


class DesignSection(Section):
    """`[design]`: what is stored, what is live, who answers; unset keys are `methods.lumen.Design`'s."""

    live: int | None = Field(default=None, ge=0, description="live blocks; a third of the encoder's")
    alpha: float | None = Field(default=None, ge=0, le=1, description="their share, in place of live")
    cut: int | None = Field(default=None, ge=0, description="the view that is stored; blocks - live")
    blocks: list[int] | None = Field(default=None, description="what the live blocks start from; those above the cut")
    layers: list[int] | None = Field(default=None, description="store these views and learn a mix of them")
    memory: Literal["stored", "finetuned", "conditioned"] | None = Field(
        default=None, description="stored; the others run on the fly"
    )
    question_encoder: Literal["trained", "frozen"] | None = Field(default=None, description="trained")
    attention: Literal["both", "no_q2mem", "no_mem2q", "neither"] | None = Field(
        default=None, description="who may read whom; both"
    )
    positions: Literal["compact", "static"] | None = Field(
        default=None, description="passages right behind the question, or at question_pieces; compact"
    )
    embeddings: Literal["trained", "frozen"] | None = Field(
        default=None, description="piece vectors; frozen is cheaper"
    )
    targets: Literal["located", "occurrences"] | None = Field(
        default=None, description="gold where the file says, or every occurrence of an answer"
    )
    question_pieces: int | None = Field(default=None, ge=3, description="longest question; 48")
    dropout: float | None = Field(default=None, ge=0, lt=1, description="the span reader's rate; 0.1")
    compute: Literal["fp32", "bf16"] | None = Field(default=None, description="number type of live products")
    reader: Literal["span", "generate"] | None = Field(default=None, description="point at the answer, or write it")
    longest_answer: int | None = Field(
        default=None, gt=0, description="pieces of the longest answer given; 30 of a span, 32 of a written one"
    )
    decoder_question: Literal["auto", "in_memory_each", "in_memory_once", "prefix", "none"] | None = Field(
        default=None, description="generate: how the decoder sees the question"
    )
    decoder_blocks: int | None = Field(default=None, gt=0, description="generate: blocks of a decoder that is no T5's")
    n_beams: int | None = Field(default=None, gt=0, description="generate: beams; 1")
    length_penalty: float | None = Field(default=None, ge=0, description="generate: of beams; 1")
    z_loss: float | None = Field(default=None, ge=0, description="generate: T5X's 1e-4; 0")

    def chosen(self) -> dict[str, Any]:
        """Only what the file sets."""
        return self.model_dump(exclude_none=True)


class SearchSection(Section):
    """`[search]`: which design is the best on dev, by short trainings before the real one."""

    questions: int = Field(default=0, ge=0, description="training questions of a trial; 0: no search")
    designs: list[DesignSection] = Field(
        default_factory=list,
        description="what is tried, keys of [design]; by default cuts and start blocks near the paper's",
    )


class ReaderTrainSection(LoopSection):
    """`[train]`: the loop, with defaults for small encoders; the paper's are in docs/methods/lumen.md."""

    learning_rate: float = Field(default=1e-3, gt=0, description="the schedule's peak, for what is new")
    encoder_learning_rate: float | None = Field(
        default=3e-4, ge=0, description="peak for what was pre-trained; 0: the same"
    )
    num_train_epochs: int = Field(default=2, gt=0, description="passes over the training questions")
    per_device_train_batch_size: int = Field(default=16, gt=0, description="questions in a batch")
    per_device_eval_batch_size: int = Field(default=16, gt=0, description="questions in a batch of answering")
    optim: Literal["adam", "adamw", "adafactor"] = Field(default="adamw", description="the optimiser")
    lr_scheduler_type: Literal["one_cycle", "linear", "constant"] = Field(
        default="linear", description="course of the learning rate"
    )
    warmup_ratio: float = Field(default=0.1, ge=0, lt=1, description="part of the steps before the peak")
    weight_decay: float = Field(default=0.01, ge=0, description="of AdamW; biases and norms have none")
    max_grad_norm: float = Field(default=1.0, ge=0, description="clips the gradient; 0: never")


class ReaderConfig(Section):
    """The whole file."""

    encoder: EncoderName = Field(description="a folder, a hub name or quickstart")
    decoder: EncoderName | None = Field(default=None, description="checkpoint of a decoder; the encoder's own")
    start: FileName | None = Field(
        default=None,
        description="a saved reader, cut alike, that training goes on from; never its memory",
    )
    store: FileName = Field(default="states", description="folder of the training passages' views, one a cut")
    dtype: Literal["fp32", "fp16", "bf16", "int8"] | None = Field(
        default=None, description="type they are stored in; fp16, bf16 where the stream is not normed (T5)"
    )
    compute: Literal["fp32", "bf16x3", "bf16"] = Field(default="fp32", description="arithmetic of the frozen encoder")
    form: Literal["plain", "fid"] | None = Field(
        default=None, description="how questions and passages are shown; fid for T5, else plain"
    )
    data: QuestionsSection = QuestionsSection()
    design: DesignSection = DesignSection()
    search: SearchSection = SearchSection()
    train: ReaderTrainSection = ReaderTrainSection()
