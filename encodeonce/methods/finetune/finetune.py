"""The method: a head a task over trained blocks of the encoder, each task its own or all of them one trunk.

Axes: R rows that a head sees
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn

from ...adapters import Adapter
from ...adapters.last import Last
from ...batching import Batch, Examples, Source, Supervised
from ...encoders.live import LiveBlocks
from ...encoders.stack import Stack
from ...errors import ConfigError, DataError
from ...types import APART, Spec
from ..multitask import Multitask, Part, checked, head_of, settings_of, start_seed
from .live import Live
from .tuning import Tuning

__all__ = ["Finetune", "HasStack", "refuse_apart", "refuse_long"]


@runtime_checkable
class HasStack(Protocol):
    """Where the pre-trained weights come from: `encoders.Pretrained`."""

    def stack(self) -> Stack:
        """The frozen model, of which blocks are copied."""


class Finetune(Multitask):
    """`window` is the longest item that the blocks can be given. `shared`: the parts hold one and the same trunk."""

    def __init__(
        self,
        parts: Mapping[str, Part],
        layers: Sequence[int],
        read_ahead: int = 1,
        settings: Mapping[str, Any] | None = None,
        *,
        window: int,
        shared: bool = False,
    ) -> None:
        super().__init__(parts, layers, read_ahead, settings)
        self.window = window
        self.shared = shared

    @classmethod
    def build(
        cls,
        tuning: Tuning,
        encoder: HasStack,
        spec: Spec,
        tasks: Sequence[Supervised],
        seed: int = 42,
        read_ahead: int = 1,
    ) -> "Finetune":
        """New parts for learned tasks, blocks as pre-trained; start values of the rest depend on `seed` and the task's
        name only (of a shared trunk: on `seed` only)."""
        plan = tuning.plan(spec)
        refuse_apart(tasks)
        trunk = _adapter(tuning, encoder, spec, start_seed(seed, "")) if tuning.shared else None
        parts = {}
        for task in checked(tasks):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(start_seed(seed, task.name))
                head = head_of(task, spec.width, tuning.dropout, tuning.compute)
            own = trunk or _adapter(tuning, encoder, spec, start_seed(seed, f"{task.name}/blocks"))
            parts[task.name] = Part(own, head, task.piece)
        settings = settings_of(tuning.to_json(), tasks)
        return cls(parts, plan.layers, read_ahead, settings, window=spec.window, shared=tuning.shared)

    def modules_of(self) -> dict[str, nn.Module]:
        """A task's part by its name; a shared trunk with all heads under all names, joined by "+"."""
        if not self.shared:
            return super().modules_of()
        heads = nn.ModuleList(self.part(name).head for name in self.names)  # a name may hold what a module's may not
        return {"+".join(self.names): nn.ModuleDict({"trunk": self.part(self.names[0]).adapter, "heads": heads})}

    def tasks_of(self, name: str) -> tuple[str, ...]:
        """All tasks where they share a trunk."""
        return self.names if self.shared else (name,)

    def settle(self) -> None:
        """From now on only answer, faster (`LiveBlocks.settle`). What was saved before or after is the same."""
        self.eval()
        for module in self.modules():
            if isinstance(module, LiveBlocks):
                module.settle()

    def groups(self, name: str) -> dict[str, list[nn.Parameter]]:
        """ "encoder": the pre-trained blocks; "head": heads, mixes and low-rank terms, which start from nothing."""
        module = self.modules_of()[name]
        blocks = [part for part in module.modules() if isinstance(part, LiveBlocks) and part.lora is None]
        pretrained = [parameter for part in blocks for parameter in part.parameters()]
        known = {id(parameter) for parameter in pretrained}
        rest = [
            parameter for parameter in module.parameters() if parameter.requires_grad and id(parameter) not in known
        ]
        return {kind: own for kind, own in (("head", rest), ("encoder", pretrained)) if own}

    def read(
        self, source: Source, documents: Sequence[Any], tasks: Sequence[Supervised] = (), split: str = "these documents"
    ) -> Examples:
        """`Examples.read`; DataError also for an item longer than the encoder's window, too long for live blocks."""
        examples = super().read(source, documents, tasks, split)
        refuse_long(examples.places, examples.lengths.tolist(), self.window)
        return examples

    def scores(self, batch: Batch, names: Collection[str]) -> dict[str, Any]:
        """A shared trunk runs once; it makes only the rows that are read where all heads read the same."""
        if not self.shared:
            return super().scores(batch, names)
        parts = {name: self.part(name) for name in names}
        pieces = {part.piece for part in parts.values()}
        trunk = next(iter(parts.values())).adapter
        rows = batch.choices[next(iter(pieces))].packed if len(pieces) == 1 else None
        vectors = trunk(batch.packed, rows)
        found = {}
        for name, part in parts.items():
            choice = batch.choices[part.piece]
            own = vectors if rows is not None else vectors.index_select(0, choice.packed)
            found[name] = part.head(choice.pooled(own), choice.rows)
        return found


def _adapter(tuning: Tuning, encoder: HasStack, spec: Spec, seed: int) -> Adapter:
    """Live blocks over what is below them; the last view itself where no block is live."""
    plan = tuning.plan(spec)
    if not plan.blocks:
        return Last()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        mix = tuning.mix(spec) if plan.mixed else None
        lora = (tuning.rank, float(tuning.lora_alpha)) if tuning.rank else None
        blocks = LiveBlocks(
            encoder.stack(),
            plan.blocks,
            final=plan.final,
            embeddings=plan.pieces,
            compute=tuning.compute,
            lora=lora,
            attention_only=plan.attention_only,
        )
        return Live(blocks, mix, tuning.residual)


def refuse_apart(tasks: Sequence[Supervised]) -> None:
    """ConfigError for a task that reads two texts apart: blocks are trained on both at once."""
    for task in tasks:
        if task.piece == APART:
            raise ConfigError(
                f"task {task.name!r} reads the two texts of a pair apart (piece={APART!r}), and blocks are trained on "
                "both at once. Set piece='document', or use a method that only reads stored views (adapted, agg, "
                "linear)."
            )


def refuse_long(places: Iterable[str], lengths: Iterable[int], window: int) -> None:
    """DataError for the first item of more pieces than the blocks can be given at once."""
    for place, length in zip(places, lengths, strict=True):
        if length > window:
            raise DataError(
                f"{place}: {length} pieces, but the encoder's blocks can be given {window} at once. "
                "Leave the item out, split it, or use a method that only reads stored views (adapted, agg, linear)."
            )
