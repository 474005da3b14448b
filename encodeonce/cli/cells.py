"""What a cell of a comparison is called in its rows, and how rows are found again by it.

A variant is all that sets a cell apart beside method and seed, in a fixed order: `lr=0.002 encoder_lr=0.001
key_width=64 epochs=5 train=0.1 store=int8 layers=last joint=upos+xpos`. What is as it is by default, or as the report's
config has it for all methods, is left out; `joint` names the tasks that were trained from the same read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..methods.aggregate import Variant
from ..methods.finetune import Tuning
from ..report.results import ResultsRow
from ..tasks import Task
from ..train.settings import Settings
from .config import Config, TrainSection
from .contenders import Contender, Point

__all__ = ["SHORT", "Cell", "Names", "grouped", "variant"]

SHORT = {"learning_rate": "lr", "encoder_learning_rate": "encoder_lr", "num_train_epochs": "epochs"}
"""Settings that a variant abbreviates."""

UNSAID = ("seed", "logging_steps", "save_steps", "per_device_eval_batch_size")
"""Keys of `[train]` that a variant does not say: a row does, or no score depends on them."""


@dataclass(frozen=True, slots=True)
class Names:
    """How rows call what they come from."""

    experiment: str
    dataset: str
    encoder: str = ""


@dataclass(frozen=True)
class Cell:
    """One training: these tasks side by side, by this contender at this point, with this seed, for a file of rows."""

    file: str
    contender: Contender
    point: Point
    seed: int
    tasks: tuple[Task, ...]

    def settings(self, config: Config) -> Settings:
        """The loop's."""
        return self.contender.training(config, self.point, seed=self.seed)

    def row(self, config: Config, names: Names, task: Task, split: str, metric: str) -> ResultsRow:
        """A row that says what it is of and has no value yet."""
        return ResultsRow(
            experiment=names.experiment,
            dataset=names.dataset,
            task=task.name,
            encoder=names.encoder,
            method=self.contender.method,
            variant=variant(config, self.contender, self.point),
            seed=self.seed,
            split=split,
            metric=metric,
            value=None,
        )


def variant(config: Config, contender: Contender, point: Point) -> str:
    """See the head of this file; without `joint`."""
    settings, training = contender.settings(point), contender.training(config, point)
    default = Variant(contender.method) if isinstance(settings, Variant) else Tuning(contender.method)
    said: dict[str, Any] = {"lr": f"{training.learning_rate:g}"}
    changed = {
        key: getattr(training, key)
        for key in TrainSection.model_fields
        if key not in (*UNSAID, "learning_rate") and getattr(training, key) != (getattr(config.train, key) or 0)
    }
    if "encoder_learning_rate" in changed:
        said["encoder_lr"] = f"{changed.pop('encoder_learning_rate'):g}"
    options = [key for key in (*contender.options, *point) if key in settings.uses]
    said |= {key: getattr(settings, key) for key in options if getattr(settings, key) != getattr(default, key)}
    said |= {SHORT.get(key, key): value for key, value in changed.items()}
    if config.data.train_fraction < 1:
        said["train"] = f"{config.data.train_fraction:g}"
    if config.dtype != "fp16":
        said["store"] = config.dtype
    if config.layers != "all":
        said["layers"] = config.layers
    return " ".join(f"{key}={_plain(value)}" for key, value in said.items())


def grouped(points: Mapping[Task, Point]) -> list[tuple[Point, tuple[Task, ...]]]:
    """Tasks of one point are trained side by side."""
    groups: dict[tuple[tuple[str, Any], ...], list[Task]] = {}
    for task, point in points.items():
        groups.setdefault(tuple(point.items()), []).append(task)
    return [(dict(key), tuple(tasks)) for key, tasks in groups.items()]


def _plain(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
