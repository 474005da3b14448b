"""Kill -9 at random moments of an encoding pass: does a resumed store end byte-equal to an undisturbed one?

    python benchmarks/kills.py FILE.conllu [--times 10] [--sentences 4000] [--seed 13] [--out FILE]

Encodes FILE's first sentences once undisturbed with the packaged MiniLM, by the command line, in a process of its own.
Then, each time in a new folder: starts the same, kills it without warning at a moment drawn uniformly from the
undisturbed run's length, runs the command again, and compares every file's name and bytes. Prints the moments, what a
killed process left, and the outcome as JSON; last, how many of the stores were byte-equal.
"""

import argparse
import gzip
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from parts import show

from encodeonce.report.results import now, provenance


def first_sentences(path: Path, count: int) -> str:
    """The beginning of a CoNLL-U file, which may be compressed."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        return "\n\n".join(lines.read().split("\n\n")[:count]) + "\n\n"


def command(corpus: Path, store: Path) -> list[str]:
    """The encoding pass."""
    return [
        sys.executable,
        "-m",
        "encodeonce",
        "encode",
        "--encoder",
        "all-MiniLM-L6-v2",
        str(corpus),
        "-o",
        str(store),
    ]


def run(corpus: Path, store: Path) -> float:
    """To its end; wall seconds."""
    began = time.perf_counter()
    subprocess.run(command(corpus, store), check=True, capture_output=True)
    return time.perf_counter() - began


def digests(store: Path) -> dict[str, str]:
    """Name -> SHA-256 of every file."""
    return {
        str(path.relative_to(store)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(store.rglob("*"))
        if path.is_file()
    }


def killed(corpus: Path, store: Path, seconds: float) -> dict[str, float | bool]:
    """Start, kill after `seconds`; what was there then."""
    process = subprocess.Popen(command(corpus, store), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        process.wait(seconds)
        ended = True
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        ended = False
    left = sum(path.stat().st_size for path in store.rglob("*") if path.is_file()) if store.exists() else 0
    return {"after_s": round(seconds, 2), "ended_before": ended, "left_mb": round(left / 1e6, 1)}


def main() -> None:
    """Parse, run, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--sentences", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=13)
    parser.add_argument("--out")
    options = parser.parse_args()
    started, drawn = now(), random.Random(options.seed)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        corpus = folder / "corpus.conllu"
        corpus.write_text(first_sentences(Path(options.file), options.sentences), encoding="utf-8")
        length = run(corpus, folder / "whole")
        expected, trials = digests(folder / "whole"), []
        for number in range(options.times):
            store = folder / f"killed-{number}"
            trial = killed(corpus, store, drawn.uniform(0, length))
            run(corpus, store)
            trials.append({**trial, "byte_equal": digests(store) == expected})
            print(json.dumps(trials[-1]), file=sys.stderr, flush=True)
    equal = sum(bool(trial["byte_equal"]) for trial in trials)
    parts = {"undisturbed_s": round(length, 2), "files": len(expected), "trials": trials, "byte_equal": equal}
    show(parts | provenance(started), options.out, f"{equal} of {options.times}")


if __name__ == "__main__":
    main()
