"""A linear map whose weight never changes, multiplied by whatever is fastest on this machine.

Which library is fast depends on the processor: on AMD oneDNN may beat torch's fp32 by a fifth, on Intel with AMX three
bfloat16 products do, on others nothing beats plain torch. So candidates are measured, once a machine, never looked up
by name.

Axes: ... any leading axes   M rows   I inputs   O outputs
"""

import functools
import hashlib
import logging
import os
import time
from collections.abc import Collection, Sequence
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..errors import ConfigError
from ..resolve import nearest
from .compiled import private_folder, processor_flags
from .frozen_backends import Backend, Bf16, Bf16Mkl, Bf16OneDnn, Bf16x3, Bf16x3Mkl, OneDnn, Plain
from .frozen_gelu import FrozenGelu
from .frozen_norm import FrozenNorm

__all__ = ["FrozenLinear", "backends", "choose", "freeze", "together"]

CANDIDATES = {
    "fp32": (OneDnn, Plain),
    "bf16x3": (Bf16x3, OneDnn, Bf16x3Mkl, Plain),
    "bf16": (Bf16, Bf16OneDnn, Bf16Mkl, Plain),
}
"""What each number type may be multiplied by; the earlier ones are preferred, see `CLEARLY`."""
VARIABLE = "ENCODEONCE_MATMUL"
PROBE_SHAPES = ((256, 384, 384), (256, 384, 1536), (256, 1536, 384))
"""M, I, O of the products that are timed."""
ROUNDS = 11
CLEARLY = 0.75
"""A candidate must need less than this share of the time of an earlier one to win, so that noise does not decide."""

log = logging.getLogger("encodeonce")


class FrozenLinear(nn.Module):
    """Stands where an `nn.Linear` stood, for inference only: same call, same result up to the back end's tolerance.

    `weight` [O, I] and `bias` [O] are buffers with the values of the original. With `activate` the result goes through
    GELU on its way out of the product (see `freeze`).
    """

    weight: Tensor
    bias: Tensor | None

    def __init__(
        self, weight: Float[Tensor, "O I"], bias: Float[Tensor, " O"] | None, backend: Backend | None = None
    ) -> None:
        super().__init__()
        self.backend = backend or Plain()
        self.activate = False
        self.out_features, self.in_features = weight.shape
        self.register_buffer("weight", weight.detach().contiguous())
        self.register_buffer("bias", None if bias is None else bias.detach().contiguous())
        self._beside: tuple[tuple[FrozenLinear, ...], Any] | None = None

    @cached_property
    def _packed(self) -> Any:
        """Laid out at the first product of its own: of maps that only run `together` their common weight is."""
        return _laid_out([self])

    @classmethod
    def of(cls, module: nn.Module, backend: Backend | None = None) -> "FrozenLinear":
        """From an `nn.Linear`, or from transformers' Conv1D, whose weight is [I, O]."""
        weight, bias = module.weight, module.bias
        assert isinstance(weight, Tensor)
        return cls(weight.t() if _is_conv1d(module) else weight, bias, backend)  # type: ignore[arg-type]

    def forward(self, x: Float[Tensor, "... I"], known: Float[Tensor, "... O"] | None = None) -> Float[Tensor, "... O"]:
        """x W^T + b, in x's type, or through GELU in what the next product takes; `known` itself where another product
        gave it already. ConfigError where a gradient is asked for."""
        if known is not None:
            return known
        return self._product(x, self._packed, self.out_features)

    def _product(self, x: Float[Tensor, "... I"], packed: Any, outputs: int) -> Float[Tensor, "... O"]:
        if x.requires_grad and torch.is_grad_enabled():
            raise ConfigError(
                "FrozenLinear gives no gradient, and its input asks for one. Run it under torch.no_grad(), "
                "or train a model that was not passed through freeze()."
            )
        shape = (*x.shape[:-1], outputs)
        if x.shape[-1] != self.in_features:
            raise ConfigError(f"FrozenLinear got {x.shape[-1]} inputs a row; its weight takes {self.in_features}.")
        if x.numel() == 0:
            return x.new_zeros(shape)
        rows = x.detach().reshape(-1, self.in_features)
        if rows.dtype != self.backend.takes:
            rows = rows.to(self.backend.takes)
        y = self.backend.multiply(rows.contiguous(), packed, self.activate).view(shape)
        return y if self.activate or y.dtype == x.dtype else y.to(x.dtype)

    def __getstate__(self) -> dict[str, Any]:
        """Without the weights as a back end lays them out: they cannot be pickled, and are laid out anew when used."""
        return {name: None if name == "_beside" else own for name, own in vars(self).items() if name != "_packed"}

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}, backend={self.backend.name}"


def together(x: Float[Tensor, "... I"], lines: Sequence[nn.Module]) -> list[Float[Tensor, "... _"]]:
    """`[line(x) for line in lines]`, of frozen products in the type that these take. Where a back end lays weights out
    it is one product: of a short text, what is paid a product counts. Hooks of each line see x and the line's own."""
    first, every = lines[0], tuple(line for line in lines if isinstance(line, FrozenLinear))
    if not isinstance(first, FrozenLinear):
        return [line(x) for line in lines]
    shown = x.to(first.backend.takes)
    beside = first._beside
    if beside is None or beside[0] != every:
        if isinstance(first.backend, Plain) or not all(_alike(first, other) for other in lines):
            return [line(shown) for line in lines]
        first._beside = beside = every, _laid_out(every)
    sizes = [line.out_features for line in every]
    parts = first._product(shown, beside[1], sum(sizes)).split(sizes, dim=-1)
    return [line(shown, part) for line, part in zip(lines, parts, strict=True)]


def _alike(one: FrozenLinear, other: nn.Module) -> bool:
    """Whether one product can give both."""
    return (
        isinstance(other, FrozenLinear)
        and other.backend is one.backend
        and other.in_features == one.in_features
        and not (one.activate or other.activate)
        and (other.bias is None) == (one.bias is None)
    )


def _laid_out(lines: Sequence[FrozenLinear]) -> Any:
    """The weights of these, one above the other, as their back end wants them."""
    weights, biases = [line.weight for line in lines], [line.bias for line in lines if line.bias is not None]
    weight = torch.cat(weights) if len(weights) > 1 else weights[0]
    return lines[0].backend.pack(weight.float().contiguous(), torch.cat(biases).float() if biases else None)


def _is_conv1d(module: nn.Module) -> bool:
    """By name: this room does not import transformers."""
    return type(module).__name__ == "Conv1D" and type(module).__module__ == "transformers.pytorch_utils"


def backends(compute: str) -> dict[str, Backend]:
    """The back ends for compute "fp32", "bf16x3" (relative error of a product some 4e-6) or "bf16" (3e-3), by name."""
    if compute not in CANDIDATES:
        raise ConfigError(f"compute={compute!r} is not known. There is: {', '.join(CANDIDATES)}.")
    return {kind.name: kind() for kind in CANDIDATES[compute]}


def choose(compute: str = "fp32") -> Backend:
    """The fastest back end that is exact enough here, measured once a machine (a tenth of a second or two).

    Two back ends agree to their tolerance, not to the bit, and a resumed pass must end in the bytes of an undisturbed
    one: so the choice is kept in the user's cache folder, for this processor and torch, and later processes follow it.
    The environment variable ENCODEONCE_MATMUL names one instead; one that cannot run here gives way to plain, with a
    warning. Raises ConfigError for an unknown `compute` or name.
    """
    return _chosen(compute, os.environ.get(VARIABLE, ""))


@functools.cache
def _chosen(compute: str, wanted: str) -> Backend:
    known = backends(compute)
    if wanted:
        everywhere = sorted({name for each in CANDIDATES for name in backends(each)})
        if wanted not in everywhere:
            raise ConfigError(
                f"{VARIABLE}={wanted!r} is no back end. There is: {', '.join(everywhere)}.{nearest(wanted, everywhere)}"
            )
        if wanted in known:
            reason = _refusal(known[wanted])
            if not reason:
                return known[wanted]
            log.warning("%s=%s cannot be used: %s. Using plain.", VARIABLE, wanted, reason)
            return known["plain"]
    usable = []
    for backend in known.values():
        reason = _refusal(backend)
        if reason:
            log.info("back end %s left out: %s", backend.name, reason)
        else:
            usable.append(backend)
    file, by_name = _memory(compute, usable), {backend.name: backend for backend in usable}
    kept = _read(file)
    if kept not in by_name:
        kept = _keep(file, _fastest(usable).name, by_name)
    return by_name[kept]


def _memory(compute: str, usable: list[Backend]) -> Path:
    """The file that keeps the choice for these candidates on this processor."""
    made_of = "|".join([processor_flags(), torch.__version__, compute, *(backend.name for backend in usable)])
    return private_folder() / f"products-{hashlib.sha256(made_of.encode()).hexdigest()[:20]}.txt"


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _keep(file: Path, name: str, allowed: Collection[str]) -> str:
    """Write the choice down and give it back; of two processes that choose at once both follow the first."""
    try:
        with open(file, "x", encoding="ascii") as new:
            new.write(name + "\n")
    except FileExistsError:
        other = _read(file)
        if other in allowed:
            return other
        file.write_text(name + "\n", encoding="ascii")
    except OSError as problem:
        log.debug("the choice of products is not kept: %s", problem)
    return name


def _refusal(backend: Backend) -> str:
    """Why a back end must not be used: not there, fails, or is not as exact as it should be. Empty where it may."""
    reason = backend.missing()
    if reason:
        return reason
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(37, 70, generator=generator), torch.randn(45, 70, generator=generator)
    bias = torch.randn(45, generator=generator)
    exact = x.double() @ weight.double().t() + bias
    try:
        found = backend.multiply(x.to(backend.takes), backend.pack(weight, bias)).double()
    except (RuntimeError, NotImplementedError, OSError) as problem:
        return f"it fails: {str(problem).splitlines()[0]}"
    error = float((found - exact).norm() / exact.norm())
    if not error < backend.tolerance:
        return f"its relative error is {error:.1e}, over {backend.tolerance:.0e}"
    return ""


def _fastest(usable: list[Backend]) -> Backend:
    """The first back end, unless a later one is clearly faster both in its best round and in the median of the rounds.

    The candidates take turns within a round, so that a busy moment of the machine hits all alike.
    """
    if len(usable) == 1:
        return usable[0]
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    works = []
    for rows, inputs, outputs in PROBE_SHAPES:
        x, weight, bias = torch.randn(rows, inputs), torch.randn(outputs, inputs), torch.zeros(outputs)
        works.append((x, [backend.pack(weight, bias) for backend in usable]))
    seconds: dict[str, list[float]] = {backend.name: [] for backend in usable}
    for _ in range(ROUNDS):
        for number, backend in enumerate(usable):
            start = clock()
            for x, packed in works:
                backend.multiply(x.to(backend.takes), packed[number])
            seconds[backend.name].append(clock() - start)
    winner = usable[0]
    for backend in usable[1:]:
        mine, best = seconds[backend.name], seconds[winner.name]
        if max(min(mine) / min(best), median(a / b for a, b in zip(mine, best, strict=True))) < CLEARLY:
            winner = backend
    log.info("products: %s (%s)", winner.name, ", ".join(f"{n} {1e3 * min(t):.2f} ms" for n, t in seconds.items()))
    return winner


def freeze(model: nn.Module, compute: str = "fp32") -> nn.Module:
    """Replace, in place, every `nn.Linear` and Conv1D inside `model` by a `FrozenLinear`, and give the model back.

    Meant for a loaded copy that is only run. Exact types only: a subclass may do more than multiply, and stays. A
    module used in several places stays one. Weights that are not in host memory keep torch's own product. Where the
    compiled kernel multiplies, layer norms and GELUs go through it too. A GELU that follows a product right away
    becomes part of it: the product's module then gives what the activation gave.
    """
    backend, done = choose(compute), {}
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):  # named_children() leaves out a module's second name
            if child is None:
                continue
            if id(child) not in done:
                done[id(child)] = (child, _replacement(child, backend))
            if done[id(child)][1] is not None:
                setattr(parent, name, done[id(child)][1])
    for parent in list(model.modules()):
        _join(parent)
    return model


def _replacement(child: nn.Module, backend: Backend) -> nn.Module | None:
    """What stands for this module from now on; None: itself."""
    if any(each.device.type != "cpu" for each in child.parameters(recurse=False)):
        backend = Plain()
    if type(child) is nn.Linear or _is_conv1d(child):
        return FrozenLinear.of(child, backend)
    if backend.compiled and type(child) is nn.LayerNorm and len(child.normalized_shape) == 1:
        return FrozenNorm(child)
    if backend.compiled and _is_gelu(child):
        return FrozenGelu()
    return None


def _is_gelu(module: nn.Module) -> bool:
    if type(module) is nn.GELU:
        return module.approximate == "none"
    return type(module).__name__ == "GELUActivation" and type(module).__module__ == "transformers.activations"


def _join(parent: nn.Module) -> None:
    """Let the product inside `parent` apply the GELU that `parent` applies to it; left as it was where that is not so.

    Only for a module of one product and one GELU and nothing else (the first half of the feed-forward part in the BERT
    line), and only after both ways gave the same for a few rows.
    """
    parts = dict(parent.named_children())
    linears = [part for part in parts.values() if type(part) is FrozenLinear]
    gelus = [name for name, part in parts.items() if type(part) is FrozenGelu or _is_gelu(part)]
    if len(parts) != 2 or len(linears) != 1 or len(gelus) != 1:
        return
    linear, name = linears[0], gelus[0]
    rows = torch.linspace(-2, 2, 3 * linear.in_features).view(1, 3, -1)
    equal = False
    try:
        with torch.no_grad():
            before = parent(rows)
            linear.activate = True
            setattr(parent, name, nn.Identity())
            near = linear.backend.tolerance
            equal = isinstance(before, Tensor) and torch.allclose(before, parent(rows).to(before), rtol=near, atol=near)
    except (TypeError, ValueError, RuntimeError, AttributeError) as problem:
        log.debug("%s keeps its activation apart: %s", type(parent).__name__, problem)
    if not equal:
        linear.activate = False
        setattr(parent, name, parts[name])
