"""What `demo` does: Frozen, Linear, Fusion and Adapted from one encoding pass, and fine-tuning on a slice.

The task: lower-cased words without punctuation, and for each word its case and the mark that followed it.
"""

import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from ..corpus import manual
from ..encoders.pretrained import Pretrained
from ..errors import MissingExtra, RunError
from ..methods.aggregate import Variant
from ..methods.finetune import Tuning
from ..report.results import command_line
from ..report.table import aligned
from ..serve.bundle import Run, save
from ..serve.folder import refuse_other
from ..store import Store
from ..tasks import Task, from_json, named
from ..train.evaluate import Evaluation
from ..train.fit import Fit
from ..train.settings import Settings
from ..types import Document
from . import learning, steps
from .learning import Material, Trained

__all__ = ["Plan", "changed_f1", "demonstrate", "example"]

log = logging.getLogger("encodeonce")

METHODS = ("frozen", "linear", "fusion", "adapted")
NOTHING = {"case": "lower", "punct": "none"}
"""The label of a word that the task leaves as it is."""
CACHED_RATE, FINETUNE_RATE = 2e-3, 2e-4
"""Peak learning rates: of adapters and heads, and of a live encoder below its heads."""
PART_BATCH = 8
"""Sentences in a batch of the slice: it is small, and the optimiser needs steps."""
FEWEST = 5
"""A label of fewer words than this is left out of the picture."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`part` sentences are fine-tuned on, `part_epochs` times."""

    encoder: str
    folder: Path
    sentences: int
    epochs: int
    part: int
    part_epochs: int
    threads: int


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table. `ms` is wall time of training on 32 sentences, whatever the batch."""

    name: str
    predicted: Mapping[str, Sequence[tuple[str, ...]]]
    ms: float
    seconds: float
    trainable: int


def demonstrate(plan: Plan) -> str:
    """All of it, on the plan's threads; returns what is printed at the end. RunError where the folder's `run` holds
    a run that is no demo's, or files that one would overwrite."""
    _refuse_other(plan.folder / "run")
    before, epochs = torch.get_num_threads(), logging.getLogger("encodeonce.epochs")
    level = epochs.level
    torch.set_num_threads(plan.threads)
    epochs.setLevel(logging.WARNING)  # a line a method is enough here
    try:
        return _demonstrate(plan)
    finally:
        torch.set_num_threads(before)
        epochs.setLevel(level)


def _refuse_other(run: Path) -> None:
    refuse_other(run)
    config = run / "config.json"
    if not config.exists():
        return
    tasks = json.loads(config.read_text(encoding="utf-8")).get("tasks", ())
    names = [from_json(task).name for task in tasks]
    if sorted(names) != sorted(NOTHING):
        raise RunError(
            f"{run} holds a run of {', '.join(names) or 'something else'}, no demo's, which would be overwritten. "
            "Choose another folder (--output)."
        )


def _demonstrate(plan: Plan) -> str:
    began = time.perf_counter()
    splits = manual.task(plan.sentences)
    words = sum(len(document.words) for documents in splits.values() for document in documents)
    counts = ", ".join(f"{split} {len(documents):,}" for split, documents in splits.items())
    log.info("text       Python's manual: %s sentences, %s words", counts, f"{words:,}")
    material = _encoded(plan, splits)
    settings = Settings(learning_rate=CACHED_RATE, num_train_epochs=plan.epochs)
    trained = {}
    for name in METHODS:
        trained[name] = learning.train(material, Variant(name), settings, scored=("test",))
        took = trained[name]
        log.info("train      %s: %d batches, %.1f s", name, took.fit.batches, took.fit.seconds)
    lines = [_line(name, done.fit, done.evaluations["test"]) for name, done in trained.items()]
    lines += _on_a_slice(plan, material)
    _save(plan, material, settings, trained["adapted"])
    picture = _picture(plan, material, trained["adapted"])
    test = material.splits["test"]
    gold = {task.name: task.gold(test) for task in material.tasks}
    adapted = lines[len(METHODS) - 1]
    return "\n\n".join(
        [
            _table(lines, material.tasks, gold),
            _costs(plan, material, lines, time.perf_counter() - began),
            example(test, adapted.predicted),
            picture,
        ]
    )


def _encoded(plan: Plan, splits: Mapping[str, Sequence[Document]]) -> Material:
    """The one encoding pass, with the tasks learned from the training sentences."""
    model = Pretrained(plan.encoder)
    spec = model.spec("all", "fp16")
    store = Store.open(plan.folder / "states", spec)
    everything = [document for documents in splits.values() for document in documents]
    encoded = steps.encode(store, everything, model)
    tasks = tuple(named(task).learn(splits["train"]) for task in NOTHING)
    report = encoded.report
    speed = f", {encoded.rows_per_second:,.0f} pieces/s" if encoded.rows_per_second else "; encoder not loaded"
    log.info(
        "encode     %s, %d layers: %s hits, %s misses, %.1f s%s",
        spec.encoder,
        len(spec.layers),
        f"{report.hits:,}",
        f"{report.written:,}",
        encoded.seconds,
        speed,
    )
    return Material(splits, tasks, spec, store, model, encoded)


def _line(name: str, fitted: Fit, found: Evaluation, size: int = 32) -> Line:
    predicted = {task: [answer[task] for answer in found.predictions] for task in found.scores}
    ms, seconds = 1000 * fitted.seconds_per_batch * 32 / size, fitted.batches * fitted.seconds_per_batch
    return Line(name, predicted, ms, seconds, fitted.parameters["total"])


def _on_a_slice(plan: Plan, material: Material) -> list[Line]:
    """Adapted and fine-tuning, both on the first sentences alone and for as many epochs."""
    part = material.splits["train"][: plan.part]
    label = f"first {len(part)} sentences, {plan.part_epochs} epochs"
    settings = Settings(
        learning_rate=CACHED_RATE, num_train_epochs=plan.part_epochs, per_device_train_batch_size=PART_BATCH
    )
    small = replace(material, splits={"train": part, "test": material.splits["test"]})
    cached = learning.train(small, Variant("adapted"), settings, scored=("test",))
    slow = replace(settings, encoder_learning_rate=FINETUNE_RATE)
    tuned = learning.train(small, Tuning("finetune", shared=True), slow, scored=("test",))
    log.info("fine-tune  %s: %d batches, %.1f s", label, tuned.fit.batches, tuned.fit.seconds)
    return [
        _line(f"adapted, {label}", cached.fit, cached.evaluations["test"], PART_BATCH),
        _line(f"fine-tuning, {label}", tuned.fit, tuned.evaluations["test"], PART_BATCH),
    ]


def changed_f1(gold: Sequence[tuple[str, ...]], predicted: Sequence[tuple[str, ...]], nothing: str) -> float | None:
    """Micro F1 (0-100) over all labels but `nothing`: how well what was taken out is put back. None without any."""
    pairs = [pair for g, p in zip(gold, predicted, strict=True) for pair in zip(g, p, strict=True)]
    right = sum(g == p != nothing for g, p in pairs)
    total = sum(g != nothing for g, _ in pairs) + sum(p != nothing for _, p in pairs)
    return 200 * right / total if total else None


def _table(lines: Sequence[Line], tasks: Sequence[Task], gold: Mapping[str, Sequence[tuple[str, ...]]]) -> str:
    header = ["method", *(f"{task.name} {what}" for task in tasks for what in ("acc", "F1"))]
    header += ["ms/batch", "train s", "trainable"]
    rows = []
    for line in lines:
        row = [line.name]
        for task in tasks:
            told, found = gold[task.name], line.predicted[task.name]
            f1 = changed_f1(told, found, NOTHING[task.name])
            row += [f"{task.score(told, found)['accuracy']:.2f}", "-" if f1 is None else f"{f1:.2f}"]
        rows.append([*row, f"{line.ms:.1f}", f"{line.seconds:.1f}", f"{line.trainable:,}"])
    return aligned(header, rows)


def _costs(plan: Plan, material: Material, lines: Sequence[Line], seconds: float) -> str:
    """What the numbers of the table are, and what the store cost."""
    encoded, adapted, tuned = material.encoded, lines[len(METHODS) - 1], lines[-1]
    nbytes = sum(file.stat().st_size for file in material.store.path.iterdir())
    loaded = "" if encoded.encoder_loaded else "; encoder not loaded"
    distinct = encoded.report.asked - encoded.report.duplicates
    return "\n".join(
        [
            f"Test: {len(material.splits['test'])} sentences. acc: accuracy over all words; F1: over the words with a "
            "capital (case) or a mark (punct).",
            "Both tasks are trained from one read of the store. A batch is 32 sentences "
            f"({PART_BATCH} on the slice, whose time is given for 32). trainable: both tasks together.",
            f"Store: {nbytes / 1e6:.1f} MB, {encoded.report.hits:,} of {distinct:,} sentences were there, "
            f"{encoded.report.written:,} encoded in {encoded.seconds:.1f} s{loaded}.",
            f"Threads: {plan.threads}. 32 sentences take Adapted {adapted.ms:.1f} ms and fine-tuning (fp32) "
            f"{tuned.ms:.0f} ms: "
            f"{tuned.ms / adapted.ms:.0f} times as long.",
            f"All of it: {seconds:.0f} s. Run it again: nothing is encoded. Next: encodeonce predict "
            f"{plan.folder / 'run'} FILE",
        ]
    )


def example(documents: Sequence[Document], predicted: Mapping[str, Sequence[tuple[str, ...]]]) -> str:
    """Before and after of the first sentence of 12 to 24 words with a capital and a mark inside; the choice looks at
    the text alone, not at how well it was restored."""

    def inside(document: Document) -> bool:
        case, marks = document.columns["case"], document.columns["punct"]
        return any(label != "lower" for label in case[1:]) and any(label != "none" for label in marks[:-1])

    rich = [i for i, document in enumerate(documents) if 12 <= len(document.words) <= 24 and inside(document)]
    chosen = (rich or [0])[0]
    document = documents[chosen]
    restored = manual.restored(document.words, predicted["case"][chosen], predicted["punct"][chosen])
    return "\n".join(
        [
            f"read      {' '.join(document.words)}",
            f"restored  {restored}",
            f"original  {document.meta['text']}",
        ]
    )


def _picture(plan: Plan, material: Material, done: Trained) -> str:
    """Draw which layers each label reads; a sentence that says where it is, or what is missing."""
    from ..report.plots import Heat, heat
    from .reading import mean_weights

    documents = [*material.splits["dev"], *material.splits["test"]]
    examples = done.method.read(material.store, documents)
    panels = []
    for task in done.tasks:
        panel = mean_weights(done.method, examples, task.name, task.gold(documents))
        kept = [row for row, count in enumerate(panel.counts) if count >= FEWEST]
        labels, counts = [panel.labels[row] for row in kept], [panel.counts[row] for row in kept]
        panels.append(Heat(task.name, labels, counts, panel.layers, panel.weights[kept]))
    path = plan.folder / "layers.png"
    try:
        heat(panels, path, "Which layers each label reads (Adapted)")
    except MissingExtra as problem:
        return f"No picture: {problem}"
    return f"Picture: {path}, which layers each label reads."


def _save(plan: Plan, material: Material, settings: Settings, done: Trained) -> None:
    training = done.training(settings, material.splits)
    scores = {split: evaluation.scores for split, evaluation in done.evaluations.items()}
    names = dict.fromkeys(material.splits, f"Python's manual, {plan.sentences} sentences")
    run = Run(done.method, done.tasks, done.variant, material.spec, training, scores, names, command_line())
    save(run, plan.folder / "run")
