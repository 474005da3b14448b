"""Sentences parsed in a minute, from words to trees: the encoder runs, nothing is stored.

    python benchmarks/parse.py --conllu train.conllu [--sentences 1000] [--train 1000] [--rounds 3] [--out FILE]

Adapted and a biaffine parser (of docs/parsing.md's size, and of decision A-12's) are trained for two epochs on --train
sentences of the file, so that they decode as trained ones do; --sentences others are then parsed as `predict` does it,
one thread, loading left out. CPU seconds, the least of the rounds. Every answer is checked to be a tree with one root.
Prints the parts as JSON, then sentences a minute of the smaller one; the goal is 2,000.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from parts import show
from step import documents_of

from encodeonce.encoders.pretrained import Pretrained
from encodeonce.encoders.quickstart import quickstart_folder
from encodeonce.methods.aggregate import Aggregate, Variant
from encodeonce.nn.linear import fastest_compute
from encodeonce.nn.trees import is_tree
from encodeonce.report.results import now, provenance
from encodeonce.serve.bundle import Run
from encodeonce.serve.predictor import Predictor
from encodeonce.store import Store
from encodeonce.tasks import named
from encodeonce.train.fit import fit
from encodeonce.train.settings import Settings
from encodeonce.types import Document

SIZES = {"small": {"n_lstm_layers": 1, "lstm_width": 200}, "A-12": {}}
"""Name -> the parser's settings; the rest are the defaults."""


def parser_of(size: str, documents: list[Document], model: Pretrained, store: Store) -> Predictor:
    """Trained, with the encoder behind it and no store."""
    task = named("parsing", **SIZES[size]).learn(documents)
    variant = Variant("adapted", compute=fastest_compute())
    method = Aggregate.build(variant, store.spec, [task])
    settings = Settings(num_train_epochs=2, learning_rate=5e-3, per_device_train_batch_pieces=1000)
    fit(method, method.read(store, documents, [task]), {"parsing": task}, settings)
    return Predictor(Run(method, (task,), variant, store.spec), encoder=model)


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """CPU seconds of a round and sentences a minute for each size."""
    started = now()
    documents = documents_of(options.conllu, options.train + options.sentences)
    train, asked = documents[: options.train], documents[options.train :]
    shown = [Document(one.id, one.words, place=one.place) for one in asked]  # words, and nothing of the gold
    model = Pretrained(quickstart_folder())
    store = Store.open(folder, model.spec())
    store.fill(train, model)
    seconds: dict[str, list[float]] = {}
    for size in SIZES:
        predictor = parser_of(size, train, model, store)
        seconds[size] = []
        for _ in range(options.rounds):
            began = time.process_time()
            answers = predictor.predict(shown)
            seconds[size].append(time.process_time() - began)
            assert all(is_tree(list(answer["parsing"].heads)) for answer in answers)
    a_minute = {size: 60 * len(shown) / min(taken) for size, taken in seconds.items()}
    return {
        "sentences": len(shown),
        "words": sum(len(one.words) for one in shown),
        "cpu_s": seconds,
        "sentences_per_minute": a_minute,
        "compute": fastest_compute(),
        **provenance(started),
    }


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conllu", required=True)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--train", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        parts = measure(options, Path(scratch) / "store")
    show(parts, options.out, f"{parts['sentences_per_minute']['small']:.0f}")


if __name__ == "__main__":
    main()
