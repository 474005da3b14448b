"""The config file of `pretrain`: documents, what makes them similar, the objective, the loop."""

from typing import Any, Literal

from pydantic import Field

from .config import EncoderName, FileName, Files, Names, Section, TrainSection

__all__ = ["PROBE", "DocumentsSection", "PretrainConfig", "PretrainSection", "ProbeSection", "SampleSection"]

PROBE = "probe"
"""The name of an objective that is still to be chosen."""


class DocumentsSection(Section):
    """`[data]`: where the documents are and what their metadata is called."""

    train: Files = Field(default_factory=list, description="files or folders of documents")
    format: str | None = Field(default=None, description="reader's name; by the file's ending where it is not given")
    columns: dict[str, int | str] | None = Field(default=None, description="where values stand: { text = 'body' }")
    path: str = Field(default="category_path", description="field of the category path: a list, or 'A > B'")
    taxonomy: FileName | None = Field(
        default=None,
        description="taxonomy file (Google's, arXiv's, EuroVoc's): its paths in the place of the documents'",
    )
    min_cosine: float | None = Field(default=None, description="categories less similar to any leaf get no path")
    levels: int = Field(default=0, ge=0, description="levels of the path that are used, from the root; 0: all")
    split: str = Field(default="", description="field that says which documents are held out; none: held_out decides")
    held_out_name: str = Field(default="heldout", description="the field's value for those")
    held_out: float = Field(default=0.1, ge=0, lt=1, description="else the part held out, chosen by content")
    max_sentences: int = Field(default=512, ge=0, description="sentences of a document that are read; 0: all")
    keep: Literal["head", "middle", "tail"] = Field(default="head", description="which, where there are more")


class SampleSection(Section):
    """`[sample]`: which documents are similar, and how many tuples are drawn."""

    rule: Literal["category", "concepts", "citations", "brand", "rouge"] = Field(
        default="category", description="brand draws quadruplets; rouge needs no metadata"
    )
    field: str = Field(default="", description="field of category, concepts or cited ids; none: the category path")
    brand: str = Field(default="brand", description="field of the brand, for quadruplets")
    n: int = Field(default=2000, gt=0, description="tuples, before doubling")
    doubled: bool = Field(
        default=True, description="also with anchor and positive swapped: triplets without hard negatives"
    )
    hard_ratio: float = Field(default=0.0, ge=0, le=1, description="citations: share of hard negatives")
    topic_levels: int = Field(default=0, ge=0, description="classes from topics of so many levels, not from paths")
    topics: str = Field(
        default="", description="field of a document's topic (a BERTopic model's number, -1: none), not clusters"
    )
    n_topics: int = Field(default=0, ge=0, description="topics at the finest level; 0: one for 25 documents, 8 to 200")
    min_documents: int = Field(default=5, gt=0, description="documents of such a topic at least; others have no class")
    min_children: int = Field(default=2, gt=0, description="topics below a topic at least; 1: also an only one")
    shuffled: bool = Field(default=False, description="metadata given to other documents: the control")
    n_held_out: int = Field(default=4000, gt=0, description="tuples of held-out documents that are scored")

    @property
    def clustered(self) -> bool:
        """Whether classes are clusters, which are made of the vectors of all training documents."""
        return bool(self.topic_levels) and not self.topics


class ProbeSection(Section):
    """`[probe]`: the task of one's own that chooses the objective, where that is "probe"."""

    config: FileName | None = Field(
        default=None, description="a config file of `train`: its task, method, data.train, data.dev"
    )
    objectives: Names = Field(
        default_factory=list, description="what is tried; none: both, masked and combined, so far as they can be"
    )
    part: float = Field(default=0.1, gt=0, lt=1, description="of the budget that each is tried with")
    examples: int = Field(default=500, gt=0, description="documents of either side, train and dev, at most")
    seeds: int = Field(default=3, gt=0, le=5, description="of training on the task; scores are paired by them")


class PretrainSection(TrainSection):
    """`[train]`: the loop, with the authors' settings as defaults (spec A10)."""

    learning_rate: float = Field(default=5e-5, gt=0, description="the schedule's peak")
    num_train_epochs: int = Field(default=1, gt=0, description="passes over the tuples")
    optim: Literal["adam", "adamw", "adafactor"] = Field(default="adamw", description="the optimiser")
    lr_scheduler_type: Literal["one_cycle", "linear", "constant"] = Field(
        default="linear", description="course of the learning rate"
    )
    warmup_ratio: float = Field(default=0.0, ge=0, lt=1, description="part of the steps before the peak")
    max_grad_norm: float = Field(default=1.0, ge=0, description="clips the gradient; 0: never")
    save_steps: int = Field(default=50, ge=0, description="steps between checkpoints beside each epoch's; 0: none")


class PretrainConfig(Section):
    """The whole file."""

    encoder: EncoderName = Field(description="the encoder that is trained: a folder or a hub name")
    sentence_encoder: EncoderName | None = Field(default=None, description="the frozen one; none: the same")
    store: FileName = Field(default="sentences", description="folder of the stored sentence vectors")
    pooling: Literal["mean", "cls"] = Field(default="mean", description="pieces to a sentence")
    normalize: bool = Field(default=False, description="sentence vectors of length 1")
    dtype: Literal["fp32", "fp16", "bf16", "int8"] = Field(default="fp16", description="type they are stored in")
    compute: Literal["fp32", "bf16x3", "bf16"] = Field(
        default="bf16x3", description="the sentence encoder's arithmetic; bf16x3 errs less than the stored type rounds"
    )
    objective: str = Field(
        default="both", description="triplet, hier, both, masked, combined, release; probe: what [probe] chooses"
    )
    full: bool = Field(
        default=False,
        description="the sentence encoder is trained too (FULL): it reads pieces, nothing of it is stored",
    )
    budget: str = Field(
        default="", description="5m, 90s, 1h or 44TFLOP: so many tuples (windows) as that pays for, encoding included"
    )
    options: dict[str, Any] = Field(default_factory=dict, description="settings of the objective, such as far = 0.5")
    interpolate: float = Field(
        default=1.0, gt=0, le=1, description="how far from its start to the trained weights the exported encoder lies"
    )
    windows_per_batch: int = Field(default=8, gt=0, description="windows of pieces beside the tuples (combined)")
    window: int = Field(default=128, gt=2, description="pieces of such a window")
    windows_of: Literal["all", "tuples"] = Field(
        default="all", description="documents that windows are of: all for training, or those of tuples"
    )
    token_documents: int = Field(default=200, ge=0, description="held-out documents also read piece by piece")
    data: DocumentsSection = DocumentsSection()
    sample: SampleSection = SampleSection()
    train: PretrainSection = PretrainSection()
    probe: ProbeSection = ProbeSection()
