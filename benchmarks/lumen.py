"""What a question costs at T5-Base shape, measured: all live, a third live, nothing live; beside the paper's formula.

    python benchmarks/lumen.py [--repeats 3] [--passages 20] [--out results.json]

Random weights, a small vocabulary, 20 passages of 208 pieces and a question of 48, as in the paper; wall seconds of one
thread, minima of interleaved repeats. `encoder` is all that comes before the decoder, the memory's read from a store
and the question's own pass included; `answer` adds one pass of the decoder over 32 pieces.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from parts import show

from encodeonce import costs
from encodeonce.encoders.t5_decoder import T5Decoder
from encodeonce.methods.lumen import Design, Lumen, ReadingExamples
from encodeonce.report.results import now, provenance
from encodeonce.store import Store
from encodeonce.types import Document, Passage, Pieces, Question

WIDTH, BLOCKS, QUESTION, PASSAGE, TARGET, PIECES = 768, 12, 48, 208, 32, 512
LIVE = (12, 4, 0)


class Numbers:
    """Passages and questions that are pieces already; the tokenizer's part of an encoder."""

    def __init__(self, encoder: Any) -> None:
        self.encoder, self.window = encoder, encoder.window
        self.draw = np.random.default_rng(0)

    def spec(self, layers: Any = "all", dtype: str = "fp16") -> Any:
        return self.encoder.spec(layers, dtype)

    def cut(self, documents: Sequence[Document]) -> list[Pieces]:
        return [self.pieces(document) for document in documents]

    def pieces(self, document: Document) -> Pieces:
        # a question loses its end (L-06)
        length = PASSAGE if document.id.startswith("p") else QUESTION + 1
        ids = np.random.default_rng(len(document.text)).integers(3, PIECES, length).astype(np.int32)
        word = np.append(np.arange(length - 1), -1).astype(np.int32)
        return Pieces(document.key, ids, word, length - 1, ((0, length - 1, 0, length),))

    def spans(self, texts: Sequence[str]) -> list[np.ndarray]:
        return [np.full((PASSAGE, 2), -1) for _ in texts]

    def spell(self, ids: Sequence[int]) -> str:
        return str(list(ids))

    def encode(self, pieces: Sequence[Pieces], layers: Sequence[int]) -> Any:
        yield from self.encoder.encode(pieces, layers)


def made(live: int, folder: Path, questions: list[Question]) -> tuple[Lumen, ReadingExamples]:
    design = Design(live=live, reader="generate", decoder_question="in_memory_each")
    encoder = design.encoder(folder)
    numbers = Numbers(encoder)
    method = Lumen.build(design, encoder, read_ahead=0).eval()
    store: Any = None
    if method.plan.stored:
        store = Store.open(folder / f"memory-{live}", encoder.spec(list(method.plan.stored), "bf16"))
        store.fill([Document(p.id, text=p.text) for q in questions for p in q.passages], numbers)
    return method, ReadingExamples.read(questions, numbers, design, method.plan, store)


def measured(method: Lumen, examples: ReadingExamples) -> tuple[float, float]:
    labels = torch.randint(3, PIECES, (1, TARGET))
    reader: Any = method.reader
    with torch.no_grad():
        began = time.perf_counter()
        (batch,) = method.batches(examples, size=1, order=None)
        states = method.states(batch)
        middle = time.perf_counter()
        reader.logits(states, batch, labels)
    return middle - began, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--passages", type=int, default=20)
    parser.add_argument("--out", type=Path)
    arguments, started = parser.parse_args(), now()
    torch.set_num_threads(1)
    passages = tuple(Passage(f"p{i}", "", "x" * (i + 1)) for i in range(arguments.passages))
    questions = [Question("q", "y" * 50, (), passages)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        sizes = {"d_model": WIDTH, "num_layers": BLOCKS, "num_heads": 12, "d_kv": 64, "d_ff": 2048}
        T5Decoder.shaped(folder, vocab_size=PIECES, **sizes)
        (folder / "tokenizer.json").write_text("{}")
        runs = {live: made(live, folder, questions) for live in LIVE}
        taken: dict[int, list[tuple[float, float]]] = {live: [] for live in LIVE}
        for _ in range(arguments.repeats):
            for live, (method, examples) in runs.items():
                taken[live].append(measured(method, examples))
    n_source = arguments.passages * (QUESTION + PASSAGE)
    rows = []
    for live in LIVE:
        encoder, answer = (min(times) for times in zip(*taken[live], strict=True))
        whole = costs.lumen_macs(n_source, TARGET, WIDTH, live, BLOCKS)
        alone = 12 * WIDTH**2 * (n_source * live + QUESTION * (BLOCKS - live))
        rows.append({"live": live, "encoder_s": encoder, "answer_s": answer, "macs": whole, "encoder_macs": alone})
    for row in rows:
        row["encoder_ratio"], row["answer_ratio"] = (row[k] / rows[0][k] for k in ("encoder_s", "answer_s"))
        row["encoder_formula"], row["answer_formula"] = (row[k] / rows[0][k] for k in ("encoder_macs", "macs"))
    show({"rows": rows, **provenance(started)}, arguments.out, round(rows[1]["answer_ratio"], 2))


if __name__ == "__main__":
    main()
