"""A mixture of what several methods say, its weights learned from answers to examples they had not seen.

    p(y | x) = sum_m w_m q_m(y | x),   q_m proportional to p_m ^ (1 / T_m)

T_m cools a method that is too sure of itself: the one of `TEMPERATURES` under which its held-out answers are likeliest.
The weights maximise the held-out log-likelihood of the mixture, with a Dirichlet prior that is worth `PRIOR` examples a
method (stacking of predictive distributions, Yao et al. 2018), by expectation maximisation.

Only methods that know something are mixed: those under which the held-out log-likelihood is greater, by more than the
price of their one number, the temperature (half the logarithm of N, Schwarz 1978), than under the frequencies of the
classes alone. Others would outvote one that knows a little, since none of them can be cooled to silence. Where no
method knows anything, held-out labels say nothing about methods either, and the simplest answers alone.

Axes: A methods   N items   C classes
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from ...errors import ConfigError, NonFinite

__all__ = ["Mixture", "cooled", "stacked"]

log = logging.getLogger("encodeonce")

TEMPERATURES = (0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0, 8.0, 12.0)
PRIOR = 2.0
LEAST = 0.05
"""A method with a smaller weight is left out."""

ROUNDS = 200


@dataclass(frozen=True)
class Mixture:
    """`weights` of the methods that are kept, which sum to 1, and `temperatures` of all."""

    weights: Mapping[str, float]
    temperatures: Mapping[str, float]

    def mixed(self, answers: Mapping[str, Float[np.ndarray, "N C"]]) -> Float[np.ndarray, "N C"]:
        """Of the kept methods' probabilities. ConfigError names a method whose answers are missing, NonFinite one whose
        are NaN."""
        missing = sorted(set(self.weights) - set(answers))
        if missing:
            raise ConfigError(f"no answers of {', '.join(missing)}, which the mixture needs.")
        _check_finite({name: answers[name] for name in self.weights})
        parts = [w * cooled(answers[name], self.temperatures[name]) for name, w in self.weights.items()]
        total: np.ndarray = np.sum(parts, axis=0)
        return total


def cooled(answers: Float[np.ndarray, "N C"], temperature: float) -> Float[np.ndarray, "N C"]:
    """Probabilities to the power 1 / temperature, scaled to sum to 1; 1e-12 stands for 0."""
    powers = np.log(np.maximum(answers, 1e-12)) / temperature
    powers = np.exp(powers - powers.max(1, keepdims=True))
    result: np.ndarray = powers / powers.sum(1, keepdims=True)
    return result


def stacked(held_out: Mapping[str, Float[np.ndarray, "N C"]], gold: Int[np.ndarray, " N"]) -> Mixture:
    """From each method's answers to examples that it was not trained on; the methods stand from simple to rich.
    ConfigError where there is none, NonFinite for answers that are NaN."""
    if not held_out or not len(gold):
        raise ConfigError("a mixture needs at least one method and one held-out example.")
    _check_finite(held_out)
    places = np.arange(len(gold))
    temperatures = {
        name: max(TEMPERATURES, key=lambda t: float(np.log(cooled(own, t)[places, gold]).sum()) - 0.5 * abs(np.log(t)))
        for name, own in held_out.items()
    }
    given = {name: cooled(own, temperatures[name])[places, gold] for name, own in held_out.items()}
    frequencies = np.bincount(gold) / len(gold)
    least = np.log(frequencies[gold]).sum() + 0.5 * np.log(len(gold))
    names = [name for name, own in given.items() if np.log(own).sum() > least]
    if not names:
        names = list(held_out)[:1]
        log.warning("no method knows more of held-out labels than how frequent they are: %s answers alone", names[0])
    right = np.stack([given[name] for name in names])
    weights = _weights(right)
    kept = [i for i in range(len(names)) if weights[i] >= LEAST] or [int(weights.argmax())]
    weights = _weights(right[kept])
    chosen = {names[i]: float(weight) for i, weight in zip(kept, weights, strict=True)}
    return Mixture(chosen, temperatures)


def _check_finite(answers: Mapping[str, Float[np.ndarray, "N C"]]) -> None:
    for name, own in answers.items():
        wrong = np.flatnonzero(~np.isfinite(own).all(1))
        if len(wrong):
            raise NonFinite(
                f"method {name!r} answers {own[wrong[0]].tolist()} for text {wrong[0] + 1}, {len(wrong)} of {len(own)} "
                "texts like that: its training left all measure. Leave it out (--methods), or give it lower learning "
                "rates (in Python learning_rate, encoder_learning_rate)."
            )


def _weights(right: Float[np.ndarray, "A N"]) -> Float[np.ndarray, " A"]:
    """Mixture weights from the probability each method gave the gold label."""
    n_methods, n_items = right.shape
    weights = np.full(n_methods, 1 / n_methods)
    for _ in range(ROUNDS):
        shares = weights[:, None] * right
        shares = shares / shares.sum(0)
        weights = (shares.sum(1) + PRIOR) / (n_items + PRIOR * n_methods)
    return weights
