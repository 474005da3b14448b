"""From stored items to minibatches: what every method over stored pieces reads, and in which order."""

from .batch import Batch, Choice
from .cut import Cut
from .encodings import Encodings
from .examples import Examples, Source, Supervised, warn_unseen
from .laid_out import LaidOut
from .plan import count_by_pieces, planned, planned_by_pieces

__all__ = [
    "Batch",
    "Choice",
    "Cut",
    "Encodings",
    "Examples",
    "LaidOut",
    "Source",
    "Supervised",
    "count_by_pieces",
    "planned",
    "planned_by_pieces",
    "warn_unseen",
]
