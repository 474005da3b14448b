"""Learning from a handful of labels: prompts over the encoder, probes on stored vectors, mixtures of them."""

from .features import FORMS, Vectors, features
from .generated import generated
from .mixture import Mixture, stacked
from .probe import PROBES, Probe, TrainedProbe
from .prompted import Prompted, prompted
from .side import SIDES, Side

__all__ = [
    "FORMS",
    "PROBES",
    "SIDES",
    "Mixture",
    "Probe",
    "Prompted",
    "Side",
    "TrainedProbe",
    "Vectors",
    "features",
    "generated",
    "prompted",
    "stacked",
]
