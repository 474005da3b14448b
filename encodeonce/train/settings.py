"""The loop's settings, under Hugging Face's names where it has one."""

from dataclasses import asdict, dataclass
from typing import Any

from ..errors import ConfigError

__all__ = ["Settings"]

HARMLESS = ("logging_steps", "save_steps", "per_device_eval_batch_size")
"""Settings that may change between a run and its resumption: no weight depends on them."""


@dataclass(frozen=True)
class Settings:
    """One setting a line: what it is, and off where 0 says so.

    `learning_rate` is the schedule's peak, `encoder_learning_rate` that of what was pre-trained (0: the same),
    `warmup_ratio` the share of steps before the peak, `div_factor` peak / start and `final_div_factor` start / end
    (torch's OneCycleLR; spec A11). With `per_device_train_batch_pieces` a batch of training holds about so many pieces,
    however many examples that are (0: `per_device_train_batch_size` examples). `max_grad_norm` clips each task's
    gradient by itself (0: never). `early_stopping_patience` ends a task after so many epochs without a better dev score
    (0: never). `save_steps` adds a checkpoint after every so many steps to the one after each epoch (0: after epochs
    only).
    """

    learning_rate: float = 2e-3
    encoder_learning_rate: float = 0.0
    num_train_epochs: int = 10
    per_device_train_batch_size: int = 32
    per_device_train_batch_pieces: int = 0
    per_device_eval_batch_size: int = 32
    seed: int = 42
    warmup_ratio: float = 0.3
    div_factor: float = 25.0
    final_div_factor: float = 1e4
    adam_beta2: float = 0.999
    adam_epsilon: float = 1e-8
    max_grad_norm: float = 0.0
    early_stopping_patience: int = 0
    logging_steps: int = 50
    save_steps: int = 0

    def __post_init__(self) -> None:
        for name in ("learning_rate", "div_factor", "final_div_factor", "adam_epsilon"):
            self._need(name, getattr(self, name) > 0, "greater than 0")
        for name in ("num_train_epochs", "per_device_train_batch_size", "per_device_eval_batch_size", "logging_steps"):
            self._need(name, getattr(self, name) >= 1, "at least 1")
        for name in ("max_grad_norm", "early_stopping_patience", "save_steps", "seed", "encoder_learning_rate"):
            self._need(name, getattr(self, name) >= 0, "0 or more")
        self._need("per_device_train_batch_pieces", self.per_device_train_batch_pieces >= 0, "0 or more")
        self._need("adam_beta2", 0 < self.adam_beta2 < 1, "between 0 and 1, both excluded")
        self._need("warmup_ratio", 0 < self.warmup_ratio < 1, "between 0 and 1, both excluded")

    def _need(self, name: str, holds: bool, rule: str) -> None:
        if not holds:
            raise ConfigError(f"{name}={getattr(self, name)} must be {rule}.")

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)
