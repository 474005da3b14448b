"""`compare`: one row a number, finished cells are never computed again, rates chosen on dev, one config a report."""

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
from safetensors.torch import load_file, save_file

from encodeonce.cli import comparing, report_files
from encodeonce.cli.cells import Cell, Names
from encodeonce.cli.compare import _draw
from encodeonce.cli.config import absolute, load
from encodeonce.cli.contenders import contender
from encodeonce.cli.report_files import RESULTS, ReportFiles, _sha256
from encodeonce.errors import RunError
from encodeonce.report.results import latest, read_rows
from encodeonce.report.table import scores
from encodeonce.tasks import named
from encodeonce.train.checkpoint import Checkpoint
from encodeonce.train.fit import _Loop
from encodeonce.types import Document

from .conftest import Run

PLOTTED = ("-m", "frozen,linear", "--seeds", "2", "--set", "train.num_train_epochs=2")
ARGS = (*PLOTTED, "--no-plot")


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, float]]:
    """Every (method, seed, rate) that is trained from here on."""
    seen: list[tuple[str, int, float]] = []
    real = comparing.learning.train

    def counted(material, variant, settings, tasks=None, **rest):  # type: ignore[no-untyped-def]
        seen.append((variant.name, settings.seed, settings.learning_rate))
        return real(material, variant, settings, tasks, **rest)

    monkeypatch.setattr(comparing.learning, "train", counted)
    return seen


def test_rows_table_and_plot(run: Run, config: Path, tmp_path: Path, trainings: list[object]) -> None:
    text = run("compare", config, "-o", "rep", *PLOTTED).stdout
    rows = read_rows(tmp_path / "rep" / "results.jsonl")
    assert {(r.method, r.seed, r.task, r.split) for r in rows} == {
        (m, s, t, p)
        for m in ("frozen", "linear")
        for s in (13, 21)
        for t in ("upos", "deprel")
        for p in ("dev", "test")
    }
    assert all(r.experiment == "rep" and r.dataset == "train" and r.metric == "accuracy" for r in rows)
    assert all(r.encode_s is not None and r.encode_s > 0 and r.params_trainable and r.n for r in rows)
    assert all(r.peak_mb is not None and r.peak_mb >= 0 and r.store_mb for r in rows)
    assert all(r.train_encoder_s_per_batch and r.infer_encoder_s_per_batch for r in rows)
    assert {r.variant for r in rows} == {"lr=0.02 joint=upos+deprel"}
    assert str(scores(rows)["upos"]["linear"]) in text
    table = (tmp_path / "rep" / "table.md").read_text()
    assert "**" in table
    assert "| linear |" in table
    assert "ms/batch" in table
    assert "+ encoder" in table
    for name in ("improvement.png", "cost.png"):
        assert (tmp_path / "rep" / name).read_bytes().startswith(b"\x89PNG")
    assert len(trainings) == 4
    (tmp_path / "undefined").mkdir()
    _draw(latest([replace(row, value=None) for row in rows]), tmp_path / "undefined", {})
    assert list((tmp_path / "undefined").iterdir()) == []  # nothing to draw, and no failure after all the work


def test_the_encoders_pass_of_training_is_timed_on_what_is_trained_on(
    run: Run, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here a second a word: 60 training sentences in 8 batches, twice, are in a batch of predicting 32 sentences."""

    def a_second_a_word(model: object, documents: list[Document], layers: object, size: int) -> float:
        return size * fmean(len(document.words) for document in documents)

    monkeypatch.setattr(comparing, "pass_seconds", a_second_a_word)
    long, short = tmp_path / "long.conllu", tmp_path / "short.conllu"
    for path, words, n in ((long, 9, 60), (short, 3, 12)):
        lines = [f"{i}\tcat\tcat\tNOUN\tN\t_\t0\troot\t_\t_" for i in range(1, words + 1)]
        blocks = ["\n".join([*lines[:-1], f"{lines[-1]}{j}"]) for j in range(n)]
        path.write_text("\n\n".join(blocks) + "\n\n", encoding="utf-8")
    data = ("--set", f"data.train={long}", "--set", f"data.test={short}", "--set", "tasks=['upos']")
    run("compare", config, "-o", "rep", *ARGS, "-m", "linear", *data)
    rows = read_rows(tmp_path / "rep" / "results.jsonl")
    assert {row.infer_encoder_s_per_batch for row in rows} == {32 * 3.0}
    assert {row.train_encoder_s_per_batch for row in rows} == {9.0 * 60 / (2 * 8)}


def test_store_mb_is_of_the_documents_compared_whatever_else_the_store_holds(
    run: Run, config: Path, tmp_path: Path
) -> None:
    one = ("-m", "linear", "--seeds", "1", "--set", "train.num_train_epochs=1", "--no-plot")
    run("compare", config, "-o", "all", *one)
    run("compare", config, "-o", "part", *one, "--set", "data.train_fraction=0.4")
    (everything,), (part,) = (
        {r.store_mb for r in read_rows(tmp_path / name / "results.jsonl")} for name in ("all", "part")
    )
    folder = sum(file.stat().st_size for file in (tmp_path / "states").iterdir()) / 1e6
    assert everything == pytest.approx(folder, rel=0.02)
    assert part is not None
    assert 0.2 * folder < part < 0.8 * folder


def test_a_method_is_charged_for_the_views_it_reads_and_no_pass_for_embeddings(
    run: Run, config: Path, tmp_path: Path
) -> None:
    """Of three views: all of them, the last, the one below the last block, the embeddings, none."""
    pytest.importorskip("peft")
    few = ("--seeds", "1", "--set", "train.num_train_epochs=1", "--set", "tasks=['upos']", "--no-plot")
    run("compare", config, "-o", "rep", "-m", "linear,frozen,top1,lora,finetune", *few)
    for layer in (0, 1, 2):
        run(
            "compare",
            config,
            "-o",
            "other",
            "-m",
            "linear",
            *few,
            "--set",
            f"layers=[{layer}]",
            "--set",
            f"store=s{layer}",
        )
    rows = {row.method: row for row in read_rows(tmp_path / "rep" / "results.jsonl")}
    for method, store in (("linear", "states"), ("frozen", "s2"), ("top1", "s1"), ("lora", "s0")):
        there = sum(file.stat().st_size for file in (tmp_path / store).iterdir()) / 1e6
        assert rows[method].store_mb == pytest.approx(there, rel=0.03)
    assert rows["finetune"].store_mb is rows["finetune"].encode_s is rows["lora"].encode_s is None
    assert rows["frozen"].encode_s == rows["top1"].encode_s == rows["linear"].encode_s is not None
    assert all(rows[name].train_encoder_s_per_batch for name in ("linear", "frozen", "top1", "lora"))


def test_finished_cells_are_never_computed_again(
    run: Run, config: Path, tmp_path: Path, trainings: list[tuple[str, int, float]]
) -> None:
    run("compare", config, "-o", "rep", *ARGS)
    path = tmp_path / "rep" / "results.jsonl"
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole[:-4]) + whole[-4][:30])  # killed while it wrote the last cell
    trainings.clear()
    printed = json.loads(run("compare", config, "-o", "rep", *ARGS, "--json").stdout)
    assert trainings == [("linear", 21, 0.02)]
    assert [row["value"] for row in printed] == [json.loads(line)["value"] for line in whole]
    trainings.clear()
    shutil.rmtree(tmp_path / "states")
    told = (tmp_path / "rep" / "encode.json").read_bytes()
    run("compare", config, "-o", "rep", *ARGS)
    assert trainings == []
    assert not (tmp_path / "states").exists()  # nothing is encoded where nothing is to be trained
    assert (tmp_path / "rep" / "encode.json").read_bytes() == told
    run("compare", config, "-o", "rep", *ARGS, "-m", "fusion")
    (first,), (again,) = (json.loads(one).values() for one in (told, (tmp_path / "rep" / "encode.json").read_bytes()))
    anew = again["fp16 0 1 2"]
    assert anew["written"] == anew["items"] == first["fp16 0 1 2"]["items"]
    assert {row.encode_s for row in read_rows(path) if row.method == "fusion"} == {anew["seconds"]}


def test_a_rate_is_chosen_on_dev_and_its_cell_is_kept(
    run: Run, config: Path, tmp_path: Path, trainings: list[tuple[str, int, float]]
) -> None:
    run("compare", config, "-o", "rep", *ARGS, "-m", "linear", "--learning-rate-grid", "1e-5,2e-2")
    tried = read_rows(tmp_path / "rep" / "grid.jsonl")
    results = read_rows(tmp_path / "rep" / "results.jsonl")
    for task in ("upos", "deprel"):
        best = max((r for r in tried if (r.task, r.split) == (task, "dev")), key=lambda r: r.value)
        chosen = {part for r in results if r.task == task for part in r.variant.split() if part.startswith("lr=")}
        assert chosen == {part for part in best.variant.split() if part.startswith("lr=")}
    assert [t for t in trainings if t[1] == 13] == [("linear", 13, 1e-5), ("linear", 13, 2e-2)]
    assert {r.seed for r in results} == {13, 21}
    assert not (tmp_path / "rep" / "improvement.png").exists()


def test_a_wider_grid_replaces_the_rows_of_the_rate_it_no_longer_chooses(
    run: Run, config: Path, tmp_path: Path, trainings: list[tuple[str, int, float]]
) -> None:
    """A table must never average two rates; and what was computed for the other rate is not lost."""
    some = ("compare", config, "-o", "rep", *ARGS, "-m", "linear")
    run(*some, "--set", "data.train_fraction=0.5")
    beside = read_rows(tmp_path / "rep" / "results.jsonl")
    run(*some, "--learning-rate-grid", "1e-5")
    narrow = read_rows(tmp_path / "rep" / "results.jsonl")
    run(*some, "--learning-rate-grid", "1e-5,2e-2")
    wide = read_rows(tmp_path / "rep" / "results.jsonl")
    rates = {(row.task, part) for row in wide for part in row.variant.split() if part.startswith("lr=")}
    assert rates == {("upos", "lr=0.02"), ("deprel", "lr=0.02")}
    assert [row for row in wide if row in beside] == beside
    kept = {row.cell for row in read_rows(tmp_path / "rep" / "grid.jsonl")}
    assert {row.cell for row in narrow if row not in beside} <= kept
    trainings.clear()
    run(*some, "--learning-rate-grid", "1e-5")
    assert trainings == []
    assert {row.cell for row in read_rows(tmp_path / "rep" / "results.jsonl")} == {row.cell for row in narrow}


def test_variants_live_in_one_report_and_other_configs_do_not(run: Run, config: Path, tmp_path: Path) -> None:
    run("compare", config, "-o", "rep", *ARGS, "-m", "linear")
    run("compare", config, "-o", "rep", *ARGS, "-m", "linear", "--set", "data.train_fraction=0.5")
    run("compare", config, "-o", "rep", *ARGS, "-m", "linear", "--set", "dtype=int8", "--set", "store=states8")
    rows = read_rows(tmp_path / "rep" / "results.jsonl")
    assert list(scores(rows)["upos"]) == ["linear (-)", "linear (train=0.5)", "linear (store=int8)"]
    wrong = run("compare", config, "-o", "rep", *ARGS, "--set", "train.num_train_epochs=3", code=1)
    assert "train.num_train_epochs: 2 then, 3 now" in wrong.stderr


def test_data_that_was_changed_in_its_place_is_named(
    run: Run, config: Path, corpus: Path, tmp_path: Path, trainings: list[object]
) -> None:
    """A resumed comparison must not mix rows of two versions of a file, be they of one name."""
    own = tmp_path / "train.conllu"
    own.write_bytes((corpus / "train.conllu").read_bytes())
    some = ("compare", config, "-o", "rep", *ARGS, "-m", "linear", "--set", f"data.train={own}")
    run(*some)
    told = json.loads((tmp_path / "rep" / "data.json").read_text())
    assert told["data.train ../train.conllu"] == hashlib.sha256(own.read_bytes()).hexdigest()
    assert sum(name.startswith("data.") for name in told) == 3
    text = own.read_text("utf-8")
    own.write_text(text.replace("\tdet\t", "\tobj\t", 1), encoding="utf-8")
    trainings.clear()
    for more in ((), ("--dry-run",)):
        wrong = run(*some, *more, code=1)
        assert "holds results of other files" in wrong.stderr
        assert "data.train ../train.conllu was changed. Choose another folder" in wrong.stderr
    own.write_text(text, encoding="utf-8")
    run(*some)
    assert trainings == []


def test_a_moved_report_is_known_by_what_its_files_hold(
    run: Run, config: Path, corpus: Path, tiny: Path, tmp_path: Path, trainings: list[object]
) -> None:
    """Under another name, at another depth, training file and encoder elsewhere: nothing is trained again. Of other
    files it is said that they are others, not that they were changed."""
    own, encoder = tmp_path / "own.conllu", tmp_path / "encoder"
    own.write_bytes((corpus / "train.conllu").read_bytes())
    shutil.copytree(tiny, encoder)
    some = (*ARGS, "-m", "linear", "--json")
    there = ("--set", f"data.train={own}", "--set", f"encoder={encoder}")
    first = run("compare", config, "-o", "rep", *some, *there).stdout
    (tmp_path / "deep").mkdir()
    moved, renamed = (tmp_path / "rep").rename(tmp_path / "deep" / "er"), own.rename(tmp_path / "deep" / "a.conllu")
    there = ("--set", f"data.train={renamed}", "--set", f"encoder={encoder.rename(tmp_path / 'deep' / 'other')}")
    trainings.clear()
    kept = (moved / "data.json").read_text()
    again = run("compare", config, "-o", moved, *some, *there).stdout
    assert (again, trainings) == (first, [])
    assert (moved / "data.json").read_text() == kept
    there = ("--set", f"data.train={corpus / 'dev.conllu'}", *there[2:])
    other = run("compare", config, "-o", moved, *some, *there, code=1).stderr
    assert "data.train: ../own.conllu then, " in other
    assert "dev.conllu now, which holds something else. Choose another folder" in other
    assert "changed" not in other


def test_a_report_that_is_killed_as_it_begins_is_begun_again(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a config would stand in the way of every later comparison."""
    chosen = load(config, [])
    files = ReportFiles(tmp_path / "rep", chosen, Names("e", "d"))

    def killed(*given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            files.agree()
    assert not (tmp_path / "rep" / "config.toml").exists()
    files.agree()
    assert absolute(load(tmp_path / "rep" / "config.toml")).data == absolute(chosen).data


@pytest.mark.parametrize("moment", [0, 1, 2])
def test_a_report_that_is_killed_as_it_takes_a_task_goes_on(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    first, second = (load(config, [f"tasks=['{name}']"]) for name in ("upos", "deprel"))
    ReportFiles(tmp_path / "rep", first, Names("e", "d")).agree()
    files, real, seen = ReportFiles(tmp_path / "rep", second, Names("e", "d")), os.replace, []

    def killed(*given: Path) -> None:
        seen.append(given)
        if len(seen) > moment:
            raise KeyboardInterrupt
        real(*given)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            files.agree()
    files.agree()
    assert load(tmp_path / "rep" / "config.toml").tasks == ["upos", "deprel"]
    files.agree(write=False)


def test_a_report_is_a_folder_of_its_own(run: Run, config: Path, tmp_path: Path) -> None:
    """In the folder of its config a comparison would be held to that very file, whatever is changed in it."""
    linear = (*ARGS, "-m", "linear")
    for name in ("config.toml", "config.json", "store.json"):
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / name).write_bytes(config.read_bytes())
        for more in ((), ("--dry-run",)):
            wrong = run("compare", config, "-o", "other", *linear, *more, code=1).stderr
            assert f"other is no report and holds {name}; a report needs a folder of its own" in wrong
        assert [path.name for path in (tmp_path / "other").iterdir()] == [name]
        shutil.rmtree(tmp_path / "other")


def test_a_report_takes_further_tasks(
    run: Run, config: Path, tmp_path: Path, trainings: list[tuple[str, int, float]]
) -> None:
    """One task's cells alone, then those of another; the same task with other options is refused."""
    some = ("compare", config, "-o", "rep", "-m", "linear", "--seeds", "1", "--no-plot")
    some += ("--set", "train.num_train_epochs=1")
    other = (*some, "--set", "tasks=['deprel']")
    run(*some, "--set", "tasks=['upos']", "--set", "task={upos = {piece = 'last'}}")
    run(*other)
    assert len(trainings) == 2
    path = tmp_path / "rep" / "results.jsonl"
    assert list(dict.fromkeys(row.task for row in read_rows(path))) == ["upos", "deprel"]
    before = path.read_bytes()
    run(*some, "--set", "task={upos = {piece = 'last'}}")
    run(*other, "--dry-run")
    assert (len(trainings), path.read_bytes()) == (2, before)
    assert load(tmp_path / "rep" / "config.toml").tasks == ["upos", "deprel"]
    wrong = " ".join(run(*some, code=1).stderr.split())
    assert "task.upos: {'piece': 'last'} then, {} now" in wrong
    wrong = " ".join(run(*other, "--set", "task={deprel = {piece = 'mean'}}", code=1).stderr.split())
    assert "task.deprel: {} then, {'piece': 'mean'} now" in wrong
    held = ("--set", "data.dev=[]", "--set", "data.dev_fraction=0.2", "-o", "held")
    trunk = ("-m", "top1", "--set", "finetune.shared=true", "-o", "trunk")
    for more in (held, trunk):  # by the labels of one task; one trunk for all
        run(*some, "--set", "tasks=['upos']", *more)
        assert "tasks: ['upos'] then, ['deprel'] now" in run(*other, *more, code=1).stderr


def test_a_config_that_was_changed_in_its_report_is_named(run: Run, config: Path, tmp_path: Path) -> None:
    run("compare", config, "-o", "rep", *ARGS, "-m", "linear")
    own, told = tmp_path / "rep" / "config.toml", tmp_path / "rep" / "data.json"
    kept = json.loads(told.read_text())
    assert kept["config.toml"] == hashlib.sha256(own.read_bytes()).hexdigest()
    again = ("compare", own, "-o", "rep", *ARGS, "-m", "linear", "--json")
    first = run(*again).stdout
    before = {name: digest for name, digest in kept.items() if name != "config.toml"}
    told.write_text(json.dumps(before))  # of a report from before this was kept
    assert run(*again).stdout == first
    assert json.loads(told.read_text()) == kept
    own.write_text(own.read_text().replace("batch_size = 8", "batch_size = 4"))
    for more in ((), ("--dry-run",)):
        assert "config.toml was changed. Choose another folder" in run(*again[:-1], *more, code=1).stderr


def test_files_beside_the_data_are_the_same_files_and_held_to_their_contents(config: Path, tmp_path: Path) -> None:
    """Passages and a run that weights begin with, seen from the config's folder and then from the report's."""
    (tmp_path / "passages.jsonl").write_text('{"id": "1", "text": "a cat"}\n')
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model.safetensors").write_bytes(b"some weights")
    chosen = load(config, ["data.passages=passages.jsonl", "start=run"])
    files = ReportFiles(tmp_path / "rep", chosen, Names("e", "d"))
    files.agree(write=False)
    assert not (tmp_path / "rep").exists()
    files.agree()
    files.agree()
    for path, key in (("passages.jsonl", r"data\.passages"), ("run/model.safetensors", "start")):
        before = (tmp_path / path).read_bytes()
        (tmp_path / path).write_bytes(b"other")
        with pytest.raises(RunError, match=rf"of other files, .*: {key} \.\./{path} was changed\. Choose"):
            files.agree()
        (tmp_path / path).write_bytes(before)
    other = ReportFiles(tmp_path / "rep", load(config, ["start=run"]), Names("e", "d"))
    with pytest.raises(RunError, match=r"other files, .*: data\.passages: \.\./passages\.jsonl then, nothing now"):
        other.agree()


def test_an_encoder_that_was_changed_in_its_place_is_named(
    run: Run, config: Path, tiny: Path, tmp_path: Path, trainings: list[object]
) -> None:
    """With another store nothing else would tell the two, and one table would average both."""
    own = tmp_path / "encoder"
    shutil.copytree(tiny, own)
    some = ("compare", config, "-o", "rep", *ARGS, "-m", "linear", "--set", f"encoder={own}")
    run(*some, "--seeds", "1")
    told = json.loads((tmp_path / "rep" / "data.json").read_text())
    assert len({told[f"encoder {part}"] for part in ("weights", "config", "tokenizer")}) == 3
    weights = load_file(own / "model.safetensors")
    save_file({name: tensor + 0.1 for name, tensor in weights.items()}, own / "model.safetensors", {"format": "pt"})
    trainings.clear()
    for more in ((), ("--dry-run",)):
        wrong = run(*some, "--set", "store=other", *more, code=1)
        assert "of other files, and a table must not mix them: encoder weights was changed. Choose" in wrong.stderr
    assert trainings == []
    assert not (tmp_path / "other").exists()
    save_file(weights, own / "model.safetensors", {"format": "pt"})
    path = tmp_path / "rep" / "data.json"
    path.write_text(json.dumps({name: digest for name, digest in told.items() if "encoder" not in name}))
    run(*some)  # of a report from before this was kept
    assert json.loads(path.read_text()) == told


def test_a_table_is_of_one_data_set_whatever_else_the_report_holds(run: Run, config: Path, tmp_path: Path) -> None:
    some = ("compare", config, "-o", "rep", *ARGS, "-m", "linear", "--json")
    first = json.loads(run(*some).stdout)
    other = json.loads(run(*some, "--dataset", "other").stdout)
    assert {row["dataset"] for row in first} == {"train"}
    assert [row["value"] for row in other] == [row["value"] for row in first]
    assert {row["dataset"] for row in other} == {"other"}
    assert len(read_rows(tmp_path / "rep" / "results.jsonl")) == len(first) + len(other)


def test_a_compressed_file_is_known_by_what_it_holds(tmp_path: Path) -> None:
    for name, level in (("a.gz", 1), ("b.gz", 9)):
        (tmp_path / name).write_bytes(gzip.compress(b"some rows\n" * 500, level, mtime=level))
    (tmp_path / "plain").write_bytes(b"some rows\n" * 500)
    assert (tmp_path / "a.gz").read_bytes() != (tmp_path / "b.gz").read_bytes()
    assert len({_sha256(tmp_path / name) for name in ("a.gz", "b.gz", "plain")}) == 1
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x").write_text("1")
    before = _sha256(tmp_path / "folder")
    (tmp_path / "folder" / "x").write_text("2")
    assert _sha256(tmp_path / "folder") != before


def test_paper_values_stand_beside_ours(run: Run, config: Path, tmp_path: Path) -> None:
    (tmp_path / "paper.yaml").write_text("upos: {linear: 97.5}\n")
    (tmp_path / "paper.json").write_text('{"upos": {"linear": 97.5}}')
    for name in ("paper.yaml", "paper.json"):
        assert "97.50" in run("compare", config, "-o", "rep", *ARGS, "-m", "linear", "--paper", name).stdout
    (tmp_path / "wrong.json").write_text("[1]")
    assert "must map each task" in run("compare", config, "-o", "rep", *ARGS, "--paper", "wrong.json", code=1).stderr


def test_what_cannot_be_compared_is_refused(run: Run, config: Path) -> None:
    assert "There is: frozen" in run("compare", config, "-o", "rep", "-m", "frozn", code=1).stderr
    assert "write it as 5e-4" in run("compare", config, "-o", "rep", "--learning-rate-grid", "x", code=2).stderr
    assert "name at least one" in run("compare", config, "-o", "rep", "-m", "", code=2).stderr
    alone = run("compare", config, "-o", "rep", "--paper-table", "dev", code=2).stderr
    assert "--paper-table dev is a table of --paper FILE" in alone
    for seeds in ("x", ",", "0", "13,-1"):
        assert "--seeds" in run("compare", config, "-o", "rep", "--seeds", seeds, code=2).stderr
    typo = run("compare", config, "-o", "rep", "--metric", "upso=accuracy", "--dry-run", code=2).stderr
    assert "'upso' is not one of the tasks upos, deprel. Did you mean 'upos'?" in " ".join(typo.split())
    no_test = run("compare", config, "-o", "rep", "--set", "data.test=[]", code=1)
    assert "data.test is not set" in no_test.stderr
    no_dev = run("compare", config, "-o", "rep", "--set", "data.dev=[]", "--learning-rate-grid", "1e-3", code=1)
    assert "data.dev is not set" in no_dev.stderr
    same = run("compare", config, "-o", "rep", "-m", "linear,again", "--set", "methods.again.method=linear", code=1)
    assert "'linear' is the same as another" in same.stderr
    for dry in ([], ["--dry-run"]):
        no_score = run("compare", config, "-o", "new", *ARGS, "-m", "linear", "--metric", "upos=acuracy", *dry, code=2)
        assert "no score 'acuracy'. There is: accuracy. Did you mean 'accuracy'?" in " ".join(no_score.stderr.split())
        assert not (config.parent / "new").exists(), "nothing was trained"


def test_methods_that_train_the_encoder_stand_beside_those_that_read(
    run: Run, config: Path, tmp_path: Path, trainings: list[tuple[str, int, float]]
) -> None:
    """Own rates, epochs, seeds and options, by name; a cell says in its row what is its own."""
    extra = (
        "\n[methods.finetune]\nnum_train_epochs = 1\nseeds = 1\n"
        "[methods.one_block]\nmethod = 'live_mix'\nfinetune = { live = 1, over = 'linear' }\n"
    )
    config.write_text(config.read_text() + extra)
    pytest.importorskip("peft")
    names = "frozen,finetune,top1,lora,live_mix,one_block"
    text = run("compare", config, "-o", "rep", *ARGS, "-m", names, "--set", "tasks=['upos']").stdout
    rows = [row for row in read_rows(tmp_path / "rep" / "results.jsonl") if row.split == "test"]
    assert {(row.method, row.seed, row.variant) for row in rows} == {
        *(("frozen", seed, "lr=0.02") for seed in (13, 21)),
        ("finetune", 13, "lr=0.02 encoder_lr=0.0002 epochs=1"),
        *(("top1", seed, "lr=0.02 encoder_lr=0.001") for seed in (13, 21)),
        *(("lora", seed, "lr=0.02") for seed in (13, 21)),
        *(("live_mix", seed, "lr=0.02 encoder_lr=0.001") for seed in (13, 21)),
        *(("live_mix", seed, "lr=0.02 encoder_lr=0.001 live=1 over=linear") for seed in (13, 21)),
    }
    assert all((row.infer_encoder_s_per_batch is None) == (row.method == "finetune") for row in rows)
    assert list(scores(rows)["upos"]) == [
        *("frozen", "finetune", "top1", "lora", "live_mix (-)", "live_mix (live=1 over=linear)"),
    ]
    assert "13 (finetune)" in text
    trainings.clear()
    run("compare", config, "-o", "rep", *ARGS, "-m", names, "--set", "tasks=['upos']")
    assert trainings == []


def test_a_grid_of_its_own_chooses_epochs_and_rates_for_every_task(
    run: Run, config: Path, tmp_path: Path, trainings: list[tuple[str, int, float]]
) -> None:
    grid = "\n[methods.linear.grid]\nlearning_rate = [2e-2, 1e-5]\nnum_train_epochs = [1, 2]\n"
    config.write_text(config.read_text() + grid)
    run("compare", config, "-o", "rep", *ARGS, "--learning-rate-grid", "3e-2", "--apart")
    tried = read_rows(tmp_path / "rep" / "grid.jsonl")
    linear = {row.variant for row in tried if row.method == "linear"}
    assert linear == {"lr=0.02", "lr=0.02 epochs=1", "lr=1e-05", "lr=1e-05 epochs=1"}
    assert {row.variant for row in tried if row.method == "frozen"} == {"lr=0.03"}
    results = read_rows(tmp_path / "rep" / "results.jsonl")
    for task in ("upos", "deprel"):
        best = max((r for r in tried if (r.method, r.task, r.split) == ("linear", task, "dev")), key=lambda r: r.value)
        own = [row for row in results if (row.method, row.task) == ("linear", task)]
        assert {row.variant for row in own} == {best.variant}
        assert {row.seed for row in own} == {13, 21}


def test_a_dry_run_says_what_there_is_to_do_and_does_nothing(
    run: Run, config: Path, tmp_path: Path, trainings: list[tuple[str, int, float]]
) -> None:
    some = ("compare", config, "-o", "rep", *ARGS, "--learning-rate-grid", "1e-5,2e-2", "--apart")
    text = run(*some, "--dry-run").stdout
    assert "store: " in text
    assert [line.split() for line in text.splitlines()[-2:]] == [
        ["frozen", "4", "at", "most", "2", "0", "unknown"],
        ["linear", "4", "at", "most", "2", "0", "unknown"],
    ]
    assert not (tmp_path / "rep").exists()
    assert not (tmp_path / "states").exists()
    assert trainings == []
    run(*some, "-m", "linear", "--seeds", "1")
    lines = [line.split() for line in run(*some, "--dry-run").stdout.splitlines()[-2:]]
    assert lines[0][:2] == ["frozen", "4"]
    assert lines[1][:4] == ["linear", "0", "2", "6"]
    assert lines[1][-1] == "s"
    assert "store: 0 of 0 items" in run(*some, "-o", "other", "--dry-run", "-m", "finetune").stdout
    away = run(*some, "-o", "other", "--dry-run", "--set", "encoder=some/where").stdout
    assert "the encoder is not here, so views and blocks were not checked" in away


def test_an_interrupted_cell_goes_on_after_its_last_epoch(
    run: Run, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With three epochs a cell, stopped after the fifth that is saved: the second cell has one left. Its rows are those
    of a comparison that was not stopped, but for times, and for memory, which what is left may not show."""
    some = (config, "-m", "linear", "--seeds", "2", "--set", "tasks=['upos']", "--no-plot")
    run("compare", *some, "-o", "whole")
    real, saved, scored = Checkpoint.save, [], []

    def stopped(checkpoint: Checkpoint, folder: Path) -> None:
        real(checkpoint, folder)
        saved.append(folder)
        if len(saved) == 5:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", stopped)
        run("compare", *some, "-o", "rep")  # within a minute nothing is saved
        assert saved == []
        assert not (tmp_path / "rep" / "unfinished").exists()
        patch.setattr(comparing, "SAVE_SECONDS", 0.0)
        shutil.rmtree(tmp_path / "rep")
        run("compare", *some, "-o", "rep", code=1)
    unfinished = tmp_path / "rep" / "unfinished"
    assert [path.name.rsplit("-", 1)[0] for path in unfinished.iterdir()] == ["linear-21"]
    shutil.copytree(unfinished, tmp_path / "copy")
    real_epoch = _Loop.finish_epoch

    def counted(loop: _Loop) -> None:
        real_epoch(loop)
        scored.append(loop.at.epoch)

    monkeypatch.setattr(_Loop, "finish_epoch", counted)
    run("compare", *some, "-o", "rep")
    assert scored == [3]
    assert not unfinished.exists()
    told, wanted = (read_rows(tmp_path / name / "results.jsonl") for name in ("rep", "whole"))
    assert [(row.cell[1:], row.value) for row in told] == [(row.cell[1:], row.value) for row in wanted]
    assert [row.peak_mb is None for row in told] == [row.seed == 21 for row in told]
    shutil.copytree(tmp_path / "copy", unfinished)  # as where it was killed after the rows, before this was dropped
    run("compare", *some, "-o", "rep")
    assert scored == [3]
    assert not unfinished.exists()


def test_seconds_of_two_machines_are_not_added_up(
    run: Run, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report that goes on elsewhere begins its unfinished cell anew, and leaves nothing of it behind."""
    cell = Cell(RESULTS, contender(load(config, [])), {}, 13, (named("upos"),))
    files = ReportFiles(tmp_path / "rep", load(config, []), Names("e", "d"))
    folders = []
    for machine in ("one", "two"):
        monkeypatch.setattr(report_files, "_place", lambda machine=machine: machine)
        with suppress(KeyboardInterrupt), files.begun(cell) as folder:
            folder.mkdir(parents=True)
            folders.append(folder)
            raise KeyboardInterrupt
    assert folders[0] != folders[1]
    assert folders[0].parent == folders[1].parent
    with files.begun(replace(cell, seed=21)) as other:
        assert other.parent != folders[0].parent
    assert all(folder.exists() for folder in folders)
    with files.begun(cell) as again:
        assert again == folders[1]
    assert not (tmp_path / "rep" / "unfinished").exists()


def test_killed_at_any_moment_it_goes_on(tiny: Path, config: Path, tmp_path: Path) -> None:
    """SIGKILL, as soon as the first cells are there; then again: the finished rows stay byte for byte."""
    command = [sys.executable, "-m", "encodeonce", "compare", str(config), "-o", str(tmp_path / "rep"), "--no-plot"]
    command += ["-m", "frozen,linear", "--seeds", "2", "--set", "train.num_train_epochs=1"]
    path = tmp_path / "rep" / "results.jsonl"
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while not (path.exists() and path.stat().st_size) and time.monotonic() < until and process.poll() is None:
        time.sleep(0.02)
    process.kill()
    assert process.wait() == -9
    left = path.read_bytes()
    whole = left[: left.rfind(b"\n") + 1]
    subprocess.run(command, check=True, capture_output=True)
    assert whole
    assert path.read_bytes().startswith(whole)
    rows = read_rows(path)
    assert len(latest(rows)) == 2 * 2 * 2 * 2
    twice = [row for row in rows if rows.count(row) > 1 or row not in latest(rows)]
    assert len(twice) < 4  # at most the cell whose rows were being written is there twice
