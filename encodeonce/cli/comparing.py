"""Methods x tasks x seeds from one store, cell by cell: what is finished is never computed again, and a cell that was
interrupted goes on where it was saved last.

First every contender's grid of settings is tried with its first seed, and each task gets the values with its best dev
score; then the cells of all seeds are trained at these. See `report_files` for what is kept where.
"""

import itertools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ..errors import ConfigError, RunError
from ..methods.finetune import Tuning
from ..report.results import ResultsRow, now, provenance
from ..report.table import shown
from ..tasks import Task
from . import learning
from .cells import Cell, Names, grouped, variant
from .config import Config
from .contenders import Contender, Point
from .learning import Material, Trained
from .passes import pass_seconds
from .report_files import GRID, RESULTS, ReportFiles

__all__ = ["Comparison"]

log = logging.getLogger("encodeonce")

SAVE_SECONDS = 60.0
"""Between two checkpoints of a cell: a short one is sooner trained again than saved after each of its epochs."""


class Comparison:
    """One report folder. `run` fills it, whatever of it is there already. `apart` trains every task by itself, so that
    times are those of one task; else tasks of equal settings are trained from one read."""

    def __init__(
        self, config: Config, folder: Path, contenders: Sequence[Contender], names: Names, apart: bool = False
    ) -> None:
        self.config, self.contenders, self.apart = config, contenders, apart
        if any(one.grid for one in contenders) and not (config.data.dev or config.data.dev_fraction):
            raise ConfigError("Settings are chosen on dev, and data.dev is not set. Set it, or give no grid.")
        if not config.data.test:
            raise ConfigError("data.test is not set; methods are compared on it.")
        lines = [(one.method, variant(config, one, {})) for one in contenders]
        for name, line in zip(contenders, lines, strict=True):
            if lines.count(line) > 1:
                raise ConfigError(f"{name.name!r} is the same as another of {[one.name for one in contenders]}.")
        self.files = ReportFiles(folder, config, names)

    def run(self, tasks: Sequence[Task], prepare: Callable[[], Material]) -> list[ResultsRow]:
        """Every row of these methods and seeds, the finished and the new. What they are trained on is prepared before
        the first cell that is not finished; with none left nothing is encoded. RunError where another process is
        filling the folder."""
        self._prepare = prepare
        with self.files.held():
            self.files.agree()
            for one in self.contenders:
                for cell in self.tries(one, tasks):
                    self._finish(cell)
                points = self._choose(one, tasks)
                for cell in self.results(one, points):
                    self._finish(cell)
        return self.rows()

    @cached_property
    def material(self) -> Material:
        """What every cell is trained on."""
        material = self._prepare()
        self.files.same_encoder(material.spec)
        self.files.remember_encoding(material)
        return material

    def rows(self) -> list[ResultsRow]:
        """The results that belong to these methods and seeds under these names, a row a cell."""
        methods = list(dict.fromkeys(one.method for one in self.contenders))
        seeds = {(one.method, seed) for one in self.contenders for seed in one.seeds}
        names = self.files.names
        wanted = [
            row
            for row in self.files.rows()
            if (row.method, row.seed) in seeds and Names(row.experiment, row.dataset, row.encoder) == names
        ]
        return sorted(wanted, key=lambda row: methods.index(row.method))

    def tries(self, one: Contender, tasks: Sequence[Task]) -> list[Cell]:
        """The cells of a contender's grid, smallest values first; none where nothing is tried."""
        if not one.grid:
            return []
        tried = itertools.product(_points(one), self._side_by_side(one, tasks))
        return [Cell(GRID, one, point, one.seeds[0], own) for point, own in tried]

    def results(self, one: Contender, points: Mapping[Task, Point]) -> list[Cell]:
        """The cells of all seeds, each task at its point."""
        return [
            Cell(RESULTS, one, point, seed, own)
            for seed in one.seeds
            for point, tasks in grouped(points)
            for own in self._side_by_side(one, tasks)
        ]

    def best(self, one: Contender, tasks: Sequence[Task]) -> dict[Task, Point]:
        """For each task the point of the grid with the best dev score of the first seed, of equal ones the first.

        Tasks that share a trunk share its point, that of the best mean. RunError where a score was never defined.
        """
        tried = self.tries(one, tasks)
        if not tried:
            return {task: {} for task in tasks}
        points: dict[Task, Point] = {}
        for group in [tuple(tasks)] if _shared(one) else [(task,) for task in tasks]:
            found: list[tuple[float, Point]] = []
            for cell in (cell for cell in tried if group[0] in cell.tasks):
                scores = [self.files.dev_score(cell, task) for task in group]
                defined = [score for score in scores if score is not None]
                found += [(sum(defined) / len(group), cell.point)] if len(defined) == len(group) else []
            names = ", ".join(task.name for task in group)
            if not found:
                raise RunError(f"{one.name}, {names}: the score on dev was undefined at every point of the grid.")
            best = max(found, key=lambda pair: pair[0])[1]
            log.info(
                "%s, %s: %s (dev %s)", one.name, names, _said(best), ", ".join(f"{_said(p)}: {v:.2f}" for v, p in found)
            )
            points |= dict.fromkeys(group, best)
        return points

    def _choose(self, one: Contender, tasks: Sequence[Task]) -> dict[Task, Point]:
        """The same; what was tried or set aside at these points becomes results, and those at others of a grid are set
        aside."""
        points = self.best(one, tasks)
        if one.grid:
            others = {line for other in self.contenders if other is not one for line in self._lines(other)}
            chosen = {task.name: variant(self.config, one, point) for task, point in points.items()}
            self.files.set_aside(one, chosen, others)
        for task, point in points.items():
            for seed in one.seeds:
                self.files.take_over(Cell(GRID, one, point, seed, (task,)), Cell(RESULTS, one, point, seed, (task,)))
        return points

    def _lines(self, one: Contender) -> set[tuple[str, str]]:
        """Method and variant of every row that a contender may have."""
        return {(one.method, variant(self.config, one, point)) for point in _points(one)}

    def _side_by_side(self, one: Contender, tasks: Sequence[Task]) -> list[tuple[Task, ...]]:
        return [(task,) for task in tasks] if self.apart and not _shared(one) else [tuple(tasks)]

    def _finish(self, cell: Cell) -> None:
        """Train and score these tasks together once, those apart whose rows are there; one trunk has all or none."""
        if self.files.finished(cell):
            self.files.ended(cell)
            return
        if not _shared(cell.contender):
            left = [task for task in cell.tasks if not self.files.finished(replace(cell, tasks=(task,)))]
            cell = replace(cell, tasks=tuple(left))
        one, made = cell.contender, provenance(now())
        with self.files.begun(cell) as folder:
            goes_on = (folder / "checkpoint").exists()
            tuned, settings = one.settings(cell.point), cell.settings(self.config)
            done = learning.train(self.material, tuned, settings, cell.tasks, folder=folder, save_seconds=SAVE_SECONDS)
            if goes_on:
                done = replace(done, peak_mb=None)  # of what was left: less than the whole may have taken
            self.files.append(cell, self._measured(cell, done, made))
        scores = done.evaluations["test"].scores
        said = ", ".join(f"{task.name} {shown(scores[task.name][task.metric])}" for task in cell.tasks)
        log.info(
            "%s, seed %d, %s: test %s (%.1f s)", one.name, cell.seed, _said(cell.point) or "as set", said, done.seconds
        )

    def _measured(self, cell: Cell, done: Trained, made: Mapping[str, Any]) -> Iterator[ResultsRow]:
        """A row a split, task and metric, the deciding metric of a task first; an undefined score is None."""
        common = {**self._common(done), **made}
        company = "+".join(task.name for task in done.tasks)
        for split, evaluation in done.evaluations.items():
            for task in done.tasks:
                scores = evaluation.scores[task.name]
                for metric in [task.metric, *(name for name in scores if name not in (task.metric, "n"))]:
                    value = scores[metric]
                    if value is None:
                        log.warning("%s, %s, %s: %s is undefined", cell.contender.name, task.name, split, metric)
                    row = cell.row(self.config, self.files.names, task, split, metric)
                    yield replace(
                        row,
                        variant=f"{row.variant} joint={company}" if len(done.tasks) > 1 else row.variant,
                        value=value,
                        n=int(scores["n"] or 0) if "n" in scores else None,
                        infer_s_per_batch=evaluation.seconds_per_batch,
                        params_trainable=done.fit.parameters[task.name],
                        **common,
                    )

    def _common(self, done: Trained) -> dict[str, Any]:
        """What all rows of a cell say alike of its costs."""
        material, layers = self.material, done.method.layers
        size = self.config.train.per_device_eval_batch_size
        # epochs x a batch of training, in batches of predicting
        share = len(material.splits["train"]) / done.fit.batches / size

        def encoding(split: str) -> float | None:
            """Seconds of the encoder's pass over a batch of predicting, of documents like those of this split."""
            documents = material.splits[split]
            return self.files.pass_seconds(split, layers, lambda: pass_seconds(material.model, documents, layers, size))

        of_training = encoding("train")
        return {
            "train_s_per_batch": done.fit.seconds_per_batch,
            "train_s_total": done.fit.seconds,
            # the embeddings alone are no pass: their share of a batch is the whole cost
            "encode_s": self.files.encode_seconds(material.spec) if any(layers) else None,
            "infer_encoder_s_per_batch": encoding("test"),
            "train_encoder_s_per_batch": None if of_training is None else of_training * share,
            "peak_mb": done.peak_mb,
            "store_mb": material.stored_bytes(layers) / 1e6 if layers else None,
        }


def _shared(one: Contender) -> bool:
    """Whether all tasks train one trunk."""
    settings = one.settings()
    return isinstance(settings, Tuning) and settings.shared


def _points(one: Contender) -> list[Point]:
    """Those of its grid, smallest values first; without one, the one where nothing is tried."""
    return [dict(zip(one.grid, some, strict=True)) for some in itertools.product(*map(_rising, one.grid.values()))]


def _rising(values: Sequence[Any]) -> list[Any]:
    """Numbers from the smallest; anything else as it stands."""
    return sorted(values) if all(isinstance(value, (int, float)) for value in values) else list(values)


def _said(point: Point) -> str:
    return " ".join(f"{key}={value}" for key, value in point.items())
