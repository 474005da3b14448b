"""The batches of an epoch, sized by examples or by pieces, as the settings say."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..errors import ConfigError
from . import SizedByPieces, SplitExamples, Trainee
from .settings import Settings

__all__ = ["epoch", "n_batches"]


def n_batches(method: Trainee, examples: SplitExamples, settings: Settings) -> int:
    """How many batches every epoch has. ConfigError where pieces are asked for and the method cannot count them."""
    if not settings.per_device_train_batch_pieces:
        return math.ceil(len(examples) / settings.per_device_train_batch_size)
    return _by_pieces(method, settings).count_of_pieces(examples, settings.per_device_train_batch_pieces)


def epoch(method: Trainee, examples: SplitExamples, settings: Settings, order: np.random.Generator) -> Iterator[Any]:
    """All examples once. Their order is drawn from `order` before the first batch."""
    if not settings.per_device_train_batch_pieces:
        return method.batches(examples, size=settings.per_device_train_batch_size, order=order)
    sized = _by_pieces(method, settings)
    return sized.batches_of_pieces(examples, pieces=settings.per_device_train_batch_pieces, order=order)


def _by_pieces(method: Trainee, settings: Settings) -> SizedByPieces:
    if isinstance(method, SizedByPieces):
        return method
    raise ConfigError(
        f"per_device_train_batch_pieces={settings.per_device_train_batch_pieces}: {type(method).__name__} sizes its "
        "batches by examples only. Leave the setting out and set per_device_train_batch_size."
    )
