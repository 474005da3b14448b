"""Which label may follow which in BIO and BIOES.

Axes: C labels
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ..errors import ConfigError

__all__ = ["SpanTransitions"]

FORBIDDEN = -1e6
"""Far below any sum of logits, yet finite: where no path is well formed, the one with the fewest breaks wins."""


@dataclass(frozen=True)
class SpanTransitions:
    """Scores to add at an item's start, between neighbours and at its end: 0 where allowed, FORBIDDEN elsewhere."""

    start: Float[np.ndarray, " C"]
    step: Float[np.ndarray, "C C"]
    end: Float[np.ndarray, " C"]

    @classmethod
    def of(cls, labels: Sequence[str]) -> "SpanTransitions":
        """Rules for "O", "B-x", "I-x" and, where any label begins with E or S, "E-x" and "S-x".

        BIO: I-x follows B-x or I-x. BIOES: I-x and E-x follow B-x or I-x, which nothing else may follow and which
        cannot be last. ConfigError names a label of another form.
        """
        parsed = [_parse(label) for label in labels]
        closing = any(mark in "ES" for mark, _ in parsed)
        inside = "IE" if closing else "I"

        def may(left: tuple[str, str], right: tuple[str, str]) -> bool:
            continues = left[0] in "BI" and right[0] in inside and left[1] == right[1]
            opens = right[0] not in inside and not (closing and left[0] in "BI")
            return continues or opens

        outside = ("O", "")
        start = [may(outside, label) for label in parsed]
        step = [[may(left, right) for right in parsed] for left in parsed]
        end = [may(label, outside) for label in parsed]
        return cls(*(np.where(np.asarray(allowed), 0.0, FORBIDDEN) for allowed in (start, step, end)))


def _parse(label: str) -> tuple[str, str]:
    mark, dash, kind = label.partition("-")
    if label == "O" or (mark in ("B", "I", "E", "S") and dash and kind):
        return mark, kind
    raise ConfigError(
        f"{label!r} is no BIO or BIOES label: it must be 'O' or begin with B-, I-, E- or S-. "
        "Use the plain tagger, or constrained=False."
    )
