"""One command from documents with a category column to an exported encoder: 2,000 triplets of ten-sentence documents.

    python benchmarks/pretrain.py DOCUMENTS.jsonl [--set KEY=VALUE ...]     # writes benchmarks/results/pretrain.json

Documents are arXiv-like lines with text and category_path; abstracts of one category are joined until they have ten
sentences. Threads are as the environment says (the target is ten minutes on two cores). Encoder: minilm-mlm where
--set encoder= names it, sentence encoder: the packaged one.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from encodeonce.corpus import read
from encodeonce.corpus.taxonomy import path_of
from encodeonce.corpus.text import with_sentences
from encodeonce.report.results import surroundings

SENTENCES, TRIPLETS = 10, 2_000


def joined(source: str, target: Path) -> int:
    """Documents of exactly ten sentences, from neighbours of one category path."""
    held: dict[tuple[str, ...], list[str]] = defaultdict(list)
    written = 0
    with target.open("w", encoding="utf-8") as file:
        for document in with_sentences(read(source)):
            path = path_of(document)
            held[path] += document.sentences
            if len(held[path]) >= SENTENCES:
                row = {"sentences": held[path][:SENTENCES], "category_path": list(path)}
                file.write(json.dumps(row) + "\n")
                held[path], written = [], written + 1
    return written


def main(source: str, *changes: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        n = joined(source, folder / "documents.jsonl")
        (folder / "config.toml").write_text(
            'encoder = "quickstart"\nsentence_encoder = "quickstart"\n[data]\ntrain = "documents.jsonl"\n'
            f"[sample]\nn = {TRIPLETS}\ndoubled = false\nn_held_out = 500\n",
            encoding="utf-8",
        )
        command = [
            sys.executable,
            "-m",
            "encodeonce",
            "pretrain",
            str(folder / "config.toml"),
            "-o",
            str(folder / "out"),
        ]
        began = time.perf_counter()
        done = subprocess.run([*command, *changes, "--json"], check=True, stdout=subprocess.PIPE)
        wall = time.perf_counter() - began
        report = json.loads(done.stdout)
    cpu = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = {
        "documents": n,
        "tuples": report["tuples"],
        "command_seconds": round(wall, 1),
        "command_cpu_seconds": round(cpu.ru_utime + cpu.ru_stime, 1),
        "changes": [change for change in changes if change != "--set" and "/" not in change],
        **{key: report[key] for key in ("costs", "held_out")},
        **surroundings(),
    }
    Path(__file__).with_name("results").joinpath("pretrain.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
