"""Which design of a reader is the best on dev: each is trained on a few questions, over one store of their views."""

import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..encoders.checkpoint import weights_hash
from ..encoders.pretrained import Pretrained
from ..errors import ConfigError, RunError
from ..methods.lumen import Design, Lumen, nearby_cuts
from ..metrics.answers import AnswerScorer
from ..serve.folder import config_of
from ..store import Store
from ..train.atomic import json_bytes, write_bytes
from ..train.evaluate import evaluate
from ..train.fit import fit
from ..train.settings import HARMLESS, Settings
from ..types import Question
from .reader_config import ReaderConfig

__all__ = ["Trial", "designs_of", "search"]

log = logging.getLogger("encodeonce")

AMOUNTS = ("live", "alpha", "blocks")
"""Each says how much is live: a trial that has one takes the place of the others."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A design, as what it changes of the default, and its scores on dev."""

    design: Mapping[str, Any]
    scores: Mapping[str, float | None]

    @property
    def rank(self) -> tuple[float, float]:
        """The more the better: exact match, then F1."""
        return self.scores["exact_match"] or 0.0, self.scores["f1"] or 0.0


def designs_of(config: ReaderConfig) -> list[Design]:
    """The designs that are tried: those of the file, or cuts near the paper's; without a search, the one there is.

    ConfigError for a search without dev, for designs without a search, or where nothing or everything is live and
    there is nothing to try.
    """
    own = config.design.chosen()
    if not config.search.questions and config.search.designs:
        raise ConfigError(
            f"search.designs names {len(config.search.designs)} designs, and search.questions = 0 tries none. Say how "
            "many questions each is trained on: search.questions = 1000."
        )
    if not config.search.questions:
        return [Design(**own)]
    config.need("data.dev")
    tried = [one.chosen() for one in config.search.designs]
    if not tried:
        plan = Design(**own).plan(Pretrained(config.encoder))
        tried = [{"cut": cut, "blocks": blocks} for cut, blocks in nearby_cuts(plan.n_blocks, len(plan.blocks))]
        if not 0 < len(plan.blocks) < plan.n_blocks:
            raise ConfigError(
                f"{len(plan.blocks)} of {plan.n_blocks} blocks are live: there is no cut to search for. Set design.live"
                " between, or say what is tried: search.designs=..."
            )
    return [Design(**_changed(own, one)) for one in tried]


def search(
    config: ReaderConfig,
    designs: Sequence[Design],
    made: Callable[[Design], Lumen],
    splits: Mapping[str, Sequence[Question]],
    encoder: Pretrained,
    store: Store | None,
    settings: Settings,
    folder: Path,
) -> tuple[Design, list[Trial]]:
    """The design with the best exact match on dev, the first of equals, and every trial.

    FOLDER/search.json keeps what is done: a search that was stopped goes on. RunError where it is of other settings,
    questions, start, decoder or encoder, or is damaged.
    """
    path = folder / "search.json"
    known = {
        "designs": [design.chosen() for design in designs],
        "settings": _that_count(settings.to_json()),
        "form": config.form,
        "start": config.start and config_of(Path(config.start), ["lumen"])["model_sha256"],
        "decoder": config.decoder and weights_hash(Pretrained(config.decoder).path),
        "asked": config.search.questions,
        "questions": _digest([*splits["train"], *splits["dev"]]),
        **encoder.spec("last", "fp16" if store is None else store.spec.dtype).compared(),
    }
    trials = _kept(path, json.loads(json_bytes(known)))
    every = splits["train"]
    chosen = np.unique(np.linspace(0, len(every) - 1, min(config.search.questions, len(every))).astype(int))
    scorers, size = {"answer": AnswerScorer()}, settings.per_device_eval_batch_size
    for number in range(len(trials), len(designs)):
        method = made(designs[number])
        train, dev = (method.read(one, encoder, store) for one in ([every[i] for i in chosen], list(splits["dev"])))
        fit(method, train, scorers, settings, dev=dev, folder=folder / "search" / str(number))
        trials.append(Trial(designs[number].chosen(), dict(evaluate(method, dev, scorers, size).scores["answer"])))
        write_bytes(path, json_bytes({**known, "trials": [asdict(one) for one in trials]}))
        log.info("search: %s: exact match %.1f", trials[-1].design, trials[-1].rank[0])
    shutil.rmtree(folder / "search", ignore_errors=True)
    best = max(range(len(trials)), key=lambda number: trials[number].rank)
    return designs[best], trials


def _that_count(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in HARMLESS}


def _kept(path: Path, known: Mapping[str, Any]) -> list[Trial]:
    """The trials that are done of the search that `known` describes; RunError for another one's file."""
    if not path.exists():
        return []
    try:
        held = json.loads(path.read_bytes())
        trials = [Trial(**one) for one in held.pop("trials")]
        held["settings"] = _that_count(held["settings"])
        sorted(trial.rank for trial in trials)
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise RunError(f"{path} was cut or changed: {problem!r}. Remove it: the search then begins anew.") from None
    differing = [name for name in {**known, **held} if name not in held or held[name] != known.get(name)]
    if differing:
        raise RunError(
            f"{path} is a search with other {', '.join(differing)}. Train into another folder, or remove it."
        )
    return trials


def _changed(own: Mapping[str, Any], trial: Mapping[str, Any]) -> dict[str, Any]:
    dropped = AMOUNTS if any(name in trial for name in AMOUNTS) else ()
    return {**{name: value for name, value in own.items() if name not in dropped}, **trial}


def _digest(questions: Sequence[Question]) -> str:
    """SHA-256 of all that is read of them."""
    read = [(q.text, q.answers, [(p.id, p.title, p.text) for p in q.passages]) for q in questions]
    return hashlib.sha256(repr(read).encode()).hexdigest()
