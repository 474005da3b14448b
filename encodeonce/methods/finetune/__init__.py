"""Training blocks of the encoder themselves, on top of what is stored: from none of them to all, or low-rank terms."""

from .finetune import Finetune, refuse_long
from .live import Live
from .tuning import ENCODER_RATES, TUNINGS, Tuning

__all__ = ["ENCODER_RATES", "TUNINGS", "Finetune", "Live", "Tuning", "refuse_long"]
