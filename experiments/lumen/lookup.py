"""Generative LUMEN with a T5.1.1 from scratch, on a built task in which a passage must be read with the question.

    python experiments/lumen/lookup.py [--seeds 42,43,44] [--questions 6000] [--pretraining 90000] [--epochs 5]
                                       [--rows lookup.jsonl]

A passage says which colour each of six people has: "ana red bob blue ...". A question names one person and asks for the
colour; another passage, about others, is given with the right one. Nothing in a passage says who will be asked about,
and a decoder of one block asks the passages before it has read the question: only blocks that see both can look up.
First the whole T5 learns, once, to say all that a passage says and to answer questions on one passage; then the encoder
is cut. The memory is what it was after that; question encoder, live blocks and decoder are trained. A row of
lookup.jsonl is one number of one run; what is there is not run again. Rows of other sizes belong into another file. One
thread.
"""

import argparse
import json
import os
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from trial import SETTINGS, made, scored, write

from encodeonce.encoders.t5_decoder import T5Decoder
from encodeonce.methods.lumen import Design, Lumen, export
from encodeonce.report.results import now, read_rows
from encodeonce.train.fit import fit
from encodeonce.train.settings import Settings
from encodeonce.types import Answer, Passage, Question

HERE = Path(__file__).parent
WORK = HERE.parents[1] / ".work" / "lookup"
SYLLABLES = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
COLOURS = ["red", "blue", "green", "white", "black", "brown", "pink", "grey", "gold", "silver", "violet", "orange"]
WORDS = ["what", "has", "everyone"]
PEOPLE, PER_PASSAGE, PASSAGES = 24, 6, 2
BLOCKS, CURVE = 6, (6, 0, 2, 3, 1)
NEIGHBOURS = {0: 1, 1: 17}
"""Heads, and the bucket of relative positions that holds the word before, or the one after."""


def names() -> list[str]:
    order = random.Random(0)
    return sorted({"".join(order.sample(SYLLABLES, 2)) for _ in range(PEOPLE * 2)})[:PEOPLE]


def base(folder: Path) -> None:
    """A tokenizer of whole words and a T5.1.1 of random weights: 6 encoder blocks and 1 decoder block of width 64.

    Two heads of the encoder start at the neighbours of a word. A position bias of 6 is thousands of Adam's steps away
    from its usual start, and until there is one no word knows which colour stands beside it.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast, T5ForConditionalGeneration

    vocabulary = ["<pad>", "</s>", "<unk>", *names(), *COLOURS, *WORDS]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    marks = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=backend, **marks).save_pretrained(folder)
    sizes = {"d_model": 64, "num_layers": BLOCKS, "num_decoder_layers": 1, "num_heads": 4, "d_kv": 16, "d_ff": 128}
    T5Decoder.shaped(folder, seed=0, vocab_size=len(vocabulary), dropout_rate=0.0, **sizes)
    model = T5ForConditionalGeneration.from_pretrained(folder)
    table = model.encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight
    with torch.no_grad():
        table.zero_()
        for head, bucket in NEIGHBOURS.items():
            table[bucket, head] = 6.0
    model.config.tie_word_embeddings = False
    model.save_pretrained(folder)


def passage(number: int, order: random.Random, people: Sequence[str]) -> tuple[Passage, dict[str, str]]:
    """A colour for each of six people, no two the same."""
    owned = dict(zip(people, order.sample(COLOURS, PER_PASSAGE), strict=True))
    return Passage(f"p{number}", "", " ".join(f"{name} {colour}" for name, colour in owned.items())), owned


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
        found.append(Question(f"{seed}-{number}", f"what has {name}", (Answer(made[0][1][name]),), tuple(passages)))
    return found


def taught(count: int, seed: int) -> list[Question]:
    """Questions on one passage: what everyone has, in any order, and in turn what somebody has."""
    order, everyone = random.Random(seed), names()
    found = []
    for number in range(count):
        whole, owned = passage(number, order, order.sample(everyone, PER_PASSAGE))
        told = order.sample(list(owned.items()), PER_PASSAGE)
        name, colour = ("everyone", " ".join(word for pair in told for word in pair)) if number % 2 else told[0]
        found.append(Question(f"t{number}", f"what has {name}", (Answer(colour),), (whole,)))
    return found


def settings(seed: int, epochs: int) -> Settings:
    """The rate is one for small models."""
    return replace(
        SETTINGS,
        num_train_epochs=epochs,
        per_device_train_batch_size=64,
        per_device_eval_batch_size=64,
        warmup_ratio=0.05,
        seed=seed,
    )


def pretrained(count: int) -> Path:
    """The T5 that can say what a passage says; trained once."""
    start, folder = WORK / "base", WORK / f"pretrained-{count}"
    if not (folder / "config.json").exists():
        base(start)
        design = Design(live=BLOCKS, reader="generate", question_pieces=8, longest_answer=2 * PER_PASSAGE + 1)
        encoder = design.encoder(start)
        method = Lumen.build(design, encoder)
        examples = method.read(taught(count, 7), encoder)
        done = fit(method, examples, {}, settings(7, 1), folder=WORK / f"pretraining-{count}")
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
    splits = {"train": asked(arguments.questions, 1), "dev": asked(300, 2), "test": asked(500, 3)}
    one = made(design, pretrained(arguments.pretraining), splits, seed, WORK)
    home = WORK / "runs" / "-".join([label, str(seed), *sizes.split()[1::2]])
    scores, rest = scored(one, settings(seed, arguments.epochs), "test", home)
    value = scores["exact_match"]
    assert value is not None
    write(
        arguments.rows,
        options["live"],
        BLOCKS,
        {"exact_match": value},
        dataset="lookup",
        encoder="t5.1.1-6x64",
        variant=label,
        started=began,
        command=f"python experiments/lumen/lookup.py --seeds {seed} {sizes}",
        **rest,
    )
    print(f"seed {seed} {label}: EM {value:.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="42,43,44")
    parser.add_argument("--questions", type=int, default=6000)
    parser.add_argument("--pretraining", type=int, default=90000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rows", type=Path, default=HERE / "lookup.jsonl")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for seed in map(int, arguments.seeds.split(",")):
        for live in CURVE:
            run({"live": live}, seed, arguments)


if __name__ == "__main__":
    main()
