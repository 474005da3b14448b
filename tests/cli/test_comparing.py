"""Which of the values that were tried a task gets, from rows alone: nothing is trained here."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from encodeonce.cli import learning, report_files
from encodeonce.cli.cells import Cell, Names
from encodeonce.cli.compare import _draw
from encodeonce.cli.comparing import Comparison
from encodeonce.cli.config import parse
from encodeonce.cli.contenders import contenders
from encodeonce.errors import RunError
from encodeonce.report.results import ResultsRow, read_rows
from encodeonce.tasks import named
from encodeonce.types import Document, Spec

WORDS = Document("s", ("a", "b"), columns={"upos": ("X", "Y"), "deprel": ("x", "y")})
TASKS = tuple(named(name).learn([WORDS]) for name in ("upos", "deprel"))
DEV: dict[tuple[float, int], tuple[float, float | None]] = {
    (1e-4, 3): (80.0, 60.0),
    (1e-4, 5): (90.0, 61.0),
    (2e-4, 3): (85.0, 70.0),
    (2e-4, 5): (90.0, None),
}
"""(encoder rate, epochs) -> dev scores of both tasks; None: undefined."""


def tried(folder: Path, **options: Any) -> Comparison:
    """A comparison whose grid is finished, with these scores on dev."""
    grid = {"encoder_learning_rate": [2e-4, 1e-4], "num_train_epochs": [3, 5]}
    data = {split: [f"{split}.conllu"] for split in ("train", "dev", "test")}
    methods = {"finetune": {"grid": grid, "finetune": options}}
    config = parse({"encoder": "e", "data": data, "methods": methods}, "here")
    comparison = Comparison(config, folder, contenders(config, ["finetune"], [13, 21]), Names("e", "d"))
    for cell in comparison.tries(comparison.contenders[0], TASKS):
        scores = DEV[cell.point["encoder_learning_rate"], cell.point["num_train_epochs"]]
        for task, value in zip(TASKS, scores, strict=True):
            for split, shown in (("dev", value), ("test", 50.0)):
                row = cell.row(config, comparison.files.names, task, split, task.metric)
                comparison.files.append(cell, [replace(row, value=shown)])
    return comparison


def test_a_picture_of_gains_over_several_frozen_is_said_not_to_be_drawn(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def rows(*rates: float) -> list[ResultsRow]:
        given = [("frozen", f"lr={rate}") for rate in rates] + [("linear", "lr=0.002")]
        return [
            ResultsRow("e", "d", "upos", "enc", method, variant, 1, "test", "accuracy", 50.0)
            for method, variant in given
        ]

    _draw(rows(0.001, 0.002), tmp_path, {})
    assert not list(tmp_path.iterdir())
    assert "there are 2: frozen (lr=0.001), frozen (lr=0.002)." in caplog.text
    caplog.clear()
    _draw(rows(0.001), tmp_path, {})
    assert [path.name for path in tmp_path.iterdir()] == ["improvement.png"]
    _draw(rows(), tmp_path, {})  # nobody asked for Frozen, and the picture of before is not of these rows
    assert not caplog.text
    assert not list(tmp_path.iterdir())


def test_each_task_gets_its_own_best_and_of_equal_ones_the_first(tmp_path: Path) -> None:
    comparison = tried(tmp_path)
    upos, deprel = comparison.best(comparison.contenders[0], TASKS).values()
    assert upos == {"encoder_learning_rate": 1e-4, "num_train_epochs": 5}
    assert deprel == {"encoder_learning_rate": 2e-4, "num_train_epochs": 3}
    cells = comparison.results(comparison.contenders[0], dict(zip(TASKS, (upos, deprel), strict=True)))
    assert [(cell.seed, [task.name for task in cell.tasks]) for cell in cells] == [
        *((seed, [name]) for seed in (13, 21) for name in ("upos", "deprel"))
    ]


def test_tasks_on_one_trunk_get_one_point_that_of_the_best_mean(tmp_path: Path) -> None:
    """A point where one of them is undefined is none of the best."""
    comparison = tried(tmp_path, shared=True)
    points = comparison.best(comparison.contenders[0], TASKS)
    assert {tuple(point.items()) for point in points.values()} == {
        (("encoder_learning_rate", 2e-4), ("num_train_epochs", 3))
    }
    cells = comparison.results(comparison.contenders[0], points)
    assert [len(cell.tasks) for cell in cells] == [2, 2]


def test_undefined_everywhere_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = tried(tmp_path)
    monkeypatch.setattr(comparison.files, "dev_score", lambda cell, task: None)
    with pytest.raises(RunError, match="finetune, upos: the score on dev was undefined at every point of the grid"):
        comparison.best(comparison.contenders[0], TASKS)


def test_a_cell_whose_deciding_score_is_undefined_is_finished(tmp_path: Path) -> None:
    """It is not trained again, and its null is a result like any other."""
    comparison = tried(tmp_path)
    (one,) = comparison.contenders
    (cell,) = comparison.results(one, dict.fromkeys(TASKS, comparison.best(one, TASKS)[TASKS[0]]))[:1]
    rows = [cell.row(comparison.config, comparison.files.names, task, "test", task.metric) for task in TASKS]
    comparison.files.append(cell, rows[:1])
    assert not comparison.files.finished(cell)
    comparison.files.append(cell, rows[1:])
    assert comparison.files.finished(cell)
    assert [row.value for row in comparison.files.rows()] == [None, None]


def test_of_a_cell_only_the_tasks_that_are_not_finished_are_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A grid that grows brings tasks to one point that were apart: a second row of a seed would be averaged with it."""
    comparison = tried(tmp_path)
    (one,) = comparison.contenders
    point = {"encoder_learning_rate": 1e-4, "num_train_epochs": 3}
    seen: list[tuple[int, list[str]]] = []

    def rows(cell: Cell, *_: Any) -> Iterator[ResultsRow]:
        seen.append((cell.seed, [task.name for task in cell.tasks]))
        joint = "+".join(task.name for task in cell.tasks)
        for task in cell.tasks:
            row = cell.row(comparison.config, comparison.files.names, task, "test", task.metric)
            yield replace(row, variant=f"{row.variant} joint={joint}" if len(cell.tasks) > 1 else row.variant)

    monkeypatch.setattr(comparison, "_measured", rows)
    monkeypatch.setitem(comparison.__dict__, "material", None)
    zeros = {"test": SimpleNamespace(scores={task.name: {task.metric: 0.0} for task in TASKS})}
    monkeypatch.setattr(learning, "train", lambda *_, **__: SimpleNamespace(evaluations=zeros, seconds=0.0))
    cells = comparison.results(one, {TASKS[0]: point})
    comparison._finish(cells[0])
    cells = comparison.results(one, dict.fromkeys(TASKS, point))
    for cell in cells:
        comparison._finish(cell)
    assert seen == [(13, ["upos"]), (13, ["deprel"]), (21, ["upos", "deprel"])]
    assert len(comparison.files.rows()) == 4


def test_rows_that_a_grid_set_aside_are_results_again_without_it(tmp_path: Path) -> None:
    """All seeds of them: nothing is trained a second time."""
    comparison = tried(tmp_path)
    (one,) = comparison.contenders
    plain = replace(one, grid={})
    cells = comparison.results(plain, {task: {} for task in TASKS})
    for cell in cells:
        rows = [cell.row(comparison.config, comparison.files.names, task, "test", task.metric) for task in TASKS]
        comparison.files.append(cell, [replace(row, value=50.0) for row in rows])
    comparison._choose(one, TASKS)
    assert not any(map(comparison.files.finished, cells))
    comparison._choose(plain, TASKS)
    assert all(map(comparison.files.finished, cells))


def test_a_cell_is_in_its_file_as_a_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first row says that it is finished: a disk that is full within it must not leave the others out for good."""
    comparison = tried(tmp_path)
    (one,) = comparison.contenders
    (cell, _) = comparison.results(one, {TASKS[0]: {}})
    named = (TASKS[0].metric, "second", "third")
    rows = [cell.row(comparison.config, comparison.files.names, TASKS[0], "test", metric) for metric in named]
    before = read_rows(tmp_path / cell.file)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OSError, match="No space"):
            comparison.files.append(cell, rows)
    assert read_rows(tmp_path / cell.file) == before
    assert not comparison.files.finished(cell)
    comparison.files.append(cell, rows)
    assert read_rows(tmp_path / cell.file) == [*before, *rows]


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff"])
@pytest.mark.parametrize("name", ["data.json", "encode.json"])
def test_a_damaged_file_of_a_report_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    files = tried(tmp_path).files
    (tmp_path / name).write_bytes(content)
    read = {"data.json": files._kept, "encode.json": files._told}[name]
    with pytest.raises(RunError, match=rf"{name} was damaged: .*Put it back as it was, or choose another folder"):
        read()


def test_seconds_of_one_machine_are_never_said_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report that goes on elsewhere, or with more threads, measures the encoder's pass again."""
    files = tried(tmp_path).files
    spec = Spec("mini", "", "", "", n_blocks=6, width=8, layers=(0, 6), window=32, overlap=0)
    here = {"machine": "A", "threads": 1}
    monkeypatch.setattr(report_files, "surroundings", lambda: here)

    def encoded(written: int, hits: int, seconds: float) -> Any:
        material = Mock(spec=learning.Material)
        material.spec = spec
        report = SimpleNamespace(asked=9, written=written, hits=hits, duplicates=0)
        material.encoded = SimpleNamespace(report=report, seconds=seconds)
        return material

    def measured(split: str, layers: tuple[int, ...], seconds: float) -> float | None:
        return files.pass_seconds(split, layers, lambda: seconds)

    files.remember_encoding(encoded(9, 0, 70.0))
    assert (measured("test", (0, 6), 1.0), measured("train", (6,), 2.0), measured("test", (0,), 0.5)) == (1.0, 2.0, 0.5)
    assert measured("test", (), 1.0) is None
    assert files.encode_seconds(spec) == 70.0
    assert files.encode_seconds(replace(spec, layers=(6,))) is None
    assert files.encode_seconds(replace(spec, dtype="int8")) is None
    here |= {"machine": "B"}
    files.remember_encoding(encoded(0, 9, 0.1))  # the store was brought along
    assert files.encode_seconds(spec) is None
    assert (measured("test", (6,), 3.0), measured("train", (6,), 4.0)) == (3.0, 4.0)
    files.remember_encoding(encoded(9, 0, 150.0))  # it was lost, and made here
    assert files.encode_seconds(spec) == 150.0
    here |= {"threads": 2}
    assert files.encode_seconds(spec) is None
    assert measured("test", (6,), 5.0) == 5.0
    here |= {"machine": "A", "threads": 1}
    assert files.encode_seconds(spec) == 70.0
    assert (measured("test", (6,), 9.0), measured("train", (6,), 9.0)) == (1.0, 2.0)


def test_two_do_not_fill_one_folder(tmp_path: Path) -> None:
    """Each would train the same cells, and one that puts rows aside would lose the other's."""
    comparison = tried(tmp_path)
    hold = (
        "import sys\nfrom pathlib import Path\nfrom encodeonce.store.claim import Claim\n"
        "with Claim.take(Path(sys.argv[1])):\n    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", hold, str(tmp_path / "compare.tmp")]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"
    with pytest.raises(RunError, match=r"is being filled by another `compare`.*choose another folder"):
        comparison.run(TASKS, lambda: pytest.fail("nothing is to be prepared"))
    other.communicate()
    with comparison.files.held():
        assert (tmp_path / "compare.tmp").exists()
    assert not (tmp_path / "compare.tmp").exists()
