"""Methods x tasks x seeds from one store, cell by cell: what is finished is never computed again.

REPORT/config.toml      the resolved config of the first run; a later one must agree in all that a row does not say
REPORT/results.jsonl    one row a task, split and metric of each finished cell, appended when the cell is done
REPORT/grid.jsonl       the same for the learning rates that were tried with the first seed
REPORT/encode.json      what the encoding pass cost
"""

import itertools
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import ConfigError, RunError
from ..report.results import ResultsRow, append_row, latest, now, read_rows, surroundings, write_rows
from ..tasks import Task
from . import learning, steps
from .config import Config, load, to_toml
from .learning import Material, Trained

__all__ = ["SEEDS", "Comparison", "Names"]

log = logging.getLogger("encodeonce")

SEEDS = (13, 21, 42, 87, 100)
"""The seeds of every experiment, in order."""

SAID_BY_ROW = ("method", "adapter", "dtype", "layers", "store")
"""Keys of the config that a row's method and variant tell apart, or that lead to the same row."""


@dataclass(frozen=True, slots=True)
class Names:
    """How rows call what they come from."""

    experiment: str
    dataset: str


class Comparison:
    """One report folder. `run` fills it, whatever of it is there already."""

    def __init__(
        self,
        config: Config,
        folder: Path,
        methods: Sequence[str],
        seeds: Sequence[int],
        grid: Sequence[float] = (),
        names: Names | None = None,
    ) -> None:
        self.config, self.folder, self.methods, self.seeds, self.grid = config, folder, methods, seeds, grid
        self.names = names or Names(folder.resolve().name, Path(config.data.train[0]).name.split(".")[0])
        self.variants = {method: learning.variant_of(config, method) for method in methods}
        if grid and not (config.data.dev or config.data.dev_fraction):
            raise ConfigError("A learning rate is chosen on dev, and data.dev is not set. Set it, or give no grid.")
        if not config.data.test:
            raise ConfigError("data.test is not set; methods are compared on it.")
        self._agree()

    def run(self, material: Material) -> list[ResultsRow]:
        """Every row of these methods and seeds, the finished and the new."""
        self.material = material
        self._remember_encoding()
        for method in self.methods:
            rates = self._chosen_rates(method) if self.grid else self._one_rate()
            for seed in self.seeds:
                for rate, tasks in _grouped(rates):
                    self._cell("results.jsonl", method, seed, rate, tasks, scored=("dev", "test"))
        return self.rows()

    def rows(self) -> list[ResultsRow]:
        """The rows of `results.jsonl` that belong to these methods and seeds, a row a cell."""
        found = latest(read_rows(self.folder / "results.jsonl"))
        wanted = [row for row in found if row.method in self.methods and row.seed in self.seeds]
        return sorted(wanted, key=lambda row: self.methods.index(row.method))

    def _agree(self) -> None:
        """Keep the config, or compare it with the one that the finished cells were made by."""
        path = self.folder / "config.toml"
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            path.write_text(to_toml(self.config, self.folder), encoding="utf-8")
            return
        then, now_ = _comparable(load(path)), _comparable(self.config)
        changed = [
            f"{key}: {then.get(key)!r} then, {now_.get(key)!r} now" for key in now_ if then.get(key) != now_[key]
        ]
        if changed:
            raise RunError(
                f"{self.folder} holds results of another config, and a table must not mix them: {'; '.join(changed)}. "
                "Choose another folder, or put it back as it was."
            )

    def _remember_encoding(self) -> None:
        """Add this pass to `encode.json`: the seconds count once all items were written by passes that are in it."""
        path = self.folder / "encode.json"
        told = json.loads(path.read_text()) if path.exists() else {}
        name = self.material.spec.dtype
        before = told.get(name, {"written": 0, "seconds": 0.0})
        report = self.material.encoded.report
        if report.written:
            before["written"] += report.written
            before["seconds"] += self.material.encoded.seconds
        told[name] = {**before, "items": report.asked - report.duplicates}
        path.write_text(json.dumps(told, indent=1) + "\n")

    def _encode_seconds(self) -> float | None:
        """What encoding all items took; None where some were in the store before."""
        told = json.loads((self.folder / "encode.json").read_text())[self.material.spec.dtype]
        return float(told["seconds"]) if told["written"] == told["items"] else None

    def _one_rate(self) -> dict[Task, float]:
        return dict.fromkeys(self.material.tasks, self.config.train.learning_rate)

    def _chosen_rates(self, method: str) -> dict[Task, float]:
        """For each task the rate with the best dev score of the first seed; of equal ones the smallest."""
        seed, tasks = self.seeds[0], self.material.tasks
        for rate in self.grid:
            self._cell("grid.jsonl", method, seed, rate, tasks, scored=("dev", "test"))
        tried = latest(read_rows(self.folder / "grid.jsonl"))
        rates = {}
        for task in tasks:
            found: dict[float, float] = {}
            for rate in sorted(self.grid):
                wanted = self._row(method, seed, rate, task, "dev", task.metric).cell
                found |= [(rate, row.value) for row in tried if _without_company(row).cell == wanted]
            if not found:
                raise RunError(
                    f"{method}, task {task.name}: {task.metric} on dev was undefined at every rate of the grid."
                )
            rates[task] = max(found, key=lambda rate: found[rate])
            tried_rates = ", ".join(f"{rate:g}: {value:.2f}" for rate, value in found.items())
            log.info("%s, %s: learning rate %g (dev %s)", method, task.name, rates[task], tried_rates)
        self._set_aside(method, rates)
        self._take_over(method, rates)
        return rates

    def _set_aside(self, method: str, rates: Mapping[Task, float]) -> None:
        """Rows of a rate that a wider grid no longer chooses go to `grid.jsonl`: results hold one rate a task."""
        path = self.folder / "results.jsonl"
        chosen = {task.name: self._variant(rate) for task, rate in rates.items()}
        kept: list[ResultsRow] = []
        moved: list[ResultsRow] = []
        for row in read_rows(path):
            mine = row.method == method and row.task in chosen
            variant = _without_company(row).variant
            stale = mine and variant != chosen[row.task] and _but_rate(variant) == _but_rate(chosen[row.task])
            (moved if stale else kept).append(row)
        there = {row.cell for row in read_rows(self.folder / "grid.jsonl")}
        for row in moved:
            if row.cell not in there:
                append_row(self.folder / "grid.jsonl", row)
        if moved:
            write_rows(path, kept)

    def _take_over(self, method: str, rates: Mapping[Task, float]) -> None:
        """Cells of the chosen rates that are done already, the first seed's at least: their rows become results."""
        tried = latest(read_rows(self.folder / "grid.jsonl"))
        for (task, rate), seed in itertools.product(rates.items(), self.seeds):
            if self._finished("results.jsonl", method, seed, rate, [task]):
                continue
            wanted = (method, seed, task.name, self._variant(rate))
            for row in tried:
                mine = (row.method, row.seed, row.task, _without_company(row).variant) == wanted
                if mine and (row.experiment, row.dataset) == (self.names.experiment, self.names.dataset):
                    append_row(self.folder / "results.jsonl", row)

    def _cell(
        self, file: str, method: str, seed: int, rate: float, tasks: Sequence[Task], scored: Sequence[str]
    ) -> None:
        """Train and score these tasks together once, unless their rows are in `file`."""
        if self._finished(file, method, seed, rate, tasks):
            return
        started = now()
        settings = learning.settings_of(self.config, learning_rate=rate, seed=seed)
        done = learning.train(self.material, self.variants[method], settings, tasks, scored=scored)
        for row in self._measured(method, seed, rate, done, started):
            append_row(self.folder / file, row)
        said = ", ".join(
            f"{task.name} {done.evaluations['test'].scores[task.name][task.metric] or float('nan'):.2f}"
            for task in tasks
        )
        log.info("%s, seed %d, rate %g: test %s (%.1f s)", method, seed, rate, said, done.seconds)

    def _finished(self, file: str, method: str, seed: int, rate: float, tasks: Sequence[Task]) -> bool:
        there = {_without_company(row).cell for row in read_rows(self.folder / file)}
        return all(self._row(method, seed, rate, task, "test", task.metric).cell in there for task in tasks)

    def _measured(self, method: str, seed: int, rate: float, done: Trained, started: str) -> Iterator[ResultsRow]:
        """A row a split, task and metric, the deciding metric of a task first; an undefined score has no row."""
        here, encode_s = surroundings(), self._encode_seconds()
        nbytes = sum(file.stat().st_size for file in self.material.store.path.iterdir() if file.is_file())
        company = "+".join(task.name for task in done.tasks)
        for split, evaluation in done.evaluations.items():
            for task in done.tasks:
                scores = evaluation.scores[task.name]
                for metric in [task.metric, *(name for name in scores if name not in (task.metric, "n"))]:
                    value = scores[metric]
                    if value is None:
                        log.warning("%s, %s, %s: %s is undefined, no row", method, task.name, split, metric)
                        continue
                    row = self._row(method, seed, rate, task, split, metric)
                    yield replace(
                        row,
                        variant=f"{row.variant} joint={company}" if len(done.tasks) > 1 else row.variant,
                        value=value,
                        n=int(scores["n"] or 0) if "n" in scores else None,
                        train_s_per_batch=done.fit.seconds_per_batch,
                        train_s_total=done.fit.seconds,
                        encode_s=encode_s,
                        infer_s_per_batch=evaluation.seconds_per_batch,
                        params_trainable=done.fit.parameters[task.name],
                        peak_mb=done.peak_mb,
                        store_mb=nbytes / 1e6,
                        started=started,
                        command=learning.command_line(),
                        **here,
                    )

    def _row(self, method: str, seed: int, rate: float, task: Task, split: str, metric: str) -> ResultsRow:
        """A row that says what it is of and has no value yet."""
        return ResultsRow(
            experiment=self.names.experiment,
            dataset=self.names.dataset,
            task=task.name,
            encoder=steps.label_of(self.material.spec.encoder),
            method=method,
            variant=self._variant(rate),
            seed=seed,
            split=split,
            metric=metric,
            value=0.0,
        )

    def _variant(self, rate: float) -> str:
        """All that sets a cell apart beside method and seed, in a fixed order."""
        config, said = self.config, {"lr": f"{rate:g}"}
        said |= {key: str(value) for key, value in config.adapter.chosen().items() if value != _default(key)}
        if config.data.train_fraction < 1:
            said["train"] = f"{config.data.train_fraction:g}"
        if config.dtype != "fp16":
            said["store"] = config.dtype
        if config.layers != "all":
            said["layers"] = (
                "+".join(map(str, config.layers)) if isinstance(config.layers, list) else str(config.layers)
            )
        return " ".join(f"{key}={value}" for key, value in said.items())


def _default(key: str) -> Any:
    from ..methods.aggregate import Variant

    return getattr(Variant(), key)


def _without_company(row: ResultsRow) -> ResultsRow:
    """The row without the names of the tasks that were trained beside it: they change times, not scores."""
    return replace(row, variant=" ".join(part for part in row.variant.split() if not part.startswith("joint=")))


def _but_rate(variant: str) -> str:
    return " ".join(part for part in variant.split() if not part.startswith("lr="))


def _grouped(rates: Mapping[Task, float]) -> list[tuple[float, list[Task]]]:
    """Tasks that share a rate are trained side by side."""
    groups: dict[float, list[Task]] = {}
    for task, rate in rates.items():
        groups.setdefault(rate, []).append(task)
    return sorted(groups.items(), key=lambda group: group[0])


def _comparable(config: Config) -> dict[str, Any]:
    """The config's values that rows do not say, flat, with absolute paths."""
    values = {key: value for key, value in config.model_dump().items() if key not in SAID_BY_ROW}
    train, data = dict(values.pop("train")), dict(values.pop("data"))
    for key in ("seed", "learning_rate", "logging_steps", "save_steps", "per_device_eval_batch_size"):
        train.pop(key)
    data.pop("train_fraction")
    for split in ("train", "dev", "test"):
        data[split] = [os.path.abspath(name) for name in data[split]]
    if Path(config.encoder).is_dir():
        values["encoder"] = os.path.abspath(config.encoder)
    flat = {f"train.{key}": value for key, value in train.items()} | {
        f"data.{key}": value for key, value in data.items()
    }
    return values | flat
