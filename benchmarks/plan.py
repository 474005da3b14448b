"""What `encodeonce plan` says before, against what then takes place.

    python benchmarks/plan.py [--conllu train.conllu] [--sentences 4000] [--rounds 3] [--out FILE]

Without --conllu the text is the manual that every Python carries. In every round a plan is made for the packaged
encoder, LoRA and one task, as the command makes it, and one for `live_mix` and two tasks, each with blocks of its own;
then all is really done: the store is filled, Frozen, Linear and Adapted are trained for --epochs epochs, and
`live_mix` (two blocks; one and the attention of the next), LoRA, whole fine-tuning and `live_mix` with both tasks for
one, by the library's own loop.
Loading is left out on both sides, of the break-even points too. Both halves are in CPU seconds of one thread, so that
other work may take turns with this process; what it does to shared caches and cores stays in, and each round says how
many cores it used. Rounds that FILE holds already, of the same figures, are counted too. Prints the parts as JSON, then
one ratio: each figure's median prediction to its median actual value, the one furthest from 1; the goal is 0.8 to 1.25.
"""

import argparse
import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from parts import show
from step import BATCH, documents_of

from encodeonce.batching import Cut
from encodeonce.cli.config import Config, parse
from encodeonce.cli.planning import LIVE_EPOCHS, Forecast, forecast
from encodeonce.corpus import write
from encodeonce.costs import break_even
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.encoders.quickstart import quickstart_folder
from encodeonce.methods.aggregate import Aggregate, Variant
from encodeonce.methods.finetune import TUNINGS, Finetune, Tuning
from encodeonce.nn.linear import fastest_compute
from encodeonce.report.results import now, provenance
from encodeonce.store import Store
from encodeonce.tasks.tagging import Tagging
from encodeonce.train.fit import fit
from encodeonce.train.settings import Settings
from encodeonce.types import Document

LIVE_MIX = TUNINGS["live_mix"][0] or 0
METHODS = ("frozen", "linear", "adapted")
TWO = "live_mix_two_tasks"
ATTENTION = "one_and_attention"
clock = time.process_time


class Corpus:
    """The sentences in a file of their own with the labels of two tasks, and configs that name it."""

    def __init__(self, documents: Sequence[Document], columns: Sequence[str], folder: Path) -> None:
        self.documents = documents
        self.tasks = [Tagging(column).learn(documents) for column in columns]
        path = folder / "train.jsonl"
        write(path, documents, {task.name: task.gold(documents) for task in self.tasks})
        self.values = {
            "encoder": "quickstart",
            "store": str(folder / "nothing"),
            "data": {"train": [str(path)], "columns": {column: column for column in columns}},
            "adapter": {"compute": fastest_compute()},
            "finetune": {"compute": fastest_compute()},
        }

    def config(self, seed: int, method: str, n_tasks: int) -> Config:
        """The config of one round: another sample each."""
        changes = {"method": method, "tasks": [task.name for task in self.tasks[:n_tasks]]}
        train = {"seed": seed, "per_device_train_batch_size": BATCH}
        return parse({**self.values, **changes, "train": train}, "the benchmark")


def predicted(found: Forecast, two: Forecast) -> dict[str, float]:
    """The figures of a plan for LoRA and of one for two tasks that can be held against what takes place."""
    seconds = found.seconds
    assert seconds.attention is not None
    whole = next(size for size in found.sizes if (size.layers, size.dtype) == ("all", "fp16"))
    return {
        "bytes": whole.bytes.value,
        "encode": seconds.encode_missing.value + seconds.cut.value,
        **{name: seconds.cached[name].value for name in METHODS},
        "live_mix": seconds.live[LIVE_MIX].value,
        ATTENTION: seconds.attention.value,
        "lora": seconds.weighed.value,
        "finetune": seconds.live[max(seconds.live)].value,
        TWO: two.seconds.weighed.value,
    }


def with_break_even(figures: dict[str, float]) -> dict[str, float]:
    """Also the epochs of Adapted, and the tasks of ten epochs each, from which storing is cheaper than fine-tuning."""
    encode, adapted, tuned = (figures[name] for name in ("encode", "adapted", "finetune"))
    epochs, tasks = break_even(encode, adapted, tuned), break_even(encode, 10 * adapted, LIVE_EPOCHS * tuned)
    return {**figures, "break_even_epochs": epochs or math.inf, "break_even_tasks": tasks or math.inf}


def actual(corpus: Corpus, folder: Path, seed: int, options: argparse.Namespace) -> dict[str, float]:
    """The same, done."""
    first = corpus.tasks[:1]
    model = Pretrained(quickstart_folder())
    pieces = model.cut(corpus.documents)
    list(model.encode(pieces[:1]))  # loads
    store = Store.open(folder, model.spec())
    began = clock()
    store.fill(corpus.documents, model)
    taken = {"encode": clock() - began}

    def epoch(method: Aggregate | Finetune, source: Store | Cut, epochs: int, tasks: Sequence[Tagging]) -> float:
        examples = method.read(source, corpus.documents, tasks)
        settings = Settings(num_train_epochs=epochs, seed=seed, per_device_train_batch_size=BATCH)
        began = clock()
        fit(method, examples, {task.name: task for task in tasks}, settings)
        return (clock() - began) / epochs

    spec, compute = store.spec, fastest_compute()
    for name in METHODS:
        method = Aggregate.build(Variant(name, compute=compute), spec, first, seed)
        taken[name] = epoch(method, store, options.epochs, first)
    cut = Cut(spec, pieces)
    for row, tuning, source, tasks in (
        ("live_mix", Tuning("live_mix"), store, first),
        (ATTENTION, Tuning("live_mix", attention_only=(-1,)), store, first),
        ("lora", Tuning("lora"), store, first),
        ("finetune", Tuning("finetune"), cut, first),
        (TWO, Tuning("live_mix"), store, corpus.tasks),
    ):
        tuned = Finetune.build(replace(tuning, compute=compute), model, spec, tasks, seed)
        taken[row] = epoch(tuned, source, 1, tasks)
    return {"bytes": float(sum(file.stat().st_size for file in folder.iterdir())), **taken}


def _elsewhere() -> float:
    """Core seconds that all other processes have used since the machine started (Linux)."""
    counts = [int(value) for value in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    user, nice, system = counts[:3]
    return (user + nice + system) / os.sysconf("SC_CLK_TCK") - time.process_time()


def _earlier(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The rounds of an earlier run of the same size and figures."""
    if not (options.out and Path(options.out).exists()):
        return []
    found = json.loads(Path(options.out).read_text())
    asked = (options.sentences, options.budget_seconds, "cpu", LIVE_EPOCHS)
    same = (found["sentences"], found["budget_s"], found.get("clock"), found.get("live_epochs")) == asked
    return list(found["rounds"]) if same and ATTENTION in found["ratios"] else []


def _median(rounds: Sequence[dict[str, Any]], half: str, name: str) -> float:
    return statistics.median(one[half][name] for one in rounds)


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """A plan and the real thing, round by round."""
    started, rounds = now(), _earlier(options)
    documents = documents_of(options.conllu, options.sentences)
    corpus = Corpus(documents, ("deprel", "upos") if options.conllu else ("punct", "case"), folder)
    for number in range(len(rounds), len(rounds) + options.rounds):
        before = time.perf_counter(), _elsewhere()
        configs = (corpus.config(number, "lora", 1), corpus.config(number, "live_mix", 2))
        said = with_break_even(predicted(*(forecast(one, options.budget_seconds, clock) for one in configs)))
        done = with_break_even(actual(corpus, folder / f"store-{number}", number, options))
        others = (_elsewhere() - before[1]) / (time.perf_counter() - before[0])
        rounds.append({"others_cores": others, "predicted": said, "actual": done})
        print(json.dumps(rounds[-1]), flush=True)
    ratios = {name: _median(rounds, "predicted", name) / _median(rounds, "actual", name) for name in said}
    return {
        "sentences": len(documents),
        "budget_s": options.budget_seconds,
        "clock": "cpu",
        "live_epochs": LIVE_EPOCHS,
        "rounds": rounds,
        "ratios": ratios,
        "ratio": max(ratios.values(), key=lambda ratio: abs(math.log(ratio))),
        **provenance(started),
    }


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conllu")
    parser.add_argument("--sentences", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--budget-seconds", type=float, default=20.0)
    parser.add_argument("--out")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        parts = measure(options, Path(scratch))
    show(parts, options.out, f"{parts['ratio']:.2f}")


if __name__ == "__main__":
    main()
