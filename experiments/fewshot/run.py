"""16-shot classification: 15 tasks, five seeds, every baseline, control and `fewshot` itself; a row a cell, resumable.

    python experiments/fewshot/run.py METHOD... [--tasks sst2,mr] [--seeds 13,21] [--test-size 1000] [--steps 40]
    python experiments/fewshot/run.py METHOD... --full [--epochs 3]
    python experiments/fewshot/run.py --config experiments/fewshot/roberta-large.toml [--dry-run]
    python experiments/fewshot/run.py --table

Training examples are LM-BFF's own samples. A method's name says what it learns from: "probe" from the 16 a class of
train, with dev (16 more a class) choosing its ridge; "finetune" likewise, dev choosing the epoch; "probe+dev",
"finetune+dev" from train and dev together, nothing chosen. `fewshot` gets both and chooses by cross-validation. Names
of `methods.fewshot.PROBES` are probes and controls; "prompt", "prompt+dev", "concat" (the 8 nearest texts before each,
"concat.N": N of them) and "mlm_head" train the small masked language model. Unlabelled texts are training texts of the
task without labels, sample and test texts left out.

Fusion inside the encoder is "fused.NAME" over fine-tuned MiniLM and "fused-prompt.NAME" over the prompt, NAME one of
`methods.refusion.FUSINGS`, with ":random", ":shuffled" or ":constant" for a control, then settings of `Fusing` and
the metric after commas ("fused.add:random,k=8,slots=query/value,metric=cosine"). Dev searches the architecture, where
there is one, and the last epoch counts; else dev chooses it. A search gives two rows from one training: the likeliest
scheme of each module, and ("...,ending=soft") the mixture as it was trained.

Groups: "vectors" (all probes and controls), "tuned", "prompts", "fused", "fused-prompts", "fused-tables" (the paper's
Tables 3, 8, 9 and 10: queries, neighbours, slots, metric; the plain mean everywhere, whose effect no search hides),
"numbers" (its Figure 1: more and more retrievals, added or laid before the text), "all".

Without `--tasks` ten of the 15 are run (`recipe.TEN`). With `--full` all training texts are learned from instead of
16 a label, but for a tenth as dev (the paper's Table 7).
"squad" is extractive question answering from 16 questions (its Table 11), by finetune and fused only.

A configuration changes any field of `Recipe`: other checkpoints (T5 writes its labels), the optimiser, low-rank terms.
`--dry-run` reads data, prompts and settings, counts cells and steps, checks label words and widths where the
checkpoints are here, and trains nothing.

Rows go to rows.jsonl beside this file; cells that are there are not run again. `value` is the task's score (accuracy,
Matthews for CoLA, F1 for MRPC); times are CPU seconds of one thread. Needs the data folder beside the project.
"""

import argparse
import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import compress, product
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from recipe import Recipe, recipe_of
from samples import Cell, samples_of
from tables import table

from encodeonce.batching import Cut, Source
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.encoders.prompter import Prompter
from encodeonce.encoders.quickstart import quickstart_folder
from encodeonce.integrations._fused import Neighbourhood
from encodeonce.integrations._material import TextVectors, content, copies
from encodeonce.integrations._tuned import fits_window
from encodeonce.integrations.few_shot import FewShot
from encodeonce.methods.fewshot import PROBES, Probe, generated, prompted
from encodeonce.methods.fewshot.probe import RIDGES
from encodeonce.methods.fewshot.prompted import source_of
from encodeonce.methods.finetune import Finetune, Tuning
from encodeonce.methods.refusion import CONTROLS, FUSINGS, Fusing, Refusion, Retrieved, instead, refusion
from encodeonce.methods.refusion.near import same, texts_of
from encodeonce.metrics.few_shot import task_score
from encodeonce.prompts import known
from encodeonce.report.results import ResultsRow, append_row, now, read_rows, surroundings
from encodeonce.report.table import aligned
from encodeonce.resolve import nearest
from encodeonce.store.search import METRICS
from encodeonce.tasks import Task, named
from encodeonce.train.evaluate import predicted
from encodeonce.train.fit import fit
from encodeonce.train.upper import Upper
from encodeonce.types import Document

HERE = Path(__file__).parent
ROWS = HERE / "rows.jsonl"
GROUPS = {
    "vectors": [name + part for name in PROBES if name != "cosine" for part in ("", "+dev")],
    "tuned": ["finetune", "finetune+dev"],
    "prompts": ["prompt", "prompt+dev", "mlm_head", "concat"],
    "fused": [
        *(f"fused.{name}" for name in FUSINGS),
        *(f"fused.{name}:{control}" for name in ("refusion", "add") for control in CONTROLS),
    ],
    "fused-prompts": [
        *(f"fused-prompt.{name}" for name in ("refusion", "convex", "release", "reranker", "mask", "add")),
        *(f"fused-prompt.add:{control}" for control in CONTROLS),
    ],
}
GROUPS["fused-tables"] = [
    *(f"fused.add,k={k}" for k in (1, 4, 16, 256)),
    *(f"fused.add,slots={slots}" for slots in ("query", "key", "value", "query/key/value", "feed_forward")),
    *(f"fused.add,metric={metric}" for metric in ("ip", "cosine")),
    "fused.add,queries=hidden",
]
GROUPS["numbers"] = [f"fused-prompt.add,k={k}" for k in (1, 4, 16, 256)] + [f"concat.{n}" for n in (1, 2, 4, 16)]
GROUPS["all"] = [*GROUPS["vectors"], *GROUPS["tuned"], "fewshot", *GROUPS["prompts"], *GROUPS["fused"]]
MASKED_METHODS = ("prompt", "concat", "mlm_head", "fused-prompt")
SOFT = ",ending=soft"
Answers = dict[str, list[Any]]
"""Answers on test: "" as the method is named, `SOFT` those of a searched fusion's other ending."""


@cache
def vectors(encoder: str) -> TextVectors:
    return TextVectors(pretrained(encoder), HERE / "states")


@cache
def pretrained(name: str) -> Pretrained:
    """A checkpoint; "" is the packaged MiniLM."""
    return Pretrained(name or quickstart_folder(), compute="bf16")


def classes(cell: Cell) -> list[str]:
    return sorted({document.meta["label"] for document in cell.train})


def one_hot(documents: Sequence[Document], labels: list[str]) -> np.ndarray:
    return np.eye(len(labels))[[labels.index(document.meta["label"]) for document in documents]]


def by_probe(cell: Cell, name: str, both: bool) -> list[str]:
    """Probes and controls; with train alone, dev chooses the ridge under which its labels are likeliest."""
    labels, probe = classes(cell), PROBES[name]
    encoded = vectors(cell.recipe.encoder)
    corpus = encoded(cell.unlabelled)
    keys = [content(document) for document in cell.unlabelled]

    def said(trained: Any, documents: list[Document]) -> np.ndarray:
        own: np.ndarray = trained.probabilities(encoded(documents), copies(documents, keys))
        return own

    def learned(probe: Probe, documents: list[Document]) -> Any:
        return probe.train(encoded(documents), one_hot(documents, labels), corpus, copies(documents, keys))

    if both:
        best = learned(probe, [*cell.train, *cell.dev])
    else:
        gold = one_hot(cell.dev, labels)
        tried = [learned(replace(probe, ridge=ridge), cell.train) for ridge in reversed(RIDGES)]
        best = max(tried, key=lambda own: (gold * np.log(np.maximum(said(own, cell.dev), 1e-12))).sum())
    return [labels[index] for index in said(best, cell.test).argmax(1)]


def by_tuning(cell: Cell, both: bool, model: Pretrained, fusion: str = "") -> Answers:
    """Fine-tuning with a classification head over the mean of all pieces; of questions, with a head that finds the
    answer, and those that are too long with their passage are left out of training and answered by nothing."""
    shown = cell
    if cell.task == "squad":
        parts = {name: getattr(cell, name) for name in ("train", "dev", "test")}
        fitting = {name: list(compress(own, fits_window(model, own))) for name, own in parts.items()}
        shown = replace(cell, **fitting)
    train = [*shown.train, *shown.dev] if both else shown.train
    task = named("label", kind="answer_spans" if cell.task == "squad" else "classification").learn(train)
    spec = model.spec()
    source = Cut(spec, model.cut(everyone(shown)))
    tuning = Tuning("finetune", dropout=0.0, compute="bf16")
    method = Finetune.build(tuning, model, spec, [task], cell.seed, read_ahead=0)
    rates = {"learning_rate": cell.recipe.head_rate, "encoder_learning_rate": cell.recipe.encoder_rate}
    found = learned(shown, both, method, source, task, fusion, **rates)
    keys = [document.key for document in shown.test]
    by_key = {ending: dict(zip(keys, answers, strict=True)) for ending, answers in found.items()}
    return {ending: [own.get(document.key, ()) for document in cell.test] for ending, own in by_key.items()}


def everyone(cell: Cell) -> list[Document]:
    """All that is read, equal documents once."""
    return list({d.key: d for d in [*cell.train, *cell.dev, *cell.test]}.values())


def learned(
    cell: Cell, both: bool, plain: Finetune, source: Source, task: Task, fusion: str, **rates: float
) -> Answers:
    """Trained, and answers on test; with train alone, dev chooses the epoch, or searches the architecture of a fusion:
    what the search has fitted chooses nothing more."""
    method, upper = plain, None
    if fusion:
        fusing, control, metric = fusing_of(fusion)
        near = Neighbourhood.of(cell.unlabelled, vectors(cell.recipe.encoder), metric).near(everyone(cell), fusing.k)
        hidden = near.search if fusing.queries == "hidden" else None
        if hidden is not None and control:
            raise SystemExit(f"{fusion}: a control stands in the place of neighbours found before, queries=input.")
        source = Retrieved(source, instead(control, near, cell.seed) if control else near)
        method = refusion(plain, fusing, near.search.width, search=hidden, seed=cell.seed)
        rates = {**rates, "inside_learning_rate": cell.recipe.inside_rate}
        if fusing.searched and both:
            raise SystemExit(f"{fusion}+dev: the search needs dev for itself.")
        if fusing.searched:
            rate, decay = cell.recipe.architecture_rate, cell.recipe.architecture_decay
            upper = Upper(method.read(source, cell.dev, [task]), learning_rate=rate, weight_decay=decay)
    train = [*cell.train, *cell.dev] if both else cell.train
    read = {
        name: method.read(source, own, [task])
        for name, own in (("train", train), ("dev", cell.dev), ("test", cell.test))
    }
    settings = cell.recipe.settings(cell.seed, len(train), **rates)
    dev = None if both or upper is not None or not cell.recipe.best_epoch else read["dev"]
    fit(method, read["train"], {"label": task}, settings, dev=dev, upper=upper)
    found = {"": [answer["label"] for answer in predicted(method, read["test"])[0]]}
    if isinstance(method, Refusion) and method.fusion.fusing.searched and method.ending == "argmax":
        method.ending = "soft"
        found[SOFT] = [answer["label"] for answer in predicted(method, read["test"])[0]]
    return found


def fusing_of(text: str) -> tuple[Fusing, str, str]:
    """NAME[:CONTROL][,SETTING=VALUE]...: the fusion, the control and the metric."""
    name, *settings = text.split(",")
    name, colon, control = name.partition(":")
    refuse_unknown("fusion", name, FUSINGS)
    if colon:
        refuse_unknown("control", control, CONTROLS)
    values = {"metric": "l2", **dict(one.partition("=")[::2] for one in settings)}
    metric, own = values.pop("metric"), FUSINGS[name]
    refuse_unknown("metric", metric, METRICS)
    changes = {}
    for key, value in values.items():
        refuse_unknown("setting", key, own.to_json())
        kind = type(getattr(own, key))
        changes[key] = tuple(value.split("/")) if kind is tuple else kind(value)
    return replace(own, **changes), control, metric


def refuse_unknown(what: str, name: str, known: Iterable[str]) -> None:
    """SystemExit for a word of a method's name that is none of these."""
    names = list(known)
    if name not in names:
        raise SystemExit(f"{what} {name!r} is not known. There is: {', '.join(names)}.{nearest(name, names)}")


def by_prompt(cell: Cell, both: bool, texts_before: int = 0, fusion: str = "") -> Answers:
    """The masked language model with the task's prompt; with texts before it, its nearest unlabelled ones."""
    model, train = pretrained(cell.recipe.masked), [*cell.train, *cell.dev] if both else cell.train
    prompter = prompter_of(model, cell.task, 512 if texts_before else None)
    piece = "document" if prompter.written else "document-words"
    task = named("label", kind="classification", piece=piece).learn(train)
    if prompter.written and cell.recipe.lora_rank:
        raise SystemExit(f"lora_rank={cell.recipe.lora_rank}: a model that writes its labels is trained whole; give 0.")
    if prompter.written:
        method = generated(model, prompter, task, compute="bf16")
    else:
        lora = (cell.recipe.lora_rank, cell.recipe.lora_alpha) if cell.recipe.lora_rank else None
        method = prompted(model, prompter, task, compute="bf16", lora=lora)
    before = neighbours(cell, everyone(cell), texts_before) if texts_before else ()
    source = source_of(model, prompter, everyone(cell), before)
    return learned(cell, both, method, source, task, fusion, learning_rate=cell.recipe.encoder_rate)


def prompter_of(model: Pretrained, task: str, window: int | None = None) -> Prompter:
    """The task's prompt for this checkpoint, with `window` for inputs as long as that."""
    written = model.family == "t5"
    prompt = known(written)[task]
    if window is not None:
        prompt = replace(prompt, max_pieces=window)
    return model.prompter(prompt, window, written=written)


def neighbours(cell: Cell, documents: list[Document], k: int) -> list[list[str]]:
    """The k texts that fusion would add for each document's first text: the nearest unlabelled ones, none its own."""
    among = Neighbourhood.of(cell.unlabelled, vectors(cell.recipe.encoder))
    shown = {same(text): text for document in reversed(cell.unlabelled) for text in reversed(texts_of(document))}
    names = list(among.rows)
    return [[shown[names[row]] for row in line] for line in among.near(documents, k).ids[:, 0].tolist()]


def by_fewshot(cell: Cell) -> list[str]:
    """The estimator, on train and dev, with the unlabelled texts; its folds stand in the log."""

    def shown(documents: list[Document]) -> list[Any]:
        return [(d.text, d.pair) if d.pair else d.text for d in documents]

    encoder, steps = pretrained(cell.recipe.encoder), cell.recipe.steps
    model = FewShot(encoder, store=HERE / "states", steps=steps, seed=cell.seed)
    labelled = [*cell.train, *cell.dev]
    model.fit(shown(labelled), [d.meta["label"] for d in labelled], unlabelled=shown(cell.unlabelled))
    with (HERE / "chosen.jsonl").open("a") as file:
        values = {"task": cell.task, "seed": cell.seed, "chosen": dict(model.mixture_.weights), "said": model.summary()}
        file.write(json.dumps(values) + "\n")
    return [str(one) for one in model.predict(shown(cell.test))]


def method_of(name: str) -> Callable[[Cell], Answers]:
    """What answers a cell. SystemExit for a name that has none."""
    base, plus, part = name.partition("+")
    base, dot, fusion = base.partition(".")
    both = part == "dev"
    if plus and base == "fewshot":
        raise SystemExit(f"{name}: fewshot learns from train and dev as it is; leave the ending out.")
    if plus:
        refuse_unknown("what is learned from", part, ["dev"])
    if base in ("fused", "fused-prompt"):
        fusing_of(fusion)
    elif dot and not (base == "concat" and fusion.isdecimal() and int(fusion)):
        raise SystemExit(f"{name}: {base} takes nothing behind a dot{' but a number' if base == 'concat' else ''}.")
    if base in PROBES:
        return lambda cell: {"": by_probe(cell, base, both)}
    methods: dict[str, Callable[[Cell], Answers]] = {
        "finetune": lambda cell: by_tuning(cell, both, pretrained(cell.recipe.encoder)),
        "mlm_head": lambda cell: by_tuning(cell, both, pretrained(cell.recipe.masked)),
        "prompt": lambda cell: by_prompt(cell, both),
        "concat": lambda cell: by_prompt(cell, both, texts_before=int(fusion or 8)),
        "fused": lambda cell: by_tuning(cell, both, pretrained(cell.recipe.encoder), fusion),
        "fused-prompt": lambda cell: by_prompt(cell, both, fusion=fusion),
        "fewshot": lambda cell: {"": by_fewshot(cell)},
    }
    refuse_unknown("method", base, [*methods, *PROBES, *GROUPS])
    return methods[base]


def cells(recipe: Recipe) -> Iterator[tuple[str, Cell, tuple[Any, ...]]]:
    """Method, cell and the key of its row, for all that is not in rows.jsonl yet."""
    done = {row.cell for row in read_rows(ROWS)}
    for task in recipe.tasks:
        own = list(samples_of(task, recipe))
        for name, cell in product(recipe.methods, own):
            base = re.split(r"[+.]", name)[0]
            if task == "squad" and base not in ("finetune", "fused"):
                raise SystemExit(f"{name}: questions are answered by finetune and fused, with a head that finds spans.")
            prompts = base in MASKED_METHODS
            encoder = Path(recipe.masked).name if prompts else recipe.encoder or "all-MiniLM-L6-v2"
            variant = recipe.variant(len(cell.unlabelled))
            key = ("fewshot", task, task, encoder, name, variant, cell.seed, "test", metric_of(task))
            if key not in done:
                yield name, cell, key


def rehearse(recipe: Recipe) -> None:
    """What would be trained, checked as far as it can be without training."""
    here = {name: not name or Path(name, "config.json").is_file() for name in (recipe.encoder, recipe.masked)}
    widths = {pretrained(name).width for name, found in here.items() if found}
    fuses = [name for name in recipe.methods if name.startswith("fused-prompt.")]
    if len(widths) > 1 and fuses:
        raise SystemExit(f"{recipe.encoder or 'MiniLM'} and {recipe.masked} differ in width: {fuses[0]} cannot add.")
    counted: dict[tuple[str, str], list[int]] = {}
    for name, cell, _ in cells(recipe):
        n = len(cell.train) + (len(cell.dev) if name.endswith("+dev") else 0)
        settings = recipe.settings(cell.seed, n)
        counted.setdefault((name, cell.task), []).append(settings.num_train_epochs * -(-n // recipe.batch))
    if here[recipe.masked]:
        for task in set(recipe.tasks) & set(known()):
            prompter_of(pretrained(recipe.masked), task)
    lines = [[name, task, str(len(own)), str(own[0])] for (name, task), own in counted.items()]
    print(aligned(["method", "task", "cells", "steps each"], lines))
    absent = [name for name, found in here.items() if not found]
    print(f"{sum(map(len, counted.values()))} cells, {sum(map(sum, counted.values()))} steps.")
    print(f"not here, so not checked: {', '.join(absent)}." if absent else "label words and widths fit.")


def metric_of(task: str) -> str:
    """The score that the task is published under."""
    return "f1" if task == "squad" else known()[task].metric


def score_of(cell: Cell, answers: list[Any]) -> float:
    """Of answers on the test, in order."""
    if cell.task == "squad":
        task = named("answer_spans")
        return float(task.score(task.gold(cell.test), answers)["f1"] or 0)
    prompt = known()[cell.task]
    return task_score([d.meta["label"] for d in cell.test], answers, prompt.metric, prompt.positive)


def run(recipe: Recipe) -> None:
    for name, cell, key in cells(recipe):
        began, wall = time.process_time(), now()
        found = method_of(name)(cell)
        seconds = round(time.process_time() - began, 2)
        for ending, answers in found.items():
            row = ResultsRow(
                *(*key[:4], key[4] + ending, key[5]),
                seed=cell.seed,
                split="test",
                metric=metric_of(cell.task),
                value=score_of(cell, answers),
                n=len(cell.test),
                started=wall,
                command=cell.recipe.command(key[4], cell.task, cell.seed),
                train_s_total=seconds,
                **surroundings(),
            )
            append_row(ROWS, row)
            print(f"{cell.task} {row.method} {cell.seed}: {row.value:.1f} ({seconds} s)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*")
    parser.add_argument("--config", type=Path)
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--tasks")
    parser.add_argument("--seeds")
    parser.add_argument("--test-size", type=int)
    parser.add_argument("--unlabelled-size", type=int)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    shown = logging.StreamHandler()  # what fusions and controls add, module by module, how many texts fit; no epochs
    shown.addFilter(lambda record: record.levelno > logging.INFO or record.module in ("refusion", "prompter"))
    logging.basicConfig(format="%(message)s", handlers=[shown])
    logging.getLogger("encodeonce").setLevel(logging.INFO)
    torch.set_num_threads(1)
    recipe = recipe_of(args, GROUPS)
    for name in recipe.methods:
        method_of(name)
    if args.dry_run:
        rehearse(recipe)
    else:
        run(recipe)
    if args.table:
        table(ROWS)


if __name__ == "__main__":
    main()
