"""A memory of passages: building, asking, adding, removing, and what finds the right passage.

    python benchmarks/memory.py PASSAGES... [--questions FILE...] [--n 10000] [--k 10] [--threads 2] [--vectors]
        [--compute fp32] [--out results.json]

PASSAGES and questions are files that `read_passages` and `read_questions` read. The first --n windows of 100 words are
encoded with the packaged encoder (MiniLM) as a reader with two live blocks needs them: view 4, fp16. The reader is not
trained: it does the same work as a trained one. Measured: seconds and bytes of building; seconds until an `Answerer`
stands ready; seconds of one question, one at a time (wall and CPU; the reader's part and the retriever's); that adding
10 passages leaves every other file as it was, to the byte; removing and `gc`. With --vectors, one vector a passage is
stored too, and retrieval by these stands beside BM25: how often the passage a question was written for is found, and
how often a found one contains the answer. int8 is built over the first 200.

Prints the parts as JSON, then one number: the median wall seconds of a question answered from the whole memory.
"""

import argparse
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from parts import show

from encodeonce.corpus.passages import read_passages
from encodeonce.corpus.questions import read_questions
from encodeonce.corpus.windows import windows
from encodeonce.encoders.pooled import Pooled
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.encoders.quickstart import quickstart_folder
from encodeonce.memory import Memory
from encodeonce.methods.lumen import Design, Lumen
from encodeonce.metrics.retrieval import answer_recall, retrieval_scores
from encodeonce.report.results import now, provenance
from encodeonce.serve.answerer import Answerer, finder
from encodeonce.serve.reader_run import ReaderRun, save_reader
from encodeonce.types import Passage, Question

DESIGN = Design(cut=4, blocks=(2, 3))
KS = (1, 5, 10, 20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("passages", nargs="+", type=Path)
    parser.add_argument("--questions", nargs="*", type=Path, default=[])
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--asked", type=int, default=30)
    parser.add_argument("--scored", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=2, help="of asking; building has one")
    parser.add_argument("--vectors", action="store_true")
    parser.add_argument("--compute", default="fp32", help="arithmetic of the passes that build, as encode's")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = measured(options)
    show(found, options.out, found["ask"]["bm25"]["wall_median_s"])


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Every part, in a folder that goes afterwards."""
    started, began = now(), time.perf_counter()
    pool = windows([one for file in options.passages for one in read_passages(file)])
    held, extra = pool[: options.n], pool[options.n : options.n + 10] or made_up()
    questions = asked_of(held, options.questions)
    with tempfile.TemporaryDirectory() as folder:
        run = reader(Path(folder) / "run", options.compute)
        own = Pretrained(quickstart_folder(), compute=options.compute)
        vectors = Pooled(own, "text", normalize=True) if options.vectors else None
        parts = {
            "passages": len(held),
            "words": sum(len(one.text.split()) for one in held),
            "questions": len(questions),
            "k": options.k,
            "compute": options.compute,
            "build": build(Path(folder) / "run" / "memory", run, held, vectors),
            "int8": int8(Path(folder) / "int8", run, held[:200]),
        }
        torch.set_num_threads(options.threads)
        retrievers = ["bm25", *(["dense"] if options.vectors else [])]
        chosen = questions[:: max(1, len(questions) // options.asked)][: options.asked] or by_words(held, options.asked)
        parts["ask"] = {name: ask(Path(folder) / "run", name, chosen, options.k) for name in retrievers}
        print(json.dumps({key: parts[key] for key in ("build", "ask")}), file=sys.stderr)
        memory = Memory.open(Path(folder) / "run" / "memory", run.spec)
        if questions:
            scored = questions[:: max(1, len(questions) // options.scored)][: options.scored]
            parts["retrieval"] = {name: retrieval(memory, name, scored) for name in retrievers}
        parts["change"] = change(memory, run, extra, vectors)
    seconds = time.perf_counter() - began
    return {**provenance(started), "seconds": seconds, **parts}


def reader(folder: Path, compute: str) -> ReaderRun:
    """An untrained reader, saved."""
    encoder = DESIGN.encoder(quickstart_folder(), compute=compute)
    run = ReaderRun(Lumen.build(DESIGN, encoder), encoder, command="benchmarks/memory.py")
    save_reader(run, folder)
    return run


def build(path: Path, run: ReaderRun, held: Sequence[Passage], vectors: Pooled | None) -> dict[str, Any]:
    """The whole memory."""
    memory = Memory.create(path, run.spec, None if vectors is None else vectors.spec())
    states, wall, cpu = timed(lambda: memory.add(held, run.encoder, vectors))
    info = memory.info()
    return {
        "wall_s": wall,
        "cpu_s": cpu,
        "pieces": states.states.rows,
        "bytes": info["bytes"],
        "bytes_per_passage": info["bytes_per_passage"],
        "states_bytes": info["states"]["bytes"],
        "shards": info["states"]["shards"],
    }


def int8(path: Path, run: ReaderRun, held: Sequence[Passage]) -> dict[str, Any]:
    """A small one in int8 beside the same in fp16."""
    sizes = {}
    for dtype in ("fp16", "int8"):
        memory = Memory.create(path / dtype, run.encoder.spec([4], dtype))
        memory.add(held, run.encoder)
        sizes[dtype] = memory.info()["states"]["bytes"] / len(memory)
    return {"passages": len(held), **{f"{dtype}_bytes_per_passage": size for dtype, size in sizes.items()}}


def ask(folder: Path, name: str, questions: Sequence[Question], k: int) -> dict[str, Any]:
    """One question at a time, after one that is not counted."""
    answerer, load, load_cpu = timed(lambda: Answerer.load(folder, retriever=name, k=k))
    answerer.ask(questions[0])
    rows = []
    for question in questions:
        _, wall, cpu = timed(lambda question=question: answerer.ask(question))
        _, search, _ = timed(lambda question=question: answerer.retriever.find([question.text], k))
        rows.append((wall, cpu, search))
    walls, cpus, searches = zip(*rows, strict=True)
    _, together, together_cpu = timed(lambda: answerer.ask_all(questions))
    return {
        "load_s": load,
        "load_cpu_s": load_cpu,
        "asked": len(questions),
        "wall_least_s": min(walls),
        "wall_median_s": median(walls),
        "wall_most_s": max(walls),
        "cpu_median_s": median(cpus),
        "search_median_s": median(searches),
        "together_wall_s_a_question": together / len(questions),
        "together_cpu_s_a_question": together_cpu / len(questions),
        "wall_s": list(walls),
    }


def retrieval(memory: Memory, name: str, questions: Sequence[Question]) -> dict[str, Any]:
    """How often the passage that a question was written for, or one with an answer in it, is among the first."""
    retriever = finder(memory, name)
    found, wall, _ = timed(lambda: retriever.find([question.text for question in questions], max(KS)))
    ids = [[hit.passage for hit in hits] for hits in found]
    texts = [[memory[one].text for one in own] for own in ids]
    gold = [[answer.text for answer in question.answers] for question in questions]
    windows_of: dict[str, list[str]] = {}
    for passage in memory.passages:
        windows_of.setdefault(passage.source or passage.id, []).append(passage.id)
    relevant = [[one for source in question.relevant for one in windows_of[source]] for question in questions]
    return {
        "wall_s_a_question": wall / len(questions),
        **retrieval_scores(relevant, ids, KS),
        **answer_recall(gold, texts, KS),
    }


def change(memory: Memory, run: ReaderRun, extra: Sequence[Passage], vectors: Pooled | None) -> dict[str, Any]:
    """Ten passages more, then ten fewer."""
    before = digests(memory.path)
    done, wall, cpu = timed(lambda: memory.add(extra, run.encoder, vectors))
    after = digests(memory.path)
    changed = sorted(name for name in before if after.get(name) != before[name])
    removed = [one.id for one in memory.passages[:10]]
    _, remove, _ = timed(lambda: memory.remove(removed))
    still = digests(memory.path)
    freed, gc, _ = timed(memory.gc)
    return {
        "added": done.new,
        "add_wall_s": wall,
        "add_cpu_s": cpu,
        "files_before": len(before),
        "files_changed_by_adding": changed,
        "files_new": sorted(set(after) - set(before)),
        "files_changed_by_removing": sorted(name for name in after if still.get(name) != after[name]),
        "remove_wall_s": remove,
        "gc_wall_s": gc,
        "gc_shards_rewritten": sum(one.rewritten for one in freed),
        "gc_bytes_freed": sum(one.bytes for one in freed),
    }


def digests(folder: Path) -> dict[str, str]:
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def asked_of(held: Sequence[Passage], files: Sequence[Path]) -> list[Question]:
    """Questions whose passages are all in the memory."""
    sources = {one.source or one.id for one in held}
    questions = [question for file in files for question in read_questions(file)]
    return [question for question in questions if question.relevant and set(question.relevant) <= sources]


def by_words(held: Sequence[Passage], count: int) -> list[Question]:
    """Made of the passages' own words, where no questions are given."""
    chosen = held[:: max(1, len(held) // count)][:count]
    return [Question(one.id, " ".join(["what", *one.text.split()[10:18]])) for one in chosen]


def made_up() -> list[Passage]:
    return [Passage(f"more {i}", "", f"one more text, of number {i}, that is not in the memory yet") for i in range(10)]


def timed(action: Callable[[], Any]) -> tuple[Any, float, float]:
    """Result, wall seconds, CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = action()
    return result, time.perf_counter() - wall, time.process_time() - cpu


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
