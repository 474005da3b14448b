"""Scores of encoders on small tasks: every encoder is fine-tuned, or read frozen, on the same examples with each seed.

    python experiments/fastdoc/downstream.py [--tasks science|glue] [--method finetune|linear] [--seeds 1,2]
                                             [--train 1000] [--test 1000] [--rows downstream.jsonl] ENCODER...

ENCODER is "untouched", "minilm" (the sentence encoder, where training begins with it) or a run of
experiments/fastdoc/runs. Training and test examples are drawn by their content: the same ones for every encoder and
seed, so that differences are paired. The last epoch counts, nothing is chosen on dev. One row a score; what is there is
not computed again. The first seed goes through all encoders before the second.
"""

import argparse
import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from encodeonce.cli import learning
from encodeonce.cli.config import Config, parse
from encodeonce.cli.contenders import contender
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.encoders.quickstart import quickstart_folder
from encodeonce.report.results import ResultsRow, append_rows, now, read_rows, surroundings
from encodeonce.tasks.ner import NER

HERE = Path(__file__).parent
DATA = HERE.parents[2] / "shared" / "data"
STARTS = {"untouched": HERE.parents[2] / "shared" / "models" / "minilm-mlm", "minilm": quickstart_folder()}
LABEL = {"kind": "classification", "column": "label"}
PAIR = {"text": "text_a", "pair": "text_b"}

TASKS = {
    "science": {
        "bc5cdr": ("science/ner/bc5cdr/{}.conll.gz", "ner", {}),
        "jnlpba": ("science/ner/jnlpba/{}.conll.gz", "ner", {}),
        "ncbi-disease": ("science/ner/ncbi-disease/{}.conll.gz", "ner", {}),
        "chemprot": ("science/relation/chemprot/{}.jsonl.gz", "label", {**LABEL, "metric": "accuracy"}),
        "sciie": ("science/relation/sciie/{}.jsonl.gz", "label", {**LABEL, "metric": "macro_f1"}),
        "sci-cite": ("science/classification/sci-cite/{}.jsonl.gz", "label", {**LABEL, "metric": "macro_f1"}),
    },
    "glue": {
        "cola": ("glue/cola/{}.jsonl.gz", "cola", {}),
        "sst2": ("glue/sst2_phrases/{}.jsonl.gz", "sst2", {}),
        "mrpc": ("glue/mrpc/{}.jsonl.gz", "mrpc", {}),
        "qqp": ("glue/qqp/{}.jsonl.gz", "qqp", {}),
        "stsb": ("glue/stsb/{}.jsonl.gz", "stsb", {}),
        "mnli": ("glue/mnli/{}.jsonl.gz", "mnli", {}),
        "qnli": ("glue/qnli/{}.jsonl.gz", "qnli", {}),
        "rte": ("glue/rte/{}.jsonl.gz", "rte", {}),
    },
}
"""Set -> name -> file, task and its options. Scores: span micro F1 (of first pieces; f1_all_pieces beside it),
micro F1 (which is accuracy) or macro F1, as in the paper's tables; GLUE's own, on its dev part."""

SPLITS = {
    "qnli": ("train_sample", "dev"),
    "mnli": ("train_sample", "dev_matched_sample"),
    "qqp": ("train_sample", "heldout_sample"),  # of its dev there is nothing: pairs of the training set, held out
}
"""Files of training and of test, where they are not called train and test (GLUE: dev)."""

TRAINING = {
    "finetune": {
        "learning_rate": 2e-3,
        "encoder_learning_rate": 2e-4,
        "num_train_epochs": 3,
        "max_grad_norm": 1.0,
    },
    "linear": {"learning_rate": 4e-3, "num_train_epochs": 15},
}
"""Of both sides alike. Set before any score was seen, but for clipping, without which a fine-tuning of the untouched
encoder now and then did not start (docs/log.md, 2026-12-01)."""


def config_of(kind: str, name: str, method: str, encoder: Path) -> Config:
    """The config of one task."""
    file, task, options = TASKS[kind][name]
    train, test = SPLITS.get(name, ("train", "dev" if kind == "glue" else "test"))
    values = {
        "encoder": str(encoder),
        "store": str(HERE / "states" / "probes" / encoder.parent.name),
        "compute": "bf16x3",
        "tasks": [task],
        "task": {task: options} if options else {},
        "method": method,
        "finetune": {"compute": "bf16"},
        "adapter": {"compute": "bf16"},
        "train": {"per_device_train_batch_size": 16, "per_device_eval_batch_size": 64, **TRAINING[method]},
        "data": {"train": str(DATA / file.format(train)), "test": str(DATA / file.format(test))},
    }
    if kind == "glue" and name not in ("cola", "sst2"):
        values["data"]["columns"] = PAIR
    return parse(values, name)


LEARNED: dict[tuple[str, ...], Any] = {}
"""Documents and tasks by training file: they are the same for every encoder."""


def material_of(config: Config, sizes: dict[str, int]) -> learning.Material:
    """So many documents of each split, and what is to be read of them in the store."""
    place = tuple(config.data.train)
    if place not in LEARNED:
        LEARNED[place] = learning.learned(config)
    splits, tasks = LEARNED[place]
    chosen = {split: learning.fraction(found, min(1.0, sizes[split] / len(found))) for split, found in splits.items()}
    return learning.stored(config, chosen, tasks, [contender(config).settings()])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("encoders", nargs="+")
    parser.add_argument("--tasks", default="science", choices=sorted(TASKS))
    parser.add_argument("--method", default="finetune", choices=sorted(TRAINING))
    parser.add_argument("--seeds", default="1,2")
    parser.add_argument("--train", type=int, default=1000)
    parser.add_argument("--test", type=int, default=1000)
    parser.add_argument("--rows", type=Path, default=HERE / "results" / "downstream.jsonl")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    variant = f"train={given.train} test={given.test}"
    if "max_grad_norm" in TRAINING[given.method]:
        variant += f" max_grad_norm={TRAINING[given.method]['max_grad_norm']}"
    for seed in map(int, given.seeds.split(",")):
        for encoder in given.encoders:
            for name in TASKS[given.tasks]:
                cell(given, encoder, name, seed, variant)


def cell(given: argparse.Namespace, encoder: str, name: str, seed: int, variant: str) -> None:
    """Train and score one task once, unless its rows are there."""
    blank = ResultsRow("fastdoc", given.tasks, name, encoder, given.method, variant, seed, "test", "", None)
    if any(row.cell[:8] == blank.cell[:8] for row in read_rows(given.rows)):
        return
    folder = STARTS.get(encoder) or HERE / "runs" / encoder / "encoder"
    config, started = config_of(given.tasks, name, given.method, folder), now()
    material = material_of(config, {"train": given.train, "test": given.test})
    one = contender(config)
    done = learning.train(material, one.settings(), one.training(config, seed=seed), scored=("test",))
    (task,) = material.tasks
    found = {**done.evaluations["test"].scores[task.name], **by_pieces(done, material, folder)}
    common = {
        "n": len(material.splits["test"]),
        "train_s_total": done.seconds,
        "train_s_per_batch": done.fit.seconds_per_batch,
        "started": started,
        **surroundings(),
    }
    metrics = [task.metric, *(metric for metric in found if metric not in (task.metric, "n"))]
    append_rows(given.rows, [replace(blank, metric=m, value=found[m], **common) for m in metrics])
    logging.info(
        "%s, %s, seed %d: %s %.2f (%.0f s)", encoder, name, seed, task.metric, found[task.metric], done.seconds
    )


def by_pieces(done: learning.Trained, material: learning.Material, folder: Path) -> dict[str, float | None]:
    """Of named entities also the score of programs that label every piece, as the paper's did; of others nothing."""
    (task,) = done.tasks
    if not isinstance(task, NER):
        return {}
    documents = material.splits["test"]
    pieces = [cut.per_word.tolist() for cut in Pretrained(folder).cut(documents)]
    predicted = [row[task.name] for row in done.evaluations["test"].predictions]
    return task.score_of_pieces(task.gold(documents), predicted, pieces)


if __name__ == "__main__":
    main()
