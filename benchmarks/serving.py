"""What answering costs beside the encoder's own pass: one task, five tasks, and the bare encoder.

    python benchmarks/serving.py [--conllu test.conllu] [--sentences 512] [--rounds 5] [--compute fp32] [--out FILE]

Every candidate answers the same sentences from nothing, tokenisation included, 256 at a time: the frozen encoder alone
(last layer only), a run with Frozen and a head, a run with Adapted and a head for one task and for five, all five from
one encoding pass, and one task with Adapted's wide products in bf16 (`adapter.compute`). Runs are untrained: answers
cost the same. "textbook" is `transformers` on padded batches of 32 in file order, last layer only, fp32. Without
--conllu the text is the manual that every Python carries. Figures are CPU seconds of one thread. Candidates take turns
on every part of 256 sentences; a part's figure is the least of the rounds, which other work on the machine disturbs
least, and the parts are added. Prints the parts as JSON, then the ratio of five tasks to one.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import step
import torch
from parts import show

from encodeonce.encoders.pretrained import Pretrained
from encodeonce.encoders.quickstart import quickstart_folder
from encodeonce.methods.aggregate import Aggregate, Variant
from encodeonce.report.results import now, provenance
from encodeonce.serve.bundle import Run
from encodeonce.serve.predictor import CHUNK, Predictor
from encodeonce.tasks.tagging import Tagging
from encodeonce.types import Document

COLUMNS = ("upos", "xpos", "deprel", "feats:Number", "feats:VerbForm")
OF_TEXT: dict[str, Callable[[str], str]] = {
    "first": lambda word: word[:1],
    "last": lambda word: word[-1:],
    "length": lambda word: str(min(len(word), 12)),
}
"""Labels that any text has, beside the manual's two."""
RATIOS = {
    "five tasks / one task": ("adapted_5", "adapted_1"),
    "adapted / bare encoder": ("adapted_1", "bare"),
    "adapted bf16 / bare encoder": ("adapted_1_bf16", "bare"),
    "adapted / frozen": ("adapted_1", "frozen_1"),
    "frozen / bare encoder": ("frozen_1", "bare"),
    "textbook encoder / bare encoder": ("textbook", "bare"),
    "adapted / textbook encoder": ("adapted_1", "textbook"),
}


def documents_of(path: str | None, limit: int) -> tuple[list[Document], tuple[str, ...]]:
    """Sentences, and the columns of five tasks."""
    documents = step.documents_of(path, limit)
    if path is not None:
        return documents, COLUMNS
    made = [
        replace(one, columns={**one.columns, **{k: tuple(map(f, one.words)) for k, f in OF_TEXT.items()}})
        for one in documents
    ]
    return made, ("punct", "case", *OF_TEXT)


def predictor(
    model: Pretrained, name: str, columns: Sequence[str], documents: Sequence[Document], compute: str = ""
) -> Predictor:
    """An untrained run over the live encoder; `compute` is the adapter's, by default the encoder's."""
    spec = model.spec()
    tasks = tuple(Tagging(column).learn(documents) for column in columns)
    variant = Variant(name, compute=compute or ("bf16" if model.compute == "bf16" else "fp32"))
    return Predictor(Run(Aggregate.build(variant, spec, tasks).eval(), tasks, variant, spec), None, model)


def bare(model: Pretrained, documents: Sequence[Document]) -> None:
    """Pieces and the last layer, and nothing else."""
    for _ in model.encode(model.cut(documents), "last"):
        pass


def textbook(model: Any, tokenizer: Any, documents: Sequence[Document]) -> None:
    """The same by `transformers`, as its manual shows."""
    with torch.no_grad():
        for start in range(0, len(documents), step.BATCH):
            words = [list(one.words) for one in documents[start : start + step.BATCH]]
            model(**tokenizer(words, is_split_into_words=True, padding=True, return_tensors="pt"))


def cpu_seconds(call: Callable[[], object]) -> float:
    """CPU seconds of one call."""
    began = time.process_time()
    call()
    return time.process_time() - began


def main() -> None:
    """Parse, prepare, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conllu")
    parser.add_argument("--sentences", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--compute", choices=("fp32", "bf16x3", "bf16"), default="fp32")
    parser.add_argument("--out")
    options = parser.parse_args()
    torch.set_num_threads(1)
    started = now()
    documents, columns = documents_of(options.conllu, options.sentences)
    model = Pretrained(str(quickstart_folder()), compute=options.compute)
    from transformers import AutoModel, AutoTokenizer

    plain = AutoModel.from_pretrained(quickstart_folder(), add_pooling_layer=False).eval()
    tokenizer = AutoTokenizer.from_pretrained(quickstart_folder())
    runs = {
        "frozen_1": predictor(model, "frozen", columns[:1], documents),
        "adapted_1": predictor(model, "adapted", columns[:1], documents),
        "adapted_1_bf16": predictor(model, "adapted", columns[:1], documents, "bf16"),
        "adapted_5": predictor(model, "adapted", columns, documents),
    }
    calls: dict[str, Callable[[Sequence[Document]], object]] = {
        "bare": lambda some: bare(model, some),
        **{name: run.predict for name, run in runs.items()},
        "textbook": lambda some: textbook(plain, tokenizer, some),
    }
    slices = [documents[start : start + CHUNK] for start in range(0, len(documents), CHUNK)]
    rounds: dict[str, list[list[float]]] = {name: [[] for _ in slices] for name in calls}
    for number in range(options.rounds + 1):
        for place, some in enumerate(slices):
            for name, call in calls.items():
                taken = cpu_seconds(lambda call=call, some=some: call(some))  # type: ignore[misc]
                rounds[name][place] += [taken] if number else []
    batches = len(documents) / step.BATCH
    least = {name: sum(min(values) for values in by_slice) for name, by_slice in rounds.items()}
    middle = {name: sum(statistics.median(values) for values in by_slice) for name, by_slice in rounds.items()}
    parts = {
        "ms_per_batch": {name: 1e3 * value / batches for name, value in least.items()},
        "ms_per_batch_median": {name: 1e3 * value / batches for name, value in middle.items()},
        "ratios": {name: least[over] / least[under] for name, (over, under) in RATIOS.items()},
        "ratios_of_medians": {name: middle[over] / middle[under] for name, (over, under) in RATIOS.items()},
        "tasks": list(columns),
        "compute": options.compute,
        "sentences": len(documents),
        "words": sum(len(one.words) for one in documents),
        "rounds": options.rounds,
        **provenance(started),
    }
    show(parts, options.out, f"{parts['ratios']['five tasks / one task']:.2f}")


if __name__ == "__main__":
    main()
