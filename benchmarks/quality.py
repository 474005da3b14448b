"""The time to a quality: encode once and train on what is stored, against fine-tuning, for one task or several.

    python benchmarks/quality.py --conllu train.conllu --dev dev.conllu [--tasks upos xpos deprel] [--out FILE]

Every way is really trained to its end, several tasks together (the library from one read; live blocks and fine-tuning
one trunk with a head a task), and reports dev accuracy after each epoch beside the CPU seconds of one thread that it
took, encoding into the store included where it reads one, scoring left out. `WAYS` holds rates and epochs, for live
blocks (two, one and the attention of the next, or one) and fine-tuning those that were best on dev in
experiments/structures/ewt/grid.jsonl and experiments/live_blocks/rows.jsonl; fine-tuning is `transformers` under
`textbook.autocast` with length buckets, heads and encoder at rates of their own. Prints the parts as JSON, among them
the seconds until each way's mean accuracy has reached each way's last one (null where it never does), then one ratio:
seconds of fine-tuning to Adapted's until each has reached Adapted's last.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import step
import textbook
import torch
from parts import show
from step import BATCH, Data, documents_of
from torch import nn

from encodeonce.encoders.pretrained import Pretrained
from encodeonce.encoders.quickstart import quickstart_folder
from encodeonce.methods.aggregate import Aggregate, Variant
from encodeonce.methods.finetune import Finetune, Tuning
from encodeonce.nn.linear import fastest_compute
from encodeonce.report.results import now, provenance
from encodeonce.store import Store
from encodeonce.tasks.tagging import Tagging
from encodeonce.train.evaluate import evaluate
from encodeonce.train.optim import groups_of, optimiser_and_schedule, total_steps
from encodeonce.train.settings import Settings
from encodeonce.types import Document


@dataclass(frozen=True)
class Way:
    """Peak rates (0 for pre-trained weights where none are trained), epochs, and settings of live blocks."""

    learning_rate: float
    encoder_learning_rate: float
    epochs: int
    tuning: dict[str, Any] = field(default_factory=dict)


WAYS = {
    "adapted": Way(4e-3, 0.0, 10),
    "live_mix": Way(2e-3, 5e-4, 5),
    "one_and_attention": Way(2e-3, 1e-3, 5, {"attention_only": (2,)}),
    "one_block": Way(4e-3, 1e-3, 5, {"live": 1}),
    "finetune": Way(2e-3, 2e-4, 5),
}

Line = dict[str, Any]
"""One epoch: its number, CPU seconds so far, dev accuracy by task."""


class Library:
    """Adapted and live blocks, over one store that is filled once."""

    def __init__(self, train: list[Document], dev: list[Document], names: Sequence[str], folder: Path) -> None:
        began = time.process_time()
        self.model = Pretrained(quickstart_folder())
        self.store = Store.open(folder, self.model.spec())
        self.store.fill(train, self.model)
        self.encode_s = time.process_time() - began
        self.store.fill(dev, self.model)
        self.tasks = [Tagging(name).learn(train) for name in names]
        self.train, self.dev = train, dev

    def curve(self, name: str, seed: int) -> list[Line]:
        """A line an epoch."""
        way, spec = WAYS[name], self.store.spec
        torch.manual_seed(seed)
        method: Any
        if name == "adapted":
            method = Aggregate.build(Variant(name, compute=fastest_compute()), spec, self.tasks, seed, read_ahead=0)
        else:
            tuning = Tuning(**way.tuning, compute=fastest_compute(live=True), shared=len(self.tasks) > 1)
            method = Finetune.build(tuning, self.model, spec, self.tasks, seed, read_ahead=0)
        examples = method.read(self.store, self.train, self.tasks)
        held_out = method.read(self.store, self.dev, self.tasks, "dev")
        settings = Settings(
            learning_rate=way.learning_rate,
            encoder_learning_rate=way.encoder_learning_rate,
            num_train_epochs=way.epochs,
            seed=seed,
        )
        steps = total_steps(-(-len(self.train) // BATCH), settings)
        groups = groups_of(method, method.modules_of(), settings)
        optimiser, schedule = optimiser_and_schedule(groups, steps, settings)
        scorers = {task.name: task for task in self.tasks}
        order, spent, lines = np.random.default_rng(seed), self.encode_s, []
        for epoch in range(way.epochs):
            began = time.process_time()
            method.train()
            for batch in method.batches(examples, size=BATCH, order=order):
                method.loss(batch).backward()
                optimiser.step()
                optimiser.zero_grad()
                schedule.step()
            spent += time.process_time() - began
            found = evaluate(method.eval(), held_out, scorers).scores
            dev = {task.name: found[task.name]["accuracy"] for task in self.tasks}
            lines.append({"epoch": epoch + 1, "cpu_s": spent, "dev": dev})
        return lines


class ManyHeads(nn.Module):
    """An encoder that is trained with one head a task."""

    def __init__(self, encoder: nn.Module, width: int, n_labels: list[int]) -> None:
        super().__init__()
        self.encoder, self.heads = encoder, nn.ModuleList(textbook.Head(width, n) for n in n_labels)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> list[torch.Tensor]:
        """Ids [B N] -> scores [B N C] a task."""
        states = self.encoder(input_ids=ids, attention_mask=mask.long()).last_hidden_state
        return [head(states) for head in self.heads]


def tuned(train: list[Document], dev: list[Document], names: Sequence[str], seed: int, folder: Path) -> list[Line]:
    """Fine-tuning with `textbook.autocast` and length buckets, a head a task; a line an epoch."""
    from transformers import AutoModel

    way = WAYS["finetune"]
    datas = [Data(train, name, folder) for name in names]
    held = [Data(dev, name, folder, data.task) for name, data in zip(names, datas, strict=True)]
    examples = [data.textbook(states=False) for data in datas]
    torch.manual_seed(seed)
    encoder = AutoModel.from_pretrained(quickstart_folder(), add_pooling_layer=False)
    model = ManyHeads(encoder, datas[0].store.spec.width, [len(data.task.labels) for data in datas])
    rates = [way.learning_rate, way.encoder_learning_rate]
    groups = [{"params": list(part.parameters())} for part in (model.heads, model.encoder)]
    optimiser = torch.optim.Adam(groups, lr=way.learning_rate, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rates, total_steps=way.epochs * -(-len(train) // BATCH))
    order, spent, lines = np.random.default_rng(seed), 0.0, []
    lengths = [len(example.ids) for example in examples[0]]
    for epoch in range(way.epochs):
        began = time.process_time()
        model.train()
        for batch in textbook.length_buckets(lengths, BATCH, order):
            collated = [textbook.collate_ids([task[i] for i in batch]) for task in examples]
            with textbook.autocast():
                scores = model(collated[0][0], collated[0][1])
            losses = [textbook.mean_loss(s.float(), labels) for s, (_, _, labels) in zip(scores, collated, strict=True)]
            optimiser.zero_grad()
            torch.stack(losses).sum().backward()
            optimiser.step()
            schedule.step()
        spent += time.process_time() - began
        found = {name: accuracy(model.eval(), i, held[i].textbook(states=False)) for i, name in enumerate(names)}
        lines.append({"epoch": epoch + 1, "cpu_s": spent, "dev": found})
    return lines


def accuracy(model: nn.Module, task: int, examples: list[textbook.Example]) -> float:
    """Share of right labels of one task, in per cent."""
    right = total = 0
    with torch.no_grad(), textbook.autocast():
        for start in range(0, len(examples), BATCH):
            ids, mask, labels = textbook.collate_ids(examples[start : start + BATCH])
            real = torch.zeros_like(mask)
            for index, example in enumerate(examples[start : start + BATCH]):
                real[index, torch.from_numpy(example.rows)] = True
            right += int((model(ids, mask)[task].argmax(-1) == labels)[real].sum())
            total += int(real.sum())
    return 100 * right / total


def reached(curves: dict[str, list[Line]], goal: float) -> dict[str, float | None]:
    """CPU seconds until each way's mean accuracy is at least `goal`."""
    found: dict[str, float | None] = {}
    for name, lines in curves.items():
        enough = [line["cpu_s"] for line in lines if statistics.fmean(line["dev"].values()) >= goal]
        found[name] = enough[0] if enough else None
    return found


def main() -> None:
    """Parse, train, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conllu", required=True)
    parser.add_argument("--dev", required=True)
    parser.add_argument("--tasks", nargs="+", default=["upos", "xpos", "deprel"])
    parser.add_argument("--sentences", type=int, default=None)
    parser.add_argument("--seed", type=int, default=13)
    parser.add_argument("--out")
    options = parser.parse_args()
    torch.set_num_threads(1)
    started = now()
    train, dev = documents_of(options.conllu, options.sentences), documents_of(options.dev, None)
    with tempfile.TemporaryDirectory() as scratch:
        library = Library(train, dev, options.tasks, Path(scratch) / "library")
        curves = {name: library.curve(name, options.seed) for name in WAYS if name != "finetune"}
        curves["finetune"] = tuned(train, dev, options.tasks, options.seed, Path(scratch) / "tuned")
    goals = {name: statistics.fmean(lines[-1]["dev"].values()) for name, lines in curves.items()}
    times = {name: reached(curves, goal) for name, goal in goals.items()}
    ours, theirs = times["adapted"]["adapted"], times["adapted"]["finetune"]
    parts = {
        "tasks": options.tasks,
        "sentences": len(train),
        "encode_s": library.encode_s,
        "ways": {name: asdict(way) for name, way in WAYS.items()},
        "curves": curves,
        "last_mean_dev_accuracy": goals,
        "cpu_s_to_last_of": times,
        "ratio": theirs / ours if ours and theirs else None,
        "seed": options.seed,
        "compute": {"adapters": fastest_compute(), "live": fastest_compute(live=True)},
        "batch": step.BATCH,
        **provenance(started),
    }
    show(parts, options.out, "null" if parts["ratio"] is None else f"{parts['ratio']:.2f}")


if __name__ == "__main__":
    main()
