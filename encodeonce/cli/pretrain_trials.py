"""An objective chosen by a task of one's own: each is tried with a part of the budget, the rest goes to the best.

The task is that of a config file of `train`. Its dev scores choose; test files are not read. Two kinds of budget: of
seconds, which the clock counts from the first trial to the choice, and of FLOPs, where training on the task is free.
"""

import json
import logging
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from ..encoders.masked_lm import MaskedLM
from ..encoders.pretrained import Pretrained
from ..errors import ConfigError, EncoderError, RunError
from ..methods.fastdoc.objective import Objective
from ..train.atomic import write_bytes
from ..train.checkpoint import differences
from . import learning
from .config import Config, load
from .contenders import SEEDS, contender
from .pretrain_config import PretrainConfig, ProbeSection
from .pretrain_costs import Budget
from .pretrain_material import Material, say_unread
from .pretrain_origin import alone, begun, made_of
from .pretraining import Job, Planned

__all__ = ["TaskProbe", "gain", "pretrain_probed"]

log = logging.getLogger("encodeonce")

OF_TOPICS = ("topic_levels", "topics", "n_topics", "min_documents", "min_children")
TRIED = ("both", "masked", "combined")
UNTOUCHED, TRAINED = "untouched", "trained"

Scores = Mapping[str, Sequence[float]]
"""Encoder -> its dev score with each seed."""


class TaskProbe:
    """The user's task over at most so many documents, trained once a seed on whatever encoder is asked about.

    Raises ConfigError where the config names no file, a task or a train file is missing, or there is no dev part.
    """

    def __init__(self, section: ProbeSection) -> None:
        if not section.config:
            raise ConfigError("objective = 'probe' needs probe.config, a config file of `train` with your task.")
        path = Path(section.config)
        read = load(path)
        self.config: Config = read.model_copy(update={"data": read.data.model_copy(update={"test": []})})
        splits, self.tasks = learning.learned(self.config)
        if "dev" not in splits:
            raise ConfigError(f"{path}: the choice is made on dev: set data.dev, or data.dev_fraction = 0.1.")
        self.splits = {split: learning.drawn(documents, section.examples) for split, documents in splits.items()}
        self.seeds = SEEDS[: section.seeds]
        self.name = path.name

    @property
    def metric(self) -> str:
        """The tasks and what is scored."""
        return ", ".join(f"{task.name} {task.metric}" for task in self.tasks)

    def scores(self, encoder: str) -> list[float]:
        """The dev score with each seed, per cent, the mean over the tasks; an undefined one counts as 0."""
        found = []
        with tempfile.TemporaryDirectory(prefix="encodeonce-") as folder:
            config = self.config.model_copy(update={"encoder": encoder, "store": str(Path(folder) / "states")})
            one = contender(config)
            variant = one.settings()
            material = learning.stored(config, self.splits, self.tasks, [variant])
            for seed in self.seeds:
                done = learning.train(material, variant, one.training(config, seed=seed), scored=("dev",))
                own = done.evaluations["dev"].scores
                found.append(fmean(own[task.name][task.metric] or 0.0 for task in self.tasks))
        return found

    def origin(self) -> dict[str, Any]:
        """What the scores depend on, beside the encoder."""
        config = self.config.model_dump(mode="json", exclude={"encoder", "store", "data"})
        keys = {split: [document.key for document in documents] for split, documents in self.splits.items()}
        return {"task": config, "documents": keys, "seeds": list(self.seeds)}


def gain(scores: Scores, name: str) -> tuple[float, float | None]:
    """Mean difference to the untouched encoder, paired by seed, and its standard error (None with one seed)."""
    apart = [a - b for a, b in zip(scores[name], scores[UNTOUCHED], strict=True)]
    return fmean(apart), stdev(apart) / len(apart) ** 0.5 if len(apart) > 1 else None


def pretrain_probed(config: PretrainConfig, folder: Path) -> dict[str, Any]:
    """`pretraining.pretrain` with the objective that the task prefers; the report's "probe" says what was tried.

    FOLDER/probe.json keeps what was found: an interrupted run goes on, and another budget may be given once the choice
    is made, until the first checkpoint of the chosen objective. All trials are sized before the first of them encodes
    anything, so that none finds stored what another paid for. The encoder that comes out at the end is scored too,
    beside the budget. ConfigError without a budget, and where it is too little to choose by; RunError where the folder
    holds a run of an objective that was named, or one that was asked otherwise, and where another process is at it.
    """
    if not config.budget:
        raise ConfigError("objective = 'probe' spends a budget: add --budget 5m (or 44TFLOP), or name the objective.")
    if config.full:
        raise ConfigError(
            "full = true: objective = 'probe' tries objectives over stored sentences; name the objective."
        )
    names, left_out = _tried(config)
    say_unread(config, [Objective.named(name, **config.options) for name in names])
    probe = TaskProbe(config.probe)
    first = _first(config, names, folder)
    with alone(folder):
        found = _Found(folder, _origin(config, names, probe, first))
        if "chosen" not in found.kept:
            if begun(folder):
                raise RunError(
                    f"{folder} holds a run whose objective was named, not chosen, so going on would mix two runs. "
                    "Choose another folder, or delete this one."
                )
            _choose(config, folder, names, probe, first.read, found)
        job = Job(_with(config, found.kept["chosen"], _left(config, found).text), folder, material=first.read)
        scored = partial(_scored, config, probe, found, left_out)
        return job.finished() or job.train(job.planned(), scored)


def _scored(
    config: PretrainConfig, probe: TaskProbe, found: "_Found", left_out: Mapping[str, str], encoder: Path
) -> dict[str, Any]:
    """What the report says of the choice, the scores of the encoder that came out among it."""
    own = {
        "config": probe.name,
        "metric": probe.metric,
        "examples": {split: len(documents) for split, documents in probe.splits.items()},
        "seeds": list(probe.seeds),
        "scores": {**found.kept["scores"], TRAINED: probe.scores(str(encoder))},
        "trials": found.kept["trials"],
        "left_out": left_out,
        "seconds": found.kept["seconds"],
        "budget": config.budget,
    }
    return {"chosen": found.kept["chosen"], "probe": own}


def _tried(config: PretrainConfig) -> tuple[list[str], dict[str, str]]:
    """The objectives to try, and why one of those tried by default is left out. ConfigError for too many of them, and
    for one that is not known."""
    names = list(dict.fromkeys(config.probe.objectives or TRIED))
    made = [Objective.named(name, **config.options) for name in names]
    if config.probe.part * len(names) >= 1:
        raise ConfigError(
            f"probe.part={config.probe.part} of the budget for each of {len(names)} objectives leaves nothing to train "
            f"the chosen one with: at most {0.9 / len(names):.2f} each."
        )
    if config.probe.objectives:
        return names, {}
    try:
        MaskedLM.load(Pretrained(config.encoder).path, seed=0 if made[0].new_head else None)
    except EncoderError as problem:
        log.warning("not tried: masked, combined. %s", problem)
        return ["both"], {"masked": str(problem), "combined": str(problem)}
    return names, {}


def _with(config: PretrainConfig, name: str, budget: str) -> PretrainConfig:
    """The config of one objective: without classes from clusters where it reads no classes."""
    sample = config.sample
    if not Objective.named(name, **config.options).hierarchy:
        default = {name: field.default for name, field in type(sample).model_fields.items() if name in OF_TOPICS}
        sample = sample.model_copy(update=default)
    return config.model_copy(update={"objective": name, "budget": budget, "sample": sample})


def _first(config: PretrainConfig, names: Sequence[str], folder: Path) -> Job:
    """A job that reads the documents, once, with the fields that any of the objectives needs."""
    made = {name: Objective.named(name, **config.options) for name in names}
    most = max(names, key=lambda name: (made[name].hierarchy, made[name].of_documents))
    return Job(_with(config, most, config.budget), folder)


def _origin(config: PretrainConfig, names: Sequence[str], probe: TaskProbe, first: Job) -> dict[str, Any]:
    """All that the trials depend on."""
    made = made_of(config, first.base, first.source, first.read[0])
    return {**made, "objectives": list(names), "part": config.probe.part, "probe": probe.origin()}


class _Found:
    """What is known so far, in FOLDER/probe.json. RunError where the folder's was asked otherwise."""

    def __init__(self, folder: Path, origin: dict[str, Any]) -> None:
        self.path = folder / "probe.json"
        self.kept: dict[str, Any] = {"origin": origin, "scores": {}, "trials": {}, "seconds": 0.0}
        if not self.path.is_file():
            return
        before = json.loads(self.path.read_text())
        then, now = before["origin"], json.loads(json.dumps(origin))
        again = "chosen" in before and not begun(folder)  # then another budget may be given
        if again:
            then = {**then, "budget": now["budget"]}
        changed = differences(then, now)
        if changed:
            raise RunError(
                f"{folder} holds a choice of objective that was made differently: {'; '.join(changed)}. Put it back "
                "as it was, choose another folder, or delete this one."
            )
        self.kept = before
        if again:
            self.keep(origin=then)

    def keep(self, **changes: Any) -> None:
        """Write it down, with these changes."""
        self.kept |= changes
        write_bytes(self.path, (json.dumps(self.kept, indent=1) + "\n").encode())


def _choose(
    config: PretrainConfig,
    folder: Path,
    names: Sequence[str],
    probe: TaskProbe,
    read: tuple[Material, list[dict[str, Any]]],
    found: _Found,
) -> None:
    """Try each, score each, write down which is best and what that took."""
    whole, began = Budget.read(config.budget), time.perf_counter() - found.kept["seconds"]
    few = replace(whole, amount=whole.amount * config.probe.part)
    trials = folder / "trials"
    jobs = {
        name: Job(_with(config, name, few.text), trials / name, material=read, brief=True)
        for name in (names if len(names) > 1 else ())
        if name not in found.kept["scores"]
    }
    reports = {name: job.finished() for name, job in jobs.items()}
    plans = {name: _planned(name, jobs[name]) for name, report in reports.items() if report is None}
    if UNTOUCHED not in found.kept["scores"]:
        scoring = time.perf_counter()
        untouched = probe.scores(config.encoder)
        _enough(whole, few, len(jobs), time.perf_counter() - scoring)
        _note(found, UNTOUCHED, untouched, began)
    for name, job in jobs.items():
        log.info("trying %s with %s", name, few.said(few.amount))
        now = time.perf_counter()
        report = reports[name] or job.train(plans.pop(name))
        # of a trial that was killed, or ended just before it was scored, the time before counts too
        began -= max(0.0, report["costs"]["seconds"]["total"] - (time.perf_counter() - now))
        found.kept["trials"][name] = {
            "tuples": report["tuples"],
            "windows": report["costs"]["windows"],
            "steps": report["costs"]["steps"],
            "flops": report["costs"]["flops"]["total"],
            "seconds": report["costs"]["seconds"]["total"],
        }
        _note(found, name, probe.scores(str(job.folder / "encoder")), began)
        shutil.rmtree(job.folder)
    _clear(trials, names)
    scores = found.kept["scores"]
    best = max(names, key=lambda name: fmean(scores[name])) if len(names) > 1 else names[0]
    _say(probe, scores, names, best)
    found.keep(chosen=best, seconds=time.perf_counter() - began)


def _clear(trials: Path, names: Sequence[str]) -> None:
    """Remove trials, those of earlier calls too; what else lies in a folder of that name stays."""
    for name in names:
        shutil.rmtree(trials / name, ignore_errors=True)
    if trials.is_dir() and not any(trials.iterdir()):
        trials.rmdir()


def _left(config: PretrainConfig, found: _Found) -> Budget:
    """What the chosen objective gets: the budget without what choosing took, as much as a trial at least."""
    whole, trials = Budget.read(config.budget), found.kept["trials"].values()
    spent = float(sum(one["flops"] for one in trials) if whole.of_flops else found.kept["seconds"])
    least = whole.amount * config.probe.part
    if whole.amount - spent < least:
        log.warning(
            "choosing took %s of the budget of %s: the chosen objective gets as much as a trial",
            whole.said(spent),
            whole.said(whole.amount),
        )
    return replace(whole, amount=max(whole.amount - spent, least))


def _enough(whole: Budget, few: Budget, trials: int, scoring: float) -> None:
    """ConfigError, before anything is tried, where so many trials and scorings would leave less than a trial's part of
    a budget of seconds."""
    needed = trials * (few.amount + scoring) + scoring
    if not whole.of_flops and needed > whole.amount - few.amount:
        raise ConfigError(
            f"a budget of {whole.said(whole.amount)} is too little to choose by: scoring one encoder on the task takes "
            f"{scoring:,.0f} s, so {trials} trials and as many scorings more take {needed:,.0f} s. Give more, or fewer "
            "probe.objectives, probe.seeds or probe.examples."
        )


def _planned(name: str, job: Job) -> Planned:
    """What a trial trains on; where its part of the budget is too little, the message says whose."""
    try:
        return job.planned()
    except ConfigError as problem:
        raise ConfigError(f"trying {name}, with a part of the budget: {problem} Or raise probe.part.") from None


def _note(found: _Found, name: str, scores: list[float], began: float) -> None:
    log.info("%s: %s on the task's dev part", name, ", ".join(f"{score:.2f}" for score in scores))
    found.kept["scores"][name] = scores
    found.keep(seconds=time.perf_counter() - began)


def _say(probe: TaskProbe, scores: Scores, names: Sequence[str], best: str) -> None:
    """The choice, and plainly where the task prefers the untouched encoder."""
    if len(names) < 2:
        log.info("%s is the only objective to try: there is nothing to choose", best)
        return
    apart, error = gain(scores, best)
    margin = "" if error is None else f" ± {error:.2f}"
    log.info("%s prefers %s: %+.2f%s of untouched (%s)", probe.name, best, apart, margin, probe.metric)
    tied = [name for name in names if name != best and fmean(scores[name]) == fmean(scores[best])]
    if tied:
        log.warning("%s scores the same: of equals the first is taken", ", ".join(tied))
    if apart <= 0:
        log.warning(
            "the untouched encoder scores as high as the best of %s: look at the score of the trained one before it is "
            "used",
            ", ".join(names),
        )
