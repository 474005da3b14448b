"""A million documents (synthetic ids): seconds and memory of drawing triplets by category and by concepts.

python benchmarks/sampler.py            # writes benchmarks/results/sampler.json
"""

import json
import resource
import time
from pathlib import Path

import numpy as np

from encodeonce.methods.fastdoc.sampling import triplets
from encodeonce.methods.fastdoc.similarity import SharedGroup
from encodeonce.report.results import now, provenance

N, TRIPLETS = 10**6, 20_000


def main() -> None:
    started = now()
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
    Path(__file__).with_name("results").joinpath("sampler.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
