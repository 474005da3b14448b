"""The methods that a run can be of: their settings by kind, and how a method is made of settings, Spec and tasks."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import RunError
from ..methods.aggregate import Aggregate, Variant
from ..methods.finetune import Finetune, Tuning
from ..methods.finetune.finetune import HasStack
from ..tasks import Task
from ..types import Spec

__all__ = ["KINDS", "Method", "MethodSettings", "build", "kind_of"]

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
