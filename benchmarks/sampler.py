"""A million documents (synthetic ids): seconds and memory of drawing triplets by category and by concepts.

python benchmarks/sampler.py [--out results.json]
"""

import argparse
import resource
import time
from pathlib import Path

import numpy as np
from parts import show

from encodeonce.methods.fastdoc.sampling import triplets
from encodeonce.methods.fastdoc.similarity import SharedGroup
from encodeonce.report.results import now, provenance

N, TRIPLETS = 10**6, 20_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    args, started = parser.parse_args(), now()
    generator, found = np.random.default_rng(0), {}
    for name, each, n_groups in (("category", 1, 5_000), ("concepts", 3, 20_000)):
        owner, group = np.repeat(np.arange(N), each), generator.integers(0, n_groups, each * N)
        wall, cpu = time.perf_counter(), time.process_time()
        sample = triplets(SharedGroup(np.arange(N), owner, group), TRIPLETS, seed=0)
        found[name] = {
            "triplets": len(sample.tuples),
            "seconds": round(time.perf_counter() - wall, 2),
            "cpu_seconds": round(time.process_time() - cpu, 2),
        }
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    result = {"documents": N, "rules": found, "peak_mb": round(peak), **provenance(started)}
    show(result, args.out, result["peak_mb"])


if __name__ == "__main__":
    main()
