"""The whole way: encode once and train for ten epochs, against fine-tuning for ten epochs.

    python benchmarks/whole.py [--conllu train.conllu] [--sentences 1024] [--epochs 10] [--rounds 3]
                               [--encoder-compute fp32] [--out FILE]

Measures the encoding pass (into the store, hashing and writing included) and a training step of each side in one run,
and multiplies by the number of steps: figures are CPU seconds of one thread for one task. The encoder computes in
fp32 unless --encoder-compute says otherwise (experiments/layer_adapters/run states has the scores of a store made
in bf16). The fine-tuning is the textbook's, fp32 and random padded batches, and the same with bf16 autocast and
length buckets (`textbook.py`). Prints the parts as JSON, then one ratio: textbook fine-tuning to ours. `quality.py`
trains to the end.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import step
import torch
from parts import show
from step import BATCH, Data, candidate, cpu_seconds, documents_of

from encodeonce.nn.linear import fastest_compute
from encodeonce.report.results import now, provenance
from encodeonce.store import Store

SIDES = {"ours": "adapted", "finetune": "finetune", "finetune_fast": "finetune_fast"}


def totals(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Seconds of encoding and of a step, and of the whole way."""
    documents = documents_of(options.conllu, options.sentences)
    data = Data(documents, "deprel" if options.conllu else "punct", folder / "warm", None, options.encoder_compute)
    runs = {name: candidate(kind, data) for name, kind in SIDES.items()}
    encode: list[float] = []
    steps: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(options.rounds + 1):
        began = time.process_time()
        Store.open(folder / f"round-{number}", data.model.spec()).fill(documents, data.model)
        encode += [time.process_time() - began] if number else []
        for name, run in runs.items():
            taken = cpu_seconds(run.epoch(np.random.default_rng(number)), every=1 if name == "ours" else 8)
            steps[name] += [taken] if number else []
    n_steps = options.epochs * -(-len(documents) // BATCH)
    whole = {name: n_steps * statistics.median(values) for name, values in steps.items()}
    whole["ours"] += statistics.median(encode)
    return {
        "encode_s": statistics.median(encode),
        "ms_per_step": {name: 1e3 * statistics.median(values) for name, values in steps.items()},
        "whole_s": whole,
        "steps": n_steps,
        "ratios": {name: whole[name] / whole["ours"] for name in ("finetune", "finetune_fast")},
    }


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conllu")
    parser.add_argument("--sentences", type=int, default=1024)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--encoder-compute", choices=("fp32", "bf16x3", "bf16"), default="fp32")
    parser.add_argument("--out")
    options = parser.parse_args()
    torch.set_num_threads(1)
    started = now()
    with tempfile.TemporaryDirectory() as scratch:
        parts = totals(options, Path(scratch))
    parts |= {
        "compute": fastest_compute(),
        "encoder_compute": options.encoder_compute,
        "batch": step.BATCH,
        **provenance(started),
    }
    show(parts, options.out, f"{parts['ratios']['finetune']:.2f}")


if __name__ == "__main__":
    main()
