"""XLM-R (Conneau et al. 2020): RoBERTa's arithmetic for a hundred languages, in modules of its own."""

from .roberta import Roberta

__all__ = ["XlmRoberta"]


class XlmRoberta(Roberta):
    """Views, positions and masked-language head as RoBERTa's."""
