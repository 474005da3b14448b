"""A saved run: a folder that holds all that is needed to answer on another machine, but the encoder.

FOLDER/config.json         schema version, method, tasks and labels, variant, the Spec of the states it was trained on,
                           training settings and scores, versions; written last: without it there is no run
FOLDER/model.safetensors   all that was trained, named TASK/PARAMETER: adapters, heads, blocks of the encoder or their
                           low-rank terms; in its header what the tasks learned, so that no other label list, be it of
                           the same length, is ever put on these weights
FOLDER/README.md           a model card
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from safetensors import SafetensorError, safe_open

from ..errors import EncodeOnceError, RunError
from ..tasks import Task, from_json
from ..train.checkpoint import differences
from ..types import Spec
from .card import card
from .folder import config_of, fill_modules, put, take
from .methods import KINDS, Method, MethodSettings, build, kind_of

__all__ = ["Run", "begin", "check_spec", "load", "made_for", "save"]

LEARNED = "learned"
"""What the header of the weights calls that."""


@runtime_checkable
class HasSpec(Protocol):
    """What is asked of an encoder here: `encoders.Pretrained`."""

    def spec(self, layers: Any = "all", dtype: str = "fp16") -> Spec:
        """What would make its vectors; from file hashes, no weights are loaded."""


@dataclass(frozen=True)
class Run:
    """A trained method with everything that made it.

    `training` holds the settings and what happened, `scores[split][task][metric]` the results, `data[split]` a name of
    what was read (no path of this machine), `command` how to do it again.
    """

    method: Method
    tasks: tuple[Task, ...]
    variant: MethodSettings
    spec: Spec
    training: Mapping[str, Any] = field(default_factory=dict)
    scores: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, str] = field(default_factory=dict)
    command: str = ""

    def task(self, name: str) -> Task:
        """One task by name."""
        for task in self.tasks:
            if task.name == name:
                return task
        raise RunError(f"this run has no task {name!r}. It has: {', '.join(task.name for task in self.tasks)}.")


def save(run: Run, folder: Path) -> None:
    """Write the run; a folder that already holds one is replaced file by file, config.json last."""
    config = {
        "method": kind_of(run.variant),
        "variant": run.variant.to_json(),
        "tasks": [task.to_json() for task in run.tasks],
        "spec": run.spec.to_json(),
        "training": dict(run.training),
        "scores": dict(run.scores),
        "data": dict(run.data),
        "command": run.command,
    }
    put(folder, config, run.method.modules_of(), card, {LEARNED: json.dumps(_learned(run.tasks))})


def load(folder: Path, encoder: HasSpec | None = None) -> Run:
    """A saved run, ready to predict. With an `encoder`, checks that it is the one the run was trained on.

    A run that trained blocks of its encoder cannot do without one: a saved run holds what was trained and no more.
    Raises RunError naming a missing file by path, an unknown schema, changed weights, another label list than they were
    trained for, each difference of the encoder.
    """
    config, weights = take(folder, KINDS)
    try:
        spec = Spec.from_json(config["spec"])
        tasks = tuple(from_json(values) for values in config["tasks"])
        _check_learned(folder, tasks)
        if encoder is not None:
            there = encoder.spec(layers=list(spec.layers), dtype=spec.dtype)
            _compare(spec, spec.layers, there, "the encoder")
        variant = KINDS[config["method"]](**config["variant"])
        method = build(variant, spec, tasks, encoder)
        fill_modules(method.modules_of(), weights)
    except RunError:
        raise
    except (KeyError, TypeError, RuntimeError, SafetensorError, EncodeOnceError) as problem:
        raise RunError(f"{folder}: the run cannot be rebuilt: {problem}") from None
    method.eval()
    return Run(method, tasks, variant, spec, config["training"], config["scores"], config["data"], config["command"])


def _learned(tasks: Sequence[Task]) -> dict[str, dict[str, Any]]:
    """Task -> what only its training documents said, as plain values: labels above all."""
    return {task.name: {key: value for key, value in task.to_json().items() if key in task.LEARNED} for task in tasks}


def _labels(task: Task) -> dict[str, Any]:
    """The lists among that, which name what a head gives: labels, types of relations."""
    return {key: value for key, value in _learned([task])[task.name].items() if isinstance(value, list)}


def _check_learned(folder: Path, tasks: Sequence[Task]) -> None:
    """RunError where the tasks are not those that the weights were trained for: in what the header says of them, which
    in runs of before is less, or nothing."""
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        header = file.metadata() or {}
    if LEARNED not in header:
        return
    trained = json.loads(header[LEARNED])
    said = {
        name: {key: value for key, value in own.items() if key in trained.get(name, own)}
        for name, own in json.loads(json.dumps(_learned(tasks))).items()
    }
    changed = differences(trained, said)
    if changed:
        raise RunError(
            f"{folder / 'config.json'} says other labels than the weights were trained for (then: in training, now: in "
            f"the file): {'; '.join(changed)}. Put the file back as it was, or train a run with these labels."
        )


def begin(method: Method, tasks: Sequence[Task], folder: Path, encoder: HasSpec) -> None:
    """Give a new method the weights that the run in `folder` ended with, task by task in order, whatever tasks are
    called: reading SQuAD before TechQA, say. RunError as `load`, and where parts or labels are not alike."""
    run = load(folder, encoder)
    for mine, theirs in zip(tasks, run.tasks, strict=False):
        changed = differences(_labels(theirs), _labels(mine))
        if changed:
            raise RunError(
                f"{folder} cannot be begun from: its task {theirs.name!r} has other labels than {mine.name!r}, and "
                f"weights belong to labels (then: there, now: here): {'; '.join(changed)}."
            )
    own, other = method.modules_of(), run.method.modules_of()
    try:
        for name, (source, module) in zip(own, other.items(), strict=True):
            own[name].load_state_dict(module.state_dict())
            method.settings[f"{name} begins with"] = f"{source} of {config_of(folder, KINDS)['model_sha256']}"
    except (RuntimeError, ValueError) as problem:
        raise RunError(
            f"{folder} ({run.variant.name}: {', '.join(other)}) cannot be begun from: {', '.join(own)} needs other "
            f"weights. Take a run of the same method and kinds of tasks. ({str(problem).splitlines()[0]})"
        ) from None


def made_for(folder: Path) -> Spec:
    """The Spec of the states that the run in this folder was trained on: what its encoder is found by."""
    return Spec.from_json(config_of(folder, KINDS)["spec"])


def check_spec(run: Run, other: Spec, what: str) -> None:
    """RunError naming every difference between the states a run was trained on and those `other` describes.

    More layers than the run reads are no difference.
    """
    _compare(run.spec, run.method.layers, other, what)


def _compare(wanted: Spec, layers: tuple[int, ...], other: Spec, what: str) -> None:
    made_by = wanted.encoder
    if set(layers) <= set(other.layers):
        wanted = replace(wanted, layers=other.layers) if other.n_blocks == wanted.n_blocks else wanted
    differences = wanted.differences(other)
    if differences:
        raise RunError(
            f"{what} ({other.encoder}) does not make the states this run was trained on, by {made_by} "
            f"(here: the run, there: {what}): {'; '.join(differences)}."
        )
