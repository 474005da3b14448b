"""The few-shot experiment over a data folder of its own: what it reads, its rows, and the command that makes each."""

import argparse
import gzip
import importlib
import json
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encodeonce.methods.refusion import CONTROLS
from encodeonce.prompts import known
from encodeonce.report.results import read_rows
from encodeonce.tasks import named

from .conftest import drawn

HERE = Path(__file__).parents[2] / "experiments" / "fewshot"
LABELS = {"animals": "not_duplicate", "places": "duplicate"}


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path.with_suffix(".jsonl.gz"), "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def rows_of(n: int, draw: int, **more: Any) -> list[dict[str, Any]]:
    return [{"text": text, "label": label, **more} for text, label in zip(*drawn(n, draw), strict=True)]


@pytest.fixture
def place(tmp_path: Path, checkpoint: Callable[..., Path]) -> Path:
    """A project folder with the experiment, data of one task of single texts and one of pairs, and a configuration."""
    folder = tmp_path / "project" / "experiments" / "fewshot"
    folder.mkdir(parents=True)
    for path in HERE.glob("*.py"):
        shutil.copy(path, folder)
    data = tmp_path / "shared" / "data"
    samples = [row for part in ("train", "dev") for row in rows_of(16, len(part), seed=13, split=part)]
    write(data / "fewshot_lmbff_k16" / "cr", samples)
    write(data / "text_classification" / "cr" / "test", rows_of(20, 7))
    write(data / "text_classification" / "cr" / "train", [*rows_of(80, 8), *rows_of(20, 7)[:3], *samples[:2]])
    for name, rows in (("test", rows_of(20, 9)), ("train", rows_of(60, 10)), ("samples", samples)):
        pairs = [
            {**row, "text_a": row["text"], "text_b": "on " + row["text"], "label": LABELS[row["label"]]} for row in rows
        ]
        for row in pairs:
            row.pop("text")
        files = {"test": "glue/qqp/heldout_sample", "train": "glue/qqp/train_sample"}
        write(data / files.get(name, "fewshot_lmbff_k16/qqp"), pairs)
    folders = (data / "qa" / "xquad_en", 12, {}), (data / "qa" / "squad_sample", 60, {"split": "train"})
    for where, n, more in folders:
        rows = [row["text"] for row in rows_of(n, n)]
        write(where / "passages", [{"passage_id": f"p{i}", "text": text} for i, text in enumerate(rows)])
        asked = [
            {"id": f"{n}-{i}", "question": f"what {i}", "passage_id": f"p{i}", "answers": [text.split()[1]], **more}
            for i, text in enumerate(rows)
        ]
        write(where / "questions", [{**row, "answer_starts": [rows[i].index(" ") + 1]} for i, row in enumerate(asked)])
    (folder / "tiny.toml").write_text(f'encoder = "{checkpoint("bert")}"\nmasked = "none"\nseeds = [13]\nsteps = 4\n')
    return folder


MODULES = ("recipe", "samples", "tables", "verdicts", "run", "page")


@pytest.fixture
def run(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The experiment's main module, over this data folder."""
    monkeypatch.setenv("ENCODEONCE_SHARED", str(place.parents[2] / "shared"))
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.chdir(place.parents[1])
    for name in MODULES:
        sys.modules.pop(name, None)
    yield importlib.import_module("run")
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.fixture
def recipe(run: Any) -> Any:
    return sys.modules["recipe"]


@pytest.fixture
def experiment(run: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Call the command; what it prints."""

    def call(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", list(words))
        capsys.readouterr()
        run.main()
        return capsys.readouterr().out

    return call


def texts(place: Path, name: str) -> set[str]:
    with gzip.open(place.parents[2] / "shared" / "data" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        return {json.loads(line)["text"] for line in file}


def test_a_row_names_the_command_that_makes_it_and_a_second_run_has_nothing_to_do(
    place: Path, experiment: Callable[..., str]
) -> None:
    methods = ("probe", "finetune", "fused.add,k=4")
    words = ("--tasks", "cr,qqp", "--config", "experiments/fewshot/tiny.toml", "--test-size", "12")
    experiment("experiments/fewshot/run.py", *methods, *words)
    rows = read_rows(place / "rows.jsonl")
    assert [(row.task, row.method) for row in rows] == [(task, name) for task in ("cr", "qqp") for name in methods]
    assert {row.metric for row in rows} == {"accuracy", "f1"}
    assert {row.n for row in rows} == {12}
    table = experiment("experiments/fewshot/run.py", *methods, *words, "--table")
    assert "fused.add,k=4 - finetune" in table
    assert read_rows(place / "rows.jsonl") == rows
    (place / "rows.jsonl").unlink()
    python, *made = shlex.split(rows[-1].command or "")
    assert python == "python"
    experiment(*made)
    (again,) = read_rows(place / "rows.jsonl")
    assert (again.cell, again.value) == (rows[-1].cell, rows[-1].value)


def test_every_fusion_and_its_controls_say_how_much_each_module_adds(
    place: Path, experiment: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    words = ("--tasks", "cr", "--config", "experiments/fewshot/tiny.toml", "--test-size", "12")
    caplog.set_level("INFO", logger="encodeonce")
    added: dict[str, list[float]] = {}
    for name in ("add", "add:random", "add:shuffled", "add:constant", "reranker"):
        caplog.clear()
        experiment("experiments/fewshot/run.py", f"fused.{name},k=32", *words)
        (said,) = (one for one in caplog.messages if one.startswith("fused vector to slot output"))
        added[name] = [float(one.split(": ")[1].split(" %")[0]) for one in said.partition("start: ")[2].split(", ")]
        faint = [one.levelname for one in caplog.records if "less than 1 %" in one.getMessage()]
        assert faint == (["WARNING"] if min(added[name]) < 1 else [])
    assert {len(shares) for shares in added.values()} == {2 * 3}, "keys and values of three blocks"
    assert added["reranker"] == pytest.approx([share / 32 for share in added["add"]], rel=0.15), "equal ranks, over k"
    assert len({tuple(shares) for shares in added.values()}) == 5


def test_a_search_has_a_row_of_either_ending_from_one_training(place: Path, experiment: Callable[..., str]) -> None:
    words = ("--tasks", "cr", "--config", "experiments/fewshot/tiny.toml", "--test-size", "12")
    experiment("experiments/fewshot/run.py", "fused.refusion,k=4", *words)
    likeliest, soft = read_rows(place / "rows.jsonl")
    assert (likeliest.method, soft.method) == ("fused.refusion,k=4", "fused.refusion,k=4,ending=soft")
    assert likeliest.started == soft.started
    (place / "rows.jsonl").unlink()
    experiment("experiments/fewshot/run.py", soft.method, *words)
    (alone,) = read_rows(place / "rows.jsonl")
    assert (alone.cell, alone.value) == (soft.cell, soft.value)


def test_I33_16_shots_are_the_published_samples_the_test_its_own_file_and_unlabelled_texts_in_neither(
    place: Path, run: Any, recipe: Any
) -> None:
    (cell,) = run.samples_of("cr", recipe.Recipe(seeds=(13,), test_size=5))
    assert [len(part) for part in (cell.train, cell.dev, cell.test)] == [16, 16, 5]
    assert {document.text for document in cell.test} <= texts(place, "text_classification/cr/test")
    seen = texts(place, "fewshot_lmbff_k16/cr") | texts(place, "text_classification/cr/test")
    unlabelled = {document.text for document in cell.unlabelled}
    assert unlabelled == texts(place, "text_classification/cr/train") - seen
    assert cell.recipe.variant(7) == "test=5 unlabelled=7 steps=40"
    assert recipe.Recipe(unlabelled_size=0).variant(7) == "test=1000 unlabelled=7 at_most=all steps=40"


def test_texts_before_a_text_are_those_that_fusion_adds_and_never_its_own_in_another_pair(
    run: Any, recipe: Any, checkpoint: Callable[..., Path]
) -> None:
    tiny = recipe.Recipe(encoder=str(checkpoint("bert")), seeds=(13,), test_size=6)
    (cell,) = run.samples_of("qqp", tiny)
    own = run.Document("d", text=cell.unlabelled[0].text.title(), pair="another")
    documents = [own, *cell.test]
    found = run.neighbours(cell, documents, 5)
    every = {text.lower(): text for one in cell.unlabelled for text in (one.text, one.pair)}
    corpus, asked = (
        run.vectors(tiny.encoder).last(texts) for texts in (list(every.values()), [one.text for one in documents])
    )
    for document, query, texts in zip(documents, asked, found, strict=True):
        order = np.argsort(np.square(corpus - query).sum(1))
        names = [list(every)[row] for row in order]
        mine = {document.text.lower(), document.pair.lower()}
        assert texts == [every[name] for name in names if name not in mine][:5]
    assert own.text.lower() in every


def test_dev_that_a_search_has_fitted_chooses_no_epoch(
    run: Any, recipe: Any, checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    (cell,) = run.samples_of("cr", recipe.Recipe(encoder=str(checkpoint("bert")), seeds=(13,), test_size=4, steps=1))
    given, fit = [], run.fit

    def recording(*args: Any, dev: Any, upper: Any, **more: Any) -> None:
        given.append((dev is not None, upper is not None))
        fit(*args, dev=dev, upper=upper, **more)

    monkeypatch.setattr(run, "fit", recording)
    for name in ("finetune", "finetune+dev", "fused.add,k=4", "fused.refusion,k=4", "fused.release,k=4"):
        run.method_of(name)(cell)
    assert given == [(True, False), (False, False), (True, False), (False, True), (False, True)]


def test_full_data_are_the_training_texts_less_the_tests_a_tenth_of_them_dev(
    place: Path, run: Any, recipe: Any
) -> None:
    full = recipe.Recipe(full=True, seeds=(13, 21), unlabelled_size=50, epochs=2)
    first, second = run.samples_of("cr", full)
    every = texts(place, "text_classification/cr/train") - texts(place, "text_classification/cr/test")
    for cell in (first, second):
        train, dev = ({document.text for document in part} for part in (cell.train, cell.dev))
        assert len(dev) == round(len(every) / 10)
        assert not train & dev
        assert train | dev == every
        assert cell.unlabelled == cell.train[:50]
    assert {d.text for d in first.dev} != {d.text for d in second.dev}
    assert full.settings(13, len(first.train)).num_train_epochs == 2
    assert full.variant(50) == "test=1000 unlabelled=50 at_most=50 train=full epochs=2"


def test_questions_are_answered_from_16_with_passages_of_neither_them_nor_the_test(
    place: Path, experiment: Callable[..., str], run: Any, recipe: Any
) -> None:
    (cell,) = run.samples_of("squad", recipe.Recipe(seeds=(13,)))
    assert [len(part) for part in (cell.train, cell.dev, cell.test)] == [16, 16, 12]
    passages = {document.text for document in cell.unlabelled}
    assert not passages & {document.pair for part in (cell.train, cell.dev, cell.test) for document in part}
    config = ("--config", "experiments/fewshot/tiny.toml", "--tasks", "squad")
    experiment("experiments/fewshot/run.py", "finetune", "fused.add,k=4", "fused.add:random,k=4", *config)
    rows = read_rows(place / "rows.jsonl")
    assert [(row.metric, row.n) for row in rows] == [("f1", 12)] * 3
    with pytest.raises(SystemExit, match="probe: questions are answered by finetune and fused"):
        experiment("experiments/fewshot/run.py", "probe", *config)
    gold = named("answer_spans").gold(cell.test)
    assert run.score_of(cell, [[(*one.spans[0], 1.0)] for one in gold]) == 100
    assert run.score_of(cell, [()] * 12) == 0


def test_what_is_not_known_is_named_with_what_is_near(place: Path, recipe: Any) -> None:
    (place / "wrong.toml").write_text("step = 4\n")
    for path, tasks, near in ((place / "wrong.toml", None, "steps"), (None, "sst22", "sst2")):
        given = argparse.Namespace(
            methods=[], config=path, tasks=tasks, seeds=None, full=False,
            test_size=None, unlabelled_size=None, steps=None, epochs=None,
        )  # fmt: skip
        with pytest.raises(SystemExit, match=rf"Did you mean '{near}'\?"):
            recipe.recipe_of(given, {})


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("prompts_", r"method 'prompts_' is not known. There is: finetune, .* Did you mean 'prompts'\?"),
        ("prompt.xyz", "prompt.xyz: prompt takes nothing behind a dot"),
        ("probe.add", "probe.add: probe takes nothing behind a dot"),
        ("concat.x", "concat takes nothing behind a dot but a number"),
        ("fewshot+dev", "fewshot learns from train and dev as it is"),
        ("finetune+test", "what is learned from 'test' is not known. There is: dev"),
        ("fused.ad", r"fusion 'ad' is not known. There is: refusion, .* Did you mean 'add'\?"),
        ("fused-prompt.add:shufled", r"control 'shufled' is not known.* Did you mean 'shuffled'\?"),
        ("fused.add,slot=key", r"setting 'slot' is not known.* Did you mean 'slots'\?"),
        ("fused.add,metric=cosin", r"metric 'cosin' is not known.* Did you mean 'cosine'\?"),
    ],
)
def test_a_name_that_no_method_has_is_refused_before_any_cell_is_run(
    place: Path, experiment: Callable[..., str], name: str, said: str
) -> None:
    config = ("--config", "experiments/fewshot/tiny.toml", "--tasks", "cr")
    for more in ((), ("--dry-run",)):
        with pytest.raises(SystemExit, match=said):
            experiment("experiments/fewshot/run.py", "probe", name, *config, *more)
    assert read_rows(place / "rows.jsonl") == []


def test_all_15_tasks_have_files_and_the_papers_configurations_run_them(run: Any, recipe: Any) -> None:
    """With names that methods have, every scheme fixed, and every control."""
    assert set(recipe.FILES) == set(known())
    for path in sorted(set(HERE.glob("*.toml")) - {HERE / "squad.toml"}):
        given = argparse.Namespace(
            methods=[], config=path, tasks=None, seeds=None, full=False,
            test_size=None, unlabelled_size=None, steps=None, epochs=None,
        )  # fmt: skip
        own = recipe.recipe_of(given, run.GROUPS)
        assert set(own.tasks) == set(known())
        assert all(map(callable, map(run.method_of, own.methods)))
        assert {f"fused-prompt.add:{control}" for control in CONTROLS} <= set(own.methods)
        if "lora" not in path.stem:
            assert {f"fused-prompt.{name}" for name in ("add", "reranker", "mask", "release")} <= set(own.methods)
    assert all(map(callable, map(run.method_of, chain(*run.GROUPS.values()))))


def add_row(run: Any, place: Path, method: str, variant: str, task: str, seed: int, value: float) -> None:
    row = run.ResultsRow("fewshot", task, task, "e", method, variant, seed, "test", "accuracy", value)
    run.append_row(place / "rows.jsonl", row)


def test_the_page_compares_methods_over_the_tasks_and_seeds_that_both_have(place: Path, run: Any, recipe: Any) -> None:
    shown = recipe.Recipe()
    scores: dict[str, dict[str, dict[int, float]]] = {
        "finetune": {"sst2": {13: 60, 21: 62}, "mr": {13: 50, 21: 54}, "cr": {13: 70}},
        "fused.add": {"sst2": {13: 63, 21: 64}, "mr": {13: 54, 21: 55}, "cr": {21: 90}},
        "fused.add:random": {"sst2": {13: 61, 21: 62}, "mr": {13: 52}},
        "fused.add:constant": {"sst2": {13: 60.5, 21: 62.5}},
        "fused.add,k=4": {"mr": {21: 57}},
        "fused.add,slots=query/key": {"cr": {21: 80}},
        "fused.refusion": {"cr": {13: 71}},
        "prompt": {"cr": {13: 1}},
        "fused-prompt.add": {"cr": {21: 2}},
        "fused.mask,k=8": {"cr": {21: 2}},
    }
    for method, tasks in scores.items():
        for task, seeds in tasks.items():
            for seed, value in seeds.items():
                add_row(run, place, method, shown.variant(7), task, seed, float(value))
    full = recipe.Recipe(full=True)
    for seed, value in ((13, 80.0), (21, 84.0)):
        add_row(run, place, "finetune", full.variant(9), "sst2", seed, value)
        add_row(run, place, "fused.add", full.variant(9), "sst2", seed, value + 1)
    page = "\n\n".join(importlib.import_module("page").scored())
    width = 12.7062047 / 2  # Student's t for two seeds, over 2
    cells = f"61.0 ±{width * 2:.1f} (1.0) | 52.0 ±{width * 4:.1f} (2.0) | 70.0"
    assert f"| finetune | {cells} | 61.00 of 3 | 5 |" in page, "no interval of all: a task has one seed"
    both = f"61.5 ±{width:.1f} (0.5) | 52.0 |  | 56.75 of 2 | 3 |"
    assert f"| fused.add:random | {both}" in page
    assert "| fused.add - finetune | +2.50 | 0.00 | 4 | +2.5 | +2.5 |  |" in page, (
        "nothing of cr, of which no seed is in both"
    )
    assert "fused-prompt.add - prompt" not in page, "no cell in both"
    assert (
        "- `fused.add` over `finetune`: +3.25 (standard error 0.75, 2 tasks, 3 cells). In its place `fused.add:random`,"
        " the best of 2 controls, has +1.25, and `fused.add` over that: +2.00 (standard error 0.00, 2 tasks, 3 cells). "
        "There is no gain that can be told from 0, so nothing for a control to explain."
    ) in page
    assert "- `fused.refusion` over `finetune`: +1.00 (1 task, 1 cell). None of its controls has been run." in page
    assert "Number of neighbours (the paper's Table 10):\n\n| `fused.add` | mean | cells | over `finetune` |" in page
    lines = "| 4 | 57.00 | 1 | +3.00 |  | 1 | +2.00 |  | 1 |\n| 64 (usual) | 69.33 | 5 | +2.50 | 0.00 | 4 |  |  |  |"
    assert lines in page
    assert "| key/value (usual) | 69.33 | 5 | +2.50 | 0.00 | 4 |  |  |  |" in page
    assert "`fused.mask`" not in page, "one number of neighbours is no table of them"
    assert "| query/key | 80.00 | 1 |  |  |  | -10.00 |  | 1 |" in page, "of cr, where fine-tuning lacks the seed"
    after = page.partition("`test=1000 train=full epochs=3`: ")[2]
    assert "| fused.add:random" not in after
    assert "the others learn from all training texts but a tenth" in after
    assert "| fused.add - finetune | +1.00 |  | 2 | +1.0 |" in after


@pytest.mark.parametrize(
    ("plain", "control", "fused", "said"),
    [
        ((0, 0, 0), (5, 2.5, 0), (4, 5, 6), "The control explains 50 % of the gain; the rest cannot be told from 0."),
        ((0, 0, 0), (1, 1, 1), (5, 5, 5), "20 % of the gain; the rest can be told from 0, so what is retrieved helps."),
        (
            (0, 0, 0),
            (4, 4, 4),
            (2, 2, 2),
            "200 % of the gain; the rest can be told from 0, so what is retrieved hurts.",
        ),
        ((9, 9, 9), (9, 9, 9), (5, 5, 5), "It costs more than it gives."),
        ((0, 0, 0), (0, 0, 0), (-1, 2, 3), "There is no gain that can be told from 0"),
    ],
)
def test_a_verdict_says_which_share_of_a_gain_the_best_control_explains(
    run: Any, plain: tuple[float, ...], control: tuple[float, ...], fused: tuple[float, ...], said: str
) -> None:
    both = {"layers": plain, "late": fused, "constant": control, "components": [one - 9 for one in control]}
    found = {
        name: {task: {13: float(value)} for task, value in zip(("sst2", "mr", "cr"), own, strict=True)}
        for name, own in both.items()
    }
    (sentence,) = importlib.import_module("verdicts").verdicts(found)
    assert sentence.startswith("`late` over `layers`: ")
    assert "In its place `constant`, the best of 2 controls, has" in sentence
    assert said in sentence


def test_the_page_sets_scores_beside_costs_and_names_what_has_no_score(place: Path, run: Any, recipe: Any) -> None:
    shown, (docs, results) = recipe.Recipe(), (place.parents[1] / part for part in ("docs", "benchmarks/results"))
    docs.mkdir()
    results.mkdir(parents=True)
    forward = {"plain": 2e9, "integrator": 3e9, "concat8": 14e9}
    retrieval = {"query": 2e9, "search64": 1e9, "search8": 1e9}
    number = {"plain": 2e9, "add64": 3e9, "concat8": 14e9, "concat2": 6e9}

    def part(flops: dict[str, float]) -> dict[str, Any]:
        ms = {name: value / 1e8 for name, value in flops.items()}
        return {"ms": ms, "flops": flops, "to_plain": {name: value / 2e9 for name, value in flops.items()}}

    whole = {"ms": {"plain": 20.0, "fusion": 60.0, "concat8": 150.0}}
    found = {
        f"{name}_{n}": own
        for n in (1, 32)
        for name, own in (("forward", part(forward)), ("retrieval", part(retrieval)), ("end_to_end", whole))
    }
    more = {
        "k": 64,
        "rows": 1000,
        "machine": "m",
        "commit": "c",
        "of_one_text": {"own": 9, "concat8": 70, "concat512": 500},
    }
    (results / "fusion.json").write_text(json.dumps({**found, **more, "number": part(number)}))
    marks = "\n".join(f"<!-- {part}: written by page.py -->\n<!-- end of {part} -->" for part in ("scores", "costs"))
    (docs / "fewshot.md").write_text(f"# Few\n\n{marks}\nlast\n")
    methods = {"finetune": 60.0, "concat.2": 70.0, "fused.refusion": 50.0, "probe": 58.5, "fewshot": 63.0}
    for name, first in methods.items():
        for t, task in enumerate(shown.tasks):
            for seed in shown.seeds[: 4 if name == "fused.refusion" and t == 9 else 5]:
                add_row(run, place, name, shown.variant(7), task, seed, first + t)
    importlib.import_module("page").main()
    page = (docs / "fewshot.md").read_text()
    assert "| fusion: integrator | 30.0 | 30.0 | 60.0 | 1.50 | 1.22 | 3.000 | 3.000 | 6.000 |" in page
    assert "against fusion: 2.5 times the time" in page
    assert "| 2 |  |  | 6.000 | 60.0 |" in page
    assert "| `finetune` | 2.000 | +1.50 | 0.00 | 50 |" in page
    assert "| `concat.2` | 9.000 | +11.50 | 0.00 | 50 |" in page
    assert "| `fused.refusion` | 6.000 | -8.50 | 0.00 | 49 |" in page, "over the cells that it shares with the probe"
    assert "Not run yet: `layers`, `late`, `prompt`," in page
    ten = " | ".join(f"{60 + t:.1f} ±0.0 (0.0)" for t in (0, 1, 2, 3, 4, 5, 6, 8, 7, 9))  # in the paper's order
    assert f"| finetune | {ten} | 64.50 ±0.00 of 10 | 50 |" in page
    verdict = "fewshot against the better of probe and finetune of each task: +3.00 (standard error 0.00, 10 tasks, 50"
    assert f"{verdict} cells); sst2 +3.0" in page
    assert "| fused.refusion - finetune | -10.00 | 0.00 | 49 |" in page
    assert page.endswith("<!-- end of costs -->\nlast\n")
    assert (place / "cost.png").read_bytes()[:4] == b"\x89PNG"
    importlib.import_module("page").main()
    assert (docs / "fewshot.md").read_text() == page
    marks = importlib.import_module("page").COSTS
    importlib.import_module("page").written(marks, ["a", "```{image} b\n```"])
    assert (docs / "fewshot.md").read_text().endswith("a\n\n```{image} b\n```\n<!-- end of costs -->\nlast\n")
