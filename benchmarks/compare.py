"""A comparison from nothing that is killed half-way: how long does it take, and does it go on where it was?

    python benchmarks/compare.py FOLDER [--task deprel] [--methods frozen,linear,...] [--epochs 10] [--threads N]
        [--out FILE]

FOLDER holds the files *-train.conllu, *-dev.conllu and *-test.conllu of a treebank, compressed or not. `encodeonce
compare` encodes all of it with the packaged MiniLM and trains every method on one task with one seed. As soon as half
of the methods are finished the process is killed without warning, and the same command is given again. Prints seconds
of both parts, wall and CPU, what was finished then, and the scores, as JSON; last, the wall seconds of both parts
together, kill and second start included; the goal is 300. As many threads as there are cores, unless --threads says.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from parts import show

from encodeonce.cli.config import toml_value
from encodeonce.nn.linear import fastest_compute
from encodeonce.report.results import latest, now, provenance, read_rows


def config(folder: Path, task: str, epochs: int) -> str:
    """What is compared: the whole treebank, views as they are stored by default."""
    files = {
        split: next(iter(sorted(folder.resolve().glob(f"*-{split}.conllu*")))) for split in ("train", "dev", "test")
    }
    lines = [f"{split} = {toml_value(str(path))}" for split, path in files.items()]
    return "\n".join(
        [
            'encoder = "quickstart"',
            'store = "states"',
            f"tasks = {toml_value([task])}",
            "[data]",
            *lines,
            "[adapter]",
            f"compute = {toml_value(fastest_compute())}",
            "[train]",
            "learning_rate = 4e-3",
            f"num_train_epochs = {epochs}",
        ]
    )


def finished(report: Path) -> list[str]:
    """The methods with a score on test, in the order in which they ended."""
    return list(dict.fromkeys(row.method for row in read_rows(report / "results.jsonl") if row.split == "test"))


def part(command: Sequence[str], report: Path, threads: int, enough: Callable[[], bool]) -> dict[str, Any]:
    """Run until the end, or until it is enough and then kill it; seconds, and what was finished then."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
    while process.poll() is None and not enough():
        time.sleep(0.05)
    process.kill()
    process.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    wall = time.perf_counter() - began
    return {
        "status": process.returncode,
        "wall_s": round(wall, 1),
        "cpu_s": round(cpu, 1),
        "finished": finished(report),
    }


def main() -> None:
    """Parse, run, kill, run again, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--task", default="deprel")
    parser.add_argument("--methods", default="frozen,linear,fusion,adapted")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--out")
    options = parser.parse_args()
    started, half = now(), len(options.methods.split(",")) // 2
    with tempfile.TemporaryDirectory() as scratch:
        path, report = Path(scratch) / "config.toml", Path(scratch) / "report"
        path.write_text(config(options.folder, options.task, options.epochs), encoding="utf-8")
        command = [sys.executable, "-m", "encodeonce", "compare", str(path), "-o", str(report)]
        command += ["--methods", options.methods, "--seeds", "1"]
        killed = part(command, report, options.threads, lambda: len(finished(report)) >= half)
        left = (report / "results.jsonl").read_bytes()
        print(json.dumps(killed), file=sys.stderr, flush=True)
        resumed = part(command, report, options.threads, lambda: False)
        kept = (report / "results.jsonl").read_bytes().startswith(left[: left.rfind(b"\n") + 1])
        rows = [row for row in latest(read_rows(report / "results.jsonl")) if row.split == "test"]
    parts = {
        "task": options.task,
        "epochs": options.epochs,
        "compare_threads": options.threads,
        "killed": killed,
        "resumed": resumed,
        "finished_rows_kept": kept,
        "test": {row.method: row.value for row in rows},
        "encode_s": next(iter({row.encode_s for row in rows if row.encode_s is not None}), None),
        "wall_s": round(killed["wall_s"] + resumed["wall_s"], 1),
        "cpu_s": round(killed["cpu_s"] + resumed["cpu_s"], 1),
    }
    show(parts | provenance(started), options.out, f"{parts['wall_s']} s")


if __name__ == "__main__":
    main()
