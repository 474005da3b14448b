"""A training step of the library against a textbook port of the method, a live frozen encoder, and full fine-tuning.

    python benchmarks/step.py [--conllu train.conllu [--column deprel]] [--sentences 512] [--rounds 3] [--out FILE]
    python benchmarks/step.py --accuracy --conllu train.conllu --dev dev.conllu [--sentences 4000] [--epochs 4]

Without --conllu the text is the manual that every Python carries, the labels say which mark followed each word. The
encoder is the packaged MiniLM, the head the same everywhere. Every candidate takes the same sentences in batches of 32;
those that run the encoder, which are slow, take every eighth batch. A step is all from stored states (or piece ids) to
the updated weights, reading and collation included. Figures are CPU seconds of one thread: candidates take turns
within a round, parts are medians and minima over rounds, ratios medians of the ratios within a round. Peak memory is
what a process of its own reaches, while it trains, above what it held before the model was made. Prints the parts as
JSON, then one ratio: textbook to library. --accuracy trains the library and the textbook on the same data and
schedule and prints the difference of their dev accuracies instead.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import textbook
import torch
from parts import show
from torch import nn

from encodeonce.batching import Examples
from encodeonce.corpus import manual, read
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.encoders.quickstart import quickstart_folder
from encodeonce.methods.aggregate import Aggregate, Variant
from encodeonce.nn.linear import fastest_compute
from encodeonce.report.results import now, provenance
from encodeonce.store import Store
from encodeonce.tasks.tagging import Tagging
from encodeonce.train.evaluate import evaluate
from encodeonce.train.fit import fit
from encodeonce.train.settings import Settings
from encodeonce.types import Document

BATCH = 32
LIVE = ("live", "finetune", "finetune_fast")
CANDIDATES = ("adapted", "frozen", "textbook_adapted", "textbook_frozen", *LIVE)
RATIOS = {
    "textbook adapted / adapted": ("textbook_adapted", "adapted"),
    "textbook frozen / frozen": ("textbook_frozen", "frozen"),
    "adapted / frozen": ("adapted", "frozen"),
    "live frozen encoder / adapted": ("live", "adapted"),
    "textbook fine-tuning / adapted": ("finetune", "adapted"),
    "fine-tuning with bf16 and length buckets / adapted": ("finetune_fast", "adapted"),
}


class Data:
    """The same sentences as the library and as the textbook see them."""

    def __init__(
        self,
        documents: Sequence[Document],
        column: str,
        folder: Path,
        task: Tagging | None = None,
        encoder_compute: str = "fp32",
    ) -> None:
        self.documents = documents
        self.model = Pretrained(str(quickstart_folder()), compute=encoder_compute)
        self.store = Store.open(folder, self.model.spec())
        self.store.fill(documents, self.model)
        self.task = task or Tagging(column).learn(documents)
        self.examples = Examples.read(self.store, documents, [self.task])
        self.pieces = self.model.cut(documents)
        self.gold = [self.task.ids(gold) for gold in self.task.gold(documents)]

    def textbook(self, states: bool = True) -> list[textbook.Example]:
        """One example a sentence, its states in memory where they are wanted."""
        examples = []
        for pieces, gold in zip(self.pieces, self.gold, strict=True):
            ends = np.flatnonzero(np.append(pieces.word[1:], -1) != pieces.word)
            rows = ends[pieces.word[ends] >= 0]
            kept = torch.from_numpy(self.store.get(pieces.key).states) if states else torch.empty(0)
            examples.append(textbook.Example(pieces.ids, kept, rows, gold))
        return examples


Step = Callable[[], None]


class Ours:
    """The library's own loop over one epoch, in line: reading the store, collating, loss, gradients, fused Adam."""

    def __init__(self, data: Data, name: str, learning_rate: float = 1e-3) -> None:
        variant = Variant(name, compute=fastest_compute())
        self.method = Aggregate.build(variant, data.store.spec, [data.task], read_ahead=0).train()
        self.examples = data.examples
        self.optimiser = torch.optim.Adam(self.method.parameters(), lr=learning_rate, fused=True)

    def epoch(self, order: np.random.Generator) -> Iterator[Step]:
        """One callable a batch."""
        batches = self.method.batches(self.examples, size=BATCH, order=order)
        for _ in range(-(-len(self.examples) // BATCH)):
            yield lambda: self._step(next(batches))

    def _step(self, batch: Any) -> None:
        self.method.loss(batch).backward()
        self.optimiser.step()
        self.optimiser.zero_grad()


class Plain:
    """A textbook model over padded batches; `fast` is `textbook.autocast` and length buckets."""

    def __init__(self, examples: Sequence[textbook.Example], model: nn.Module, ids: bool, fast: bool = False) -> None:
        self.examples, self.model, self.fast = examples, model.train(), fast
        self.collate = textbook.collate_ids if ids else textbook.collate_states
        self.optimiser = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-3)

    def epoch(self, order: np.random.Generator) -> Iterator[Step]:
        """One callable a batch."""
        lengths = [len(example.ids) for example in self.examples]
        plan = textbook.random_batches(len(lengths), BATCH, order)
        if self.fast:
            plan = textbook.length_buckets(lengths, BATCH, order)
        for batch in plan:
            yield lambda batch=batch: self._step([self.examples[i] for i in batch])

    def _step(self, examples: Sequence[textbook.Example]) -> None:
        inputs, mask, labels = self.collate(examples)
        with textbook.autocast(self.fast):
            scores = self.model(inputs, mask)
        loss = textbook.mean_loss(scores.float(), labels)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()


def candidate(name: str, data: Data) -> Ours | Plain:
    """A fresh model of this name, ready to train."""
    width, n_labels = data.store.spec.width, len(data.task.labels)
    if name in ("adapted", "frozen"):
        return Ours(data, name)
    if name == "textbook_adapted":
        return Plain(data.textbook(), textbook.AdaptedModel(width, n_labels), ids=False)
    if name == "textbook_frozen":
        return Plain(data.textbook(), textbook.FrozenModel(width, n_labels), ids=False)
    from transformers import AutoModel

    encoder = AutoModel.from_pretrained(quickstart_folder(), add_pooling_layer=False)
    if name == "live":
        return Plain(data.textbook(states=False), textbook.AdaptedModel(width, n_labels, encoder), ids=True)
    model = textbook.FinetuneModel(encoder, width, n_labels)
    return Plain(data.textbook(states=False), model, ids=True, fast=name == "finetune_fast")


def cpu_seconds(steps: Iterator[Step], every: int) -> float:
    """Mean CPU seconds of a step, over every `every`-th."""
    taken = []
    for number, step in enumerate(steps):
        if number % every == 0:
            began = time.process_time()
            step()
            taken.append(time.process_time() - began)
    return statistics.fmean(taken)


def timed(data: Data, rounds: int) -> dict[str, list[float]]:
    """Seconds a step of each candidate, one figure a round, after a round that does not count."""
    runs = {name: candidate(name, data) for name in CANDIDATES}
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name, run in runs.items():
            taken = cpu_seconds(run.epoch(np.random.default_rng(number)), every=8 if name in LIVE else 1)
            seconds[name] += [taken] if number else []
    return seconds


def ready(name: str) -> None:
    """Load what the candidate's libraries load at first use, so that code does not count as memory of training."""
    if name in LIVE:
        import transformers.models.bert.modeling_bert  # noqa: F401
    layer = nn.Linear(8, 8)
    layer(torch.ones(1, 8)).sum().backward()
    torch.optim.Adam(layer.parameters()).step()


def peak_mb(name: str, data: Data) -> dict[str, float]:
    """MB this process reaches above what it holds now, while the candidate is made and trained for an epoch.

    "mapped" is the part that is pages of files (the store is mapped, not loaded), which the system takes back when it
    needs them; "own" is the rest.
    """
    ready(name)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of getting ready
    base = status_mb("VmHWM"), status_mb("RssFile")
    run = candidate(name, data)
    for step in run.epoch(np.random.default_rng(0)):
        step()
    total, mapped = status_mb("VmHWM") - base[0], status_mb("RssFile") - base[1]
    return {"own": total - mapped, "mapped": mapped}


def status_mb(field: str) -> float:
    """A field of /proc/self/status."""
    found = re.search(rf"{field}:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None, "peak memory is read from /proc: it needs Linux, or --no-memory"
    return int(found[1]) / 1024


def memory(arguments: Sequence[str], folder: Path) -> dict[str, dict[str, float]]:
    """Peak MB of training, each candidate in a process of its own."""
    peaks = {}
    for name in ("adapted", "textbook_adapted", "finetune", "finetune_fast"):
        command = [sys.executable, __file__, *arguments, "--peak", name, "--store", str(folder)]
        answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        peaks[name] = json.loads(answer.splitlines()[-1])
    return peaks


def accuracies(data: Data, dev: Data, epochs: int, seed: int, rate: float) -> dict[str, float]:
    """Dev accuracy of the library's run and of the textbook's: same data, rate, schedule and number of epochs."""
    settings = Settings(learning_rate=rate, num_train_epochs=epochs, seed=seed)
    variant = Variant("adapted", compute=fastest_compute())
    method = Aggregate.build(variant, data.store.spec, [data.task], seed)
    fit(method, data.examples, {data.task.name: data.task}, settings)
    ours = evaluate(method, dev.examples, {data.task.name: data.task}).scores[data.task.name]["accuracy"]
    torch.manual_seed(seed)
    run = Plain(data.textbook(), textbook.AdaptedModel(data.store.spec.width, len(data.task.labels)), ids=False)
    n_steps = epochs * -(-len(run.examples) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(run.optimiser, rate, total_steps=n_steps)
    order = np.random.default_rng(seed)
    for _ in range(epochs):
        for step in run.epoch(order):
            step()
            schedule.step()
    return {"ours": float(ours or 0), "textbook": accuracy_of(run.model.eval(), dev.textbook())}


def accuracy_of(model: nn.Module, examples: Sequence[textbook.Example]) -> float:
    """Share of right labels, in per cent."""
    right = total = 0
    with torch.no_grad():
        for start in range(0, len(examples), BATCH):
            states, mask, labels = textbook.collate_states(examples[start : start + BATCH])
            real = torch.zeros_like(mask)
            for index, example in enumerate(examples[start : start + BATCH]):
                real[index, torch.from_numpy(example.rows)] = True
            right += int((model(states, mask).argmax(-1) == labels)[real].sum())
            total += int(real.sum())
    return 100 * right / total


def documents_of(path: str | None, limit: int | None) -> list[Document]:
    """A random choice of the file's sentences, or of the manual's."""
    documents = manual.task()["train"] if path is None else read(path)
    chosen = np.random.default_rng(0).permutation(len(documents))[:limit]
    return [documents[i] for i in chosen]


def step_report(data: Data, options: argparse.Namespace, arguments: Sequence[str], folder: Path) -> dict[str, Any]:
    """Everything that is timed or weighed."""
    seconds = timed(data, options.rounds)
    ratios = {
        name: statistics.median(a / b for a, b in zip(seconds[over], seconds[under], strict=True))
        for name, (over, under) in RATIOS.items()
    }
    peaks = {} if options.no_memory else memory(arguments, folder)
    for name in ("finetune", "finetune_fast") if peaks else ():
        for part in (("own",), ("own", "mapped")):
            over, under = (sum(peaks[n][p] for p in part) for n in ("adapted", name))
            ratios[f"peak memory ({' + '.join(part)}) adapted / {name}"] = over / under
    return {
        "ms_per_step_median": {name: 1e3 * statistics.median(values) for name, values in seconds.items()},
        "ms_per_step_min": {name: 1e3 * min(values) for name, values in seconds.items()},
        "peak_mb": peaks,
        "ratios": ratios,
        "compute": fastest_compute(),
        "batch": BATCH,
        "pieces_per_batch": BATCH * float(data.examples.lengths.mean()),
        "rounds": options.rounds,
    }


def accuracy_report(data: Data, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Dev accuracies of both, one a seed, and their means."""
    dev = Data(documents_of(options.dev, None), options.column, folder, data.task)
    runs = [accuracies(data, dev, options.epochs, seed, options.learning_rate) for seed in options.seeds]
    means = {name: statistics.fmean(run[name] for run in runs) for name in ("ours", "textbook")}
    return {"seeds": options.seeds, "epochs": options.epochs, "dev_accuracy": runs, "mean": means}


def main() -> None:
    """Parse, prepare, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conllu")
    parser.add_argument("--dev")
    parser.add_argument("--column", default=None)
    parser.add_argument("--sentences", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--accuracy", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--seeds", type=int, nargs="+", default=[13, 21])
    parser.add_argument("--out")
    parser.add_argument("--peak", choices=CANDIDATES, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.column = options.column or ("deprel" if options.conllu else "punct")
    if options.accuracy and not (options.conllu and options.dev):
        parser.error("--accuracy needs --conllu and --dev")
    torch.set_num_threads(1)
    started = now()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(options.store or Path(scratch) / "store")
        documents = documents_of(options.conllu, options.sentences)
        data = Data(documents, options.column, folder)
        if options.peak:
            print(json.dumps(peak_mb(options.peak, data)))
            return
        arguments = [argument for argument in sys.argv[1:] if argument != "--accuracy"]
        parts = step_report(data, options, arguments, folder) if not options.accuracy else {}
        parts |= accuracy_report(data, options, folder) if options.accuracy else {}
    parts |= provenance(started)
    if options.accuracy:
        figure = f"{parts['mean']['ours'] - parts['mean']['textbook']:+.2f}"
    else:
        figure = f"{parts['ratios']['textbook adapted / adapted']:.2f}"
    show(parts, options.out, figure)


if __name__ == "__main__":
    main()
