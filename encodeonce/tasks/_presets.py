"""Data sets of the field by name: a kind of task with the settings their scores are published under."""

from collections.abc import Mapping
from typing import Any

__all__ = ["PRESETS"]

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "cola": {"kind": "classification", "metric": "matthews"},
    "sst2": {"kind": "classification", "metric": "accuracy"},
    "mrpc": {"kind": "classification", "metric": "f1_accuracy", "positive": ("equivalent", "1")},
    "rte": {"kind": "classification", "metric": "accuracy"},
    "stsb": {"kind": "regression", "metric": "pearson_spearman"},
}
"""The GLUE tasks (Wang et al. 2019) with their own scores (A-16). Any setting can be overruled."""
