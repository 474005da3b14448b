"""Settings of the loop: what no training could follow is refused before any begins."""

import math
import subprocess
import sys

import pytest

from encodeonce.errors import ConfigError
from encodeonce.train.randomness import seed_generators
from encodeonce.train.settings import Settings


@pytest.mark.parametrize("name", ["learning_rate", "weight_decay", "max_grad_norm", "encoder_learning_rate"])
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_rate_is_a_finite_number(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"{name}={value} must be a finite number"):
        Settings(**{name: value})


def test_a_seed_is_one_that_torch_takes() -> None:
    with pytest.raises(ConfigError, match=r"seed=18446744073709551616 must be less than 2\*\*64"):
        Settings(seed=2**64)
    seed_generators(Settings(seed=2**64 - 1).seed)


def test_a_count_is_a_whole_number_where_no_types_are_checked() -> None:
    """Tests check the types of all calls, users' programs do not: 2.5 epochs would never be over."""
    code = """
from encodeonce.errors import ConfigError
from encodeonce.train.settings import Settings
for name, value in (("num_train_epochs", 2.5), ("per_device_train_batch_size", True), ("seed", "13"), ("seed", None)):
    try:
        Settings(**{name: value})
    except ConfigError as problem:
        print(problem)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.splitlines() == [
        "num_train_epochs=2.5 must be a whole number.",
        "per_device_train_batch_size=True must be a whole number.",
        "seed='13' must be a whole number.",
        "seed=None must be a whole number.",
    ]
