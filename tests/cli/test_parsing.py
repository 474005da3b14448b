"""Parsing on the command line: trained, scored, and HEAD and DEPREL filled with all else of the file kept."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from encodeonce.corpus import read
from encodeonce.nn.trees import is_tree

Run = Callable[..., Any]
OTHERS = "3-4\tdon't\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No\n"


def sentence(rng: random.Random) -> list[str]:
    """The, animal, verb, (a, place), stop: with a multiword token and an empty node, which are no words."""
    rows = [
        (rng.choice(["the", "a"]), "DET", 2, "det"),
        (rng.choice(["cat", "dog", "bird"]), "NOUN", 3, "nsubj"),
        (rng.choice(["sees", "likes"]), "VERB", 0, "root"),
        (rng.choice(["the", "a"]), "DET", 5, "det"),
        (rng.choice(["tree", "house"]), "NOUN", 3, "obj:loc"),
        (".", "PUNCT", 3, "punct"),
    ]
    lines = [f"{i}\t{w}\t{w}\t{u}\t_\t_\t{h}\t{r}\t_\tX={i}\n" for i, (w, u, h, r) in enumerate(rows, 1)]
    return ["# newpar\n", *lines[:2], OTHERS, *lines[2:5], "5.1\tgone\t_\t_\t_\t_\t_\t_\t3:dep\t_\n", lines[5], "\n"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """train.conllu, dev.conllu, bare.conllu (dev without heads and relations), and a running text."""
    folder, rng = tmp_path_factory.mktemp("trees"), random.Random(1)
    for split, size in (("train", 60), ("dev", 10)):
        text = "".join(line for _ in range(size) for line in sentence(rng))
        (folder / f"{split}.conllu").write_text(text, encoding="utf-8")
    bare = []
    for line in (folder / "dev.conllu").read_text("utf-8").splitlines(keepends=True):
        cells = line.split("\t")
        bare.append("\t".join([*cells[:6], "_", "_", *cells[8:]]) if len(cells) == 10 else line)
    (folder / "bare.conllu").write_text("".join(bare), encoding="utf-8")
    (folder / "new.txt").write_text("the cat sees a house .\n")
    return folder


def test_train_evaluate_and_predict(run: Run, tiny: Path, files: Path, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        f'encoder = "{tiny}"\nstore = "states"\ntasks = ["parsing", "upos"]\nmethod = "linear"\n'
        f'[data]\ntrain = "{files}/train.conllu"\ndev = "{files}/dev.conllu"\n'
        "[task.parsing]\nn_lstm_layers = 1\nlstm_width = 24\narc_width = 32\nrel_width = 16\n"
        "[train]\nnum_train_epochs = 12\nper_device_train_batch_size = 8\nlearning_rate = 0.01\n"
    )
    run("train", "config.toml", "-o", "out")
    shown = run("evaluate", "out", files / "dev.conllu").stdout
    assert "las_universal" in shown
    assert "las_no_punct_form" in shown
    run("predict", "out", files / "bare.conllu", "-o", "found.conllu")
    assert Path("found.conllu").read_bytes() == (files / "dev.conllu").read_bytes()  # all right: gold comes back
    assert all(is_tree([int(head) for head in document.columns["head"]]) for document in read("found.conllu"))
    assert "has not one label a row" in run("inspect", "out", files / "dev.conllu", code=1).stderr
    run("predict", "out", files / "new.txt", "-o", "found.tsv")
    rows = [line.split("\t") for line in Path("found.tsv").read_text("utf-8").splitlines() if line]
    assert [row[0] for row in rows] == ["the", "cat", "sees", "a", "house", "."]
    assert ["2", "3", "0", "5", "3", "3"] in [list(column) for column in zip(*rows, strict=True)]


def test_two_tasks_that_fill_one_column_are_named(run: Run, tiny: Path, files: Path, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        f'encoder = "{tiny}"\nstore = "states"\ntasks = ["parsing", "deprel"]\nmethod = "frozen"\n'
        f'[data]\ntrain = "{files}/train.conllu"\n[task.parsing]\nn_lstm_layers = 0\narc_width = 8\nrel_width = 8\n'
        "[train]\nnum_train_epochs = 1\n"
    )
    run("train", "config.toml", "-o", "out")
    said = run("predict", "out", files / "bare.conllu", "-o", "found.conllu").stderr
    assert "parsing, deprel all fill 'deprel': the answers of deprel stand there" in said
    wrong = ("--set", "task.parsing.lstm_dropout=1.5", "--set", "store=elsewhere")
    assert "dropout=1.5 must lie in [0, 1)" in run("train", "config.toml", "-o", "new", *wrong, code=1).stderr
    assert not Path("elsewhere").exists()  # the head is tried before anything is encoded for it
