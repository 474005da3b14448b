"""A document visit, trained on stored sentence vectors and as masked language, on the same abstracts and one thread.

    OMP_NUM_THREADS=1 python benchmarks/visit.py DOCUMENTS.jsonl ENCODER [--out results.json]

Forward, backward and optimiser step of a batch of as many documents, CPU seconds, all interleaved, the least of the
repeats; ENCODER needs its masked-language head. "masked" is this project's own masked-language training: packed, the
head at hidden pieces alone. "transformers" is that of its model class: windows sorted by length in batches of eight,
padded to the longest, its loss over all positions, autocast where bf16 is asked. "encode" encodes the documents'
sentences once by the packaged sentence encoder. Sentence vectors are random in training: time does not depend on them.

A whole run encodes every document once and visits it VISITS times (2,000 triplets, doubled, of 4,771 documents, as in
the first trial); an epoch visits it once. Pieces that stand there for padding are counted apart.
"""

import argparse
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import textbook
import torch
from parts import show
from transformers import AutoModelForMaskedLM

from encodeonce.corpus import read
from encodeonce.corpus.text import with_sentences
from encodeonce.encoders.masked_lm import MaskedLM
from encodeonce.encoders.pooled import Pooled
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.methods.fastdoc.examples import DocumentBatch
from encodeonce.methods.fastdoc.fastdoc import FastDoc
from encodeonce.methods.fastdoc.masking import Window, hidden, masked, windows_of
from encodeonce.methods.fastdoc.objective import Objective
from encodeonce.nn.packed import Packed
from encodeonce.report.results import now, provenance
from encodeonce.types import Document

REPEATS, DOCUMENTS, PADDED_BATCH = 3, 24, 8
VISITS = 12_000 / 4_771


def timed(step: Callable[[], None]) -> float:
    began = time.process_time()
    step()
    return time.process_time() - began


def stepping(method: FastDoc, batch: DocumentBatch) -> Callable[[], None]:
    optimiser = torch.optim.AdamW([p for p in method.parameters() if p.requires_grad], lr=1e-6, fused=True)

    def step() -> None:
        optimiser.zero_grad()
        method.losses(batch, ["encoder"])["encoder"].backward()
        optimiser.step()

    return step


def by_transformers(encoder: Path, windows: list[Window], compute: str) -> tuple[Callable[[], None], dict[str, int]]:
    """A step as a user of the model class writes it, and the positions it runs."""
    model = AutoModelForMaskedLM.from_pretrained(encoder, dtype=torch.float32).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
    generator = np.random.default_rng(0)
    ordered = sorted(windows, key=lambda window: len(window.ids))
    batches = []
    for at in range(0, len(ordered), PADDED_BATCH):
        own = ordered[at : at + PADDED_BATCH]
        shape = len(own), max(len(window.ids) for window in own)
        ids, seen = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        labels = np.full(shape, -100)
        for row, window in enumerate(own):
            length = len(window.ids)
            chosen = np.flatnonzero(hidden(window.word, 0.15, False, generator))
            ids[row, :length], seen[row, :length] = window.ids, 1
            labels[row, chosen], ids[row, chosen] = window.ids[chosen], 103
        batches.append({"input_ids": ids, "attention_mask": seen, "labels": labels})

    def step() -> None:
        optimiser.zero_grad()
        for batch in batches:
            with textbook.autocast(compute == "bf16"):
                loss = model(**{name: torch.from_numpy(value) for name, value in batch.items()}).loss
            (loss / len(batches)).backward()
        optimiser.step()

    real, run = (
        sum(int(count) for count in each)
        for each in zip(
            *((batch["attention_mask"].sum(), batch["attention_mask"].size) for batch in batches), strict=True
        )
    )
    return step, {"real": real, "run": run}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents")
    parser.add_argument("encoder")
    parser.add_argument("--out", type=Path)
    args, started = parser.parse_args(), now()
    torch.set_num_threads(1)
    found = {compute: visits(args.documents, args.encoder, compute) for compute in ("fp32", "bf16")}
    show({**found, **provenance(started)}, args.out, f"{found['fp32']['whole_run']['masked_epoch']:.1f}")


def visits(source: str, encoder: str, compute: str) -> dict[str, Any]:
    """CPU seconds of a visit, in this arithmetic."""
    base = Pretrained(encoder, overlap=0)
    documents = [document for document in with_sentences(read(source)) if document.sentences][:DOCUMENTS]
    whole = base.cut([Document(d.id, text=" ".join(d.sentences)) for d in documents])
    sentences = base.cut([Document(d.id, text=s) for d in documents for s in d.sentences])
    lengths = tuple(len(document.sentences) for document in documents)
    vectors = torch.randn(1, sum(lengths), base.width)
    classes = torch.zeros(3, DOCUMENTS // 3, 3, dtype=torch.long)
    first = FastDoc(base.stack(), Objective.named("both", compute=compute), (9, 16, 113))
    by_sentences = stepping(first, DocumentBatch(lengths, classes, Packed(vectors, lengths)))
    second = FastDoc(
        base.stack(), Objective.named("masked", compute=compute), head=MaskedLM.load(base.path), mask_id=103
    )
    generator = np.random.default_rng(0)
    shown = windows_of(whole, [d.id for d in documents])
    shown_hidden = masked(shown, 0.15, False, 103, 30522, generator)
    by_pieces = stepping(second, DocumentBatch((), classes, masked=shown_hidden))
    by_model_class, padded = by_transformers(base.path, shown, compute)
    pooled = Pooled(Pretrained("quickstart", compute=compute))
    cut = pooled.cut([Document(d.id, sentences=tuple(d.sentences)) for d in documents])
    steps: dict[str, Callable[[], None]] = {
        "sentences": by_sentences,
        "masked": by_pieces,
        "transformers": by_model_class,
        "encode": lambda: _all(pooled.encode(cut)),
    }
    for step in steps.values():
        step()
    rows = [{name: timed(step) / DOCUMENTS for name, step in steps.items()} for _ in range(REPEATS)]
    least = {name: min(row[name] for row in rows) for name in steps}
    whole_run = least["encode"] + VISITS * least["sentences"]
    return {
        "documents": DOCUMENTS,
        "sentences_per_document": sum(lengths) / DOCUMENTS,
        "pieces_per_sentence": sum(len(one) for one in sentences) / len(sentences),
        "compute": compute,
        "cpu_seconds_per_visit": least,
        "masked_over_sentences": least["masked"] / least["sentences"],
        "whole_run": {
            "visits": VISITS,
            "cpu_seconds_per_document": whole_run,
            "masked_epoch": least["masked"] / whole_run,
            "transformers_epoch": least["transformers"] / whole_run,
            "transformers_epoch_less_its_padding": least["transformers"] * padded["real"] / padded["run"] / whole_run,
        },
        "all": rows,
        "positions": {"sentences": first.positions, "transformers": padded},
    }


def _all(made: Iterable[Any]) -> None:
    """Drawn to the end, kept nowhere."""
    for _ in made:
        pass


if __name__ == "__main__":
    main()
