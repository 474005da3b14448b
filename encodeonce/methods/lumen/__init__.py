"""The memory reader: passages encoded once, a few live blocks that read them with the question, an answer."""

from .batch import ReadingBatch
from .design import Design, Plan, n_live, nearby_cuts
from .examples import ReadingExamples, cut_whole
from .forms import FORMS, passage_document, question_document
from .lumen import Lumen
from .transfer import carry, export, refuse_unlike

__all__ = [
    "FORMS",
    "Design",
    "Lumen",
    "Plan",
    "ReadingBatch",
    "ReadingExamples",
    "carry",
    "cut_whole",
    "export",
    "n_live",
    "nearby_cuts",
    "passage_document",
    "question_document",
    "refuse_unlike",
]
