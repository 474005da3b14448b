"""Extractive LUMEN with MiniLM on questions, gold passages and retrieved distractors: numbers of docs/methods/lumen.md.

    python experiments/lumen/reading.py [PART...] [--seeds 42,43,44] [--train 3200] [--test 1000] [--passages 2]
                                        [--encoder FOLDER] [--rows rows.jsonl]

Parts: curve (live 0, 1, 2, 3, 6 of 6 blocks at the paper's cut), search (cut and start blocks on dev), best (the
search's choice), timing, ablations (at live = 2), restricted (those of them that store a memory, of the search's
choice), transfer (to reviews), middle (that choice, without a search). Where none is named, curve and best of all seeds
come first, with search and timing, which are of the first seed alone; then ablations and the rest. A row of
rows.jsonl is one number of one run; runs whose rows are there are not run again, and a run that was stopped goes on.
Checkpoints that no later run starts from are deleted. Rows of other sizes or of another encoder belong into another
file; one of 12 blocks has the same shares live. One thread. Needs the data folder beside the project, the packaged
MiniLM and bm25s.
"""

import argparse
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from trial import SETTINGS, Made, fitted, made, scored, write

from encodeonce.corpus.questions import read_questions
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.encoders.quickstart import quickstart_folder
from encodeonce.methods.lumen import Design, Lumen, carry, export
from encodeonce.nn.linear import fastest_compute
from encodeonce.report.results import latest, now, read_rows
from encodeonce.retrieval.bm25 import BM25
from encodeonce.train.settings import Settings
from encodeonce.types import Passage, Question

HERE = Path(__file__).parent
DATA = HERE.parents[1] / ".." / "shared" / "data" / "qa"
WORK = HERE.parents[1] / ".work" / "lumen"
WORDS = 130
SOURCE = ("squadshifts_new_wiki", "squad_sample")
TARGET = ("squadshifts_amazon",)
BLOCKS = 6
"""Of the packaged encoder; what follows is in its blocks, and is stretched for an encoder of more."""
CURVE = (6, 0, 2, 3, 1)
TRANSFERRED = (2, 6)
SEARCH: tuple[dict[str, Any], ...] = (
    {"cut": 4, "blocks": (2, 3)},
    {"cut": 4, "blocks": (3, 4)},
    {"cut": 3, "blocks": (3, 4)},
    {"cut": 3, "blocks": (2, 3)},
    {"cut": 4, "blocks": (1, 2)},
    {"cut": 5, "blocks": (3, 4)},
    {"cut": 2, "blocks": (2, 3)},
    {"cut": 4, "blocks": (2, 3), "layers": (2, 4, 6)},
)
MIDDLE = SEARCH[6]
"""What the search chose, for other sizes."""
ABLATIONS: tuple[dict[str, Any], ...] = (
    {"live": 2, "question_encoder": "frozen"},
    {"live": 2, "attention": "no_mem2q"},
    {"live": 2, "attention": "no_q2mem"},
    {"live": 2, "memory": "conditioned"},
    {"live": 2, "memory": "finetuned"},
)


RESTRICTIONS: tuple[dict[str, Any], ...] = (
    {"attention": "no_mem2q"},
    {"attention": "no_q2mem"},
    {"question_encoder": "frozen"},
)


def settings(seed: int) -> Settings:
    """As in the first trials."""
    return replace(
        SETTINGS,
        encoder_learning_rate=3e-4,
        num_train_epochs=2,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=16,
        weight_decay=0.01,
        seed=seed,
    )


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Corpus:
    """Questions by split, each with its own passage and those that BM25 finds beside it."""

    def __init__(self, names: Sequence[str], passages: int, train: int, test: int) -> None:
        self.name = "+".join(names)
        every = [q for name in names for q in read_questions(DATA / name / "questions.jsonl.gz")]
        kept = [q for q in every if len(q.passages[0].text.split()) <= WORDS]
        pool = {p.id: p for q in kept for p in q.passages}
        near = self.found(kept, list(pool.values()), passages)
        self.splits: dict[str, list[Question]] = {"train": [], "dev": [], "test": []}
        for question in sorted(kept, key=lambda q: digest(q.id + q.text)):
            others = [i for i in near[question.id] if i != question.passages[0].id][: passages - 1]
            given = sorted([question.passages[0].id, *others], key=lambda i: digest(question.id + i))
            whole = replace(question, passages=tuple(pool[i] for i in given))
            self.splits[str(question.meta["split"])].append(whole)
        self.splits["train"] = self.splits["train"][:train]
        self.splits["dev"] = self.splits["dev"][: test * 2 // 5]
        self.splits["test"] = self.splits["test"][:test]

    def found(self, questions: Sequence[Question], pool: Sequence[Passage], k: int) -> Mapping[str, list[str]]:
        """Passage ids by question id; kept in a file, since searching takes longer than reading."""
        path = WORK / f"found-{self.name}-{k}.json"
        if not path.exists():
            hits = BM25(pool).find([q.text for q in questions], k + 1)
            path.parent.mkdir(parents=True, exist_ok=True)
            found = {q.id: [hit.passage for hit in own] for q, own in zip(questions, hits, strict=True)}
            path.write_text(json.dumps(found))
        return json.loads(path.read_text())


def variant(options: Mapping[str, Any], more: str = "") -> str:
    """What sets a run apart, as rows write it."""

    def written(value: Any) -> str:
        return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)

    return " ".join([*(f"{key}={written(value)}" for key, value in options.items()), *([more] if more else [])])


def stretched(options: Mapping[str, Any], times: int) -> dict[str, Any]:
    """The same shares of an encoder of `times` as many blocks."""

    def longer(name: str, value: Any) -> Any:
        if name == "blocks":
            return tuple(times * block + i for block in value for i in range(times))
        if name == "layers":
            return tuple(times * view for view in value)
        return times * value if name in ("live", "cut") else value

    return {name: longer(name, value) for name, value in options.items()}


class Runs:
    """Trains what has no row yet."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments, self.encoder = arguments, Path(arguments.encoder or quickstart_folder())
        self.blocks = Pretrained(self.encoder).n_blocks
        if self.blocks % BLOCKS:
            raise SystemExit(f"{self.encoder} has {self.blocks} blocks; the designs are for multiples of {BLOCKS}.")
        times = self.blocks // BLOCKS
        self.curve_lives, self.transferred = (tuple(times * n for n in own) for own in (CURVE, TRANSFERRED))
        self.searched, self.ablated = (tuple(stretched(o, times) for o in own) for own in (SEARCH, ABLATIONS))
        self.middle_design = stretched(MIDDLE, times)
        self.seeds = [int(seed) for seed in arguments.seeds.split(",")]
        self.path = Path(arguments.rows)
        self.name = self.encoder.name if arguments.encoder else "all-MiniLM-L6-v2"
        self.sizes = f"--train {arguments.train} --test {arguments.test} --passages {arguments.passages}"
        for row in read_rows(self.path):
            if row.encoder != self.name or not (row.command or "").endswith(self.sizes):
                raise SystemExit(
                    f"{self.path} holds rows of {row.encoder} and {row.command!r}; these would be of {self.name} and "
                    f"{self.sizes}. Name another file: --rows FILE"
                )
        self.corpora: dict[tuple[tuple[str, ...], int], Corpus] = {}

    def corpus(self, names: tuple[str, ...], train: int) -> Corpus:
        if (names, train) not in self.corpora:
            self.corpora[names, train] = Corpus(names, self.arguments.passages, train, self.arguments.test)
        return self.corpora[names, train]

    def design(self, options: Mapping[str, Any]) -> Design:
        return Design(embeddings="frozen", question_pieces=32, compute=fastest_compute(), **options)

    def made(self, options: Mapping[str, Any], corpus: Corpus, seed: int, folder: Path | None = None) -> Made:
        return made(self.design(options), folder or self.encoder, corpus.splits, seed, WORK)

    def run(
        self,
        options: Mapping[str, Any],
        seed: int,
        split: str = "test",
        more: str = "",
        start: Lumen | None = None,
        folder: Path | None = None,
        names: tuple[str, ...] = SOURCE,
        train: int | None = None,
        keep: bool = False,
    ) -> None:
        """One run and its rows, unless they are there; `keep` its checkpoint."""
        corpus = self.corpus(names, train or self.arguments.train)
        label = variant(options, more)
        if self.is_there(label, seed, split, names):
            return
        began = now()
        one = self.made(options, corpus, seed, folder)
        if start is not None:
            carry(start, one.method)
        home = self.home(corpus, label, seed)
        scores, rest = scored(one, settings(seed), split, home)
        rest |= {"started": began, "command": f"python experiments/lumen/reading.py --seeds {seed} {self.sizes}"}
        self.write(corpus, options, label, {name: scores[name] for name in ("exact_match", "f1")}, **rest)
        if not keep:
            shutil.rmtree(home)
        em, f1 = scores["exact_match"], scores["f1"]
        print(f"{corpus.name} {split} seed {seed} {label}: EM {em:.1f} F1 {f1:.1f}", flush=True)

    def is_there(self, label: str, seed: int, split: str = "test", names: tuple[str, ...] = SOURCE) -> bool:
        """Whether the run has its rows."""
        wanted = (label, seed, split, "+".join(names))
        return any((r.variant, r.seed, r.split, r.dataset) == wanted for r in read_rows(self.path))

    def write(
        self, corpus: Corpus, options: Mapping[str, Any], label: str, values: Mapping[str, float | None], **rest: Any
    ) -> None:
        """The rows of one run, all at once: a value a metric."""
        live = options.get("live", len(options.get("blocks", ())))
        who = {"dataset": corpus.name, "encoder": self.name, "variant": label}
        write(self.path, live, self.blocks, values, **who, **rest)

    def home(self, corpus: Corpus, label: str, seed: int) -> Path:
        """Where a run keeps its checkpoint."""
        own = self.arguments
        count = len(corpus.splits["train"])
        return WORK / "runs" / digest(f"{corpus.name} {count} {own.test} {own.passages} {label} {seed}")[:12]

    def curve(self, seed: int) -> None:
        for live in self.curve_lives:
            self.run({"live": live}, seed, keep=live in self.transferred)

    def search(self, seed: int) -> None:
        """Once a design, whatever the seed."""
        tried = {r.variant for r in read_rows(self.path) if r.split == "dev"}
        for options in self.searched:
            if variant(options) not in tried:
                self.run(options, seed, split="dev", keep=True)

    def best(self, seed: int) -> None:
        """The search's choice; then none of its checkpoints is needed any more."""
        self.run(self.chosen(), seed)
        for options in self.searched:
            shutil.rmtree(self.home(self.corpus(SOURCE, self.arguments.train), variant(options), seed), True)

    def chosen(self) -> Mapping[str, Any]:
        own = [r for r in latest(read_rows(self.path)) if r.split == "dev" and r.metric == "exact_match"]
        if len(own) < len(self.searched):
            raise SystemExit(f"{len(own)} of {len(self.searched)} designs were tried: run the part search first.")
        best = max(own, key=lambda r: r.value).variant
        return next(options for options in self.searched if variant(options) == best)

    def middle(self, seed: int) -> None:
        self.run(self.middle_design, seed)

    def restricted(self, seed: int) -> None:
        for restriction in RESTRICTIONS:
            self.run({**self.chosen(), **restriction}, seed)

    def ablations(self, seed: int) -> None:
        for options in self.ablated:
            self.run(options, seed, keep=options.get("memory") == "finetuned")

    def transfer(self, seed: int) -> None:
        """At most 1,000 of the reviews' questions, started afresh, from live blocks, and from a trained memory too."""
        target: dict[str, Any] = {"names": TARGET, "train": min(1000, self.arguments.train)}
        for live in self.transferred:
            options = {"live": live}
            self.run(options, seed, more="transfer=none", **target)
            if not self.is_there(variant(options, "transfer=live"), seed, names=TARGET):
                source = self.trained(options, seed)
                self.run(options, seed, more="transfer=live", start=source, **target)
            if live < self.blocks and not self.is_there(variant(options, "transfer=memory"), seed, names=TARGET):
                whole = self.trained({**options, "memory": "finetuned"}, seed)
                folder = WORK / f"trained-{self.name}-{live}-{seed}"
                export(whole, self.design(options).encoder(self.encoder), folder)
                self.run(options, seed, more="transfer=memory", start=whole, folder=folder, **target)

    def trained(self, options: Mapping[str, Any], seed: int) -> Lumen:
        """A run's model, from its checkpoint where it is done."""
        self.run(options, seed, keep=True)
        corpus = self.corpus(SOURCE, self.arguments.train)
        one = self.made(options, corpus, seed)
        fitted(one, settings(seed), self.home(corpus, variant(options), seed))
        return one.method

    def timing(self, seed: int, repeats: int = 7) -> None:
        """Once, whatever the seed: a training step and an answering pass over one batch of 16 questions, the designs in
        turn: CPU seconds, minima; as a ratio to FiD."""
        best = variant(self.chosen())
        if any(r.split == "timing" and r.variant == best for r in read_rows(self.path)):
            return
        designs = [{"live": live} for live in self.curve_lives] + [o for o in self.searched if variant(o) == best]
        corpus = self.corpus(SOURCE, self.arguments.train)
        steps = [step for options in designs for step in [self.step(options, corpus)]]
        taken: list[list[tuple[float, float]]] = [[] for _ in designs]
        for _ in range(repeats):
            for own, step in zip(taken, steps, strict=True):
                own.append(step())
        least = [(min(a for a, _ in own), min(b for _, b in own)) for own in taken]
        for options, (train, answer) in zip(designs, least, strict=True):
            ratios = {"train_ratio": 100 * train / least[0][0], "answer_ratio": 100 * answer / least[0][1]}
            self.write(
                corpus,
                options,
                variant(options),
                ratios,
                seed=None,
                split="timing",
                train_s_per_batch=train,
                infer_s_per_batch=answer,
                started=now(),
                command=f"python experiments/lumen/reading.py timing {self.sizes}",
            )
            print(f"{variant(options)} {ratios}", flush=True)

    def step(self, options: Mapping[str, Any], corpus: Corpus) -> Any:
        """A function that gives the seconds of one step and of one answering pass."""
        one = self.made(options, corpus, 42)
        method = one.method
        batch = next(method.batches(one.splits["train"], size=16, order=None))
        parameters = [p for own in method.groups("answer").values() for p in own]
        optimiser = torch.optim.AdamW(parameters, lr=1e-6, fused=True)

        def once() -> tuple[float, float]:
            method.train()
            began = time.process_time()
            optimiser.zero_grad(set_to_none=True)
            method.loss(batch).backward()
            optimiser.step()
            middle = time.process_time()
            method.eval()
            with torch.no_grad():
                method.predict(batch)
            return middle - began, time.process_time() - middle

        once()
        return once


def cells(seeds: Sequence[int], wanted: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Parts with their seeds, the most telling first."""
    every = [(part, seeds[0]) for part in ("curve", "search", "best", "timing")]
    every += [(part, seed) for seed in seeds[1:] for part in ("curve", "best")]
    every += [(part, seed) for part in ("ablations", "restricted", "transfer", "middle") for seed in seeds]
    if strange := sorted(set(wanted) - {part for part, _ in every}):
        raise SystemExit(f"no part {strange[0]!r}; there is {', '.join(dict.fromkeys(part for part, _ in every))}.")
    yield from (cell for cell in every if not wanted or cell[0] in wanted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*")
    parser.add_argument("--seeds", default="42,43,44")
    parser.add_argument("--train", type=int, default=3200)
    parser.add_argument("--test", type=int, default=1000)
    parser.add_argument("--passages", type=int, default=2)
    parser.add_argument("--encoder", default="")
    parser.add_argument("--rows", default=str(HERE / "rows.jsonl"))
    runs = Runs(parser.parse_args())
    torch.set_num_threads(1)
    for part, seed in cells(runs.seeds, runs.arguments.parts):
        getattr(runs, part)(seed)


if __name__ == "__main__":
    main()
