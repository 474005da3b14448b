"""The training loop: one for every method.

Tasks are trained side by side from one read of the data. Each keeps the weights of its own best epoch on dev and stops
by itself, so a task ends where it would have ended alone. A run that is given a folder can be stopped at any moment and
goes on from its last checkpoint, bit by bit as if it had not been.
"""

import contextlib
import itertools
import json
import logging
import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn
from tqdm import tqdm

from ..errors import ConfigError, DataError, RunError
from . import Described, Scorer, Serialised, SplitExamples, Traced, Trainee, TwoLevel
from .batches import epoch, n_batches
from .checkpoint import Checkpoint, differences, of_module
from .evaluate import evaluate
from .log import RunLog
from .optim import count_parameters, groups_of, moments_of, optimiser_and_schedule, state_of, total_steps
from .randomness import generator_states, restore_generators, seed_generators
from .settings import HARMLESS, Settings
from .upper import Upper, UpperSteps

__all__ = ["Fit", "fit"]

log = logging.getLogger("encodeonce")
epochs = logging.getLogger("encodeonce.epochs")
"""A line an epoch, for long runs without a progress bar; a child, so that it can be turned off by itself."""

SHOWN = 8
"""Differences that are named where a run does not go on: of another method every parameter is one."""


@dataclass(frozen=True)
class Fit:
    """What a run did. The method now has, for each task, the weights of its best epoch (the last one without dev).

    `epochs` has one entry an epoch: epoch (from 1), step, loss (mean over its batches), dev scores by task and metric.
    `best[task]` names the epoch kept and its deciding score, the mean over the tasks that share its weights. Times are
    wall seconds: a batch's includes waiting for its data, `seconds` includes scoring dev and leaves out writing
    checkpoints. `steps` are the optimiser's, `batches` those that they took, of all epochs. `parameters` counts what is
    trained, by task and in all ("total"); what tasks share counts for each of them, and once in all.
    """

    epochs: list[dict[str, Any]]
    best: dict[str, dict[str, Any]]
    steps: int
    batches: int
    seconds: float
    seconds_per_batch: float
    parameters: dict[str, int]


@dataclass
class _Progress:
    """Where a run is; all of it goes into a checkpoint, which is made after an optimiser step only."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    batches: int = 0
    order: dict[str, Any] = field(default_factory=dict)
    epochs: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, dict[str, Any]] = field(default_factory=dict)
    stopped: list[str] = field(default_factory=list)
    epoch_loss: float = 0.0
    logged_loss: dict[str, float] = field(default_factory=dict)
    logged_batches: int = 0
    step_seconds: float = 0.0
    seconds: float = 0.0
    done: bool = False


def fit(
    method: Trainee,
    train: SplitExamples,
    scorers: Mapping[str, Scorer],
    settings: Settings | None = None,
    *,
    dev: SplitExamples | None = None,
    folder: Path | None = None,
    save_seconds: float = 0.0,
    upper: Upper | None = None,
) -> Fit:
    """Train every task of `method` on `train`, choosing between epochs by `dev` where it is given.

    With a `folder`, keeps `log.jsonl` and `checkpoint/` there, written after every epoch and `save_steps`, but not
    within `save_seconds` of the last one or of the start, and goes on from a checkpoint it finds. Sets the seeds
    of Python, NumPy and torch. Raises DataError where there is nothing to train on, ConfigError where tasks and scorers
    differ and where training is to stop early but has no dev, RunError where the checkpoint belongs to other settings
    or data, or where a loss is not finite. `upper` says where a method of two levels learns its upper one (bi-level
    optimisation).
    """
    return _Loop(method, train, scorers, settings or Settings(), dev, folder, save_seconds, upper).run()


class _Loop:
    def __init__(
        self,
        method: Trainee,
        train: SplitExamples,
        scorers: Mapping[str, Scorer],
        settings: Settings,
        dev: SplitExamples | None,
        folder: Path | None,
        save_seconds: float,
        upper: Upper | None,
    ) -> None:
        self.method, self.train, self.scorers, self.settings, self.dev = method, train, scorers, settings, dev
        self.modules = method.modules_of()
        self.folder, self.save_seconds = folder, save_seconds
        self._check()
        self.log = RunLog(folder)
        self.epoch_batches = n_batches(method, train, settings)
        self.steps = total_steps(self.epoch_batches, settings)
        groups = groups_of(method, self.modules, settings)
        self.optimiser, self.schedule = optimiser_and_schedule(groups, self.steps, settings)
        self.order = np.random.default_rng(settings.seed)
        self.upper = self._upper(upper)
        self.best_weights: dict[str, dict[str, Tensor]] = {}
        self.at = _Progress()
        self.began = self.saved = time.perf_counter()

    def _check(self) -> None:
        if not len(self.train):
            raise DataError("no examples to train on.")
        if len(self.train) == 1:
            log.warning("training on a single example: the scores say nothing about other texts")
        tasks = [task for name in self.modules for task in self.method.tasks_of(name)]
        if self.dev is not None and set(self.scorers) != set(tasks):
            raise ConfigError(f"tasks {sorted(tasks)} need a scorer each; there is {sorted(self.scorers)}.")
        if self.dev is None and self.settings.early_stopping_patience:
            raise ConfigError(
                f"early_stopping_patience={self.settings.early_stopping_patience} counts epochs without a better score "
                "on dev, and there is no dev split. Give one, or set it to 0."
            )

    def _upper(self, upper: Upper | None) -> UpperSteps | None:
        if upper is None:
            return None
        if not isinstance(self.method, TwoLevel):
            raise ConfigError(f"{type(self.method).__name__} has no upper level; leave upper=... out.")
        by_pieces = math.ceil(len(self.train) / self.epoch_batches)
        size = by_pieces if self.settings.per_device_train_batch_pieces else self.settings.per_device_train_batch_size
        return UpperSteps(self.method, upper, self.settings.seed, size)

    @property
    def active(self) -> list[str]:
        return [name for name in self.modules if name not in self.at.stopped]

    def run(self) -> Fit:
        seed_generators(self.settings.seed)
        self.resume()
        self.began = time.perf_counter() - self.at.seconds
        with tqdm(total=self.steps, initial=self.at.step, desc="train", unit="step", disable=None) as bar:
            while not self.at.done:
                self.epoch(bar)
                self.finish_epoch()
                self.save()
        for name, weights in self.best_weights.items():
            self.modules[name].load_state_dict(weights)
        self.method.eval()
        return self.result()

    def epoch(self, bar: Any) -> None:
        """The rest of the current epoch, from its first batch or from where a checkpoint left it."""
        if self.at.batch == 0:
            self.at.order = dict(self.order.bit_generator.state)
        self.method.train()
        batches = epoch(self.method, self.train, self.settings, self.order)
        with contextlib.closing(batches):  # type: ignore[type-var]
            began = time.perf_counter()
            for batch in itertools.islice(batches, self.at.batch, None):
                stepped = self.take(batch)
                now = time.perf_counter()
                self.at.step_seconds += now - began
                began = now
                if not stepped:
                    continue
                bar.update()
                if self.settings.save_steps and self.at.step % self.settings.save_steps == 0:
                    self.save()
                    began = time.perf_counter()

    def take(self, batch: Any) -> bool:
        """The gradients of one batch; whether an optimiser step was made with them."""
        every = self.settings.gradient_accumulation_steps
        first = self.at.batch // every * every
        shared = min(every, self.epoch_batches - first)
        if self.at.batch == first:
            self.optimiser.zero_grad(set_to_none=True)
            if self.upper is not None:
                rates = {parameter: own["lr"] for own in self.optimiser.param_groups for parameter in own["params"]}
                self.upper.before(self.at.step, batch, rates)
        losses = self.method.losses(batch, self.active)
        values = {name: loss.item() for name, loss in losses.items()}
        for name, value in values.items():
            if not math.isfinite(value):
                raise RunError(
                    f"step {self.at.step + 1}: the loss of task {name!r} is {value}. The batch held {batch.places}. "
                    "Lower learning_rate, set max_grad_norm, or look at these items with debug-data."
                )
        total = sum(losses.values())
        assert isinstance(total, Tensor)
        (total if shared == 1 else total / shared).backward()
        self.count(values)
        if self.at.batch < first + shared:
            return False
        self.step()
        return True

    def step(self) -> None:
        if self.settings.max_grad_norm:
            for name in self.active:
                nn.utils.clip_grad_norm_(self.modules[name].parameters(), self.settings.max_grad_norm)
        rate = self.optimiser.param_groups[0]["lr"]
        self.optimiser.step()
        self.schedule.step()
        self.at.step += 1
        if self.at.step % self.settings.logging_steps == 0 or self.at.step == self.steps:
            self.write(rate)

    def count(self, values: Mapping[str, float]) -> None:
        at = self.at
        at.batch += 1
        at.batches += 1
        at.epoch_loss += sum(values.values())
        at.logged_batches += 1
        for name, value in values.items():
            at.logged_loss[name] = at.logged_loss.get(name, 0.0) + value

    def write(self, rate: float) -> None:
        """A line of the log: the losses since the last one."""
        at = self.at
        losses = {name: value / at.logged_batches for name, value in at.logged_loss.items()}
        self.log.write(
            step=at.step,
            epoch=at.epoch + 1,
            loss=sum(losses.values()),
            losses=losses,
            lr=rate,
            seconds=round(at.step_seconds, 3),
        )
        at.logged_loss, at.logged_batches = {}, 0

    def finish_epoch(self) -> None:
        at = self.at
        entry: dict[str, Any] = {"epoch": at.epoch + 1, "step": at.step, "loss": at.epoch_loss / max(1, at.batch)}
        if self.dev is not None:
            size = self.settings.per_device_eval_batch_size
            entry["dev"] = {k: dict(v) for k, v in evaluate(self.method, self.dev, self.scorers, size).scores.items()}
            for name in self.active:
                self.choose(name, at.epoch + 1, self.deciding(name, entry["dev"]))
        else:
            for name in self.active:
                at.best[name] = {"epoch": at.epoch + 1, "value": None}
        at.epochs.append(entry)
        self.log.write(**entry)
        scores = {name: self.deciding(name, entry["dev"]) for name in self.active} if self.dev is not None else {}
        said = ", ".join(f"{name} {value:.2f}" for name, value in scores.items() if value is not None)
        last, seconds = self.settings.num_train_epochs, at.step_seconds / max(1, at.batches)
        epochs.info(
            "epoch %d of %d: loss %.4f, %.0f ms a batch%s",
            at.epoch + 1,
            last,
            entry["loss"],
            1e3 * seconds,
            f", dev {said}" if said else "",
        )
        at.epoch, at.batch, at.epoch_loss = at.epoch + 1, 0, 0.0
        at.done = at.epoch == self.settings.num_train_epochs or not self.active

    def deciding(self, name: str, scores: Mapping[str, Mapping[str, float | None]]) -> float | None:
        """The mean of the deciding scores of a module's tasks; None where one of them is undefined."""
        values = [scores[task].get(self.scorers[task].metric) for task in self.method.tasks_of(name)]
        defined = [value for value in values if value is not None]
        return sum(defined) / len(defined) if len(defined) == len(values) else None

    def choose(self, name: str, epoch: int, value: float | None) -> None:
        """Keep these weights if the score is better than any before, or none was defined yet; stop the task if it has
        not been for too long."""
        best = self.at.best.get(name)
        if best is None or best["value"] is None or (value is not None and value > best["value"]):
            self.at.best[name] = {"epoch": epoch, "value": value}
            weights = self.modules[name].state_dict()
            self.best_weights[name] = {key: tensor.detach().clone() for key, tensor in weights.items()}
        elif 0 < self.settings.early_stopping_patience <= epoch - best["epoch"]:
            self.at.stopped.append(name)

    def result(self) -> Fit:
        at = self.at
        for name, best in at.best.items():
            if self.dev is not None and best["value"] is None:
                said = "task %s: its score on dev was never defined; the last epoch, %d, is kept"
                log.warning(said, name, best["epoch"])
        tasks = [(task, name) for name in self.modules for task in self.method.tasks_of(name)]
        best = {task: at.best[name] for task, name in tasks if name in at.best}
        parameters = count_parameters(self.method)
        return Fit(at.epochs, best, at.step, at.batches, at.seconds, at.step_seconds / max(1, at.batches), parameters)

    def origin(self) -> dict[str, Any]:
        """What must be the same when a run goes on."""
        settings = {key: value for key, value in self.settings.to_json().items() if key not in HARMLESS}
        return {
            "settings": settings,
            "method": dict(self.method.described()) if isinstance(self.method, Described) else None,
            "order": list(self.modules),  # parameters have their moments by number
            "train": self.train.fingerprint(),
            "dev": self.dev.fingerprint() if self.dev is not None else None,
            "metrics": {name: scorer.metric for name, scorer in self.scorers.items()} if self.dev is not None else {},
            "scorers": {
                name: dict(scorer.to_json()) for name, scorer in self.scorers.items() if isinstance(scorer, Serialised)
            },
            "upper": self.upper.upper.to_json() if self.upper is not None else None,
            "parameters": {
                name: {key: list(tensor.shape) for key, tensor in module.state_dict().items()}
                for name, module in self.modules.items()
            },
        }

    def save(self) -> None:
        """A checkpoint in the folder, if there is one. The clock is read here, so that a resumed run counts on from it,
        and stands still while the checkpoint is written."""
        now = time.perf_counter()
        self.at.seconds = now - self.began
        if self.folder is None or now - self.saved < self.save_seconds:
            return
        tensors = {f"model/{n}/{k}": t for n, module in self.modules.items() for k, t in module.state_dict().items()}
        tensors |= {f"best/{n}/{k}": t for n, weights in self.best_weights.items() for k, t in weights.items()}
        tensors |= {f"optimiser/{key}": tensor for key, tensor in moments_of(self.optimiser).items()}
        random_tensors, random_values = generator_states()
        tensors |= {f"random/{key}": tensor for key, tensor in random_tensors.items()}
        values = {
            "step": self.at.step,
            "progress": asdict(self.at),
            "order_now": self.order.bit_generator.state,
            "groups": self.optimiser.state_dict()["param_groups"],
            "schedule": {k: v for k, v in self.schedule.state_dict().items() if not callable(v)},
            "random": random_values,
            # a string, since a note may be NaN, which no JSON of ours holds
            "trace": json.dumps(self.method.trace) if isinstance(self.method, Traced) else "[]",
        }
        if self.upper is not None:
            values["upper"], moments = self.upper.state()
            tensors |= {f"upper/{key}": tensor for key, tensor in moments.items()}
        Checkpoint(self.origin(), values, tensors).save(self.folder / "checkpoint")
        self.saved = time.perf_counter()
        self.began += self.saved - now

    def resume(self) -> None:
        """Go on from the folder's checkpoint, if there is one."""
        found = Checkpoint.load(self.folder / "checkpoint") if self.folder is not None else None
        if found is None:
            self.log.back_to(-1)
            return
        now_ = self.origin()
        later = {name: now_[name] for name in ("metrics", "scorers")}  # older checkpoints say none
        later["order"] = list(found.origin.get("parameters", ()))
        changed = differences({**later, **found.origin}, now_)
        if changed:
            more = f"; and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
            raise RunError(
                f"{self.folder} holds a run that was started differently, so going on would mix two runs: "
                f"{'; '.join(changed[:SHOWN])}{more}. Put it back as it was, choose another folder, or delete this one."
            )
        values = found.values
        self.at = _Progress(**values["progress"])
        self.order.bit_generator.state = self.at.order if self.at.batch else values["order_now"]
        for name, module in self.modules.items():
            module.load_state_dict(of_module(found.tensors, f"model/{name}"))
            if best := of_module(found.tensors, f"best/{name}"):
                self.best_weights[name] = best
        moments = state_of(_under(found.tensors, "optimiser/"))
        groups = [{**group, **_pairs(group)} for group in values["groups"]]
        self.optimiser.load_state_dict({"state": moments, "param_groups": groups})
        self.schedule.load_state_dict(dict(values["schedule"]))
        if self.upper is not None:
            self.upper.restore(values["upper"], _under(found.tensors, "upper/"))
        restore_generators(_under(found.tensors, "random/"), values["random"])
        if isinstance(self.method, Traced):
            self.method.trace[:] = json.loads(values.get("trace", "[]"))  # older checkpoints have none
        self.log.back_to(self.at.step, self.at.epoch)
        if self.at.done:
            log.info("trained already: step %d of %d", self.at.step, self.steps)
        else:
            log.info("going on after step %d of %d (epoch %d)", self.at.step, self.steps, self.at.epoch + 1)


def _under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): tensor for key, tensor in tensors.items() if key.startswith(prefix)}


def _pairs(group: Mapping[str, Any]) -> dict[str, Any]:
    """An optimiser's settings that are pairs, which JSON made lists."""
    return {key: tuple(value) for key, value in group.items() if key in ("betas", "eps") and isinstance(value, list)}
