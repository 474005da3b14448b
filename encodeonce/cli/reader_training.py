"""The job behind `memory train`: questions and passages, the passages into the store, training, a saved reader."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..corpus._format import Format
from ..corpus.passages import read_passages
from ..corpus.questions import question_format, read_questions
from ..corpus.questions.questions import passages_beside
from ..corpus.windows import question_windows, windows
from ..encoders.checkpoint import label
from ..encoders.pretrained import Pretrained
from ..errors import ConfigError, DataError
from ..methods.lumen import Design, Lumen, Plan, carry, passage_document, refuse_unlike
from ..metrics.answers import AnswerScorer
from ..report.results import command_line
from ..retrieval.bm25 import BM25
from ..retrieval.given import pool_of, with_passages
from ..serve.reader_run import ReaderRun, design_of, load_reader, memory_of, save_reader
from ..store import Store
from ..train.evaluate import evaluate
from ..train.fit import Fit, fit
from ..train.optim import total_steps
from ..train.settings import Settings
from ..types import Document, Passage, Question
from . import steps
from .config import to_toml
from .reader_config import QuestionsSection, ReaderConfig
from .reader_search import Trial, designs_of, search

__all__ = ["ReaderPlan", "ReaderReport", "plan_reader", "train_reader"]

log = logging.getLogger("encodeonce")

OWN_FILE = ("techqa", "sections")
"""Formats of questions whose passages stand in one file of a form of its own."""


@dataclass(frozen=True, slots=True)
class ReaderPlan:
    """What `memory train` would do. `searched` designs are tried, of which the first is shown (0: no search);
    `questions` by split, `passages` the different ones that are read, `per_question` how many a training question has
    on average."""

    encoder: str
    blocks: int
    cut: int
    live: tuple[int, ...]
    reader: str
    searched: int
    questions: Mapping[str, int]
    passages: int
    per_question: float
    store: steps.Plan
    steps: int

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ReaderReport:
    """What it did: scores by split, what was encoded, what the loop did, the design and the trials that chose it."""

    scores: Mapping[str, Mapping[str, float | None]]
    encoded: steps.Encoded | None
    fit: Fit
    design: Design
    trials: Sequence[Trial]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        own = {"best": self.fit.best, "seconds": self.fit.seconds, "seconds_per_batch": self.fit.seconds_per_batch}
        encoded = None if self.encoded is None else self.encoded.to_json()
        chosen = {"design": self.design.chosen(), "search": [asdict(trial) for trial in self.trials]}
        return {"scores": self.scores, "encode": encoded, **own, "parameters": self.fit.parameters, **chosen}


class _Job:
    """One `memory train`: everything that is read and checked before anything is encoded."""

    def __init__(self, config: ReaderConfig) -> None:
        config.need("data.train")
        self.config, self.designs = config, designs_of(config)
        self.encoder = self.designs[0].encoder(config.encoder, compute=config.compute)
        self.plans: list[Plan] = [design.plan(self.encoder) for design in self.designs]
        if len({(plan.first_position, plan.segment) for plan in self.plans}) > 1:
            raise ConfigError("the designs that are tried need one question_pieces: passages stand behind it.")
        self.form = config.form or ("fid" if self.encoder.family == "t5" else "plain")
        if config.start is not None:
            self._refuse_start(Path(config.start))
        self.dtype = config.dtype or self.plans[0].dtype
        self.settings = Settings(**config.train.model_dump(exclude_none=True))
        if config.decoder is not None and all(design.reader == "span" for design in self.designs):
            raise ConfigError(
                f"decoder = {config.decoder}: a reader that points at spans has none. Set design.reader = generate, or "
                "leave it out."
            )
        self.decoder = None if config.decoder is None else Pretrained(config.decoder).path
        if self.settings.early_stopping_patience and not config.data.dev:
            raise ConfigError(
                f"train.early_stopping_patience = {self.settings.early_stopping_patience} counts epochs without a "
                "better score on dev, and there is no dev. Set data.dev, or patience to 0."
            )
        self.splits = _splits(config.data)
        _refuse_unanswered(self.splits, config.data)
        read = any(question.passages for question in self.splits["train"])
        if not read and any(design.reader == "span" for design in self.designs):
            raise DataError(
                f"{', '.join(config.data.train)}: no question has a passage that an answer could be a span of. Set "
                "data.passages and data.k, or give questions with passages."
            )

    def _refuse_start(self, folder: Path) -> None:
        """ConfigError where the reader in `folder` is not one to start from, as far as its config.json tells."""
        (_, there, form), design = memory_of(folder), design_of(folder)
        here = self.encoder.outline() if self.encoder.lacks else self.encoder.spec()
        pairs = {name: (getattr(there, name), getattr(here, name)) for name in ("n_blocks", "width", "tokenizer")}
        differing = [
            f"{name}: {mine!r} there, {own!r} here" for name, (mine, own) in pairs.items() if own not in (mine, "")
        ]
        if differing:
            raise ConfigError(
                f"start = {folder} is of an encoder of another kind: {'; '.join(differing)}. Only its weights may be "
                "others: name such an encoder, or another start."
            )
        for own, plan in zip(self.designs, self.plans, strict=True):
            refuse_unlike((design, design.plan(self.encoder), form), (own, plan, self.form))

    @property
    def documents(self) -> list[Document]:
        """The different passages of all splits, as they are stored."""
        every = [passage_document(one, self.form) for own in self.splits.values() for q in own for one in q.passages]
        return list({document.key: document for document in every}.values())

    def encoded(self) -> tuple[Store | None, steps.Encoded | None]:
        """The memory that is trained from; none where nothing is stored."""
        if not self.stored:
            return None, None
        store = Store.open(self.config.store, self.encoder.spec(self.stored, self.dtype))
        return store, steps.encode(store, self.documents, self.encoder)

    @property
    def stored(self) -> list[int]:
        """The views that any of the designs reads: one pass over the passages makes them."""
        return sorted({view for plan in self.plans for view in plan.stored})

    def method(self, design: Design) -> Lumen:
        """Untrained, or as the reader that it starts from."""
        decoder = None if design.reader == "span" else self.decoder
        method = Lumen.build(design, self.encoder, seed=self.settings.seed, form=self.form, decoder=decoder)
        if self.source is not None:
            carry(self.source, method)
        return method

    @cached_property
    def source(self) -> Lumen | None:
        """The reader that training starts from."""
        return None if self.config.start is None else load_reader(self.config.start).method


def plan_reader(config: ReaderConfig) -> ReaderPlan:
    """Read and check everything that `train_reader` would; nothing is written and no weight is loaded."""
    job = _Job(config)
    plan, encoder, train = job.plans[0], job.encoder, job.splits["train"]
    made = encoder.outline if encoder.lacks else encoder.spec
    spec = made(job.stored or "last", job.dtype)
    documents = job.documents
    nothing = steps.Plan(asked=0, hits=0, duplicates=0, missing=0, rows=0, bytes=0, lacks=tuple(encoder.lacks))
    batches = -(-len(train) // job.settings.per_device_train_batch_size)
    return ReaderPlan(
        encoder=label(spec.encoder),
        blocks=plan.n_blocks,
        cut=plan.cut,
        live=plan.blocks,
        reader=job.designs[0].reader,
        searched=len(job.designs) if config.search.questions else 0,
        questions={split: len(own) for split, own in job.splits.items()},
        passages=len(documents),
        per_question=sum(len(q.passages) for q in train) / len(train),
        store=steps.planned(Path(config.store), spec, documents, encoder) if job.stored else nothing,
        steps=total_steps(batches, job.settings),
    )


def train_reader(config: ReaderConfig, folder: Path, *, whole: bool = False) -> ReaderReport:
    """Train as the config says and save the reader into `folder`, where `memory build` and `ask` find it; `whole`: with
    its encoder.

    An interrupted training goes on from its last checkpoint when it is started again.
    """
    job = _Job(config)
    for design in reversed(job.designs):  # what cannot be built says so before anything is encoded
        method = job.method(design)
    store, encoded = job.encoded()
    design, trials = job.designs[0], list[Trial]()
    if config.search.questions:
        design, trials = search(config, job.designs, job.method, job.splits, job.encoder, store, job.settings, folder)
        method = job.method(design)
    read = {split: method.read(own, job.encoder, store) for split, own in job.splits.items()}
    scorers = {"answer": AnswerScorer()}
    done = fit(method, read["train"], scorers, job.settings, dev=read.get("dev"), folder=folder)
    size = job.settings.per_device_eval_batch_size
    scored: list[str] = [split for split in ("dev", "test") if split in read]
    scores = {split: dict(evaluate(method, read[split], scorers, size).scores["answer"]) for split in scored}
    training = {
        "settings": job.settings.to_json(),
        "examples": {split: len(own) for split, own in job.splits.items()},
        "passages_a_question": config.data.k,
        "start": None if config.start is None else Path(config.start).name,
        "search": [asdict(trial) for trial in trials],
        "best": done.best,
        "steps": done.steps,
        "seconds": done.seconds,
        "seconds_per_batch": done.seconds_per_batch,
        "parameters": done.parameters,
    }
    names = {split: ", ".join(Path(name).name for name in getattr(config.data, split)) for split in job.splits}
    (folder / "config.toml").write_text(to_toml(config, folder), encoding="utf-8")
    run = ReaderRun(method, job.encoder, job.dtype, training, scores, names, command_line())
    save_reader(run, folder, whole=whole)
    return ReaderReport(scores, encoded, done, design, trials)


def _splits(data: QuestionsSection) -> dict[str, list[Question]]:
    """The questions of each split with the passages that they are read with."""
    splits = {"train": data.train, "dev": data.dev, "test": data.test}
    forms = {name: question_format(name, data.format) for names in splits.values() for name in names}
    whole = next((name for name, form in forms.items() if form.name in OWN_FILE), None)
    others: list[Passage] = []
    if whole is None:
        others = [one for name in data.passages for one in read_passages(name, format=data.passages_format)]
    elif len(data.passages) > 1:
        raise ConfigError(
            f"{whole} is of the form {forms[whole].name!r}, whose passages are one file, and data.passages names "
            f"{len(data.passages)}. Name that file alone."
        )
    named = {name: _named(name, form, data, others) for name, form in forms.items()}
    cut = _cut(others, data)
    return {split: _given(_read(names, data, named), cut, data) for split, names in splits.items() if names}


def _named(name: str, form: Format[Question], data: QuestionsSection, others: list[Passage]) -> dict[str, Any]:
    """The option that says where a file finds the passages that it names by id: beside it, else in data.passages."""
    if form.name in OWN_FILE:
        return {"passages": data.passages[0]} if data.passages else {}
    return {"passages": others} if form.by_id and others and passages_beside(name) is None else {}


def _refuse_unanswered(splits: Mapping[str, Sequence[Question]], data: QuestionsSection) -> None:
    """DataError for a split without any right answer; questions without one are counted in a warning."""
    for split, own in splits.items():
        use = "learned from" if split == "train" else "scored by"
        without = [question for question in own if not question.answers]
        if len(without) == len(own):
            raise DataError(
                f"{', '.join(getattr(data, split))}: none of the {len(own):,} questions of data.{split} has an answer "
                f'to be {use}. Give them answers ([""] where there is none to be found), or leave the file out.'
            )
        if without:
            log.warning(
                "%d of %d questions of data.%s have no answer and are not %s, the first %s",
                *(len(without), len(own), split, use, without[0].place or without[0].id),
            )


def _read(names: Sequence[str], data: QuestionsSection, named: Mapping[str, dict[str, Any]]) -> list[Question]:
    found = [question for name in names for question in read_questions(name, format=data.format, **named[name])]
    return question_windows(found, data.words, data.overlap) if data.words else found


def _cut(passages: list[Passage], data: QuestionsSection) -> list[Passage]:
    return windows(passages, data.words, data.overlap) if data.words else passages


def _given(questions: list[Question], others: Sequence[Passage], data: QuestionsSection) -> list[Question]:
    """With `data.k` passages each, or with its own where that is 0."""
    if not data.k:
        return questions
    pool = pool_of(questions, others)
    if not pool:
        raise DataError(
            f"{questions[0].place or questions[0].id}: neither the questions bring passages nor data.passages, of "
            f"which data.k={data.k} are to be read with each. Name files of passages there."
        )
    return with_passages(questions, pool, BM25(list(pool.values())), data.k)
