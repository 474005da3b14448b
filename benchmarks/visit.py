"""A document visit, trained on stored sentence vectors and as masked language, on the same abstracts and one thread.

    OMP_NUM_THREADS=1 python benchmarks/visit.py DOCUMENTS.jsonl ENCODER [RESULTS.json]

Forward, backward and optimiser step of a batch of as many documents, CPU seconds, the two interleaved, the least of the
repeats; ENCODER needs its masked-language head, which is computed at hidden pieces alone. Sentence vectors are random
here: time does not depend on them.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from encodeonce.corpus import read
from encodeonce.corpus.text import with_sentences
from encodeonce.encoders.masked_lm import MaskedLM
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.methods.fastdoc.examples import DocumentBatch
from encodeonce.methods.fastdoc.fastdoc import FastDoc
from encodeonce.methods.fastdoc.masking import masked, windows_of
from encodeonce.methods.fastdoc.objective import Objective
from encodeonce.nn.packed import Packed
from encodeonce.report.results import now, provenance
from encodeonce.types import Document

REPEATS, DOCUMENTS = 3, 24


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


def main(source: str, encoder: str, out: str = "") -> None:
    torch.set_num_threads(1)
    started = now()
    found = {compute: visits(source, encoder, compute) for compute in ("fp32", "bf16")}
    result = {**found, **provenance(started)}
    path = Path(out) if out else Path(__file__).with_name("results") / "visit.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


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
    hidden = masked(shown, 0.15, False, 103, 30522, generator)
    by_pieces = stepping(second, DocumentBatch((), classes, masked=hidden))
    by_sentences(), by_pieces()
    rows = [(timed(by_sentences) / DOCUMENTS, timed(by_pieces) / DOCUMENTS) for _ in range(REPEATS)]
    sentence, piece = (min(column) for column in zip(*rows, strict=True))
    return {
        "documents": DOCUMENTS,
        "sentences_per_document": sum(lengths) / DOCUMENTS,
        "pieces_per_sentence": sum(len(one) for one in sentences) / len(sentences),
        "compute": compute,
        "cpu_seconds_per_visit": {"sentences": sentence, "masked": piece},
        "masked_over_sentences": piece / sentence,
        "all": rows,
        "positions": first.positions,
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
