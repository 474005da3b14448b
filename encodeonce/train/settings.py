"""The loop's settings, under Hugging Face's names where it has one."""

from dataclasses import asdict, dataclass, fields
from math import isfinite
from typing import Any

from ..errors import ConfigError

__all__ = ["Settings"]

HARMLESS = ("logging_steps", "save_steps", "per_device_eval_batch_size")
"""Settings that may change between a run and its resumption: no weight depends on them."""

OPTIMISERS = ("adam", "adamw", "adafactor")
SCHEDULES = ("one_cycle", "linear", "constant")
COUNTS = (
    "num_train_epochs",
    "per_device_train_batch_size",
    "per_device_eval_batch_size",
    "gradient_accumulation_steps",
    "logging_steps",
)
NOT_NEGATIVE = (
    "per_device_train_batch_pieces",
    "max_grad_norm",
    "weight_decay",
    "early_stopping_patience",
    "save_steps",
    "seed",
    "encoder_learning_rate",
    "inside_learning_rate",
)


@dataclass(frozen=True)
class Settings:
    """One setting a line: what it is, and off where 0 says so.

    `optim` is "adam", "adamw" or "adafactor"; `lr_scheduler_type` "one_cycle", "linear" (up over the warm-up, then down
    to 0) or "constant". `gradient_accumulation_steps` batches make an optimiser step, of their mean loss. Where
    `adam_beta1` is 0 the 1cycle schedule moves it between 0.95 and 0.85, and the others keep 0.9.

    `learning_rate` is the schedule's peak, `encoder_learning_rate` that of what was pre-trained,
    `inside_learning_rate` that of what a method adds inside the encoder (0: the same),
    `warmup_ratio` the share of steps before the peak, `div_factor` peak / start and `final_div_factor` start / end
    (torch's OneCycleLR; spec A11). With `per_device_train_batch_pieces` a batch of training holds about so many pieces,
    however many examples that are (0: `per_device_train_batch_size` examples). `max_grad_norm` clips each task's
    gradient by itself (0: never). `early_stopping_patience` ends a task after so many epochs without a better dev score
    (0: never). `save_steps` adds a checkpoint after every so many steps to the one after each epoch (0: after epochs
    only).
    """

    learning_rate: float = 2e-3
    encoder_learning_rate: float = 0.0
    inside_learning_rate: float = 0.0
    num_train_epochs: int = 10
    per_device_train_batch_size: int = 32
    per_device_train_batch_pieces: int = 0
    per_device_eval_batch_size: int = 32
    gradient_accumulation_steps: int = 1
    seed: int = 42
    optim: str = "adam"
    lr_scheduler_type: str = "one_cycle"
    warmup_ratio: float = 0.3
    div_factor: float = 25.0
    final_div_factor: float = 1e4
    adam_beta1: float = 0.0
    adam_beta2: float = 0.999
    adam_epsilon: float = 1e-8
    weight_decay: float = 0.0
    max_grad_norm: float = 0.0
    early_stopping_patience: int = 0
    logging_steps: int = 50
    save_steps: int = 0

    def __post_init__(self) -> None:
        for name, kind in ((field.name, field.type) for field in fields(self)):
            value = getattr(self, name)
            if kind is int:
                self._need(name, isinstance(value, int) and not isinstance(value, bool), "a whole number")
            elif kind is float:
                self._need(name, isinstance(value, (int, float)) and isfinite(value), "a finite number")
        for name in ("learning_rate", "div_factor", "final_div_factor", "adam_epsilon"):
            self._need(name, getattr(self, name) > 0, "greater than 0")
        for name in COUNTS:
            self._need(name, getattr(self, name) >= 1, "at least 1")
        for name in NOT_NEGATIVE:
            self._need(name, getattr(self, name) >= 0, "0 or more")
        self._need("seed", self.seed < 2**64, "less than 2**64, which torch's generators take")
        self._need("adam_beta1", 0 <= self.adam_beta1 < 1, "at least 0 and less than 1")
        self._need("adam_beta2", 0 < self.adam_beta2 < 1, "between 0 and 1, both excluded")
        self._need("optim", self.optim in OPTIMISERS, f"one of {', '.join(OPTIMISERS)}")
        self._need("lr_scheduler_type", self.lr_scheduler_type in SCHEDULES, f"one of {', '.join(SCHEDULES)}")
        if self.lr_scheduler_type == "one_cycle":
            rule = "between 0 and 1, both excluded, with lr_scheduler_type='one_cycle': set it, too, such as 0.3"
            self._need("warmup_ratio", 0 < self.warmup_ratio < 1, rule)
        self._need("warmup_ratio", 0 <= self.warmup_ratio < 1, "at least 0 and less than 1")
        decays = self.optim == "adamw" or not self.weight_decay
        self._need("weight_decay", decays, f"0 with optim={self.optim!r}; optim='adamw' has one")

    def _need(self, name: str, holds: bool, rule: str) -> None:
        if not holds:
            raise ConfigError(f"{name}={getattr(self, name)!r} must be {rule}.")

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)
