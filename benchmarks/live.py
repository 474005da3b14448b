"""A training step of live blocks against full fine-tuning, optimised and textbook, and against the adapter.

    python benchmarks/live.py [--conllu train.conllu [--column deprel]] [--sentences 512] [--rounds 3] [--out FILE]

Data, head, batches of 32 and clock are those of benchmarks/step.py: CPU seconds of one thread, candidates taking turns
within a round, a step being all from stored states (or piece ids) to the updated weights. "finetune_fast" is
`transformers` under `textbook.autocast` with length buckets, "lora_fast" PEFT in the same, "finetune" the model in fp32
over random batches; all others are the library's. Ratios are medians of the ratios within a round. Prints the parts as
JSON, then one ratio: optimised fine-tuning to live blocks on the mix.
"""

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import step
import textbook
import torch
from parts import show

from encodeonce.batching import Cut
from encodeonce.encoders.quickstart import quickstart_folder
from encodeonce.methods.finetune import Finetune, Tuning
from encodeonce.nn.linear import fastest_compute
from encodeonce.report.results import now, provenance

OURS = {
    "live_mix": Tuning("live_mix", compute=fastest_compute(live=True)),
    "live_mix_fp32": Tuning("live_mix"),
    "live_mix_attention": Tuning("live_mix", attention_only=(2,), compute=fastest_compute(live=True)),
    "live_mix_1": Tuning("live_mix", live=1, compute=fastest_compute(live=True)),
    "live_mix_1_linear": Tuning("live_mix", live=1, over="linear", compute=fastest_compute(live=True)),
    "top1": Tuning("top1", compute=fastest_compute(live=True)),
    "top2": Tuning("top2", compute=fastest_compute(live=True)),
    "lora": Tuning("lora", compute=fastest_compute(live=True)),
    "finetune_packed": Tuning("finetune", compute=fastest_compute(live=True)),
}
RATIOS = {
    "optimised fine-tuning / live_mix": ("finetune_fast", "live_mix"),
    "optimised fine-tuning / live_mix with attention alone above": ("finetune_fast", "live_mix_attention"),
    "optimised fine-tuning / live_mix with one block": ("finetune_fast", "live_mix_1"),
    "optimised fine-tuning / the library's fine-tuning": ("finetune_fast", "finetune_packed"),
    "the library's fine-tuning / live_mix": ("finetune_packed", "live_mix"),
    "the library's fine-tuning / live_mix with attention alone above": ("finetune_packed", "live_mix_attention"),
    "the library's fine-tuning / live_mix with one block": ("finetune_packed", "live_mix_1"),
    "textbook fine-tuning / live_mix": ("finetune", "live_mix"),
    "live_mix in fp32 / live_mix": ("live_mix_fp32", "live_mix"),
    "live_mix / adapted": ("live_mix", "adapted"),
    "PEFT LoRA with bf16 and buckets / the library's LoRA": ("lora_fast", "lora"),
    "PEFT LoRA with bf16 and buckets / adapted": ("lora_fast", "adapted"),
    "the library's LoRA / adapted": ("lora", "adapted"),
}
SLOW = ("finetune", "finetune_fast", "lora_fast", "finetune_packed", "lora", "live_mix_fp32")


class Live(step.Ours):
    """The library's loop over blocks that are trained."""

    def __init__(self, data: step.Data, tuning: Tuning) -> None:
        spec = data.store.spec
        self.method: Any = Finetune.build(tuning, data.model, spec, [data.task], read_ahead=0).train()
        self.examples = data.examples
        if tuning.plan(spec).pieces:
            self.examples = self.method.read(Cut(spec, data.pieces), data.documents, [data.task])
        trained = [parameter for parameter in self.method.parameters() if parameter.requires_grad]
        self.optimiser = torch.optim.Adam(trained, lr=1e-4, fused=True)


def candidate(name: str, data: step.Data) -> step.Ours | step.Plain:
    """A fresh model of this name, ready to train."""
    if name in OURS:
        return Live(data, OURS[name])
    if name != "lora_fast":
        return step.candidate(name, data)
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModel

    encoder = AutoModel.from_pretrained(quickstart_folder(), add_pooling_layer=False)
    low = get_peft_model(encoder, LoraConfig(r=8, lora_alpha=16, target_modules=["query", "value"]))
    model = textbook.FinetuneModel(low, data.store.spec.width, len(data.task.labels))
    return step.Plain(data.textbook(states=False), model, ids=True, fast=True)


def main() -> None:
    """Parse, prepare, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conllu")
    parser.add_argument("--column", default=None)
    parser.add_argument("--sentences", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out")
    options = parser.parse_args()
    torch.set_num_threads(1)
    started = now()
    with tempfile.TemporaryDirectory() as scratch:
        documents = step.documents_of(options.conllu, options.sentences)
        data = step.Data(
            documents, options.column or ("deprel" if options.conllu else "punct"), Path(scratch) / "store"
        )
        runs = {name: candidate(name, data) for name in ("adapted", *OURS, "lora_fast", "finetune_fast", "finetune")}
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        for number in range(options.rounds + 1):
            for name, run in runs.items():
                order = np.random.default_rng(number)
                taken = step.cpu_seconds(run.epoch(order), every=4 if name in SLOW else 1)
                seconds[name] += [taken] if number else []
    parts = {
        "ms_per_step_median": {name: 1e3 * statistics.median(values) for name, values in seconds.items()},
        "ms_per_step_min": {name: 1e3 * min(values) for name, values in seconds.items()},
        "ratios": {
            name: statistics.median(a / b for a, b in zip(seconds[over], seconds[under], strict=True))
            for name, (over, under) in RATIOS.items()
        },
        "compute": fastest_compute(live=True),
        "pieces_per_batch": step.BATCH * float(data.examples.lengths.mean()),
        "rounds": options.rounds,
        **provenance(started),
    }
    show(parts, options.out, f"{parts['ratios']['optimised fine-tuning / live_mix']:.2f}")


if __name__ == "__main__":
    main()
