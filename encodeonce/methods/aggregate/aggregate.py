"""The method: a frozen encoder's stored views, mixed by an adapter a task (Basirat 2024; spec A2-A7, A12)."""

from collections.abc import Sequence

import torch

from ...batching import Supervised
from ...types import Spec
from ..multitask import Multitask, Part, checked, head_of, settings_of, start_seed
from .variant import Variant

__all__ = ["Aggregate"]


class Aggregate(Multitask):
    """Adapters and heads over stored views; the encoder takes no part in training."""

    @classmethod
    def build(
        cls, variant: Variant, spec: Spec, tasks: Sequence[Supervised], seed: int = 42, read_ahead: int = 1
    ) -> "Aggregate":
        """New parts for learned tasks. Each part's start values depend on `seed` and the task's name only."""
        parts = {}
        for task in checked(tasks):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(start_seed(seed, task.name))
                adapter = variant.adapter(spec)
                head = head_of(task, spec.width, variant.dropout, variant.compute)
            parts[task.name] = Part(adapter, head, task.piece)
        return cls(parts, variant.layers(spec), read_ahead, settings_of(variant.to_json(), tasks))
