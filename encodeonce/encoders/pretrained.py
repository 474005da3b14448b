"""A checkpoint by name or folder: the cheap handle that a store, a trainer or a server holds.

Making one reads a small config; hashes are read when asked for, the tokenizer at the first cut, the weights at the
first vector. Neither torch nor transformers is imported before the step that needs it.

Axes: L views   T rows of an item   P rows of all items of a batch   D width
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..costs import Shape
from ..errors import ConfigError, EncoderError
from ..prompts import Prompt
from ..resolve import resolve
from ..types import Document, Pieces, Spec
from . import checkpoint
from .shape import shape_of

if TYPE_CHECKING:
    from torch import Tensor

    from .masked_lm import MaskedLM
    from .pieces import Cutter
    from .prompter import Prompter
    from .stack import Stack

__all__ = ["Pretrained"]

log = logging.getLogger("encodeonce")


class Pretrained:
    """`name` is a folder with config.json, tokenizer files and safetensors weights, a hub name, or "quickstart" (the
    packaged all-MiniLM-L6-v2, extra `quickstart`).

    `window` is the longest input in pieces, special ones included (default: what the model can hold); longer items are
    cut into windows that share up to `overlap` pieces (default: window // 4). `compute` "bf16x3" multiplies in three
    bf16 products where that is faster (some 1e-5 off fp32, see docs/speed.md), "bf16" in one; norms and residuals
    stay fp32. `batch_pieces` is the budget of one batch, padding included; it does not change
    the vectors. The default suits a processor's cache; a GPU takes ten times as many.

    Texts stand at positions from `first_position` on, in `segment`: both 0 but for passages that are to be read behind
    a question (`methods.lumen`, spec L-10); a model that has no such positions or segments takes 0 only. Raises
    EncoderError for a folder that cannot be used, ConfigError for settings that cannot.
    """

    def __init__(
        self,
        name: str | Path,
        *,
        compute: str = "fp32",
        window: int | None = None,
        overlap: int | None = None,
        batch_pieces: int = 768,
        first_position: int = 0,
        segment: int = 0,
    ) -> None:
        if compute not in ("fp32", "bf16x3", "bf16"):
            raise ConfigError(f"compute={compute!r} must be 'fp32', 'bf16x3' or 'bf16'.")
        if batch_pieces < 1:
            raise ConfigError(f"batch_pieces={batch_pieces} must be at least 1.")
        self.name, self.compute, self.batch_pieces = checkpoint.named(name), compute, batch_pieces
        self.path, self.revision = checkpoint.locate(name)
        self.config = checkpoint.read_config(self.path)
        self.family = checkpoint.family_file(self.config, str(self.path))
        self.n_blocks, self.width = checkpoint.n_blocks(self.config), checkpoint.width(self.config)
        self.first_position, self.segment = first_position, segment
        self._check_place()
        limit = checkpoint.usable_window(self.config, self._tokenizer_limit()) - first_position
        self.window = limit if window is None else window
        if not 1 <= self.window <= limit:
            raise ConfigError(f"window={window} must lie between 1 and {limit}, the pieces that {self.path} can hold.")
        self.overlap = self.window // 4 if overlap is None else overlap
        if not 0 <= self.overlap < self.window:
            raise ConfigError(f"overlap={overlap} must be at least 0 and less than window={self.window}.")
        self._hashed: dict[checkpoint.Stamps, tuple[str, str, str]] = {}
        self._told: checkpoint.Stamps | None = None
        self._loaded_from: checkpoint.Stamps | None = None
        self._fast: Stack | None = None

    @property
    def counts_positions(self) -> bool:
        """Whether a piece's vector depends on its absolute position."""
        return checkpoint.counts_positions(self.config)

    @property
    def n_segments(self) -> int:
        """How many segments the model tells apart; 1 where it has no table of them."""
        return int(self.config.get("type_vocab_size") or 1)

    def _check_place(self) -> None:
        if self.first_position < 0 or (self.first_position and not self.counts_positions):
            allowed = "0 or more" if self.counts_positions else "0: this model knows distances only"
            raise ConfigError(f"first_position={self.first_position} must be {allowed} ({self.path}).")
        if not 0 <= self.segment < self.n_segments:
            raise ConfigError(f"segment={self.segment} must lie between 0 and {self.n_segments - 1} ({self.path}).")

    def _tokenizer_limit(self) -> float:
        path = self.path / "tokenizer_config.json"
        return float(checkpoint.read_json(path).get("model_max_length") or 0) if path.is_file() else 0.0

    @property
    def shape(self) -> Shape:
        """The encoder in numbers, for what it costs."""
        return shape_of(self.config)

    @property
    def loaded(self) -> bool:
        """Whether the weights have been read into memory."""
        return self._fast is not None or "_plain" in self.__dict__

    def layers(self, layers: str | int | Sequence[int] = "all") -> tuple[int, ...]:
        """View numbers for "all", "last", N (the last N views) or a list; ConfigError for views that do not exist."""
        views = self.n_blocks + 1
        if isinstance(layers, str) and layers.isdigit():
            layers = int(layers)
        if layers == "all":
            return tuple(range(views))
        if layers == "last":
            return (self.n_blocks,)
        if isinstance(layers, str):
            raise ConfigError(f"layers={layers!r} must be 'all', 'last', a number of last views or a list of views.")
        if isinstance(layers, int):
            if not 1 <= layers <= views:
                raise ConfigError(f"layers={layers}: {self.path} has {views} views; ask for the last 1 to {views}.")
            return tuple(range(views - layers, views))
        chosen = tuple(sorted({int(layer) for layer in layers}))
        if not chosen or chosen[0] < 0 or chosen[-1] > self.n_blocks:
            raise ConfigError(
                f"layers={list(layers)} must name views from 0 (embeddings) to {self.n_blocks} (last block)."
            )
        return chosen

    @property
    def lacks(self) -> tuple[str, ...]:
        """What the folder must still be given before anything can be encoded: "weights", "vocabulary"."""
        groups = {"weights": checkpoint.WEIGHT_FILES, "vocabulary": checkpoint.VOCABULARY_FILES}
        return tuple(what for what, names in groups.items() if not any((self.path / n).is_file() for n in names))

    def outline(self, layers: str | int | Sequence[int] = "all", dtype: str = "fp16") -> Spec:
        """The Spec as far as config.json tells, without the three hashes: for what something would cost. No store has
        it."""
        return Spec(
            encoder=self.name,
            revision=self.revision,
            weights="",
            config="",
            tokenizer="",
            n_blocks=self.n_blocks,
            width=self.width,
            layers=self.layers(layers),
            window=self.window,
            overlap=self.overlap,
            compute=self.compute,
            dtype=dtype,
            first_position=self.first_position,
            segment=self.segment,
        )

    def spec(self, layers: str | int | Sequence[int] = "all", dtype: str = "fp16") -> Spec:
        """What would make the vectors: three hashes of files and the settings. Loads nothing.

        Hashes are remembered while size, time and inode of the files stay the same. Raises EncoderError where weights
        are missing or only there as a pickle, and where files were changed after they were loaded.
        """
        stamp = checkpoint.stamps(self.path)
        weights, config, tokenizer = self._hashes(stamp)
        if config != checkpoint.config_hash(self.config):
            raise self._changed("config.json")
        self._refuse_change(self._loaded_from, stamp)
        self._told = stamp
        return replace(self.outline(layers, dtype), weights=weights, config=config, tokenizer=tokenizer)

    def _hashes(self, stamp: checkpoint.Stamps) -> tuple[str, str, str]:
        """Of weights, config and tokenizer as they lie there now, with these stamps."""
        if stamp not in self._hashed:
            self._hashed[stamp] = (
                checkpoint.weights_hash(self.path),
                checkpoint.config_hash(checkpoint.read_config(self.path)),
                checkpoint.tokenizer_hash(self.path),
            )
        return self._hashed[stamp]

    def _note_loading(self) -> None:
        """Files are about to be loaded; EncoderError where a Spec was given of others, or others were loaded before."""
        stamp = checkpoint.stamps(self.path)
        self._refuse_change(self._told if self._loaded_from is None else self._loaded_from, stamp)
        self._loaded_from = self._loaded_from or stamp

    def _refuse_change(self, before: checkpoint.Stamps | None, now: checkpoint.Stamps) -> None:
        """EncoderError where these stamps stand for other contents; files that were only written again are fine."""
        if before is not None and before != now and self._hashed.get(before) != self._hashes(now):
            raise self._changed("files")

    def _changed(self, what: str) -> EncoderError:
        return EncoderError(
            f"{self.path}: {what} changed in place after this Pretrained read them, so that its Spec and its vectors "
            "would be of two encoders. Make a new Pretrained of the folder."
        )

    @cached_property
    def _cutter(self) -> "Cutter":
        from .pieces import Cutter, load_tokenizer

        self._note_loading()
        return Cutter(load_tokenizer(self.path), self.window, self.overlap, str(self.path))

    def cut(self, documents: Sequence[Document]) -> list[Pieces]:
        """Documents -> pieces with words and windows; needs the tokenizer only. See `Cutter`."""
        return self._cutter(documents)

    def spans(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Which characters of a running text each of its pieces stands for; needs the tokenizer only."""
        return self._cutter.spans(texts)

    def spell(self, ids: Sequence[int]) -> str:
        """Pieces as text, special ones left out."""
        return str(self._cutter.tokenizer.decode(list(ids), skip_special_tokens=True)).strip()

    @cached_property
    def _plain(self) -> "Stack":
        return self._load()

    def stack(self) -> "Stack":
        """The frozen model as its family's `Encoder`, plain fp32, on the CPU; loaded once."""
        return self._plain

    def prompter(self, prompt: Prompt, window: int | None = None, *, written: bool = False) -> "Prompter":
        """What lays documents into `prompt` for this tokenizer, at most `window` pieces long (None: its own limit).

        EncoderError for a tokenizer without a mask piece, ConfigError for a label word of several pieces; neither is
        asked for where the labels are `written` by a decoder.
        """
        from .prompter import Prompter

        longest = self.window if window is None else min(window, self.window)
        return Prompter(self._cutter, prompt, longest, written=written)

    def masked_lm(self) -> "MaskedLM":
        """The checkpoint's masked-language-model head, a fresh trainable copy; EncoderError where it has none."""
        from .masked_lm import MaskedLM

        return MaskedLM.load(self.path)

    def hollow(self) -> "Stack":
        """The model without its weights, which need not be there: what it is made of can be counted, nothing run."""
        hollow: Stack = resolve("encoders", self.family).hollow(self.path)
        return hollow

    def encode(
        self, pieces: Sequence[Pieces], layers: str | int | Sequence[int] = "all"
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Yields `(i, views)` once for every item, views fp32 [L, T, D] of `pieces[i]`; longest items first.

        The order depends on the lengths alone. Loads the model at the first item, on a GPU where there is one. Raises
        EncoderError where the model itself gives inf or NaN.
        """
        from .encode import encode

        chosen = self.layers(layers)
        if pieces:
            yield from encode(self._running, pieces, chosen, **self._form())

    def encode_together(
        self, pieces: Sequence[Pieces], layers: str | int | Sequence[int] = "all", dtype: str = "fp32"
    ) -> "Iterator[tuple[list[int], Tensor]]":
        """As `encode`, a batch at a time: the items of one, and their views end to end, fp32 [L, P, D], rounded to what
        a store of `dtype` (fp32, fp16, bf16) keeps. The memory is used again: the next batch overwrites the views."""
        import torch

        from .encode import encode_together

        chosen, types = self.layers(layers), {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
        if pieces:
            yield from encode_together(self._running, pieces, chosen, rounded=types[dtype], **self._form())

    @property
    def _running(self) -> "Stack":
        if self._fast is None:
            self._fast = self._quickened()
        return self._fast

    def _form(self) -> dict[str, Any]:
        """In what batches and at what place of the input pieces are shown."""
        return {
            "budget": self.batch_pieces,
            "padding": int(self.config.get("pad_token_id") or 0),
            "half": self.compute == "bf16",
            "first_position": self.first_position,
            "segment": self.segment,
        }

    def _quickened(self) -> "Stack":
        """A copy that is only run: on a GPU where there is one, else with products by the fastest exact library."""
        import torch

        from ..nn.frozen_linear import freeze
        from .attention import quicken_attention

        stack = self._load()
        if torch.cuda.is_available():
            return stack.cuda()
        freeze(stack, self.compute)
        quicken_attention(stack)
        return stack

    def _load(self) -> "Stack":
        """Weights from safetensors alone; a checkpoint that lacks a weight of its blocks is refused by name."""
        checkpoint.weight_files(self.path)
        self._note_loading()
        stack = resolve("encoders", self.family).load(self.path)
        if stack.window < self.window and stack.LIMITED:
            raise EncoderError(
                f"{self.path}: window={self.window}, but the loaded model holds {stack.window} pieces."
                f" Give window={stack.window}."
            )
        return stack
