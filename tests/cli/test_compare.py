"""`compare`: one row a number, finished cells are never computed again, rates chosen on dev, one config a report."""

import json
from pathlib import Path

import pytest

from encodeonce.cli import comparing
from encodeonce.report.results import read_rows
from encodeonce.report.table import scores

from .conftest import Run

ARGS = ("-m", "frozen,linear", "--seeds", "2", "--set", "train.num_train_epochs=2")


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
    text = run("compare", config, "-o", "rep", *ARGS).stdout
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
    assert {r.variant for r in rows} == {"lr=0.02 joint=upos+deprel"}
    assert str(scores(rows)["upos"]["linear"]) in text
    table = (tmp_path / "rep" / "table.md").read_text()
    assert "**" in table
    assert "| linear |" in table
    assert "ms/batch" in table
    assert (tmp_path / "rep" / "improvement.png").read_bytes().startswith(b"\x89PNG")
    assert len(trainings) == 4


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
    run("compare", config, "-o", "rep", *ARGS)
    assert trainings == []


def test_a_rate_is_chosen_on_dev_and_its_cell_is_kept(
    run: Run, config: Path, tmp_path: Path, trainings: list[tuple[str, int, float]]
) -> None:
    run("compare", config, "-o", "rep", *ARGS, "-m", "linear", "--learning-rate-grid", "1e-5,2e-2", "--no-plot")
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
    some = ("compare", config, "-o", "rep", *ARGS, "-m", "linear", "--no-plot")
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
    assert "--seeds" in run("compare", config, "-o", "rep", "--seeds", "x", code=2).stderr
    no_test = run("compare", config, "-o", "rep", "--set", "data.test=[]", code=1)
    assert "data.test is not set" in no_test.stderr
    no_dev = run("compare", config, "-o", "rep", "--set", "data.dev=[]", "--learning-rate-grid", "1e-3", code=1)
    assert "data.dev is not set" in no_dev.stderr
