"""Generative LUMEN with a T5.1.1 from scratch, on a built task in which a passage must be read with the question.

    python experiments/lumen/chains.py [--seeds 42,43,44] [--questions 6000] [--pretraining 12000] [--epochs 5]
                                       [--rows chains.jsonl]

A passage says of six people what they have: "ana has a red key . bob has a blue cup ...". A question names one of them
and asks who else has a thing of the same colour: there is one, and nothing in the passage says which of the six will be
asked about. Another passage is about others. First the whole T5 learns, once, to restore words left out of passages and
to say what somebody named has; then the encoder is cut. The memory is what it was after that; question encoder, live
blocks and decoder are trained. A row of chains.jsonl is one number of one run; what is there is not run again. Rows of
other sizes belong into another file. One thread.
"""

import argparse
import json
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from encodeonce.encoders.t5_decoder import T5Decoder
from encodeonce.methods.lumen import Design, Lumen, export, passage_document
from encodeonce.metrics.answers import AnswerScorer
from encodeonce.report.results import ResultsRow, append_row, now, read_rows, surroundings
from encodeonce.store import Store
from encodeonce.train.evaluate import evaluate
from encodeonce.train.fit import fit
from encodeonce.train.settings import Settings
from encodeonce.types import Answer, Passage, Question

HERE = Path(__file__).parent
WORK = HERE.parents[1] / ".work" / "chains"
SYLLABLES = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
COLOURS = ["red", "blue", "green", "white", "black", "brown", "pink", "grey", "gold", "silver", "violet", "orange"]
THINGS = ["key", "cup", "box", "hat", "ring", "book", "lamp", "coat", "bell", "drum", "rope", "sail", "coin", "shoe"]
WORDS = ["has", "a", ".", "who", "like", "what", "is", "missing", "restore", "gap"]
PEOPLE, PER_PASSAGE, PASSAGES, CURVE = 60, 6, 2, (6, 0, 2, 3, 1)


def names() -> list[str]:
    order = random.Random(0)
    return sorted({"".join(order.sample(SYLLABLES, 2)) for _ in range(PEOPLE * 2)})[:PEOPLE]


def base(folder: Path) -> None:
    """A tokenizer of whole words and a T5.1.1 of random weights: 6 encoder blocks and 2 decoder blocks of width 128."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = ["<pad>", "</s>", "<unk>", *names(), *COLOURS, *THINGS, *WORDS]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    marks = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=backend, **marks).save_pretrained(folder)
    sizes = {"d_model": 128, "num_layers": 6, "num_decoder_layers": 2, "num_heads": 4, "d_kv": 32, "d_ff": 344}
    T5Decoder.shaped(folder, seed=0, vocab_size=len(vocabulary), dropout_rate=0.0, **sizes)


def passage(number: int, order: random.Random, people: Sequence[str]) -> tuple[Passage, dict[str, str]]:
    """Six people in three pairs of one colour; what each one's pair is."""
    chosen, colours = list(people), order.sample(COLOURS, PER_PASSAGE // 2)
    order.shuffle(chosen)
    colour_of = {name: colours[i // 2] for i, name in enumerate(chosen)}
    pair_of = {name: chosen[i ^ 1] for i, name in enumerate(chosen)}
    order.shuffle(chosen)
    text = " . ".join(f"{name} has a {colour_of[name]} {order.choice(THINGS)}" for name in chosen)
    return Passage(f"p{number}", "", text + " ."), pair_of


def asked(count: int, seed: int) -> list[Question]:
    """Questions with two passages each, of which one is about the person asked for."""
    order, everyone = random.Random(seed), names()
    found = []
    for number in range(count):
        people = order.sample(everyone, PASSAGES * PER_PASSAGE)
        groups = [people[i : i + PER_PASSAGE] for i in range(0, len(people), PER_PASSAGE)]
        made = [passage(1_000_000 * seed + PASSAGES * number + i, order, group) for i, group in enumerate(groups)]
        name = order.choice(groups[0])
        passages = [one for one, _ in made]
        order.shuffle(passages)
        found.append(Question(f"{seed}-{number}", f"who is like {name}", (Answer(made[0][1][name]),), tuple(passages)))
    return found


def taught(count: int, seed: int) -> list[Question]:
    """Passages with three words left out and these as the answer; in turn with what somebody has."""
    order, everyone = random.Random(seed), names()
    found = []
    for number in range(count):
        whole, _ = passage(number, order, order.sample(everyone, PER_PASSAGE))
        words = whole.text.split()
        if number % 2:
            name = words[6 * order.randrange(PER_PASSAGE)]
            at = words.index(name)
            asking, answer, shown = f"what has {name}", f"{words[at + 3]} {words[at + 4]}", words
        else:
            gaps = sorted(order.sample(range(len(words)), 3))
            asking, answer = "restore", " ".join(words[i] for i in gaps)
            shown = ["gap" if i in gaps else word for i, word in enumerate(words)]
        found.append(Question(f"t{number}", asking, (Answer(answer),), (Passage(f"t{number}", "", " ".join(shown)),)))
    return found


def settings(seed: int, epochs: int) -> Settings:
    """AdamW at a constant rate after the paper's schedule; the rate is one for small models."""
    return Settings(
        learning_rate=1e-3,
        num_train_epochs=epochs,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=64,
        optim="adamw",
        lr_scheduler_type="linear",
        warmup_ratio=0.05,
        max_grad_norm=1.0,
        seed=seed,
        save_steps=100,
    )


def pretrained(count: int) -> Path:
    """The T5 that restores and says who has what; trained once."""
    start, folder = WORK / "base", WORK / f"pretrained-{count}"
    if not (folder / "config.json").exists():
        base(start)
        design = Design(live=6, reader="generate", question_pieces=8, longest_answer=5)
        encoder = design.encoder(start)
        method = Lumen.build(design, encoder)
        examples = method.read(taught(count, 7), encoder)
        done = fit(method, examples, {}, settings(7, 3), folder=WORK / f"pretraining-{count}")
        (WORK / "pretraining.json").write_text(json.dumps({"seconds": done.seconds, "epochs": done.epochs}))
        export(method, encoder, partly := folder.with_suffix(".part"))
        partly.rename(folder)
    return folder


def run(options: dict[str, Any], seed: int, arguments: argparse.Namespace) -> None:
    label = " ".join(f"{key}={value}" for key, value in options.items())
    rows = read_rows(arguments.rows)
    sizes = " ".join(f"--{name} {getattr(arguments, name)}" for name in ("questions", "pretraining", "epochs"))
    if other := next((row for row in rows if not (row.command or "").endswith(sizes)), None):
        raise SystemExit(f"{arguments.rows} holds rows of {other.command!r}, not of {sizes}: name another, --rows FILE")
    if any(row.variant == label and row.seed == seed for row in rows):
        return
    began, design = now(), Design(reader="generate", question_pieces=8, longest_answer=3, **options)
    encoder = design.encoder(pretrained(arguments.pretraining))
    method = Lumen.build(design, encoder, seed=seed)
    splits = {"train": asked(arguments.questions, 1), "dev": asked(300, 2), "test": asked(500, 3)}
    store, stored = None, list(method.plan.stored)
    if stored:
        store = Store.open(
            WORK / f"memory-{arguments.pretraining}-{stored[0]}", encoder.spec(stored, method.plan.dtype)
        )
        store.fill([passage_document(p) for own in splits.values() for q in own for p in q.passages], encoder)
    read = {split: method.read(own, encoder, store) for split, own in splits.items()}
    home = WORK / "runs" / "-".join([label, str(seed), *sizes.split()[1::2]])
    scorers = {"answer": AnswerScorer()}
    done = fit(method, read["train"], scorers, settings(seed, arguments.epochs), dev=read["dev"], folder=home)
    found = evaluate(method, read["test"], scorers, 64)
    value = found.scores["answer"]["exact_match"]
    assert value is not None
    row = ResultsRow(
        experiment="lumen",
        dataset="chains",
        task="answer",
        encoder="t5.1.1-6x128",
        method="memory-fid" if options["live"] == 0 else "fid" if options["live"] == 6 else "lumen",
        variant=label,
        seed=seed,
        split="test",
        metric="exact_match",
        value=value,
        n=found.n,
        train_s_per_batch=done.seconds_per_batch,
        train_s_total=done.seconds,
        infer_s_per_batch=found.seconds_per_batch,
        params_trainable=done.parameters["total"],
        started=began,
        command=f"python experiments/lumen/chains.py --seeds {seed} {sizes}",
        **surroundings(),
    )
    append_row(arguments.rows, row)
    print(f"seed {seed} {label}: EM {value:.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="42,43,44")
    parser.add_argument("--questions", type=int, default=6000)
    parser.add_argument("--pretraining", type=int, default=12000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rows", type=Path, default=HERE / "chains.jsonl")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for seed in map(int, arguments.seeds.split(",")):
        for live in CURVE:
            run({"live": live}, seed, arguments)


if __name__ == "__main__":
    main()
