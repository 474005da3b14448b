"""The packed batch and its means."""

import pytest
import torch

from encodeonce.errors import ConfigError
from encodeonce.nn.packed import Packed


@pytest.fixture
def items() -> list[torch.Tensor]:
    return [torch.randn(3, length, 4) for length in (5, 1, 2)]


def test_means_equal_a_loop_over_items(items: list[torch.Tensor]) -> None:
    batch = Packed.of(items)
    torch.testing.assert_close(batch.token_means, torch.stack([item.mean(1) for item in items]))
    torch.testing.assert_close(batch.layer_mean, torch.cat([item.mean(0) for item in items]))
    assert batch.item.tolist() == [0] * 5 + [1] + [2] * 2
    assert batch.starts.tolist() == [0, 5, 6]
    assert batch.token_means is batch.token_means


def test_means_of_half_precision_are_taken_in_fp32(items: list[torch.Tensor]) -> None:
    halved = Packed.of([item.half() for item in items])
    torch.testing.assert_close(halved.token_means, Packed(halved.views.float(), halved.lengths).token_means)
    assert halved.layer_mean.dtype == torch.float32


def test_lengths_must_fit() -> None:
    with pytest.raises(ConfigError, match="lengths sum to 3 but there are 4 rows"):
        Packed(torch.zeros(2, 4, 3), (1, 2))
    with pytest.raises(ConfigError, match="at least one row"):
        Packed(torch.zeros(2, 4, 3), (4, 0))
