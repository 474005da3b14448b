"""The matrix products of an encoder, back end by back end: how fast they are when the machine is quiet, and usually.

    python benchmarks/products.py [--rounds 40] [--out FILE]

Every back end multiplies the same rows by six different weights in turn, as the blocks of an encoder do, and back ends
take turns, on one thread. Figures are GFLOP/s of the fp32 product at the 1st, 25th, 50th and 75th percentile of the
seconds of a call: where the first is twice the third, something outside this process uses the same units. Prints the
parts as JSON, then one ratio: bf16x3 to plain, each at its median, mean of the shapes.
"""

import argparse
import os
import time
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"

import numpy as np
import torch
from parts import show

from encodeonce.nn.frozen_linear import backends
from encodeonce.report.results import now, provenance

SHAPES = tuple((rows, *sizes) for rows in (256, 768, 2048) for sizes in ((384, 384), (384, 1536), (1536, 384)))
"""Rows, inputs, outputs: MiniLM's products."""
QUANTILES = (0.01, 0.25, 0.5, 0.75)
WEIGHTS = 6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    started = now()
    shapes = {"x".join(map(str, shape)): measure(*shape, args.rounds) for shape in SHAPES}
    ratios = [found["bf16x3"]["0.5"] / found["plain"]["0.5"] for found in shapes.values() if "bf16x3" in found]
    result = {"gflops": shapes, "rounds": args.rounds, "weights": WEIGHTS, **provenance(started)}
    show(result, args.out, round(fmean(ratios), 2) if ratios else 1.0)


def measure(rows: int, inputs: int, outputs: int, rounds: int) -> dict[str, dict[str, float]]:
    """GFLOP/s of each back end that runs here, by percentile of the time."""
    weights, bias = [torch.randn(outputs, inputs) * 0.05 for _ in range(WEIGHTS)], torch.randn(outputs)
    x = torch.randn(rows, inputs)
    known = {**backends("fp32"), **backends("bf16x3"), **backends("bf16")}
    packed: dict[str, list[Any]] = {}
    for name, backend in known.items():
        if missing := backend.missing():
            print(f"{name} cannot run here: {missing}")
            continue
        try:
            packed[name] = [backend.pack(weight, bias) for weight in weights]
            backend.multiply(x.to(backend.takes), packed[name][0])
        except (RuntimeError, OSError, NotImplementedError) as problem:
            print(f"{name} cannot run here: {problem}")
            packed.pop(name, None)
    seconds: dict[str, list[float]] = {name: [] for name in packed}
    for _ in range(rounds):
        for name, weights_of in packed.items():
            for weight in weights_of:
                began = time.perf_counter()
                known[name].multiply(x.to(known[name].takes), weight)
                seconds[name].append(time.perf_counter() - began)
    work = 2 * rows * inputs * outputs / 1e9
    return {
        name: {str(q): round(float(work / np.quantile(taken, q)), 1) for q in QUANTILES}
        for name, taken in seconds.items()
    }


if __name__ == "__main__":
    main()
