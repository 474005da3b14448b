"""16-shot classification: ten tasks, five seeds, every baseline, control and `fewshot` itself; a row a cell, resumable.

    python experiments/fewshot/run.py METHOD... [--tasks sst2,mr] [--seeds 13,21] [--test-size 1000] [--steps 40]
    python experiments/fewshot/run.py --table

Training examples are LM-BFF's own samples. A method's name says what it learns from: "probe" from the 16 a class of
train, with dev (16 more a class) choosing its ridge; "finetune" likewise, dev choosing the epoch; "probe+dev",
"finetune+dev" from train and dev together, nothing chosen. `fewshot` gets both and chooses by cross-validation. Names
of `methods.fewshot.PROBES` are probes and controls; "prompt", "prompt+dev", "concat" and "mlm_head" train the small
masked language model. Unlabelled texts are training texts of the task without labels, sample and test texts left out.

Fusion inside the encoder is "fused.NAME" over fine-tuned MiniLM and "fused-prompt.NAME" over the prompt, NAME one of
`methods.refusion.FUSINGS`, with ":random", ":shuffled" or ":constant" for a control, then settings of `Fusing` and
the metric after commas ("fused.add:random,k=8,slots=query/value,metric=cosine"). Dev searches the architecture, where
there is one, and chooses the epoch. Groups: "vectors" (all probes and controls), "tuned", "prompts", "fused",
"fused-prompts", "fused-tables" (the paper's Tables 3, 8, 9 and 10: queries, neighbours, slots, metric; the plain mean
everywhere, whose effect no search hides), "all".

Rows go to rows.jsonl beside this file; cells that are there are not run again. `value` is the task's score (accuracy,
Matthews for CoLA, F1 for MRPC); times are CPU seconds of one thread. Needs the data folder beside the project.
"""

import argparse
import gzip
import json
import os
import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from encodeonce.batching import Cut, Source
from encodeonce.cli.quickstart import quickstart_folder
from encodeonce.corpus.k_shot import SEEDS
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.integrations._fused import ARCHITECTURE_RATE, INSIDE_RATE, Neighbourhood
from encodeonce.integrations._material import TextVectors, copies
from encodeonce.integrations.few_shot import FewShot
from encodeonce.methods.fewshot import PROBES, SIDES, Probe, prompted
from encodeonce.methods.fewshot.probe import RIDGES
from encodeonce.methods.fewshot.prompted import source_of
from encodeonce.methods.finetune import Finetune, Tuning
from encodeonce.methods.refusion import CONTROLS, FUSINGS, Fusing, Retrieved, instead, refusion
from encodeonce.metrics.few_shot import Spread, paired, spread, task_score
from encodeonce.prompts import known
from encodeonce.report.results import ResultsRow, append_row, latest, now, read_rows, surroundings
from encodeonce.report.table import aligned
from encodeonce.store.search import Search
from encodeonce.tasks import Task, named
from encodeonce.train.evaluate import predicted
from encodeonce.train.fit import fit
from encodeonce.train.settings import Settings
from encodeonce.train.upper import Upper
from encodeonce.types import Document

HERE = Path(__file__).parent
SHARED = Path(os.environ.get("ENCODEONCE_SHARED", HERE.parents[1] / ".." / "shared"))
DATA, MASKED = SHARED / "data", SHARED / "models" / "minilm-mlm"
ROWS = HERE / "rows.jsonl"
FILES = {
    "sst2": ("glue/sst2_phrases/dev", "text_classification/sst2/train"),
    **{t: (f"text_classification/{t}/test", f"text_classification/{t}/train") for t in ("mr", "cr", "mpqa", "subj")},
    "trec": ("text_classification/trec/test", "text_classification/trec/train"),
    "cola": ("glue/cola/dev", "glue/cola/train"),
    "rte": ("glue/rte/dev", "glue/rte/train"),
    "snli": ("glue/snli/test_sample", "glue/snli/train_sample"),
    "mrpc": ("glue/mrpc/dev", "glue/mrpc/train"),
}
"""Task -> the file it is tested on, the file its unlabelled texts are from."""
GROUPS = {
    "vectors": [name + part for name in PROBES if name != "cosine" for part in ("", "+dev")],
    "tuned": ["finetune", "finetune+dev"],
    "prompts": ["prompt", "prompt+dev", "mlm_head", "concat"],
    "fused": [f"fused.{name}" for name in (*FUSINGS, "add:random", "add:shuffled", "add:constant")],
    "fused-prompts": [f"fused-prompt.{name}" for name in ("refusion", "convex", "add", "add:random", "add:constant")],
}
GROUPS["fused-tables"] = [
    *(f"fused.add,k={k}" for k in (1, 4, 16, 256)),
    *(f"fused.add,slots={slots}" for slots in ("query", "key", "value", "query/key/value", "feed_forward")),
    *(f"fused.add,metric={metric}" for metric in ("ip", "cosine")),
    "fused.add,queries=hidden",
]
GROUPS["all"] = [*GROUPS["vectors"], *GROUPS["tuned"], "fewshot", *GROUPS["prompts"], *GROUPS["fused"]]
MASKED_METHODS = ("prompt", "concat", "mlm_head", "fused-prompt")


@dataclass(frozen=True)
class Cell:
    """One task and seed: labelled documents of train and dev, test, unlabelled documents."""

    task: str
    seed: int
    train: list[Document]
    dev: list[Document]
    test: list[Document]
    unlabelled: list[Document]
    steps: int


def rows_of(name: str) -> list[Document]:
    """A file of the data folder. The one empty text of the samples becomes a full stop."""
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        found = [json.loads(line) for line in file]
    return [
        Document(
            f"{name}:{number}",
            text=row.get("text", row.get("text_a")).strip() or ".",
            pair=row.get("text_b", ""),
            meta={"label": str(row["label"]), "seed": row.get("seed"), "split": row.get("split")},
            place=f"{name}:{number}",
        )
        for number, row in enumerate(found, start=1)
    ]


@cache
def material(task: str, test_size: int, unlabelled_size: int) -> tuple[list[Document], list[Document], list[Document]]:
    """The samples of all seeds, a fixed sample of the test file, unlabelled texts that are in neither."""
    samples = rows_of(f"fewshot_lmbff_k16/{task}")
    test, others = (rows_of(name) for name in FILES[task])
    random.Random(0).shuffle(test)
    random.Random(0).shuffle(others)
    seen = {document.key for document in [*samples, *test]}
    distinct = {d.key: d for d in others if d.key not in seen and d.text.strip()}
    return samples, test[:test_size], list(distinct.values())[:unlabelled_size]


@cache
def vectors() -> TextVectors:
    return TextVectors(minilm(), HERE / "states")


@cache
def minilm() -> Pretrained:
    return Pretrained(quickstart_folder(), compute="bf16")


@cache
def masked() -> Pretrained:
    return Pretrained(MASKED, compute="bf16")


def classes(cell: Cell) -> list[str]:
    return sorted({document.meta["label"] for document in cell.train})


def one_hot(documents: Sequence[Document], labels: list[str]) -> np.ndarray:
    return np.eye(len(labels))[[labels.index(document.meta["label"]) for document in documents]]


def by_probe(cell: Cell, name: str, both: bool) -> list[str]:
    """Probes and controls; with train alone, dev chooses the ridge under which its labels are likeliest."""
    labels, probe = classes(cell), PROBES[name]
    corpus = vectors()(cell.unlabelled)
    keys = [document.key for document in cell.unlabelled]

    def said(trained: Any, documents: list[Document]) -> np.ndarray:
        own: np.ndarray = trained.probabilities(vectors()(documents), copies(documents, keys))
        return own

    def learned(probe: Probe, documents: list[Document]) -> Any:
        return probe.train(vectors()(documents), one_hot(documents, labels), corpus, copies(documents, keys))

    if both:
        best = learned(probe, [*cell.train, *cell.dev])
    else:
        gold = one_hot(cell.dev, labels)
        tried = [learned(replace(probe, ridge=ridge), cell.train) for ridge in reversed(RIDGES)]
        best = max(tried, key=lambda own: (gold * np.log(np.maximum(said(own, cell.dev), 1e-12))).sum())
    return [labels[index] for index in said(best, cell.test).argmax(1)]


def settings_of(cell: Cell, n: int, **rates: float) -> Settings:
    batches = -(-n // 32)
    return Settings(num_train_epochs=max(1, round(cell.steps / batches)), warmup_ratio=0.1, seed=cell.seed, **rates)


def by_tuning(cell: Cell, both: bool, model: Pretrained, fusion: str = "") -> list[str]:
    """Fine-tuning with a classification head over the mean of all pieces."""
    task = named("label", kind="classification").learn([*cell.train, *cell.dev] if both else cell.train)
    spec = model.spec()
    source = Cut(spec, model.cut(everyone(cell)))
    tuning = Tuning("finetune", dropout=0.0, compute="bf16")
    method = Finetune.build(tuning, model, spec, [task], cell.seed, read_ahead=0)
    return learned(cell, both, method, source, task, fusion, learning_rate=2e-3, encoder_learning_rate=1e-4)


def everyone(cell: Cell) -> list[Document]:
    """All that is read, equal documents once."""
    return list({d.key: d for d in [*cell.train, *cell.dev, *cell.test]}.values())


def learned(
    cell: Cell, both: bool, plain: Finetune, source: Source, task: Task, fusion: str, **rates: float
) -> list[str]:
    """Trained, and answers on test; with train alone, dev chooses the epoch, and the architecture of a fusion."""
    method, upper = plain, None
    if fusion:
        fusing, control, metric = fusing_of(fusion)
        near = Neighbourhood.of(cell.unlabelled, vectors(), metric).near(everyone(cell), fusing.k)
        hidden = near.search if fusing.queries == "hidden" else None
        if hidden is None:
            source = Retrieved(source, instead(control, near, cell.seed) if control else near)
        elif control:
            raise SystemExit(f"{fusion}: a control stands in the place of neighbours found before, queries=input.")
        method = refusion(plain, fusing, near.search.width, search=hidden, seed=cell.seed)
        rates = {**rates, "inside_learning_rate": INSIDE_RATE}
        if fusing.searched and both:
            raise SystemExit(f"{fusion}+dev: the search needs dev for itself.")
        if fusing.searched:
            upper = Upper(method.read(source, cell.dev, [task]), learning_rate=ARCHITECTURE_RATE)
    train = [*cell.train, *cell.dev] if both else cell.train
    read = {
        name: method.read(source, own, [task])
        for name, own in (("train", train), ("dev", cell.dev), ("test", cell.test))
    }
    settings = settings_of(cell, len(train), **rates)
    fit(method, read["train"], {"label": task}, settings, dev=None if both else read["dev"], upper=upper)
    return [answer["label"] for answer in predicted(method, read["test"])[0]]


def fusing_of(text: str) -> tuple[Fusing, str, str]:
    """NAME[:CONTROL][,SETTING=VALUE]...: the fusion, the control and the metric."""
    name, *settings = text.split(",")
    name, _, control = name.partition(":")
    values = {"metric": "l2", **dict(one.split("=", 1) for one in settings)}
    metric, own = values.pop("metric"), FUSINGS[name]
    changes = {
        key: tuple(value.split("/")) if isinstance(getattr(own, key), tuple) else type(getattr(own, key))(value)
        for key, value in values.items()
    }
    return replace(own, **changes), control, metric


def by_prompt(cell: Cell, both: bool, texts_before: int = 0, fusion: str = "") -> list[str]:
    """The masked language model with the task's prompt; with texts before it, its nearest unlabelled ones."""
    model, prompt, train = masked(), known()[cell.task], [*cell.train, *cell.dev] if both else cell.train
    prompter = (
        model.prompter(prompt)
        if not texts_before
        else model.prompter(type(prompt)(**{**prompt.to_json(), "max_pieces": 512}), 512)
    )
    task = named("label", kind="classification", piece="document-words").learn(train)
    method = prompted(model, prompter, task, compute="bf16")
    before = neighbours(cell, everyone(cell), texts_before) if texts_before else ()
    source = source_of(model, prompter, everyone(cell), before)
    return learned(cell, both, method, source, task, fusion, learning_rate=1e-4)


def neighbours(cell: Cell, documents: list[Document], k: int) -> list[list[str]]:
    """The texts nearest to each document's first text among the unlabelled ones."""
    corpus, own = vectors()(cell.unlabelled).text[:, -1], vectors()(documents).text[:, -1]
    exclude = copies(documents, [document.key for document in cell.unlabelled])
    ids = Search(corpus, metric="cosine").find(own, k, exclude=exclude).ids
    return [[cell.unlabelled[i].text for i in line] for line in ids]


def by_fewshot(cell: Cell) -> list[str]:
    """The estimator, on train and dev, with the unlabelled texts; its folds stand in the log."""

    def shown(documents: list[Document]) -> list[Any]:
        return [(d.text, d.pair) if d.pair else d.text for d in documents]

    model = FewShot(minilm(), store=HERE / "states", steps=cell.steps, seed=cell.seed)
    labelled = [*cell.train, *cell.dev]
    model.fit(shown(labelled), [d.meta["label"] for d in labelled], unlabelled=shown(cell.unlabelled))
    with (HERE / "chosen.jsonl").open("a") as file:
        values = {"task": cell.task, "seed": cell.seed, "chosen": dict(model.mixture_.weights), "said": model.summary()}
        file.write(json.dumps(values) + "\n")
    return [str(one) for one in model.predict(shown(cell.test))]


def method_of(name: str) -> Callable[[Cell], list[str]]:
    base, _, part = name.partition("+")
    base, _, fusion = base.partition(".")
    both = part == "dev"
    if base in PROBES:
        return lambda cell: by_probe(cell, base, both)
    return {
        "finetune": lambda cell: by_tuning(cell, both, minilm()),
        "mlm_head": lambda cell: by_tuning(cell, both, masked()),
        "prompt": lambda cell: by_prompt(cell, both),
        "concat": lambda cell: by_prompt(cell, both, texts_before=8),
        "fused": lambda cell: by_tuning(cell, both, minilm(), fusion),
        "fused-prompt": lambda cell: by_prompt(cell, both, fusion=fusion),
        "fewshot": by_fewshot,
    }[base]


def run(names: list[str], tasks: list[str], seeds: list[int], args: argparse.Namespace) -> None:
    done = {row.cell for row in read_rows(ROWS)}
    for task in tasks:
        samples, test, unlabelled = material(task, args.test_size, args.unlabelled_size)
        prompt = known()[task]
        for name in names:
            for seed in seeds:
                own = {
                    s: [d for d in samples if (d.meta["seed"], d.meta["split"]) == (seed, s)] for s in ("train", "dev")
                }
                cell = Cell(task, seed, own["train"], own["dev"], test, unlabelled, args.steps)
                encoder = "minilm-mlm" if re.split(r"[+.]", name)[0] in MASKED_METHODS else "all-MiniLM-L6-v2"
                began, wall = time.process_time(), now()
                variant = f"test={args.test_size} unlabelled={len(unlabelled)} steps={args.steps}"
                key = ("fewshot", task, task, encoder, name, variant, seed, "test", prompt.metric)
                if key in done:
                    continue
                answers = method_of(name)(cell)
                value = task_score([d.meta["label"] for d in test], answers, prompt.metric, prompt.positive)
                row = ResultsRow(
                    *key[:6],
                    seed=seed,
                    split="test",
                    metric=prompt.metric,
                    value=value,
                    n=len(test),
                    started=wall,
                    train_s_total=round(time.process_time() - began, 2),
                    **surroundings(),
                )
                append_row(ROWS, row)
                print(f"{task} {name} {seed}: {value:.1f} ({row.train_s_total} s)", flush=True)


def table() -> None:
    """Means over seeds with half the width of their 95 % interval, a line a method; below, fewshot against the better
    of probe and fine-tuning, and each kind of fusion against what it adds to and its controls, paired."""
    rows = latest(read_rows(ROWS))
    found: dict[str, dict[str, dict[int, float]]] = {}
    for row in rows:
        found.setdefault(row.method, {}).setdefault(row.task, {})[int(row.seed or 0)] = row.value
    lines = []
    for name, tasks in found.items():
        means = {t: spread(list(tasks[t].values())) for t in FILES if t in tasks}
        cells = [with_interval(means[t]) if t in means else "" for t in FILES]
        average = sum(one.mean for one in means.values()) / len(means)
        lines.append([name, *cells, f"{average:.2f} of {len(means)}"])
    print(aligned(["method", *FILES, "mean"], lines))
    if {"fewshot", "probe", "finetune"} <= set(found):
        against(found)
    lines = [
        differences(found[name], found[rival], f"{name} - {rival}")
        for name in found
        for rival in rivals(name)
        if rival in found and set(found[rival]) & set(found[name])
    ]
    if lines:
        print()
        print(aligned(["paired difference", "mean", "error", *FILES], lines))


def with_interval(one: Spread) -> str:
    return f"{one.mean:.1f}" if one.half_width is None else f"{one.mean:.1f} ±{one.half_width:.1f}"


def rivals(name: str) -> list[str]:
    """What a method is held against: of fusion what it adds to, and its controls."""
    base, plus, part = name.partition("+")
    kind, _, fusion = base.partition(".")
    if base == "late":
        return [f"{own}{plus}{part}" for own in ("layers", *SIDES) if own != "neighbours"]
    if base == "fewshot":
        return ["probe+dev", "layers+dev", "finetune+dev"]
    if base == "concat":
        return [f"prompt{plus}{part}"]
    if not fusion or ":" in fusion:
        return []
    plain = "prompt" if kind == "fused-prompt" else "finetune"
    head, comma, rest = base.partition(",")
    controls = [f"{head}:{control}{comma}{rest}{plus}{part}" for control in CONTROLS]
    return [f"{plain}{plus}{part}", *([f"{plain}+dev"] if fusion == "release" else []), *controls]


def differences(first: dict[str, dict[int, float]], second: dict[str, dict[int, float]], name: str) -> list[str]:
    """A line: the mean over tasks, its standard error with tasks as what is drawn, and every task's difference."""
    seeds = {task: sorted(set(first[task]) & set(second[task])) for task in FILES if task in first and task in second}
    pairs = [{t: [own[t][s] for s in seeds[t]] for t in seeds if seeds[t]} for own in (first, second)]
    mean, error, by_task = paired(*pairs)
    return [
        name,
        f"{mean:+.2f}",
        "" if error is None else f"{error:.2f}",
        *(f"{by_task[t]:+.1f}" if t in by_task else "" for t in FILES),
    ]


def against(found: dict[str, dict[str, dict[int, float]]]) -> None:
    own, probe, tuned = found["fewshot"], found["probe"], found["finetune"]
    tasks = [t for t in FILES if t in own and t in probe and t in tuned]
    first, second = {}, {}
    for task in tasks:
        seeds = sorted(set(own[task]) & set(probe[task]) & set(tuned[task]))
        better = max((probe[task], tuned[task]), key=lambda scores: sum(scores[s] for s in seeds))
        first[task], second[task] = [own[task][s] for s in seeds], [better[s] for s in seeds]
    mean, error, by_task = paired(first, second)
    doubt = "" if error is None else f" (standard error {error:.2f}, clustered by task)"
    print(f"\nfewshot against the better of probe and finetune of each task: {mean:+.2f}{doubt}")
    print("  ".join(f"{task} {value:+.1f}" for task, value in by_task.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*")
    parser.add_argument("--tasks", default=",".join(FILES))
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    parser.add_argument("--test-size", type=int, default=1000)
    parser.add_argument("--unlabelled-size", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    names = [name for word in args.methods for name in GROUPS.get(word, [word])]
    if names:
        run(names, args.tasks.split(","), [int(seed) for seed in args.seeds.split(",")], args)
    if args.table:
        table()


if __name__ == "__main__":
    main()
