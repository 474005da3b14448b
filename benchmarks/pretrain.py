"""One command from documents with a category column to an exported encoder: 2,000 triplets of ten-sentence documents.

    python benchmarks/pretrain.py DOCUMENTS.jsonl [--set KEY=VALUE ...] [--pace] [--out results.json]

Documents are arXiv-like lines with text and category_path; abstracts of one category are joined until they have ten
sentences. Threads are as the environment says (the target is ten minutes on two cores). Encoder: minilm-mlm where
--set encoder= names it, sentence encoder: the packaged one.

--pace measures its two parts alone, for a machine that is not quiet: CPU seconds, least of the repeats, of encoding a
sentence and of training on a document (forward, backward, optimiser; 96 documents of ten sentences), with one thread
and with two, and adds up what the command does of each. Reading, cutting, scoring and export are not in it.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from parts import show

from encodeonce.corpus import read
from encodeonce.corpus.taxonomy import path_of
from encodeonce.corpus.text import with_sentences
from encodeonce.encoders.pooled import Pooled
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.methods.fastdoc.examples import DocumentBatch
from encodeonce.methods.fastdoc.fastdoc import FastDoc
from encodeonce.methods.fastdoc.objective import Objective
from encodeonce.methods.fastdoc.sampling import triplets
from encodeonce.methods.fastdoc.similarity import SharedGroup
from encodeonce.nn.packed import Packed
from encodeonce.report.results import now, provenance
from encodeonce.types import Document

SENTENCES, TRIPLETS, HELD_OUT = 10, 2_000, 500
BATCH, ENCODED, REPEATS = 96, 96, 3


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


def whole(source: str, changes: list[str]) -> dict[str, Any]:
    """The command itself, timed from outside, and what it reports."""
    started = now()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        n = joined(source, folder / "documents.jsonl")
        (folder / "config.toml").write_text(
            'encoder = "quickstart"\nsentence_encoder = "quickstart"\noptions = { compute = "bf16" }\n'
            '[data]\ntrain = "documents.jsonl"\n'
            f"[sample]\nn = {TRIPLETS}\ndoubled = false\nn_held_out = {HELD_OUT}\n",
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
        settings = [part for change in changes for part in ("--set", change)]
        done = subprocess.run([*command, *settings, "--json"], check=True, stdout=subprocess.PIPE)
        wall = time.perf_counter() - began
        report = json.loads(done.stdout)
    cpu = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "documents": n,
        "tuples": report["tuples"],
        "command_seconds": round(wall, 1),
        "command_cpu_seconds": round(cpu.ru_utime + cpu.ru_stime, 1),
        "changes": [change for change in changes if "/" not in change],
        **{key: report[key] for key in ("costs", "held_out")},
        **provenance(started),
    }


def pace(source: str) -> dict[str, Any]:
    """Both parts with one thread and with two, and the sum for the whole command."""
    started = now()
    with tempfile.TemporaryDirectory() as name:
        joined(source, Path(name) / "documents.jsonl")
        documents = list(with_sentences(read(Path(name) / "documents.jsonl")))
    groups = [[" > ".join(path_of(document))] for document in documents]
    keys = [document.key for document in documents]
    train = [int(key[:8], 16) >= 0.1 * 16**8 for key in keys]
    used = 0
    for side, n in ((True, TRIPLETS), (False, HELD_OUT)):
        own = [i for i, inside in enumerate(train) if inside is side]
        rule = SharedGroup.of([keys[i] for i in own], [groups[i] for i in own])
        used += len(np.unique(triplets(rule, n, 42 if side else 0).tuples))
    some = [sentence for document in documents[:: len(documents) // 40] for sentence in document.sentences][:ENCODED]
    base = Pretrained("quickstart", overlap=0)
    rows = Pooled(Pretrained(base.path, compute="bf16x3"))
    cut = rows.cut([Document(str(n), sentences=(sentence,)) for n, sentence in enumerate(some)])
    method = FastDoc(base.stack(), Objective.named("both", compute="bf16"), (9, 16, 113))
    lengths = (SENTENCES,) * BATCH
    vectors = torch.randn(1, sum(lengths), base.width)
    batch = DocumentBatch(lengths, torch.zeros(3, BATCH // 3, 3, dtype=torch.long), Packed(vectors, lengths))
    optimiser = torch.optim.AdamW([p for p in method.parameters() if p.requires_grad], lr=1e-6, fused=True)

    def step() -> None:
        optimiser.zero_grad()
        method.losses(batch, ["encoder"])["encoder"].backward()
        optimiser.step()

    found: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
    for repeat in range(REPEATS + 1):
        for threads, taken in found.items():
            torch.set_num_threads(threads)
            began = time.process_time()
            list(rows.encode(cut))
            between = time.process_time()
            step()
            if repeat:
                taken.append(((between - began) / len(some), (time.process_time() - between) / BATCH))
    sums = {}
    for threads, taken in found.items():
        sentence, visit = (min(column) for column in zip(*taken, strict=True))
        once, training = sentence * used * SENTENCES, visit * 3 * TRIPLETS
        sums[str(threads)] = {
            "cpu_seconds_a_sentence": sentence,
            "cpu_seconds_a_visit": visit,
            "encode_cpu_seconds": once,
            "train_cpu_seconds": training,
            "minutes_on_quiet_cores": (once + training) / threads / 60,
        }
    torch.set_num_threads(1)
    return {
        "documents": used,
        "sentences": used * SENTENCES,
        "pieces_a_sentence": sum(len(text) for one in cut for text in one.texts) / len(some),
        "visits": 3 * TRIPLETS,
        "compute": {"encode": "bf16x3", "train": "bf16"},
        "by_threads": sums,
        "all": {str(threads): taken for threads, taken in found.items()},
        **provenance(started),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents")
    parser.add_argument("--set", action="append", default=[], dest="changes", metavar="KEY=VALUE")
    parser.add_argument("--pace", action="store_true")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.pace:
        result = pace(args.documents)
        figure = result["by_threads"]["2"]["minutes_on_quiet_cores"]
    else:
        result = whole(args.documents, args.changes)
        figure = result["command_seconds"] / 60
    show(result, args.out, f"{figure:.1f} minutes")


if __name__ == "__main__":
    main()
