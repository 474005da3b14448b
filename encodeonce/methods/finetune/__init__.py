"""Training blocks of the encoder themselves, on top of what is stored: from none of them to all, or low-rank terms."""

from .finetune import Finetune
from .live import Live
from .tuning import TUNINGS, Tuning

__all__ = ["TUNINGS", "Finetune", "Live", "Tuning"]
