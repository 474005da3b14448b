"""Probes on stored vectors: logistic regression on features, with a side row or with labels of its own making.

Axes: N items   M unlabelled items   F features   C classes
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from ...errors import ConfigError
from ...nn.logistic import Logistic, logistic
from .features import FORMS, Vectors, features
from .folds import folds_of
from .side import SIDES, Side

__all__ = ["PROBES", "RIDGES", "Probe", "TrainedProbe"]

RIDGES = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)
FOLDS = 4


@dataclass(frozen=True)
class Probe:
    """What is tried: the features' form, the penalty, a side row ("": none) of `k` unlabelled rows and its weight.

    Without a `ridge` it is chosen by cross-validation on the labelled items: the one of `RIDGES` under which held-out
    labels are likeliest.

    `rounds` of self-training give every unlabelled item the label that the probe thinks likeliest, classes balanced,
    and train again with all of them together counting `trust` times the labelled ones.
    """

    form: str = "layers"
    ridge: float | None = None
    side: str = ""
    k: int = 64
    weight: float = 1.0
    rounds: int = 0
    trust: float = 0.3

    def __post_init__(self) -> None:
        if self.form not in FORMS or self.side not in ("", *SIDES):
            raise ConfigError(
                f"form={self.form!r}, side={self.side!r}: forms are {', '.join(FORMS)}, sides {', '.join(SIDES)}."
            )
        if (self.ridge is not None and self.ridge <= 0) or self.k < 1 or self.rounds < 0 or self.trust <= 0:
            raise ConfigError(
                f"ridge={self.ridge}, k={self.k}, rounds={self.rounds}, trust={self.trust}: k must be at least 1,"
                " rounds 0 or more, the others greater than 0."
            )

    @property
    def unlabelled(self) -> bool:
        """Whether it needs unlabelled items."""
        return bool(self.side or self.rounds)

    def train(
        self,
        vectors: Vectors,
        targets: Float[np.ndarray, "N C"],
        corpus: Vectors | None = None,
        exclude: Sequence[Sequence[int]] | None = None,
    ) -> "TrainedProbe":
        """On labelled items and, where it needs them, unlabelled ones; `exclude[n]` are copies of item n among these.

        ConfigError where it needs unlabelled items and there is none.
        """
        if self.unlabelled and (corpus is None or not len(corpus)):
            raise ConfigError(f"{self} needs unlabelled texts, and there is none.")
        own = self.unlabelled and corpus is not None
        other = features(corpus, self.form) if own and corpus is not None else None
        side = self.side_of(other)
        rows = self._with_side(features(vectors, self.form), side, exclude)
        ridge = likeliest_ridge(rows, targets) if self.ridge is None else self.ridge
        found = logistic(rows, targets, ridge)
        if self.rounds and other is not None:
            everyone = self._with_side(other, side, [[place] for place in range(len(other))])
            for _ in range(self.rounds):
                found = self._again(rows, targets, everyone, found, ridge)
        return TrainedProbe(replace(self, ridge=ridge), found, side)

    def side_of(self, corpus: Float[np.ndarray, "M F"] | None) -> Side | None:
        """What makes side rows from unlabelled features; None where there are none to add."""
        return Side(self.side, corpus, self.k) if self.side and corpus is not None else None

    def _again(
        self,
        rows: Float[np.ndarray, "N F"],
        targets: Float[np.ndarray, "N C"],
        everyone: Float[np.ndarray, "M F"],
        found: Logistic,
        ridge: float,
    ) -> Logistic:
        guessed = found.probabilities(everyone)
        guessed = guessed / guessed.mean(0) * targets.mean(0)
        labels = np.eye(targets.shape[1])[guessed.argmax(1)]
        count = self.trust * len(rows) / len(everyone)
        weights = np.concatenate([np.ones(len(rows)), np.full(len(everyone), count)])
        return logistic(np.concatenate([rows, everyone]), np.concatenate([targets, labels]), ridge, weights)

    def _with_side(
        self, rows: Float[np.ndarray, "N F"], side: Side | None, exclude: Sequence[Sequence[int]] | None
    ) -> Float[np.ndarray, "N F"]:
        return rows if side is None else rows + self.weight * side.rows(rows, exclude=exclude)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


@dataclass(frozen=True)
class TrainedProbe:
    """A probe with the ridge it was trained under, its parameters, and what makes its side rows."""

    probe: Probe
    parameters: Logistic
    side: Side | None = None

    def probabilities(
        self, vectors: Vectors, exclude: Sequence[Sequence[int]] | None = None
    ) -> Float[np.ndarray, "N C"]:
        """Lines sum to 1. `exclude[n]` are copies of item n among the unlabelled ones."""
        rows = features(vectors, self.probe.form)
        return self.parameters.probabilities(self.probe._with_side(rows, self.side, exclude))

    def arrays(self) -> dict[str, np.ndarray]:
        """What is saved beside `Probe.to_json`."""
        own = {"weight": self.parameters.weight, "bias": self.parameters.bias}
        return own if self.side is None else {**own, "corpus": self.side.corpus}

    @classmethod
    def from_arrays(cls, probe: Probe, arrays: Mapping[str, np.ndarray]) -> "TrainedProbe":
        """The inverse of `arrays`."""
        return cls(probe, Logistic(arrays["weight"], arrays["bias"]), probe.side_of(arrays.get("corpus")))


def likeliest_ridge(rows: Float[np.ndarray, "N F"], targets: Float[np.ndarray, "N C"]) -> float:
    """The one of `RIDGES` under which the labels of folds not trained on are likeliest; of equal ones the larger.

    Equal rows stay together. The middle one where there are fewer than two folds, and nothing to choose by.
    """
    classes = targets.argmax(1)
    least = int(np.bincount(classes)[np.unique(classes)].min())
    folds = folds_of([row.tobytes() for row in rows], classes, max(2, min(FOLDS, least)))
    if len(np.unique(folds)) < 2:
        return RIDGES[len(RIDGES) // 2]
    likelihood = dict.fromkeys(reversed(RIDGES), 0.0)
    for ridge in likelihood:
        for fold in np.unique(folds):
            seen, unseen = folds != fold, folds == fold
            answers = logistic(rows[seen], targets[seen], ridge).probabilities(rows[unseen])
            likelihood[ridge] += float((targets[unseen] * np.log(np.maximum(answers, 1e-12))).sum())
    return max(likelihood, key=lambda ridge: likelihood[ridge])


PROBES: Mapping[str, Probe] = {
    "cosine": Probe(form="cosine"),
    "probe": Probe(form="last"),
    "layers": Probe(),
    "late": Probe(side="neighbours"),
    "random": Probe(side="random"),
    "shuffled": Probe(side="shuffled"),
    "constant": Probe(side="constant"),
    "components": Probe(side="components"),
    "self_training": Probe(rounds=2),
}
"""Probes and controls by name, from simple to rich."""
