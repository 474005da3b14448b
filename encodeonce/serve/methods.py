"""The methods that a run can be of: their settings by kind, and how a method is made of settings, Spec and tasks."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..encoders.live import refuse_halves
from ..encoders.pretrained import Pretrained
from ..errors import RunError
from ..methods.aggregate import Aggregate, Variant
from ..methods.finetune import Finetune, Tuning
from ..methods.finetune.finetune import HasStack, refuse_apart
from ..methods.multitask import checked, head_of
from ..tasks import Task
from ..types import Spec

__all__ = ["KINDS", "Method", "MethodSettings", "build", "check", "kind_of"]

MethodSettings = Variant | Tuning
Method = Aggregate | Finetune

KINDS: Mapping[str, type[Variant] | type[Tuning]] = {"aggregate": Variant, "finetune": Tuning}
"""What a saved run calls a method, and the class of its settings."""


def kind_of(settings: MethodSettings) -> str:
    """The name in `KINDS`."""
    return next(kind for kind, own in KINDS.items() if isinstance(settings, own))


def build(settings: MethodSettings, spec: Spec, tasks: Sequence[Task], encoder: Any = None, seed: int = 42) -> Method:
    """A new, untrained method. RunError where blocks of the encoder are trained and no encoder is given."""
    if isinstance(settings, Variant):
        return Aggregate.build(settings, spec, tasks, seed)
    if not isinstance(encoder, HasStack):
        raise RunError(
            f"this run ({settings.name}) trained blocks of the encoder {spec.encoder}: it can only be "
            "loaded beside that encoder. Give it: load(folder, Pretrained(...))."
        )
    return Finetune.build(settings, encoder, spec, tasks, seed)


def check(settings: MethodSettings, spec: Spec, tasks: Sequence[Task], model: Pretrained) -> None:
    """ConfigError for settings of which no adapter, block or head can be made and for tasks that no method has
    together, before anything is encoded for them.

    Nothing is made that takes memory, and no weight of the encoder is read.
    """
    if isinstance(settings, Tuning):
        refuse_apart(tasks)
        plan = settings.plan(spec)
        if plan.attention_only:
            refuse_halves(model.hollow(), plan.blocks, plan.attention_only)
    with torch.device("meta"):
        for task in checked(tasks):
            head_of(task, spec.width, settings.dropout, settings.compute)
        if isinstance(settings, Variant):
            settings.adapter(spec)
        elif settings.plan(spec).mixed:
            settings.mix(spec)
