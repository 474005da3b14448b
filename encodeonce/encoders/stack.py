"""A frozen encoder that can be entered and left anywhere: what all families share.

A family file says where its blocks, its embeddings and its named slots are; everything else is here. The arithmetic is
that of `transformers`: a family calls its modules one by one and adds nothing.

Axes: B items of a batch   T pieces, padding included   D width   E width of the piece vectors (D in most families)
H heads   S pieces as keys
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ..errors import ConfigError, EncoderError
from ..types import Edit
from .checkpoint import n_blocks, usable_window, width
from .loading import hollow_model, load_model
from .slots import edited

__all__ = ["MaskedPaths", "PostNormPaths", "Segments", "Stack", "additive", "distances", "ranks"]

Mask = Bool[Tensor, "B T"] | Bool[Tensor, "B T T"] | None
Segments = Int[Tensor, "#B T"] | None


@dataclass(frozen=True)
class PostNormPaths:
    """Module paths inside a block: of the norms after attention and after feed-forward, and of the dropouts after the
    softmax, after attention and after feed-forward ("": there is none)."""

    norms: tuple[str, str]
    drop: tuple[str, str, str]


@dataclass(frozen=True)
class MaskedPaths:
    """Where a masked-language-model head is in its model: the modules of its projection, its norm and its activation
    ("": exact gelu), the parameters that are the vocabulary's vectors and biases. Where vectors are tied, the biases
    have a second name (`tied_bias`, "": none); untied, what has that name is never added to anything."""

    dense: str
    norm: str
    weight: str
    bias: str
    activation: str = ""
    tied_bias: str = ""


def ranks(mask: Bool[Tensor, "B T"] | Bool[Tensor, "B T T"]) -> Int[Tensor, "B T"]:
    """The position of every piece: its rank among the real ones of its item, from 0 (spec L-04).

    With a pairwise mask [B, query, key] a piece is real when some piece may read it. Padding gets the rank of the real
    piece before it (0 where there is none), so that it always points into the position table.
    """
    real = mask if mask.dim() == 2 else mask.any(1)
    return (real.long().cumsum(1) - 1).clamp(min=0)


def distances(positions: Int[Tensor, "#B T"]) -> Int[Tensor, "#B T T"]:
    """Position of the key minus position of the query."""
    return positions[:, None, :] - positions[:, :, None]


def additive(mask: Bool[Tensor, "B T"] | Bool[Tensor, "B S T"], dtype: torch.dtype) -> Float[Tensor, "B 1 #S T"]:
    """0 where a query may read a key, the smallest number elsewhere; one row for all queries where none differs.

    A query that may read nothing (padding, under a pairwise mask) reads everything: finite, and meaningless.
    """
    pairs = mask if mask.dim() == 3 else mask[:, None]
    readable = pairs | ~pairs.any(-1, keepdim=True)
    smallest = torch.finfo(dtype).min
    return torch.zeros(readable.shape, dtype=dtype, device=mask.device).masked_fill_(~readable, smallest)[:, None]


class Stack(nn.Module, ABC):
    """Wraps a `transformers` model: in eval mode for ever, no parameter takes a gradient (spec A-17).

    View 0 is `place(lookup(ids))`; `run` gives the view after each block. The view after the last block includes the
    final norm in families that have one (spec A-01), every other cut is the raw residual stream (spec L-02).
    """

    SLOTS: ClassVar[Mapping[str, str]]
    """Slot name -> path of the module inside a block whose output it is; "path/1" is its second third."""
    LIMITED: ClassVar[bool] = True
    """Whether there is a longest input that the model can be given at all."""
    AUTO: ClassVar[str] = "AutoModel"
    """The `transformers` class that loads the family."""
    POST_NORM: ClassVar[PostNormPaths | None] = None
    """Where the norms and dropouts of a post-norm block are; None in families whose blocks are something else."""
    MASKED: ClassVar[MaskedPaths | None] = None
    """Where the head of the family's `AutoModelForMaskedLM` is; None in families that have no such head."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model: Any = model.requires_grad_(False)
        super().train(False)
        config = self.model.config.to_dict()
        if config.get("is_decoder") or config.get("add_cross_attention"):
            raise EncoderError("the config says is_decoder or add_cross_attention; only plain encoders can be stacked.")
        self.n_blocks, self.width, self.window = n_blocks(config), width(config), usable_window(config)

    @classmethod
    def load(cls, folder: Path) -> "Stack":
        """The model in a local folder: safetensors only, none of its code run, fp32, nothing fetched.

        Raises EncoderError where it cannot be read, or lacks a weight that the blocks need (a pooler may be missing).
        """
        return cls(load_model(cls.AUTO, folder))

    @classmethod
    def hollow(cls, folder: Path) -> "Stack":
        """The model of a folder's config.json, without weights: parameters have shapes and no values ("meta")."""
        return cls(hollow_model(cls.AUTO, folder))

    def train(self, mode: bool = True) -> "Stack":
        """Does nothing: stored vectors are those of eval mode, and must stay comparable (spec A-17)."""
        return super().train(False)

    @classmethod
    def masked_paths(cls, config: Mapping[str, Any]) -> MaskedPaths | None:
        """`MASKED`, for families where it depends on the config."""
        return cls.MASKED

    @property
    def paths(self) -> Mapping[str, str]:
        """`SLOTS`, for families where they depend on the config."""
        return self.SLOTS

    @property
    def slots(self) -> tuple[str, ...]:
        """Names that `edit` is called with, once each in every block."""
        return tuple(self.paths)

    @property
    def source(self) -> str:
        """Where the weights came from, for messages."""
        return str(self.model.config.name_or_path or type(self.model).__name__)

    @property
    def segmented(self) -> bool:
        """Whether there is more than one segment vector: pieces of a second text then differ from those of a first."""
        return (getattr(self.model.config, "type_vocab_size", None) or 0) > 1

    @property
    @abstractmethod
    def blocks(self) -> list[nn.Module]:
        """The blocks in the order they run; a shared block stands in it once for every run."""

    @property
    def repeats(self) -> bool:
        """Whether some block's weights run more than once."""
        return len(set(self.blocks)) < len(self.blocks)

    def entrance(self) -> list[nn.Module]:
        """What `lookup` and `place` are made of."""
        return [self.model.embeddings]

    def tables(self) -> list[nn.Module]:
        """What `context` is made of: positions that all blocks share."""
        return []

    def own(self, index: int) -> list[nn.Module]:
        """What `block` of this number is made of."""
        return [self.blocks[index]]

    def closing(self) -> list[nn.Module]:
        """What `finish` is made of."""
        return []

    @abstractmethod
    def embed(
        self, vectors: Float[Tensor, "B T E"], positions: Int[Tensor, "#B T"], segments: Segments
    ) -> Float[Tensor, "B T D"]:
        """View 0 of piece vectors at 0-based positions; `segments` only where the model has a table of them."""

    def context(self, states: Float[Tensor, "B T D"], mask: Mask, positions: Int[Tensor, "#B T"]) -> dict[str, Any]:
        """What every block of one run is given beside its states; computed once a run."""
        return {"attention_mask": None if mask is None else additive(mask, states.dtype)}

    def block(self, index: int, states: Float[Tensor, "B T D"], context: dict[str, Any]) -> Float[Tensor, "B T D"]:
        """The states after block `index`."""
        return self.blocks[index](states, **context)

    def finish(self, states: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """The last view from the last block's output."""
        return states

    def lookup(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T E"]:
        """Piece vectors, before positions. EncoderError for a piece that the model has no vector of."""
        table = self.model.get_input_embeddings()
        last = int(ids.max()) if ids.numel() else -1
        if last >= table.num_embeddings:
            raise EncoderError(
                f"{self.source}: piece {last} asked for, but its table holds {table.num_embeddings} (0 to"
                f" {table.num_embeddings - 1}). The tokenizer has pieces that the model was not given: call"
                " model.resize_token_embeddings(len(tokenizer)), train and save it, or take the model's own tokenizer."
            )
        return table(ids)

    def place(
        self,
        vectors: Float[Tensor, "B T E"],
        positions: Int[Tensor, "#B T"] | None = None,
        segments: Segments = None,
    ) -> Float[Tensor, "B T D"]:
        """View 0. `positions` count from 0 in every family and default to 0 ... T-1; `ranks(mask)` leaves out padding.

        `segments` say which text of a pair each piece belongs to, as the model's own tokenizer numbers them (token
        types), and default to 0; a model without a table of them takes no notice. Raises EncoderError where a position
        lies beyond the model's table.
        """
        if positions is None:
            positions = torch.arange(vectors.shape[1], device=vectors.device)[None]
        last = int(positions.max()) if positions.numel() else -1
        if self.LIMITED and last >= self.window:
            raise EncoderError(
                f"{self.source}: position {last} asked for, but its table holds {self.window} pieces, special ones"
                f" included (0 to {self.window - 1}). Cut the input into windows of at most {self.window}."
            )
        return self.embed(vectors, positions, segments if self.segmented else None)

    def run(
        self,
        states: Float[Tensor, "B T D"],
        mask: Mask,
        start: int = 0,
        stop: int | None = None,
        *,
        positions: Int[Tensor, "#B T"] | None = None,
        edit: Edit | None = None,
    ) -> list[Float[Tensor, "B T D"]]:
        """States before block `start` -> the states after each of the blocks start+1 ... stop.

        `mask` is True for real pieces [B T], or for every query the keys it may read [B T T]; None: no padding.
        `positions` count from 0 and default to each piece's rank among the real ones, so that padding anywhere is
        invisible. `edit(block, slot, x, y)` sees block `start` as number `start`. Raises ConfigError for cuts outside
        0 <= start <= stop <= n_blocks.
        """
        stop = self.n_blocks if stop is None else stop
        if not 0 <= start <= stop <= self.n_blocks:
            raise ConfigError(
                f"start={start}, stop={stop} must satisfy 0 <= start <= stop <= {self.n_blocks} (n_blocks)."
            )
        if positions is None:
            everywhere = torch.arange(states.shape[1], device=states.device)[None]
            positions = everywhere if mask is None else ranks(mask)
        context, views = self.context(states, mask, positions), []
        for index in range(start, stop):
            with edited(self.blocks[index], self.paths, index, edit):
                states = self.block(index, states, context)
            views.append(states)
        if views and stop == self.n_blocks:
            views[-1] = self.finish(states)
        return views
