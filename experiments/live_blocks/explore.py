"""Which live block, on what, how fast learned: one task, 4,000 sentences of EWT or all, scored on dev.

    python experiments/live_blocks/explore.py GROUP... [--seeds 42,43] [--epochs 4] [--sentences 4000]

Groups stand in `GROUPS` below; a row of rows.jsonl beside this file is one run. Runs that are there are not run again.
Times are CPU seconds of one thread. Needs the data folder beside the project and the packaged MiniLM.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from encodeonce.batching import Cut, Source
from encodeonce.cli.learning import fraction
from encodeonce.corpus import read
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.encoders.quickstart import quickstart_folder
from encodeonce.methods.aggregate import VARIANTS, Aggregate, Variant
from encodeonce.methods.finetune import Finetune, Tuning
from encodeonce.methods.multitask import Multitask
from encodeonce.nn.linear import fastest_compute
from encodeonce.report.results import now, surroundings
from encodeonce.store import Store
from encodeonce.tasks import Task, named
from encodeonce.train.fit import fit
from encodeonce.train.settings import Settings
from encodeonce.types import Document

HERE = Path(__file__).parent
DATA = HERE.parents[1] / ".." / "shared" / "data" / "ud" / "en_ewt"
MIX = {"name": "live_mix"}

GROUPS: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {
    "reference": [
        ({"name": "adapted"}, {"learning_rate": 2e-3}),
        ({"name": "adapted", "key_width": 64, "n_heads": 4}, {"learning_rate": 4e-3}),
    ],
    "finetune": [
        ({"name": "finetune"}, {"learning_rate": 2e-3, "encoder_learning_rate": rate}) for rate in (2e-4, 5e-4, 1e-3)
    ],
    "top": [
        ({"name": name}, {"learning_rate": 2e-3, "encoder_learning_rate": rate})
        for name in ("top1", "top2")
        for rate in (5e-4, 1e-3)
    ],
    "block": [
        ({**MIX, "blocks": [block]}, {"learning_rate": 2e-3, "encoder_learning_rate": 1e-3}) for block in range(6)
    ],
    "rate": [
        ({**MIX, "blocks": [block]}, {"learning_rate": head, "encoder_learning_rate": rate})
        for block, head, rate in [(2, 2e-3, 5e-4), (2, 2e-3, 2e-3), (2, 4e-3, 1e-3), (1, 2e-3, 5e-4), (2, 1e-3, 1e-3)]
    ],
    "two": [
        ({**MIX, "blocks": blocks}, {"learning_rate": 2e-3, "encoder_learning_rate": 1e-3})
        for blocks in ([1, 2], [2, 3], [2, 5])
    ],
    "over": [
        ({**MIX, "blocks": [2], **over}, {"learning_rate": 2e-3, "encoder_learning_rate": 1e-3})
        for over in ({"over": "agg"}, {"over": "adapted"}, {"residual": False})
    ],
    "agg": [
        ({**MIX, "over": "agg", **what}, {"learning_rate": head, "encoder_learning_rate": rate})
        for what, head, rate in (
            ({"blocks": [2]}, 4e-3, 1e-3),
            ({"blocks": [2]}, 4e-3, 2e-3),
            ({"blocks": [1]}, 2e-3, 1e-3),
            ({"blocks": [3]}, 2e-3, 1e-3),
            ({"blocks": [2], "key_width": 16, "n_heads": 2}, 2e-3, 1e-3),
            ({"blocks": [2], "key_width": 128, "n_heads": 8}, 2e-3, 1e-3),
        )
    ],
    "agg_two": [
        ({**MIX, "over": over, "blocks": blocks}, {"learning_rate": head, "encoder_learning_rate": rate})
        for over, blocks, head, rate in (
            ("agg", [1, 2], 2e-3, 1e-3),
            ("agg", [1, 2], 4e-3, 1e-3),
            ("agg", [1, 2], 2e-3, 5e-4),
            ("linear", [1, 2], 2e-3, 5e-4),
            ("linear", [0, 1], 2e-3, 1e-3),
            ("linear", [1, 2, 3], 2e-3, 1e-3),
            ("agg", [2, 2], 2e-3, 1e-3),
        )
    ],
    "finetune_low": [({"name": "finetune"}, {"learning_rate": 2e-3, "encoder_learning_rate": 1e-4})],
    "schedule": [  # with --sentences 12544, all of EWT
        (
            {**MIX, "over": "agg", "blocks": [2], **what},
            {"learning_rate": 4e-3, "encoder_learning_rate": 1e-3, "num_train_epochs": 5, **how},
        )
        for what, how in (
            ({}, {}),
            ({}, {"num_train_epochs": 8}),
            ({"dropout": 0.2}, {}),
            ({}, {"warmup_ratio": 0.1}),
            ({}, {"lr_scheduler_type": "linear", "warmup_ratio": 0.1}),
            ({}, {"encoder_learning_rate": 5e-4}),
        )
    ],
    "finetune_long": [  # with --sentences 12544: is structures/ewt.toml's best inside its grid?
        ({"name": "finetune"}, {"learning_rate": 2e-3, "encoder_learning_rate": rate, "num_train_epochs": epochs})
        for rate, epochs in ((4e-4, 5), (2e-4, 8))
    ],
    "attention": [  # which blocks can do without their feed-forward network
        (
            {**MIX, "over": "agg", "blocks": blocks, "attention_only": alone},
            {"learning_rate": head, "encoder_learning_rate": rate},
        )
        for blocks, alone, head, rate in (
            ([1, 2], [], 2e-3, 1e-3),
            ([1, 2], [2], 2e-3, 1e-3),
            ([1, 2], [1], 2e-3, 1e-3),
            ([1, 2], [1, 2], 2e-3, 1e-3),
            ([2, 3], [3], 2e-3, 1e-3),
            ([1, 2], [2], 4e-3, 1e-3),
        )
    ],
    "attention_whole": [  # with --sentences 12544, all of EWT
        (
            {**MIX, "over": "agg", "blocks": [1, 2], "attention_only": alone},
            {"learning_rate": 2e-3, "encoder_learning_rate": 1e-3, "num_train_epochs": 5},
        )
        for alone in ([2], [1, 2])
    ],
    "final": [
        ({"name": "adapted", "key_width": 64, "n_heads": 4}, {"learning_rate": 4e-3}),
        ({**MIX, "over": "agg", "blocks": [2]}, {"learning_rate": 4e-3, "encoder_learning_rate": 1e-3}),
        ({**MIX, "over": "agg", "blocks": [1, 2]}, {"learning_rate": 2e-3, "encoder_learning_rate": 1e-3}),
        ({"name": "lora"}, {"learning_rate": 2e-3}),
        ({"name": "finetune"}, {"learning_rate": 2e-3, "encoder_learning_rate": 2e-4}),
    ],
}
"""Name -> (what is trained, how), pairs of settings."""


def material(sentences: int) -> tuple[Pretrained, Store, dict[str, list[Document]], Task]:
    """Encoder, store and splits, the training part cut to so many sentences by content."""
    train = list(read(DATA / "en_ewt-ud-train.conllu.gz"))
    splits = {
        "train": fraction(train, min(1.0, sentences / len(train))),
        "dev": list(read(DATA / "en_ewt-ud-dev.conllu.gz")),
    }
    model = Pretrained(quickstart_folder())
    store = Store.open(HERE.parents[1] / ".work" / "live-states", model.spec(layers="all", dtype="fp16"))
    store.fill([document for documents in splits.values() for document in documents], model)
    return model, store, splits, named("deprel").learn(splits["train"])


def trained(what: Mapping[str, Any], how: Settings, parts: tuple[Any, ...]) -> dict[str, Any]:
    """One run: dev accuracy of every epoch, CPU milliseconds a step."""
    model, store, splits, task = parts
    method: Multitask
    source: Source = store
    if what["name"] in VARIANTS:
        method = Aggregate.build(Variant(**what, compute=fastest_compute()), store.spec, [task], how.seed, read_ahead=0)
    else:
        tuning = Tuning(**what, compute=fastest_compute(live=True))
        method = Finetune.build(tuning, model, store.spec, [task], how.seed, read_ahead=0)
        if tuning.plan(store.spec).pieces:
            source = Cut(store.spec, model.cut([d for documents in splits.values() for d in documents]))
    read_in = {split: method.read(source, documents, [task], split) for split, documents in splits.items()}
    clock = Clock(method)
    done = fit(method, read_in["train"], {task.name: task}, how, dev=read_in["dev"])
    return {
        "dev": [round(entry["dev"][task.name]["accuracy"], 3) for entry in done.epochs],
        "best": done.best[task.name]["value"],
        "cpu_ms_per_step": round(1e3 * clock.seconds / done.steps, 2),
        "parameters": done.parameters["total"],
    }


class Clock:
    """CPU seconds of whole epochs of training, reading included, scoring dev excluded."""

    def __init__(self, method: Any) -> None:
        self.seconds = 0.0
        inner = method.batches

        def timed(examples: Any, *, size: int, order: Any) -> Iterator[Any]:
            began = time.process_time()
            yield from inner(examples, size=size, order=order)
            if order is not None:
                self.seconds += time.process_time() - began

        method.batches = timed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="+", choices=GROUPS)
    parser.add_argument("--seeds", default="42")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--sentences", type=int, default=4000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = HERE / "rows.jsonl"
    there = [json.loads(line) for line in rows.read_text().splitlines()] if rows.exists() else []
    known = {json.dumps([row["what"], row["how"], row["sentences"]], sort_keys=True) for row in there}
    parts = material(options.sentences)
    for group in options.groups:
        for what, changes in GROUPS[group]:
            for seed in map(int, options.seeds.split(",")):
                how = Settings(**{"num_train_epochs": options.epochs, "seed": seed, **changes})
                key = json.dumps([what, asdict(how), options.sentences], sort_keys=True)
                if key in known:
                    continue
                row = {"group": group, "what": what, "how": asdict(how), "sentences": options.sentences}
                row |= trained(what, how, parts) | surroundings() | {"started": now()}
                with rows.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(f"{row['best']:.2f}  {row['cpu_ms_per_step']:.0f} ms  {row['dev']}  {what} {changes}", flush=True)


if __name__ == "__main__":
    main()
