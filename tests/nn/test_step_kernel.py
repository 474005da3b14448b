"""The compiled kernel against tensor operations: same outputs, same gradients, same masks."""

import logging
from collections.abc import Callable

import pytest
import torch
from torch import nn

from encodeonce.adapters.adapted import Adapted
from encodeonce.adapters.aggregation import Aggregation
from encodeonce.heads.tagger import Tagger
from encodeonce.nn import step_kernel
from encodeonce.nn.packed import Packed

WIDTH, LENGTHS = 48, (6, 1, 9, 3)
BUILD = step_kernel._library.__wrapped__
ROWS = {
    "all": None,
    "ends": torch.tensor([1, 4, 5, 6, 8, 15, 18]),
    "one item": torch.tensor([7, 9]),
    "out of order": torch.tensor([18, 0, 7, 3]),
}


@pytest.fixture(autouse=True, params=[8, 16])
def _lanes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both widths of vectors, whichever this processor would have."""
    monkeypatch.setattr(step_kernel, "FLAGS", (*step_kernel.FLAGS, f"-DV={request.param}"))
    found = BUILD()
    if found is None:
        pytest.skip("needs a C compiler (cc, gcc or clang)")
    monkeypatch.setattr(step_kernel, "_library", lambda: found)


def both(monkeypatch: pytest.MonkeyPatch, run: Callable[[], list[torch.Tensor]]) -> tuple[list[torch.Tensor], ...]:
    """What `run` gives by the kernel and by tensor operations, from the same generator state."""
    state = torch.get_rng_state()
    by_kernel = run()
    torch.set_rng_state(state)
    monkeypatch.setattr(step_kernel, "_library", lambda: None)
    return by_kernel, run()


def gradients(module: nn.Module, out: torch.Tensor) -> list[torch.Tensor]:
    """The output and every parameter's gradient under a random slope."""
    module.zero_grad()
    slope = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    (out * slope).sum().backward()
    return [out.detach(), *(parameter.grad.clone() for parameter in module.parameters())]


@pytest.mark.parametrize("n_heads", [1, 2, 4])
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("cls", [Adapted, Aggregation])
def test_adapters_in_fp32(cls: type, rows: str, n_heads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter, views = cls(WIDTH, n_heads=n_heads), torch.randn(5, sum(LENGTHS), WIDTH)
    for parameter in adapter.parameters():
        nn.init.normal_(parameter, std=0.3)
    pair = both(monkeypatch, lambda: gradients(adapter, adapter(Packed(views, LENGTHS), ROWS[rows])))
    for ours, expected in zip(*pair, strict=True):
        torch.testing.assert_close(ours, expected, atol=2e-4, rtol=1e-4)


def close_in_bf16(pair: tuple[list[torch.Tensor], ...]) -> None:
    for ours, expected in zip(*pair, strict=True):
        assert (ours - expected).norm() <= 0.03 * expected.norm() + 1e-3


@pytest.mark.parametrize("training", [True, False])
def test_adapted_in_bf16_drops_the_same_values(training: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = Adapted(WIDTH, dropout=0.3, compute="bf16").train(training)
    views = torch.randn(5, sum(LENGTHS), WIDTH)
    close_in_bf16(both(monkeypatch, lambda: gradients(adapter, adapter(Packed(views, LENGTHS), ROWS["ends"]))))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("n_rows", [1, 64, 70])
def test_tagger_in_bf16_drops_the_same_values(n_rows: int, training: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    head = Tagger(WIDTH, ("a", "b", "c"), dropout=0.3, compute="bf16").train(training)
    x = torch.randn(n_rows, WIDTH, requires_grad=True)

    def run() -> list[torch.Tensor]:
        x.grad = None
        return [*gradients(head, head(x)), x.grad]

    close_in_bf16(both(monkeypatch, run))


def test_means_in_one_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    views = torch.randn(5, sum(LENGTHS), WIDTH)

    def means() -> list[torch.Tensor]:
        batch = Packed(views, LENGTHS)
        return [batch.layer_mean, batch.token_means]

    for ours, expected in zip(*both(monkeypatch, means), strict=True):
        torch.testing.assert_close(ours, expected)


def test_bf16_rounds_to_nearest_even_as_torch_does() -> None:
    x = torch.cat([torch.randn(960), torch.tensor([0.0, -0.0, 1e30, -1e-30, 1 + 2**-8, 1 + 3 * 2**-8] + [1.0] * 10)])
    every_bit, out = torch.full((61,), -1, dtype=torch.int16), torch.empty(976, dtype=torch.bfloat16)
    step_kernel.call("drop16", x, every_bit, 1.0, 976, out)
    assert torch.equal(out, x.bfloat16())


def test_large_scores_do_not_overflow() -> None:
    adapter = Aggregation(WIDTH)
    for parameter in adapter.parameters():
        nn.init.normal_(parameter, std=20)
    assert adapter(Packed(torch.randn(5, 19, WIDTH), LENGTHS)).isfinite().all()


def test_a_softmax_of_wide_gaps_has_zeros_where_numbers_would_be_too_small_to_count() -> None:
    """Numbers below the smallest normal one take some processors a hundred times as long."""
    gaps = torch.tensor([0.0, -30.0, -60.0, -68.0, -70.0, -88.0, -500.0, -float("inf")])
    query, owner = torch.ones(1, 1, 1), torch.zeros(1, dtype=torch.int64)
    views, probabilities, mixed = torch.rand(8, 1, 16), torch.empty(1, 1, 8), torch.empty(1, 16)
    sizes = 1, 8, 1, 16, 1, 1, 1.0
    step_kernel.call("mix_views", query, gaps.view(1, 8, 1, 1), views, None, owner, *sizes, probabilities, mixed)
    torch.testing.assert_close(probabilities.flatten()[:4], gaps.double().softmax(0).float()[:4], rtol=1e-6, atol=0)
    assert not probabilities.flatten()[4:].any()
    assert torch.equal(mixed, views[0])


def test_what_the_kernel_cannot_take_goes_another_way() -> None:
    fits = torch.zeros(2, 16)
    assert step_kernel.usable(fits)
    for other in (fits.double(), fits.half(), torch.zeros(2, 24), torch.zeros(16, 2).T, torch.zeros(0, 16)):
        assert not step_kernel.usable(other)


@pytest.mark.parametrize("cls", [Adapted, Aggregation])
def test_under_autocast_the_kernel_is_given_fp32(cls: type) -> None:
    adapter, views = cls(WIDTH).eval(), torch.randn(5, sum(LENGTHS), WIDTH)
    expected = adapter(Packed(views, LENGTHS))
    with torch.autocast("cpu", torch.bfloat16):
        out = adapter(Packed(views, LENGTHS)).float()
    assert (out - expected).norm() <= 0.02 * expected.norm()
    assert all(gradient.isfinite().all() for gradient in gradients(adapter, out))


@pytest.mark.parametrize("cls", [Adapted, Aggregation])
def test_rows_may_be_any_whole_numbers_in_any_order_of_memory(cls: type) -> None:
    adapter, views = cls(WIDTH).eval(), torch.randn(5, sum(LENGTHS), WIDTH)
    rows = torch.tensor([[1, 0], [7, 1], [18, 2]])
    expected = adapter(Packed(views, LENGTHS), rows[:, 0].clone())
    for given in (rows[:, 0], rows[:, 0].int()):
        torch.testing.assert_close(adapter(Packed(views, LENGTHS), given), expected, rtol=0, atol=0)


def test_without_a_compiler_it_says_so(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("CC", "no-such-compiler-anywhere")
    monkeypatch.setenv("XDG_CACHE_HOME", "/nonexistent/cache")
    with caplog.at_level(logging.INFO, logger="encodeonce"):
        assert BUILD() is None
    assert "without the compiled kernel" in caplog.text
