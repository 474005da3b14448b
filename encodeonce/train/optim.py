"""Optimisers and schedules: Adam under a 1cycle schedule exactly as spec A11, and what the other papers train with.

With torch's defaults the 1cycle schedule moves Adam's first beta too: from 0.95 down to 0.85 while the rate rises, and
back (Smith and Topin 2017). A first beta that is set stays where it is.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.optim import Adafactor, Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, OneCycleLR

from . import Trainee
from .settings import Settings

__all__ = ["count_parameters", "groups_of", "moments_of", "optimiser_and_schedule", "state_of", "total_steps"]

Group = tuple[Sequence[nn.Parameter], float]
"""Parameters and their peak rate."""


def total_steps(n_batches: int, settings: Settings) -> int:
    """Optimiser steps of a whole run of `n_batches` an epoch: an epoch's last step may take fewer of them."""
    return math.ceil(n_batches / settings.gradient_accumulation_steps) * settings.num_train_epochs


def count_parameters(method: Trainee) -> dict[str, int]:
    """What is trained, by task and in all ("total"): what tasks share counts for each of them, and once in all."""
    counts = {
        name: sum(p.numel() for p in module.parameters() if p.requires_grad)
        for name, module in method.modules_of().items()
    }
    return {**{task: n for name, n in counts.items() for task in method.tasks_of(name)}, "total": sum(counts.values())}


def moments_of(optimiser: Optimizer) -> dict[str, Tensor]:
    """An optimiser's tensors, named PARAMETER/MOMENT by the parameter's number."""
    state = optimiser.state_dict()["state"]
    return {f"{i}/{moment}": tensor for i, own in state.items() for moment, tensor in own.items()}


def state_of(moments: Mapping[str, Tensor]) -> dict[int, dict[str, Tensor]]:
    """The inverse of `moments_of`, as `load_state_dict` takes it."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in moments.items():
        i, _, moment = name.partition("/")
        state.setdefault(int(i), {})[moment] = tensor
    return state


def groups_of(method: Trainee, names: Iterable[str], settings: Settings) -> list[Group]:
    """What each of these modules trains, with its peak rate."""
    rates = {
        "head": settings.learning_rate,
        "encoder": settings.encoder_learning_rate or settings.learning_rate,
        "inside": settings.inside_learning_rate or settings.learning_rate,
    }
    return [(own, rates[kind]) for name in names for kind, own in method.groups(name).items()]


def optimiser_and_schedule(groups: Sequence[Group], steps: int, settings: Settings) -> tuple[Optimizer, LRScheduler]:
    """Parameter groups with their peak rates, under one schedule of `steps` steps; fused Adam where it exists.

    `weight_decay` leaves out biases, norms and whatever else has one axis. Adafactor is that of T5X (spec B5): rates
    are relative to a parameter's root mean square (1e-3 at least), updates clipped at 1, second moments in factors.
    """
    parameters = list(_with_decay(groups, settings.weight_decay))
    optimiser = _optimiser(parameters, settings)
    rates = [group["lr"] for group in parameters]
    if settings.lr_scheduler_type == "one_cycle":
        return optimiser, _one_cycle(optimiser, rates, max(steps, 2), settings)
    if settings.lr_scheduler_type == "linear":
        warmup = math.ceil(steps * settings.warmup_ratio)
        return optimiser, LambdaLR(optimiser, _Linear(warmup, steps))
    return optimiser, LambdaLR(optimiser, _constant)


def _with_decay(groups: Sequence[Group], decay: float) -> Iterator[dict[str, Any]]:
    for own, rate in groups:
        if not decay:
            yield {"params": list(own), "lr": rate}
            continue
        for some, share in (([p for p in own if p.ndim > 1], decay), ([p for p in own if p.ndim <= 1], 0.0)):
            if some:
                yield {"params": some, "lr": rate, "weight_decay": share}


def _optimiser(parameters: list[dict[str, Any]], settings: Settings) -> Optimizer:
    rate = settings.learning_rate
    if settings.optim == "adafactor":
        return Adafactor(parameters, lr=rate, beta2_decay=-0.8, eps=(None, 1e-3), d=1.0, weight_decay=0.0)
    fused = all(
        p.device.type in ("cpu", "cuda") and p.is_floating_point() for group in parameters for p in group["params"]
    )
    cycled = 0.95 if settings.lr_scheduler_type == "one_cycle" else 0.9
    betas, eps = (settings.adam_beta1 or cycled, settings.adam_beta2), settings.adam_epsilon
    if settings.optim == "adamw":
        return AdamW(parameters, lr=rate, betas=betas, eps=eps, weight_decay=0.0, fused=fused)
    return Adam(parameters, lr=rate, betas=betas, eps=eps, fused=fused)


def _one_cycle(optimiser: Optimizer, rates: list[float], steps: int, settings: Settings) -> OneCycleLR:
    """A schedule of a single step has no cycle: it is one step at the start rate, peak / div_factor."""
    return OneCycleLR(
        optimiser,
        max_lr=rates,
        total_steps=steps,
        pct_start=_share(settings.warmup_ratio, steps),
        anneal_strategy="cos",
        cycle_momentum=settings.optim != "adafactor" and not settings.adam_beta1,
        base_momentum=0.85,
        max_momentum=0.95,
        div_factor=settings.div_factor,
        final_div_factor=settings.final_div_factor,
    )


class _Linear:
    """From 0 to the peak over `warmup` steps, then down to 0 after the last of `steps`."""

    def __init__(self, warmup: int, steps: int) -> None:
        self.warmup, self.steps = warmup, steps

    def __call__(self, step: int) -> float:
        if step < self.warmup:
            return step / self.warmup
        return max(0.0, (self.steps - step) / max(1, self.steps - self.warmup))


def _constant(step: int) -> float:
    return 1.0


def _share(warmup: float, steps: int) -> float:
    """The warm-up's share; torch divides by zero where it is exactly the first step, so a hair less."""
    return warmup * (1 - 1e-9) if warmup * steps == 1 else warmup
