"""Which of the values that were tried a task gets, from rows alone: nothing is trained here."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from encodeonce.cli.cells import Names
from encodeonce.cli.comparing import Comparison
from encodeonce.cli.config import parse
from encodeonce.cli.contenders import contenders
from encodeonce.errors import RunError
from encodeonce.tasks import named
from encodeonce.types import Document

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
