"""Several tasks from one read of the store against as many runs, one a task.

    python benchmarks/multitask.py [--conllu train.conllu] [--sentences 1024] [--rounds 3] [--out FILE]

With --conllu the tasks are UPOS, XPOS and DEPREL; without, the two tasks of the manual that every Python carries. The
adapter is Adapted with its default settings; every run takes the same batches. A step is all from stored states to
the updated weights. CPU seconds of one thread over an epoch; runs take turns within a round. Prints the parts as
JSON, then one ratio: the three runs' seconds to those of the one.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from parts import show
from step import BATCH, documents_of

from encodeonce.batching import Examples
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.encoders.quickstart import quickstart_folder
from encodeonce.methods.aggregate import Aggregate, Variant
from encodeonce.nn.linear import fastest_compute
from encodeonce.report.results import now, provenance
from encodeonce.store import Store
from encodeonce.tasks.tagging import Tagging

TREEBANK = ("upos", "xpos", "deprel")
MANUAL = ("case", "punct")


def epoch_seconds(method: Aggregate, examples: Examples, seed: int) -> float:
    """CPU seconds of one epoch of training."""
    optimiser = torch.optim.Adam(method.parameters(), lr=1e-3, fused=True)
    began = time.process_time()
    for batch in method.batches(examples, size=BATCH, order=np.random.default_rng(seed)):
        method.loss(batch).backward()
        optimiser.step()
        optimiser.zero_grad()
    return time.process_time() - began


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Seconds of the joint run and of each single one, a figure a round; the first round does not count."""
    started = now()
    documents = documents_of(options.conllu, options.sentences)
    model = Pretrained(quickstart_folder())
    store = Store.open(folder, model.spec())
    store.fill(documents, model)
    tasks = [Tagging(name).learn(documents) for name in (TREEBANK if options.conllu else MANUAL)]
    groups = {"+".join(task.name for task in tasks): tasks, **{task.name: [task] for task in tasks}}
    runs = {}
    for name, members in groups.items():
        method = Aggregate.build(Variant("adapted", compute=fastest_compute()), store.spec, members, read_ahead=0)
        runs[name] = (method.train(), Examples.read(store, documents, members))
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(options.rounds + 1):
        for name, (method, examples) in runs.items():
            taken = epoch_seconds(method, examples, number)
            seconds[name] += [taken] if number else []
    joint, *single = groups
    ratios = [sum(alone) / together for together, *alone in zip(*(seconds[n] for n in (joint, *single)), strict=True)]
    n_batches = -(-len(documents) // BATCH)
    return {
        "ms_per_batch": {name: 1e3 * statistics.median(values) / n_batches for name, values in seconds.items()},
        "ratios": ratios,
        "ratio": statistics.median(ratios),
        "compute": fastest_compute(),
        **provenance(started),
    }


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conllu")
    parser.add_argument("--sentences", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        parts = measure(options, Path(scratch) / "store")
    show(parts, options.out, f"{parts['ratio']:.2f}")


if __name__ == "__main__":
    main()
