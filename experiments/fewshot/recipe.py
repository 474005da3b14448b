"""What an experiment at 16 shots trains and how: defaults, a TOML file, the command line."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from encodeonce.corpus.k_shot import SEEDS
from encodeonce.integrations._fused import ARCHITECTURE_RATE, INSIDE_RATE
from encodeonce.train.settings import Settings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["DATA", "FILES", "Recipe", "recipe_of"]

SHARED = Path(os.environ.get("ENCODEONCE_SHARED", Path(__file__).parents[2] / ".." / "shared"))
DATA, MASKED = SHARED / "data", SHARED / "models" / "minilm-mlm"
FILES = {
    "sst2": ("glue/sst2_phrases/dev", "text_classification/sst2/train"),
    **{t: (f"text_classification/{t}/test", f"text_classification/{t}/train") for t in ("mr", "cr", "mpqa", "subj")},
    "trec": ("text_classification/trec/test", "text_classification/trec/train"),
    "cola": ("glue/cola/dev", "glue/cola/train"),
    "rte": ("glue/rte/dev", "glue/rte/train"),
    "snli": ("glue/snli/test_sample", "glue/snli/train_sample"),
    "mrpc": ("glue/mrpc/dev", "glue/mrpc/train"),
}
"""Task -> the file it is tested on, the file its unlabelled texts are from."""


@dataclass(frozen=True)
class Recipe:
    """`encoder` ("": the packaged MiniLM) makes vectors and is fine-tuned, `masked` is prompted; a size of 0 means all.
    With `best_epoch` dev chooses the epoch where it is not trained on, else the last counts."""

    encoder: str = ""
    masked: str = str(MASKED)
    methods: tuple[str, ...] = ()
    tasks: tuple[str, ...] = tuple(FILES)
    seeds: tuple[int, ...] = tuple(SEEDS)
    test_size: int = 1000
    unlabelled_size: int = 1000
    steps: int = 40
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
    config: str = ""

    def settings(self, seed: int, n: int, **rates: float) -> Settings:
        """The loop's, for n examples: about `steps` steps."""
        return Settings(
            num_train_epochs=max(1, round(self.steps / -(-n // self.batch))),
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
        values = {**tomllib.loads(args.config.read_text(encoding="utf-8")), "config": f" config={args.config.stem}"}
    unknown = sorted(set(values) - {field.name for field in fields(Recipe)})
    if unknown:
        raise SystemExit(f"{args.config}: unknown key {unknown[0]!r}.")
    given = {name: getattr(args, name) for name in ("test_size", "unlabelled_size", "steps")}
    values |= {name: value for name, value in given.items() if value is not None}
    if args.methods:
        values["methods"] = [name for word in args.methods for name in groups.get(word, [word])]
    if args.tasks:
        values["tasks"] = args.tasks.split(",")
    if args.seeds:
        values["seeds"] = [int(seed) for seed in args.seeds.split(",")]
    return Recipe(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})
