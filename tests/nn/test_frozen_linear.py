"""Frozen products against float64, what is refused, and what happens where a back end is missing."""

import copy
import logging
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional

from encodeonce.errors import ConfigError
from encodeonce.nn import frozen_backends, frozen_kernel, frozen_linear
from encodeonce.nn.frozen_backends import Plain
from encodeonce.nn.frozen_gelu import FrozenGelu
from encodeonce.nn.frozen_linear import FrozenLinear, backends, choose, freeze, together
from encodeonce.nn.frozen_norm import FrozenNorm

COMPUTE = ("fp32", "bf16x3", "bf16")
EVERY = {name: backend for compute in COMPUTE for name, backend in backends(compute).items()}
HERE = [backend for backend in EVERY.values() if not backend.missing()]
SHAPES = [(1, 1, 1), (1, 5, 7), (33, 70, 45), (300, 384, 64), (65, 31, 129), (7, 1536, 33)]


@pytest.fixture(autouse=True)
def _fresh_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """No choice from an earlier test or process."""
    monkeypatch.delenv("ENCODEONCE_MATMUL", raising=False)
    monkeypatch.setattr(frozen_linear, "_read", lambda file: "")
    monkeypatch.setattr(frozen_linear, "_keep", lambda file, name, allowed: name)
    frozen_linear._chosen.cache_clear()


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found.double() - exact.detach()).norm() / exact.detach().norm())


@pytest.mark.parametrize("backend", HERE, ids=lambda backend: backend.name)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("biased", [True, False])
def test_every_back_end_equals_float64(
    backend: frozen_backends.Backend, shape: tuple[int, int, int], biased: bool
) -> None:
    rows, inputs, outputs = shape
    x, weight = torch.randn(rows, inputs), torch.randn(outputs, inputs)
    bias = torch.randn(outputs) if biased else None
    exact = x.double() @ weight.double().t() + (bias.double() if biased else 0)
    scale = x.double().norm() * weight.double().norm() / (rows * outputs) ** 0.5  # of a sum without cancellation
    allowed = backend.tolerance * float(max(exact.norm(), scale))
    frozen = FrozenLinear(weight, bias, backend)
    assert float((frozen(x).double() - exact).norm()) < allowed
    frozen.activate = True
    assert float((frozen(x).double() - functional.gelu(exact)).norm()) < 1.2 * allowed  # GELU is steeper than 1 by 0.13


@pytest.mark.parametrize("backend", HERE, ids=lambda backend: backend.name)
def test_what_has_multiplied_can_be_pickled_and_copied(backend: frozen_backends.Backend) -> None:
    """A weight that oneDNN has laid out has no storage to be written."""
    lines = [FrozenLinear(torch.randn(20, 48), torch.randn(20), backend) for _ in range(2)]
    x = torch.randn(3, 48)
    before = [lines[0](x), *together(x, lines)]
    for again in (pickle.loads(pickle.dumps(lines)), copy.deepcopy(lines)):
        for found, expected in zip([again[0](x), *together(x, again)], before, strict=True):
            assert torch.equal(found, expected)


@pytest.mark.parametrize("backend", HERE, ids=lambda backend: backend.name)
def test_leading_axes_strides_and_empty_rows(backend: frozen_backends.Backend) -> None:
    linear = nn.Linear(48, 20)
    frozen = FrozenLinear.of(linear, backend)
    x = torch.randn(5, 48, 3, 2)[..., 0].transpose(1, 2)
    assert not x.is_contiguous()
    exact = functional.linear(x.double(), linear.weight.double(), linear.bias.double())
    assert frozen(x).shape == (5, 3, 20)
    assert error(frozen(x), exact) < backend.tolerance
    assert frozen(x[0, 0]).shape == (20,)
    assert frozen(x[:0]).shape == (0, 3, 20)


@pytest.mark.parametrize("backend", HERE, ids=lambda backend: backend.name)
def test_no_global_switch_is_moved(backend: frozen_backends.Backend) -> None:
    x, weight = torch.randn(40, 64), torch.randn(64, 64)
    before = functional.linear(x, weight), torch.get_float32_matmul_precision()
    FrozenLinear(weight, None, backend)(x)
    assert torch.equal(before[0], functional.linear(x, weight))
    assert before[1] == torch.get_float32_matmul_precision()


@pytest.mark.parametrize("name", ["bf16x3", "bf16"])
def test_a_row_does_not_depend_on_the_others_nor_on_threads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = EVERY[name]
    if backend.missing():
        assert backend.missing() == frozen_kernel.no_matrix_unit()
        return
    x, frozen = torch.randn(333, 100), FrozenLinear(torch.randn(70, 100), torch.randn(70), backend)
    whole = frozen(x)
    assert torch.equal(torch.cat([frozen(row[None]) for row in x[:40]]), whole[:40])
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert torch.equal(frozen(x), whole)


def test_gradients_and_wrong_widths_are_refused() -> None:
    frozen = FrozenLinear.of(nn.Linear(4, 3))
    with pytest.raises(ConfigError, match=r"gives no gradient.*torch\.no_grad"):
        frozen(torch.randn(2, 4, requires_grad=True))
    with torch.no_grad():
        assert frozen(torch.randn(2, 4, requires_grad=True)).shape == (2, 3)
    with pytest.raises(ConfigError, match="got 5 inputs a row; its weight takes 4"):
        frozen(torch.randn(2, 5))
    assert not list(frozen.parameters())


def test_other_types_come_back_in_their_own() -> None:
    frozen = FrozenLinear.of(nn.Linear(4, 3))
    assert frozen(torch.randn(2, 4, dtype=torch.bfloat16)).dtype == torch.bfloat16


class Intermediate(nn.Module):
    """A product and the GELU of it, and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.act = nn.Linear(32, 64), nn.GELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.dense(x))


class ActivatesFirst(Intermediate):
    """The same parts the other way round: must not be joined."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dense(self.act(x))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Intermediate(), ActivatesFirst()
        self.down, self.norm = nn.Linear(64, 32), nn.LayerNorm(32)
        self.again = self.down

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.norm(self.again(self.first(x)) + x))


@pytest.mark.parametrize("compute", COMPUTE)
def test_a_frozen_model_equals_the_model(compute: str) -> None:
    model = Block()
    nn.init.normal_(model.norm.weight)
    x = torch.randn(3, 9, 32)
    exact = model.double()(x.double()).detach()
    frozen = freeze(model.float(), compute)
    assert frozen is model
    assert not [part for part in frozen.modules() if type(part) is nn.Linear]
    assert frozen.again is frozen.down
    with torch.no_grad():
        assert error(frozen(x), exact) < 2 * EVERY[choose(compute).name].tolerance
    compiled = choose(compute).compiled
    assert isinstance(frozen.norm, FrozenNorm if compiled else nn.LayerNorm)
    assert frozen.first.dense.activate
    assert not frozen.second.dense.activate


def test_subclasses_and_tanh_gelu_stay() -> None:
    class Mine(nn.Linear):
        pass

    model = nn.Sequential(Mine(4, 4), nn.GELU("tanh"), nn.Linear(4, 4))
    freeze(model)
    assert [type(part) for part in model] == [Mine, nn.GELU, FrozenLinear]


def test_conv1d_of_transformers_is_turned() -> None:
    from transformers.pytorch_utils import Conv1D

    model = nn.Sequential(Conv1D(12, 8))
    x = torch.randn(5, 8)
    exact = model(x).detach().double()
    assert error(freeze(model)(x), exact) < 1e-5
    assert isinstance(model[0], FrozenLinear)


def test_norm_and_gelu_equal_float64() -> None:
    if isinstance(frozen_kernel.kernel(), str):
        assert not any(choose(compute).compiled for compute in COMPUTE)
        return
    for width in (1, 16, 37, 384):
        norm = nn.LayerNorm(width, eps=1e-5)
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
        x = torch.randn(3, 70, width) * 3 + 1
        exact = functional.layer_norm(x.double(), (width,), norm.weight.double(), norm.bias.double(), norm.eps).detach()
        assert error(FrozenNorm(norm)(x), exact) < 1e-6
    x = torch.cat([torch.linspace(-20, 20, 4001), torch.tensor([0.0, -0.0, 1e30, float("inf")])])
    found, exact = FrozenGelu()(x), functional.gelu(x.double())
    torch.testing.assert_close(found.double(), exact, rtol=1e-6, atol=5e-7)
    assert FrozenGelu()(torch.tensor([float("nan")])).isnan().all()


def test_the_variable_names_the_back_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENCODEONCE_MATMUL", "plain")
    assert choose("fp32").name == choose("bf16").name == "plain"
    monkeypatch.setenv("ENCODEONCE_MATMUL", "onednm")
    with pytest.raises(ConfigError, match=r"'onednm' is no back end. There is: .*plain.* Did you mean 'onednn'\?"):
        choose()
    with pytest.raises(ConfigError, match=r"compute='fp8' is not known. There is: fp32, bf16x3, bf16"):
        choose("fp8")


def test_a_missing_back_end_gives_way_with_a_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    monkeypatch.setattr(frozen_backends, "_bf16_product", lambda: "no such product")
    monkeypatch.setattr(frozen_backends, "no_matrix_unit", lambda: "no kernel")
    with caplog.at_level(logging.INFO, "encodeonce"):
        assert isinstance(choose("bf16x3"), Plain)
    assert "onednn left out: this torch is built without oneDNN" in caplog.text
    assert "bf16x3 left out: no kernel" in caplog.text
    monkeypatch.setenv("ENCODEONCE_MATMUL", "onednn")
    with caplog.at_level(logging.WARNING, "encodeonce"):
        assert isinstance(choose("fp32"), Plain)
    assert "ENCODEONCE_MATMUL=onednn cannot be used: this torch is built without oneDNN. Using plain." in caplog.text


def test_a_wrong_or_failing_back_end_is_left_out() -> None:
    class Wrong(Plain):
        name = "wrong"

        def multiply(self, x: torch.Tensor, packed: object, activate: bool = False) -> torch.Tensor:
            return super().multiply(x, packed) * 1.001

    class Failing(Plain):
        def multiply(self, x: torch.Tensor, packed: object, activate: bool = False) -> torch.Tensor:
            raise RuntimeError("could not create a primitive\nand more")

    assert "its relative error is 1.0e-03, over 1e-05" in frozen_linear._refusal(Wrong())
    assert frozen_linear._refusal(Failing()) == "it fails: could not create a primitive"
    assert frozen_linear._refusal(Plain()) == ""


def test_a_machine_without_the_units_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = frozen_kernel.kernel.__wrapped__
    monkeypatch.setattr(frozen_kernel.sys, "platform", "linux")
    monkeypatch.setattr(frozen_kernel.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(frozen_kernel, "processor_flags", lambda: "avx512f avx512bw avx512vl avx512dq fma")
    monkeypatch.setattr(frozen_kernel, "library", lambda source, flags: f"no {source.name}")
    assert fresh() == "no frozen_kernel.c"
    monkeypatch.setattr(frozen_kernel, "processor_flags", lambda: "avx2 fma")
    assert fresh() == "this processor has no avx512f"
    monkeypatch.setattr(frozen_kernel.sys, "platform", "darwin")
    assert "needs Linux on x86-64" in fresh()


def test_the_matrix_unit_may_be_missing_or_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        def __init__(self, answer: int) -> None:
            self.frozen_ready = lambda: answer

    fresh = frozen_kernel.no_matrix_unit.__wrapped__
    for answer, said in ((0, ""), (1, "no AMX bfloat16 unit"), (2, "does not allow AMX")):
        monkeypatch.setattr(frozen_kernel, "kernel", lambda answer=answer: Library(answer))
        assert said in fresh()
        assert bool(said) == bool(fresh())
    monkeypatch.setattr(frozen_kernel, "kernel", lambda: "no compiler")
    assert fresh() == "no compiler"


@pytest.mark.parametrize("backend", HERE, ids=lambda backend: backend.name)
@pytest.mark.parametrize("biased", [True, False])
def test_products_made_together_are_those_made_alone(backend: frozen_backends.Backend, biased: bool) -> None:
    linears = [nn.Linear(48, outputs, bias=biased) for outputs in (32, 48, 16)]
    lines = [FrozenLinear.of(linear, backend) for linear in linears]
    for rows in (1, 7, 40):
        x = torch.randn(2, rows, 48)
        for line, found in zip(lines, together(x, lines), strict=True):
            assert found.dtype == backend.takes
            assert found.shape == (2, rows, line.out_features)
            assert error(found, line(x).double()) < backend.tolerance
    other = FrozenLinear.of(nn.Linear(48, 16, bias=not biased), backend)
    found = together(x, [lines[0], other])  # other neighbours, and not alike: each by itself
    assert error(found[1], other(x).double()) < backend.tolerance
    assert torch.equal(together(x, linears)[0], linears[0](x))


def test_hooks_see_their_own_line_of_products_made_together() -> None:
    lines = [FrozenLinear.of(nn.Linear(32, 32), choose()) for _ in range(3)]
    x, seen = torch.randn(1, 5, 32), []
    plain = [each.clone() for each in together(x, lines)]
    handle = lines[1].register_forward_hook(lambda line, inputs, y: seen.append((inputs[0], y.clone())) or -y)
    found = together(x, lines)
    handle.remove()
    assert torch.equal(seen[0][0], x)
    assert torch.equal(seen[0][1], plain[1])
    assert [torch.equal(a, b) for a, b in zip(found, plain, strict=True)] == [True, False, True]
    assert torch.equal(found[1], -plain[1])
