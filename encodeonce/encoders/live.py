"""Blocks of an encoder that are trained: a copy of any of them, run over packed rows that come from anywhere.

Axes: P rows of all items of a batch   D width   E width of the piece vectors (D in most families)   B items
T rows of the longest   R chosen rows   G items of a group
"""

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..errors import ConfigError
from ..nn.barrier import Barrier
from ..nn.dropout import Dropout
from ..nn.frozen_linear import freeze
from ..nn.item_blocks import ItemBlocks
from ..nn.linear import COMPUTE, has_bf16_units
from ..nn.post_norm import Line, PostNorm, Shift
from ..types import Edit
from .lora import add_lora, merged, weight_of
from .slots import edited
from .stack import Stack

__all__ = ["LiveBlocks", "refuse_halves"]

Edits = Callable[[Int[np.ndarray, " G"]], Edit]
"""Numbers of the items that run together -> what is called at their slots."""

GROUP = 8
"""Items that are padded together where padding is needed at all: few enough to be of like length, once sorted."""


class LiveBlocks(nn.Module):
    """`blocks` (numbers from 0, in the order they are to run) of a stack, with weights of their own that are trained.

    Beside the blocks it holds what they share (tables of relative positions), with `final` the stack's final norm where
    it has one, and with `embeddings` what makes view 0 of piece ids. Train mode drops as the checkpoint's config says.
    Blocks that are `attention_only` have no feed-forward network: what it would add is 0.
    `compute="bf16"` rounds the operands of matrix products; on a CPU, post-norm blocks then run without padding in
    compiled passes (`nn.post_norm`), all others padded in groups of like length. `lora=(rank, alpha)` freezes
    everything and trains low-rank terms beside the query and value projections instead (Hu et al. 2022; spec A-09).

    No block at all is allowed where there are embeddings or a final norm. Raises ConfigError for blocks that do not
    exist, MissingExtra where LoRA needs a package that is not there.
    """

    def __init__(
        self,
        stack: Stack,
        blocks: Sequence[int],
        *,
        final: bool = False,
        embeddings: bool = False,
        compute: str = "fp32",
        lora: tuple[int, float] | None = None,
        attention_only: Collection[int] = (),
    ) -> None:
        super().__init__()
        empty = not blocks and not (embeddings or final)
        if empty or (blocks and (min(blocks) < 0 or max(blocks) >= stack.n_blocks)):
            raise ConfigError(f"blocks={list(blocks)} must name blocks from 0 to {stack.n_blocks - 1}, at least one.")
        refuse_halves(stack, blocks, attention_only)
        if compute not in COMPUTE:
            raise ConfigError(f"compute={compute!r} is unknown. There is: {', '.join(COMPUTE)}.")
        self.blocks, self.final, self.compute, self.attention_only = tuple(blocks), final, compute, set(attention_only)
        self.width, self.window = stack.width, stack.window if stack.LIMITED else None
        wanted = _parts(stack, self.blocks, final, embeddings)
        copied, self.kept = _copied(stack, wanted)
        for index in self.attention_only:
            _without_feed_forward(copied, index)
        self.kept.requires_grad_(True)
        # beside the registered modules, not among them: most of its own are empty, and it would stay in eval mode
        object.__setattr__(self, "_stack", copied)
        self.settled = False
        self.lora = lora
        if lora is not None:
            add_lora(self.kept, copied, *lora)
            self.register_state_dict_post_hook(_without_frozen)
            self.register_load_state_dict_pre_hook(lambda module, *_: module.unmerge_lora())
            self.register_load_state_dict_post_hook(_not_missed)
        self.dropouts = nn.ModuleList(_dropouts(copied, index) for index in self.blocks if copied.POST_NORM)
        self.train()

    @property
    def stack(self) -> Stack:
        """The copy, with nothing in it but what is trained."""
        stack = self._stack
        assert isinstance(stack, Stack)
        return stack

    def enter(
        self,
        ids: Int[Tensor, " P"],
        lengths: Sequence[int],
        segments: Int[Tensor, " P"] | None = None,
        first_position: int = 0,
    ) -> Float[Tensor, "P D"]:
        """View 0 of the items' piece ids. EncoderError where an item is longer than the encoder's window."""
        return self.place(self.stack.lookup(ids[None])[0], lengths, segments, first_position)

    def place(
        self,
        vectors: Float[Tensor, "P E"],
        lengths: Sequence[int],
        segments: Int[Tensor, " P"] | None = None,
        first_position: int = 0,
    ) -> Float[Tensor, "P D"]:
        """View 0 of vectors in the place of piece vectors, whatever they are; positions count from `first_position` in
        every item."""
        positions = np.concatenate([np.arange(first_position, first_position + length) for length in lengths])
        at = torch.from_numpy(positions).to(vectors.device)[None]
        return self.stack.place(vectors[None], at, None if segments is None else segments[None])[0]

    def n_positions(self, lengths: Sequence[int]) -> int:
        """Rows that the blocks really compute for such items: all of them, and padding where there is any."""
        if self.packed:
            return sum(lengths)
        sizes = np.sort(np.asarray(lengths, dtype=np.int64))[::-1]
        return sum(int(sizes[at]) * len(sizes[at : at + GROUP]) for at in range(0, len(sizes), GROUP))

    def forward(
        self,
        states: Float[Tensor, "P D"],
        lengths: Sequence[int],
        rows: Int[Tensor, " R"] | None = None,
        barrier: Barrier | None = None,
        positions: Int[Tensor, " P"] | None = None,
        *,
        edits: Edits | None = None,
        slots: Collection[str] = (),
        shifts: Mapping[int, Shift] | None = None,
    ) -> Float[Tensor, "R D"]:
        """States before the first block -> the chosen rows after the last (all where `rows` is None), fp32.

        A `barrier` keeps parts of an item from reading each other. `positions` say where rows stand in their item for
        blocks that know distances (None: one behind the other); BERT's line knows none here. With `edits` the blocks
        run padded, in groups of items: `edits(items)` is asked once a group for what `Stack.run` calls
        `edit(block, slot, x, y)`, here at `slots` alone where some are named; line b of x and y is the batch's item
        `items[b]`, padded right. `shifts` of a block's slots, by its number, need no padding, and are for `packed`
        blocks alone.
        """
        if not self.blocks:
            states = states if rows is None else states.index_select(0, rows)
            return self.stack.finish(states) if self.final else states
        if self.packed and edits is None:
            for place, index in enumerate(self.blocks):
                last, shift = place == len(self.blocks) - 1, None if shifts is None else shifts.get(index)
                states = self._post_norm(place, index)(states, lengths, rows if last else None, barrier, shift)
            return self.stack.finish(states) if self.final else states
        assert shifts is None, "the blocks' own modules are shifted by edits"
        return self._padded(states, lengths, rows, barrier, positions, edits, slots)

    @property
    def packed(self) -> bool:
        """Whether the compiled passes can run these blocks."""
        config, stack = self.stack.model.config, self.stack
        return (
            self.compute == "bf16"
            and not self.settled
            and stack.POST_NORM is not None
            and getattr(config, "hidden_act", getattr(config, "activation", "")) == "gelu"
            and next(self.parameters()).device.type == "cpu"
            and PostNorm.fits(self.width, config.num_attention_heads)
        )

    def settle(self) -> None:
        """From now on only answer: the blocks' matrices are laid out once for the fastest product of this machine
        (`nn.frozen_linear`) in the type of `compute`, and take no gradient. Their names in `state_dict` stay.

        Blocks on another device or with low-rank terms beside them stay as they are, and GPT-2's, whose maps are laid
        out the other way and would be saved so.
        """
        turned = any(hasattr(module, "nf") for module in self.kept.modules())
        if self.lora is None and not turned and all(weight.device.type == "cpu" for weight in self.parameters()):
            freeze(self.kept, self.compute)
            self.requires_grad_(False)
            self.settled = True

    def named_weights(self) -> dict[str, Tensor]:
        """The weights under the names that the checkpoint's own model gives them."""
        named = self.stack.model.named_parameters(remove_duplicate=False)
        return {name: weight.detach() for name, weight in named if weight.numel()}

    def train(self, mode: bool = True) -> "LiveBlocks":
        """As every module's; low-rank terms that were merged come out again, as they would not be trained."""
        if mode and self.lora is not None:
            self.unmerge_lora()
        return super().train(mode)

    def merge_lora(self) -> None:
        """Add the low-rank terms to the weights they stand beside: same outputs, no second product. Training and
        loading other weights take them out again."""
        merged(self.kept, True)

    def unmerge_lora(self) -> None:
        """The inverse."""
        merged(self.kept, False)

    def _post_norm(self, place: int, index: int) -> PostNorm:
        stack, block = self.stack, self.stack.blocks[index]
        paths = stack.POST_NORM
        assert paths is not None

        def line(slot: str) -> Line:
            return weight_of(block.get_submodule(stack.paths[slot]))

        norms: list[Any] = [block.get_submodule(path) for path in paths.norms]
        drop: Any = self.dropouts[place]
        return PostNorm(
            query=line("query"),
            key=line("key"),
            value=line("value"),
            out=line("attention"),
            feed=None if index in self.attention_only else (line("up"), line("down")),
            norms=(norms[0], norms[1]),
            drop=(drop[0], drop[1], drop[2]),
            n_heads=stack.model.config.num_attention_heads,
        )

    def _padded(
        self,
        states: Float[Tensor, "P D"],
        lengths: Sequence[int],
        rows: Int[Tensor, " R"] | None,
        barrier: Barrier | None,
        positions: Int[Tensor, " P"] | None,
        edits: Edits | None,
        slots: Collection[str],
    ) -> Float[Tensor, "R D"]:
        """The same by the blocks' own modules, over items of like length padded to the longest of their group."""
        sizes = np.asarray(lengths, dtype=np.int64)
        if len(sizes) <= GROUP:
            every = np.arange(len(sizes))
            made = self._group(states, every, sizes, barrier, positions, None if edits is None else edits(every), slots)
            return made if rows is None else made.index_select(0, rows)
        order = np.argsort(-sizes, kind="stable")
        starts = np.cumsum(sizes) - sizes
        parts, places = [], []
        for at in range(0, len(order), GROUP):
            group = order[at : at + GROUP]
            own = np.concatenate([np.arange(starts[item], starts[item] + sizes[item]) for item in group])
            chosen = torch.from_numpy(own).to(states.device)
            here, there = states.index_select(0, chosen), None if positions is None else positions[chosen]
            edit = None if edits is None else edits(group)
            parts.append(self._group(here, group, sizes[group], barrier, there, edit, slots))
            places.append(own)
        back = torch.from_numpy(np.argsort(np.concatenate(places))).to(states.device)
        return torch.cat(parts).index_select(0, back if rows is None else back[rows])

    def _group(
        self,
        states: Float[Tensor, "P D"],
        group: Int[np.ndarray, " G"],
        sizes: Int[np.ndarray, " G"],
        barrier: Barrier | None,
        positions: Int[Tensor, " P"] | None,
        edit: Edit | None,
        slots: Collection[str],
    ) -> Float[Tensor, "P D"]:
        """The items of one group, which have these numbers in the batch; all else is the group's own."""
        stack, modules = self.stack, self.stack.blocks
        items = ItemBlocks(tuple(sizes.tolist()), None)
        paths = {slot: path for slot, path in stack.paths.items() if not slots or slot in slots}
        device = states.device.type
        rounds = self.compute == "bf16" and not self.settled and (device != "cpu" or has_bf16_units())
        with torch.autocast(device, torch.bfloat16, enabled=rounds):
            blocks = items.keys_of(states)
            at = torch.arange(blocks.shape[1], device=states.device)[None]
            if positions is not None:
                at = positions[torch.from_numpy(items.keys).to(states.device)]
            mask = None
            if barrier is not None or not items.even:
                readable = items.real if barrier is None else barrier.pairs(group, items.real)
                mask = None if readable.all() else torch.from_numpy(readable).to(states.device)
            context = stack.context(blocks, mask, at)
            for index in self.blocks:
                with edited(modules[index], paths, index, edit):
                    blocks = stack.block(index, blocks, context)
            if self.final:
                blocks = stack.finish(blocks)
        return items.out_of(blocks.float() if self.compute == "bf16" else blocks)


def _parts(stack: Stack, blocks: Sequence[int], final: bool, embeddings: bool) -> dict[str, list[nn.Module]]:
    """What is copied, each weight named once: a block that runs twice is one block, a table may lie inside a block."""
    asked = {
        "embeddings": stack.entrance() if embeddings else [],
        "blocks": [module for index in blocks for module in stack.own(index)],
        "tables": stack.tables() if blocks else [],
        "closing": stack.closing() if final else [],
    }
    seen: set[int] = set()
    parts: dict[str, list[nn.Module]] = {}
    for name, modules in asked.items():
        for module in modules:
            weights = {id(parameter) for parameter in module.parameters()}
            if not weights or not weights <= seen:
                parts.setdefault(name, []).append(module)
            seen |= weights
    return parts


def _copied(stack: Stack, parts: dict[str, list[nn.Module]]) -> tuple[Stack, nn.ModuleDict]:
    """A copy of the stack whose weights are empty but for those of `parts`, and the copies of these."""
    wanted = {id(weight) for modules in parts.values() for module in modules for weight in module.parameters()}
    memo: dict[int, Any] = {
        id(weight): nn.Parameter(torch.empty(0), requires_grad=False)
        for weight in stack.parameters()
        if id(weight) not in wanted
    }
    copied = copy.deepcopy(stack, memo)
    kept = {name: nn.ModuleList(memo[id(module)] for module in modules) for name, modules in parts.items()}
    return copied, nn.ModuleDict(kept)


def refuse_halves(stack: Stack, blocks: Sequence[int], attention_only: Collection[int]) -> None:
    """ConfigError for attention alone of a block that is not live, or that is the same as one with all its parts."""
    if not set(attention_only) <= set(blocks):
        raise ConfigError(f"attention_only={sorted(attention_only)} must be among the live blocks, {list(blocks)}.")
    whole = {id(stack.blocks[index]) for index in blocks if index not in attention_only}
    if any(id(stack.blocks[index]) in whole for index in attention_only):
        raise ConfigError(
            f"attention_only={sorted(attention_only)}: {stack.source} runs one block's weights again and again, so its "
            f"live blocks {list(blocks)} are attention alone all of them or none."
        )


class _Nothing(nn.Module):
    """In the place of a linear map: zeros of its width, whatever it is given."""

    weight = None
    """T5 asks for the type of its own."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, x: Float[Tensor, "... I"]) -> Float[Tensor, "... O"]:
        return x.new_zeros(*x.shape[:-1], self.width)


def _without_feed_forward(stack: Stack, index: int) -> None:
    """Take a block's feed-forward maps out; one column is left to each of up and gate, which may be one map."""
    for slot in ("up", "gate", "down"):
        if path := stack.paths.get(slot):
            stack.blocks[index].set_submodule(path, _Nothing(stack.width if slot == "down" else 2))


def _dropouts(stack: Stack, index: int) -> nn.ModuleList:
    """The block's three rates, as dropouts whose masks come from a pool."""
    assert stack.POST_NORM is not None
    block: Any = stack.blocks[index]
    rates = [float(block.get_submodule(path).p) if path else 0.0 for path in stack.POST_NORM.drop]
    return nn.ModuleList(Dropout(rate) for rate in rates)


def _without_frozen(module: nn.Module, state: dict[str, Tensor], prefix: str, _: dict[str, Any]) -> None:
    """Weights that are not trained are the encoder's, by hash: they are not saved a second time."""
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            state.pop(prefix + name, None)


def _not_missed(module: nn.Module, incompatible: Any) -> None:
    frozen = tuple(name for name, parameter in module.named_parameters() if not parameter.requires_grad)
    kept = [key for key in incompatible.missing_keys if not key.endswith(frozen)]
    incompatible.missing_keys[:] = kept
