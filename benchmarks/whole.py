"""The whole way: encode once and train for ten epochs, against fine-tuning for ten epochs; and the time to a quality.

    python benchmarks/whole.py [--conllu train.conllu] [--sentences 1024] [--epochs 10] [--rounds 3] [--out FILE]
    python benchmarks/whole.py --quality --conllu train.conllu --dev dev.conllu [--epochs 10] [--tuned-epochs 3]

The first form measures the encoding pass (into the store, hashing and writing included) and a training step of each
side in one run, and multiplies by the number of steps: figures are CPU seconds of one thread for one task. The fine-
tuning is the textbook's, fp32 and random padded batches, and the same with bf16 autocast and length buckets
(`textbook.py`). The second form really trains three tasks (UPOS, XPOS, DEPREL) to the end on both sides, the library
jointly from one read, the optimised fine-tuning jointly with three heads, and reports dev accuracy after each epoch
beside the CPU seconds it took, encoding included. Prints the parts as JSON, then one ratio: textbook fine-tuning to
ours, or, with --quality, the seconds of optimised fine-tuning to ours until each has reached our final mean accuracy
(null where it never does).
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import step
import textbook
import torch
from parts import show
from step import BATCH, Data, candidate, cpu_seconds, documents_of
from torch import nn

from encodeonce.batching import Examples
from encodeonce.cli.quickstart import quickstart_folder
from encodeonce.methods.aggregate import Aggregate, Variant
from encodeonce.nn.linear import fastest_compute
from encodeonce.report.results import now, surroundings
from encodeonce.store import Store
from encodeonce.tasks.tagging import Tagging
from encodeonce.train.evaluate import evaluate
from encodeonce.train.optim import optimiser_and_schedule, total_steps
from encodeonce.train.settings import Settings
from encodeonce.types import Document

TASKS = ("upos", "xpos", "deprel")
SIDES = {"ours": "adapted", "finetune": "finetune", "finetune_fast": "finetune_fast"}


def totals(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Seconds of encoding and of a step, and of the whole way."""
    documents = documents_of(options.conllu, options.sentences)
    data = Data(documents, "deprel" if options.conllu else "punct", folder / "warm")
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


class ManyHeads(nn.Module):
    """An encoder that is trained with one head a task."""

    def __init__(self, encoder: nn.Module, width: int, n_labels: list[int]) -> None:
        super().__init__()
        self.encoder, self.heads = encoder, nn.ModuleList(textbook.Head(width, n) for n in n_labels)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> list[torch.Tensor]:
        """Ids [B N] -> scores [B N C] a task."""
        states = self.encoder(input_ids=ids, attention_mask=mask.long()).last_hidden_state
        return [head(states) for head in self.heads]


def library(
    train: list[Document], dev: list[Document], options: argparse.Namespace, folder: Path
) -> list[dict[str, Any]]:
    """Encode once, then train the tasks jointly; a line an epoch with the CPU seconds so far, scoring left out."""
    from encodeonce.encoders.pretrained import Pretrained

    began = time.process_time()
    model = Pretrained(quickstart_folder())
    store = Store.open(folder, model.spec())
    store.fill(train, model)
    spent = time.process_time() - began
    store.fill(dev, model)
    tasks = [Tagging(name).learn(train) for name in TASKS]
    scorers = {task.name: task for task in tasks}
    torch.manual_seed(options.seed)
    method = Aggregate.build(
        Variant("adapted", compute=fastest_compute()), store.spec, tasks, options.seed, read_ahead=0
    )
    examples, held_out = Examples.read(store, train, tasks), Examples.read(store, dev, tasks, "dev")
    settings = Settings(learning_rate=options.learning_rate, num_train_epochs=options.epochs, seed=options.seed)
    groups = [(list(module.parameters()), options.learning_rate) for module in method.modules_of().values()]
    optimiser, schedule = optimiser_and_schedule(groups, total_steps(-(-len(train) // BATCH), settings), settings)
    order, lines = np.random.default_rng(options.seed), []
    for epoch in range(options.epochs):
        began = time.process_time()
        method.train()
        for batch in method.batches(examples, size=BATCH, order=order):
            method.loss(batch).backward()
            optimiser.step()
            optimiser.zero_grad()
            schedule.step()
        spent += time.process_time() - began
        found = evaluate(method.eval(), held_out, scorers).scores
        lines.append({"epoch": epoch + 1, "cpu_s": spent, "dev": {name: found[name]["accuracy"] for name in TASKS}})
    return lines


def tuned(
    train: list[Document], dev: list[Document], options: argparse.Namespace, folder: Path
) -> list[dict[str, Any]]:
    """Fine-tuning with bf16 autocast and length buckets, three heads; a line an epoch."""
    from transformers import AutoModel

    datas = [Data(train, name, folder) for name in TASKS]
    held = [Data(dev, name, folder, data.task) for name, data in zip(TASKS, datas, strict=True)]
    examples = [data.textbook(states=False) for data in datas]
    torch.manual_seed(options.seed)
    encoder = AutoModel.from_pretrained(quickstart_folder(), add_pooling_layer=False)
    model = ManyHeads(encoder, datas[0].store.spec.width, [len(data.task.labels) for data in datas])
    optimiser = torch.optim.Adam(model.parameters(), lr=options.tuned_learning_rate, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, options.tuned_learning_rate, total_steps=options.tuned_epochs * -(-len(train) // BATCH)
    )
    order, spent, lines = np.random.default_rng(options.seed), 0.0, []
    lengths = [len(example.ids) for example in examples[0]]
    for epoch in range(options.tuned_epochs):
        began = time.process_time()
        model.train()
        for batch in textbook.length_buckets(lengths, BATCH, order):
            collated = [textbook.collate_ids([task[i] for i in batch]) for task in examples]
            with torch.autocast("cpu", torch.bfloat16):
                scores = model(collated[0][0], collated[0][1])
            losses = [textbook.mean_loss(s.float(), labels) for s, (_, _, labels) in zip(scores, collated, strict=True)]
            optimiser.zero_grad()
            torch.stack(losses).sum().backward()
            optimiser.step()
            schedule.step()
        spent += time.process_time() - began
        found = {name: accuracy(model.eval(), i, held[i].textbook(states=False)) for i, name in enumerate(TASKS)}
        lines.append({"epoch": epoch + 1, "cpu_s": spent, "dev": found})
    return lines


def accuracy(model: nn.Module, task: int, examples: list[textbook.Example]) -> float:
    """Share of right labels of one task, in per cent."""
    right = total = 0
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for start in range(0, len(examples), BATCH):
            ids, mask, labels = textbook.collate_ids(examples[start : start + BATCH])
            real = torch.zeros_like(mask)
            for index, example in enumerate(examples[start : start + BATCH]):
                real[index, torch.from_numpy(example.rows)] = True
            right += int((model(ids, mask)[task].argmax(-1) == labels)[real].sum())
            total += int(real.sum())
    return 100 * right / total


def quality(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Both curves, and the seconds until each reaches the library's final mean accuracy."""
    train, dev = documents_of(options.conllu, options.sentences), documents_of(options.dev, None)
    curves = {
        "ours": library(train, dev, options, folder / "ours"),
        "finetune_fast": tuned(train, dev, options, folder / "tuned"),
    }
    goal = statistics.fmean(curves["ours"][-1]["dev"].values())
    reached = {}
    for name, lines in curves.items():
        enough = [line["cpu_s"] for line in lines if statistics.fmean(line["dev"].values()) >= goal]
        reached[name] = enough[0] if enough else None
    ratio = reached["finetune_fast"] / reached["ours"] if reached["finetune_fast"] else None
    return {"curves": curves, "goal_mean_dev_accuracy": goal, "cpu_s_to_goal": reached, "ratio": ratio}


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conllu")
    parser.add_argument("--dev")
    parser.add_argument("--quality", action="store_true")
    parser.add_argument("--sentences", type=int, default=None)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--tuned-epochs", type=int, default=3)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--tuned-learning-rate", type=float, default=5e-4)
    parser.add_argument("--seed", type=int, default=13)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out")
    options = parser.parse_args()
    if options.quality and not (options.conllu and options.dev):
        parser.error("--quality needs --conllu and --dev")
    if options.sentences is None and not options.quality:
        options.sentences = 1024
    torch.set_num_threads(1)
    started = now()
    with tempfile.TemporaryDirectory() as scratch:
        parts = quality(options, Path(scratch)) if options.quality else totals(options, Path(scratch))
    parts |= {"compute": fastest_compute(), "batch": step.BATCH, "started": started, **surroundings()}
    ratio = parts["ratio"] if options.quality else parts["ratios"]["finetune"]
    show(parts, options.out, "null" if ratio is None else f"{ratio:.2f}")


if __name__ == "__main__":
    main()
