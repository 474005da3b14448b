"""Named places inside a block whose output may be seen and replaced while the block runs (ReFusion's hold on its host).

Done by forward hooks that live as long as one call of one block: nothing is left behind, no module is changed.

The weight matrices behind these places are read here too.

Axes: B items   T pieces   I, O widths of a slot's input and output
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..types import Edit

__all__ = ["edited", "matrices"]


class _Watch:
    """Hands one module's output, or thirds of it, to `edit`; only its first call in a block (DeBERTa calls twice)."""

    def __init__(self, block: int, parts: dict[int | None, str], edit: Edit) -> None:
        self.block, self.parts, self.edit, self.seen = block, parts, edit, False

    def __call__(self, module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        if self.seen:
            return output
        self.seen = True
        if None in self.parts:
            return self.edit(self.block, self.parts[None], inputs[0], output)
        thirds = list(output.chunk(3, dim=-1))
        for part, slot in self.parts.items():
            assert part is not None
            thirds[part] = self.edit(self.block, slot, inputs[0], thirds[part])
        return torch.cat(thirds, dim=-1)


@contextmanager
def edited(module: nn.Module, slots: Mapping[str, str], block: int, edit: Edit | None) -> Iterator[None]:
    """While open, `edit(block, slot, x, y)` is called at each slot of `module` and its answer takes the place of y.

    `slots` maps a name to a module path; "path/0", "path/1", "path/2" name the thirds of one fused output.
    """
    if edit is None:
        yield
        return
    watched: dict[str, dict[int | None, str]] = {}
    for slot, place in slots.items():
        path, _, part = place.partition("/")
        watched.setdefault(path, {})[int(part) if part else None] = slot
    handles = [
        module.get_submodule(path).register_forward_hook(_Watch(block, parts, edit)) for path, parts in watched.items()
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def matrices(blocks: Sequence[nn.Module], slots: Mapping[str, str]) -> list[tuple[str, Float[Tensor, "O I"]]]:
    """Slot and weight, block after block; a block that runs several times once, the thirds of a fused weight apart."""
    from transformers.pytorch_utils import Conv1D

    found = []
    for block in dict.fromkeys(blocks):
        for slot, place in slots.items():
            path, _, part = place.partition("/")
            module: Any = block.get_submodule(path)
            weight = module.weight.T if isinstance(module, Conv1D) else module.weight
            found.append((slot, weight.chunk(3)[int(part)] if part else weight))
    return found
