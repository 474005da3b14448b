"""Search over stored vectors: ours, exact, against a product and a top-k in torch, and against faiss's indices.

    python benchmarks/search.py [--rows 100000] [--width 384] [--k 64] [--rounds 7] [--kinds hnsw ivf]
        [--out results.json]

Rows are random, in clusters and leaning to one side, as the vectors of sentence encoders are; queries are rows with
noise. Each candidate answers the same 32 queries, one at a time and all at once; candidates take turns, figures are the
least CPU milliseconds a query of all rounds, one thread. `recall` is the share of the true k nearest that is returned
(ours exact: 1 by construction, checked against an fp64 sort). faiss kinds run where faiss is installed, through the
same class: their time includes scoring the proposed rows exactly; `faiss_flat` is faiss's own exact index, alone.

Prints the parts as JSON, then one number: milliseconds of one exact query, fp32 rows, one at a time.
"""

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"

import numpy as np
import torch
from parts import show

from encodeonce.report.results import now, provenance
from encodeonce.store import Search

Answer = Callable[[np.ndarray], np.ndarray]
QUERIES = 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--k", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--kinds", nargs="*", default=["hnsw", "ivf", "ivfpq"])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    started = now()
    rows, queries = made(args.rows, args.width)
    truth = sorted_fp64(rows, queries, args.k)
    built: dict[str, float] = {}
    candidates = answers(rows, args.k, args.kinds, built)
    times: dict[str, dict[str, float]] = {name: {"one": np.inf, "together": np.inf} for name in candidates}
    recall = {}
    for _ in range(args.rounds):
        for name, answer in candidates.items():
            alone = clocked(lambda answer=answer: [answer(query[None]) for query in queries])
            together = clocked(lambda answer=answer: answer(queries))
            times[name]["one"] = min(times[name]["one"], 1e3 * alone / QUERIES)
            times[name]["together"] = min(times[name]["together"], 1e3 * together / QUERIES)
            recall[name] = recalled(answer(queries), truth)
    result = {
        "rows": args.rows,
        "width": args.width,
        "k": args.k,
        "ms_a_query": {n: {kind: round(ms, 3) for kind, ms in t.items()} for n, t in times.items()},
        "recall": recall,
        "build_s": {name: round(seconds, 2) for name, seconds in built.items()},
        **provenance(started),
    }
    show(result, args.out, round(times["exact"]["one"], 2))


def made(n: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows in 300 clusters around a common direction; queries near some of them."""
    draw = np.random.default_rng(0)
    centres = draw.standard_normal((300, width), np.float32) + draw.standard_normal(width, np.float32)
    rows = centres[draw.integers(0, 300, n)] + draw.standard_normal((n, width), np.float32)
    chosen = draw.choice(n, QUERIES, replace=False)
    return rows, rows[chosen] + 0.5 * draw.standard_normal((QUERIES, width), np.float32)


def answers(rows: np.ndarray, k: int, kinds: list[str], built: dict[str, float]) -> dict[str, Answer]:
    """Every candidate, its index built and timed."""
    sources = {"exact": rows, "exact_fp16": rows.astype(np.float16)}
    searches = {name: Search(source) for name, source in sources.items()}
    searches |= {kind: Search(rows, kind=kind) for kind in kinds}
    for name, search in searches.items():
        built[name] = clocked(lambda search=search: search.find(rows[:1], 1))
    found: dict[str, Answer] = {
        name: lambda queries, search=search: search.find(queries, k).ids for name, search in searches.items()
    }
    whole = torch.from_numpy(rows)
    norms = whole.square().sum(1)

    def product(queries: np.ndarray) -> np.ndarray:
        return (norms - 2 * (torch.from_numpy(queries) @ whole.T)).topk(k, dim=1, largest=False).indices.numpy()

    found["torch"] = product
    if kinds:
        import faiss

        flat = faiss.IndexFlatL2(rows.shape[1])
        flat.add(rows)
        found["faiss_flat"] = lambda queries: flat.search(np.ascontiguousarray(queries), k)[1]
    return found


def clocked(run: Callable[[], Any]) -> float:
    """CPU seconds of one call."""
    start = time.process_time()
    run()
    return time.process_time() - start


def sorted_fp64(rows: np.ndarray, queries: np.ndarray, k: int) -> np.ndarray:
    """The true k nearest of each query."""
    wide = rows.astype(np.float64)
    return np.stack(
        [np.argsort(((wide - query) ** 2).sum(1), kind="stable")[:k] for query in queries.astype(np.float64)]
    )


def recalled(found: np.ndarray, truth: np.ndarray) -> float:
    """The share of the true neighbours that were found."""
    shares = [len(np.intersect1d(one, true)) / len(true) for one, true in zip(found, truth, strict=True)]
    return round(float(np.mean(shares)), 4)


if __name__ == "__main__":
    main()
