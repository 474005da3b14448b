"""Multinomial logistic regression with an L2 penalty, solved to its one optimum.

    minimise  sum_n w_n sum_c t_nc (-log p_nc) + ridge / 2 |W|^2,   p_n = softmax(x_n W + b)

The bias is not penalised. The problem is convex: there is no learning rate, no epoch and no seed. With fewer rows than
columns the optimal W lies in the span of the rows, so it is searched there (the same optimum, of R <= N numbers).

Axes: N rows   D width   C classes   R rank of the rows
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ..errors import ConfigError

__all__ = ["Logistic", "logistic"]

STEPS = 500
TOLERANCE = 1e-6
"""Largest component of the gradient, per unit of weight, at which the search stops."""


@dataclass(frozen=True)
class Logistic:
    """Scores are `rows @ weight + bias`."""

    weight: Float[np.ndarray, "D C"]
    bias: Float[np.ndarray, " C"]

    def probabilities(self, rows: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N C"]:
        """Float64; lines sum to 1."""
        return np.exp(_log_softmax(rows.astype(np.float64) @ self.weight + self.bias))


def logistic(
    rows: Float[np.ndarray, "N D"],
    targets: Float[np.ndarray, "N C"],
    ridge: float = 1.0,
    weights: Float[np.ndarray, " N"] | None = None,
) -> Logistic:
    """The optimum for soft or one-hot `targets`, rows counted `weights` times (once where None).

    Raises ConfigError where there is no row, and for a ridge that is not positive (separable classes then have no
    optimum).
    """
    if not len(rows):
        raise ConfigError("no row to learn from: give at least one.")
    if ridge <= 0:
        raise ConfigError(f"ridge={ridge} must be greater than 0.")
    from scipy.optimize import minimize

    counts = np.ones(len(rows)) if weights is None else np.asarray(weights, np.float64)
    inner, basis = _in_span(rows.astype(np.float64))
    wanted = targets.astype(np.float64) * counts[:, None]
    total, (rank, classes) = max(1.0, float(counts.sum())), (inner.shape[1], targets.shape[1])

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weight, bias = flat[:-classes].reshape(rank, classes), flat[-classes:]
        logs = _log_softmax(inner @ weight + bias)
        value = -(wanted * logs).sum() + ridge / 2 * np.square(weight).sum()
        slope = np.exp(logs) * wanted.sum(1, keepdims=True) - wanted
        gradient = np.concatenate([(inner.T @ slope + ridge * weight).ravel(), slope.sum(0)])
        return float(value) / total, gradient / total

    start = np.zeros((rank + 1) * classes)
    options = {"maxiter": STEPS, "gtol": TOLERANCE, "ftol": 1e-14, "maxfun": 2 * STEPS}
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options=options).x
    return Logistic(basis @ found[:-classes].reshape(rank, classes), found[-classes:])


def _in_span(rows: Float[np.ndarray, "N D"]) -> tuple[Float[np.ndarray, "N R"], Float[np.ndarray, "D R"]]:
    """The rows in an orthonormal basis of their span, and that basis."""
    if len(rows) >= rows.shape[1]:
        return rows, np.eye(rows.shape[1])
    basis, upper = np.linalg.qr(rows.T)
    return upper.T, basis


def _log_softmax(scores: Float[np.ndarray, "N C"]) -> Float[np.ndarray, "N C"]:
    shifted = scores - scores.max(1, keepdims=True, initial=-np.inf)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
