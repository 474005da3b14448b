"""Retrieved vectors fused inside an encoder's blocks, with a search over where and how (ReFusion, Wu et al. 2024)."""

from .controls import CONTROLS, instead
from .fusing import FUSINGS, SLOTS, Fusing
from .fusion import Decision
from .near import Leakage, Near, leakage
from .refusion import Refusion, refusion
from .retrieved import Retrieved
from .retriever import Retriever

__all__ = [
    "CONTROLS",
    "FUSINGS",
    "SLOTS",
    "Decision",
    "Fusing",
    "Leakage",
    "Near",
    "Refusion",
    "Retrieved",
    "Retriever",
    "instead",
    "leakage",
    "refusion",
]
