"""What the few-shot experiment trains and how: defaults, a TOML file, the command line."""

import argparse
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from encodeonce.corpus.k_shot import SEEDS
from encodeonce.integrations._fused import ARCHITECTURE_RATE, INSIDE_RATE
from encodeonce.resolve import nearest
from encodeonce.train.settings import Settings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["DATA", "FILES", "SQUAD", "TEN", "Recipe", "recipe_of"]

SHARED = Path(os.environ.get("ENCODEONCE_SHARED", Path(__file__).parents[2] / ".." / "shared"))
DATA, MASKED = SHARED / "data", SHARED / "models" / "minilm-mlm"


@dataclass(frozen=True)
class Files:
    """Of one task: the file it is tested on, the one of its training texts (unlabelled at 16 shots), its samples."""

    test: str
    train: str
    samples: str


FILES = {
    "sst2": Files("glue/sst2_phrases/dev", "text_classification/sst2/train", "fewshot_lmbff_k16/sst2"),
    **{
        task: Files(
            f"text_classification/{task}/test", f"text_classification/{task}/train", f"fewshot_lmbff_k16/{task}"
        )
        for task in ("sst5", "mr", "cr", "mpqa", "subj", "trec")
    },
    **{
        task: Files(f"glue/{folder}/{test}", f"glue/{folder}/{train}", f"fewshot_lmbff_k16/{folder}")
        for task, folder, test, train in (
            ("cola", "cola", "dev", "train"),
            ("mnli", "mnli", "dev_matched_sample", "train_sample"),
            ("mnli_mm", "mnli", "dev_mismatched_sample", "train_sample"),
            ("snli", "snli", "test_sample", "train_sample"),
            ("qnli", "qnli", "dev", "train_sample"),
            ("rte", "rte", "dev", "train"),
            ("mrpc", "mrpc", "dev", "train"),
            ("qqp", "qqp", "heldout_sample", "train_sample"),
        )
    },
}
"""The 15 tasks. Of MNLI, SNLI, QNLI and QQP training texts are a sample; QQP is tested on a sample of its own."""
SQUAD = Files("qa/xquad_en", "qa/squad_sample", "qa/squad_sample")
"""Folders: 1,190 questions of SQuAD's dev part, and 4,330 of its training part with a part of their own in `split`."""
TEN = ("sst2", "mr", "cr", "mpqa", "subj", "trec", "cola", "rte", "snli", "mrpc")
"""What is run where no tasks are named."""


@dataclass(frozen=True)
class Recipe:
    """`encoder` ("": the packaged MiniLM) makes vectors and is fine-tuned, `masked` is prompted; a size of 0 means all.
    With `best_epoch` dev chooses the epoch where nothing is learned from it, else the last counts. `full` trains on
    whole training files, `epochs` times, instead of on 16 examples a label for about `steps` steps. With a `lora_rank`
    the prompted model trains low-rank terms alone. `config` and `options` say what was asked for, in a row's words."""

    encoder: str = ""
    masked: str = str(MASKED)
    methods: tuple[str, ...] = ()
    tasks: tuple[str, ...] = TEN
    seeds: tuple[int, ...] = tuple(SEEDS)
    test_size: int = 1000
    unlabelled_size: int = 1000
    steps: int = 40
    full: bool = False
    epochs: int = 3
    batch: int = 32
    head_rate: float = 2e-3
    encoder_rate: float = 1e-4
    inside_rate: float = INSIDE_RATE
    architecture_rate: float = ARCHITECTURE_RATE
    architecture_decay: float = 0.0
    optim: str = "adam"
    weight_decay: float = 0.0
    lr_scheduler_type: str = "one_cycle"
    max_grad_norm: float = 0.0
    best_epoch: bool = True
    lora_rank: int = 0
    lora_alpha: float = 16.0
    config: str = ""
    options: tuple[str, ...] = ()

    def variant(self, unlabelled: int) -> str:
        """What distinguishes a row, as "key=value" pairs: how many unlabelled texts there are, which is the task's, and
        how many were asked for, where that is not the default."""
        length = f"train=full epochs={self.epochs}" if self.full else f"steps={self.steps}"
        asked = "" if self.unlabelled_size == Recipe.unlabelled_size else f"at_most={self.unlabelled_size or 'all'} "
        return f"test={self.test_size} unlabelled={unlabelled} {asked}{length}{self.config}"

    def command(self, method: str, task: str, seed: int) -> str:
        """What makes one row."""
        named = ("--tasks", task, "--seeds", str(seed))
        return shlex.join(["python", "experiments/fewshot/run.py", method, *named, *self.options])

    def settings(self, seed: int, n: int, **rates: float) -> Settings:
        """The loop's, for n examples."""
        return Settings(
            num_train_epochs=self.epochs if self.full else max(1, round(self.steps / -(-n // self.batch))),
            per_device_train_batch_size=self.batch,
            warmup_ratio=0.1,
            seed=seed,
            optim=self.optim,
            weight_decay=self.weight_decay,
            lr_scheduler_type=self.lr_scheduler_type,
            max_grad_norm=self.max_grad_norm,
            **rates,
        )


def recipe_of(args: argparse.Namespace, groups: Mapping[str, Sequence[str]]) -> Recipe:
    """The configuration with what the command line changes; a group's name stands for its methods."""
    values: dict[str, Any] = {}
    if args.config is not None:
        values = tomllib.loads(args.config.read_text(encoding="utf-8"))
    known = [field.name for field in fields(Recipe) if field.name not in ("config", "options")]
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise SystemExit(f"{args.config}: unknown key {unknown[0]!r}.{nearest(unknown[0], known)}")
    if args.config is not None:
        values["config"] = f" config={args.config.stem}"
    sizes = {name: getattr(args, name) for name in ("test_size", "unlabelled_size", "steps", "epochs")}
    given = {name: value for name, value in {**sizes, "full": args.full or None}.items() if value is not None}
    values |= given
    values["options"] = [
        *(() if args.config is None else ("--config", os.path.relpath(args.config, Path(__file__).parents[2]))),
        *(word for name, value in given.items() for word in _words(name, value)),
    ]
    if args.methods:
        values["methods"] = [name for word in args.methods for name in groups.get(word, [word])]
    if args.tasks:
        values["tasks"] = args.tasks.split(",")
    there = [*FILES, "squad"]
    other = [task for task in values.get("tasks", ()) if task not in there]
    if other:
        near = nearest(other[0], there)
        raise SystemExit(f"task {other[0]!r} is not known. There is: {', '.join(there)}.{near}")
    if args.seeds:
        values["seeds"] = [int(seed) for seed in args.seeds.split(",")]
    return Recipe(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


def _words(name: str, value: Any) -> tuple[str, ...]:
    """An option of the command line."""
    option = f"--{name.replace('_', '-')}"
    return (option,) if value is True else (option, str(value))
