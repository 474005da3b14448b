"""Data sets of the field by name: a kind of task with the settings their scores are published under."""

from collections.abc import Mapping
from typing import Any

__all__ = ["PRESETS"]

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "cola": {"kind": "classification", "metric": "matthews"},
    "sst2": {"kind": "classification", "metric": "accuracy"},
    "mrpc": {"kind": "classification", "metric": "f1_accuracy", "positive": ("equivalent", "1")},
    "rte": {"kind": "classification", "metric": "accuracy"},
    "qnli": {"kind": "classification", "metric": "accuracy"},
    "mnli": {"kind": "classification", "metric": "accuracy"},
    "qqp": {"kind": "classification", "metric": "f1_accuracy", "positive": ("duplicate", "1")},
    "stsb": {"kind": "regression", "metric": "pearson_spearman"},
    "squad": {"kind": "answer_spans"},
    "techqa": {"kind": "answer_spans", "scoring": "techqa", "longest": 250, "stride": 192, "negatives": 20.0},
    "cuad": {"kind": "answer_spans", "scoring": "cuad", "longest": 512, "stride": 256, "negatives": 1.0},
    "s10_sections": {"kind": "ranking"},
    "s10_answers": {"kind": "ranking", "candidates": 0, "metric": "rouge_l"},
}
"""The GLUE tasks (Wang et al. 2019) with their own scores (A-16), and the question sets of FastDoc with the settings of
their own programs (spec A12). Any setting can be overruled."""
