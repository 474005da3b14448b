"""What each method that was tried is worth on labels it has not seen.

Axes: N items   C classes
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from ..methods.fewshot import Mixture
from ..methods.fewshot.mixture import cooled

__all__ = ["Tried", "report", "summary"]


@dataclass(frozen=True)
class Tried:
    """One method on held-out labels: accuracy in per cent, mean log-likelihood (natural, after cooling), its weight in
    the mixture (0: left out), wall seconds of its cross-validation. The mixture itself stands last, of weight 1."""

    name: str
    accuracy: float
    log_likelihood: float
    weight: float
    temperature: float
    seconds: float


def report(
    held_out: Mapping[str, Float[np.ndarray, "N C"]],
    mixture: Mixture,
    index: Int[np.ndarray, " N"],
    seconds: Mapping[str, float],
) -> tuple[Tried, ...]:
    """Every method, then the mixture, on held-out probabilities; `index` are the right classes."""
    everything = {**held_out, "mixture": mixture.mixed(held_out)}
    weights = {**dict.fromkeys(held_out, 0.0), **mixture.weights, "mixture": 1.0}
    found = []
    for name, answers in everything.items():
        temperature = mixture.temperatures.get(name, 1.0)  # the mixture's own answers are not cooled again
        right = cooled(answers, temperature)[np.arange(len(index)), index]
        found.append(
            Tried(
                name,
                accuracy=float(100 * np.mean(answers.argmax(1) == index)),
                log_likelihood=float(np.log(np.maximum(right, 1e-12)).mean()),
                weight=weights[name],
                temperature=temperature,
                seconds=seconds.get(name, sum(seconds.values())),
            )
        )
    return tuple(found)


def summary(tried: Sequence[Tried]) -> str:
    """What was chosen, and by how much, in a sentence, from what `report` gives."""
    *single, mixed = tried
    chosen = [f"{one.name} {one.weight:.2f}" for one in single if one.weight]
    best = max(single, key=lambda one: one.accuracy)
    gain = mixed.accuracy - best.accuracy
    fitted = ", a little too good, as the weights are fitted on these" if len(chosen) > 1 else ""
    return (
        f"chosen: {', '.join(chosen)}; {mixed.accuracy:.1f} % of the held-out labels right, {gain:+.1f} against the "
        f"best single method ({best.name}, {best.accuracy:.1f} %){fitted}"
    )
