"""Adam under a 1cycle schedule with cosine annealing (Smith and Topin 2017), exactly as spec A11.

With torch's defaults the schedule moves Adam's first beta too: from 0.95 down to 0.85 while the rate rises, and back.
"""

from collections.abc import Iterable, Sequence

from torch import nn
from torch.optim import Adam
from torch.optim.lr_scheduler import OneCycleLR

from . import Trainee
from .settings import Settings

__all__ = ["groups_of", "one_cycle", "total_steps"]


def total_steps(n_batches: int, settings: Settings) -> int:
    """Optimiser steps of a whole run of so many batches an epoch."""
    return n_batches * settings.num_train_epochs


def groups_of(method: Trainee, names: Iterable[str], settings: Settings) -> list[tuple[Sequence[nn.Parameter], float]]:
    """What each of these modules trains, with its peak rate."""
    rates = {"head": settings.learning_rate, "encoder": settings.encoder_learning_rate or settings.learning_rate}
    return [(own, rates[kind]) for name in names for kind, own in method.groups(name).items()]


def one_cycle(
    groups: Sequence[tuple[Sequence[nn.Parameter], float]], steps: int, settings: Settings
) -> tuple[Adam, OneCycleLR]:
    """Parameter groups with their peak rates, under one schedule of `steps` steps; the fused Adam where it exists.

    A schedule of a single step has no cycle: it is one step at the start rate, peak / div_factor.
    """
    parameters = [{"params": list(group), "lr": rate} for group, rate in groups]
    fused = all(p.device.type in ("cpu", "cuda") and p.is_floating_point() for group, _ in groups for p in group)
    betas = (0.95, settings.adam_beta2)
    optimiser = Adam(parameters, lr=settings.learning_rate, betas=betas, eps=settings.adam_epsilon, fused=fused)
    schedule = OneCycleLR(
        optimiser,
        max_lr=[rate for _, rate in groups],
        total_steps=max(steps, 2),
        pct_start=_share(settings.warmup_ratio, max(steps, 2)),
        anneal_strategy="cos",
        cycle_momentum=True,
        base_momentum=0.85,
        max_momentum=0.95,
        div_factor=settings.div_factor,
        final_div_factor=settings.final_div_factor,
    )
    return optimiser, schedule


def _share(warmup: float, steps: int) -> float:
    """The warm-up's share; torch divides by zero where it is exactly the first step, so a hair less."""
    return warmup * (1 - 1e-9) if warmup * steps == 1 else warmup
