"""Reading a model's weights into memory with `transformers`, quietly and strictly."""

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import EncoderError

__all__ = ["hollow_model", "load_and_grow", "load_model", "quiet", "refusals"]

SPARE = ("pooler.",)
"""Weights that no view needs."""

NUMBERED = re.compile(r"(.*?\.\d+)\.")
"""A weight's name up to the number of its block."""

CONSTANTS = ("masked_bias", "inv_freq", "position_ids")
"""What older versions of `transformers` wrote beside a block's weights, made anew whenever a model is made."""


@contextmanager
def quiet() -> Iterator[None]:
    """Without the library's progress bars and reports; they come back afterwards."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def load_model(auto: str, folder: Path, **config: Any) -> Any:
    """The model of a local folder by the `transformers` class named `auto`, in fp32, its config changed by `config`.

    Raises EncoderError where it cannot be read, where weights of the blocks are missing, which would be random, and
    where the files hold weights of them that this class has no use for.
    """
    return load_and_grow(auto, folder, (), **config)[0]


def hollow_model(auto: str, folder: Path) -> Any:
    """The model that config.json describes, on the "meta" device; EncoderError where no such model can be made."""
    import torch
    import transformers

    with quiet():
        try:
            config = transformers.AutoConfig.from_pretrained(str(folder), local_files_only=True)
            with torch.device("meta"):
                return getattr(transformers, auto).from_config(config)
        except refusals() as problem:
            raise EncoderError(f"{folder}: config.json describes no model that can be made: {problem}") from problem


def load_and_grow(auto: str, folder: Path, new: tuple[str, ...], **config: Any) -> tuple[Any, list[str]]:
    """The same where parts that hold one of `new` in their names may be missing and start at random; their names."""
    import torch
    import transformers
    from safetensors import SafetensorError

    with quiet():
        try:
            model, report = getattr(transformers, auto).from_pretrained(
                str(folder),
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,
                dtype=torch.float32,
                output_loading_info=True,
                **config,
            )
        except SafetensorError as problem:
            raise EncoderError(
                f"{folder}: the weights cannot be read: {problem}. A file was cut short, or is no safetensors file (a"
                " pointer of Git LFS, say). Copy or download it again."
            ) from problem
        except refusals() as problem:
            raise EncoderError(f"{folder}: the model cannot be loaded: {problem}") from problem
    absent = sorted(name for name in report["missing_keys"] if not name.startswith(SPARE))
    missing = [name for name in absent if not any(part in name for part in new)]
    if missing:
        raise EncoderError(
            f"{folder}: {len(missing)} weights are missing and would be random, among them {missing[:3]}. The files"
            f" hold another model than config.json describes ({type(model).__name__})."
        )
    unused = _unused(report["unexpected_keys"], model.state_dict())
    if unused:
        raise EncoderError(
            f"{folder}: {len(unused)} weights of its blocks would be left out, among them {unused[:3]}:"
            f" {type(model).__name__} has none of these names, so its vectors would not be those of the checkpoint."
            " Merge what was added to the blocks (adapters, low-rank terms) into their weights, or take a checkpoint"
            " of the plain architecture."
        )
    return model, absent


def _unused(spare: Collection[str], own: Collection[str]) -> list[str]:
    """Of the names in the files that no weight of the model has, those in a block that the model has; either may have
    the name of the whole encoder before it ("bert.")."""
    blocks = tuple({f".{found[1]}" for name in own if (found := NUMBERED.match(name))})
    suspects = ((name, NUMBERED.match(name)) for name in sorted(spare) if not name.endswith(CONSTANTS))
    placed = [(name, f".{found[1]}") for name, found in suspects if found]
    return [name for name, place in placed if place.endswith(blocks) or any(one.endswith(place) for one in blocks)]


def refusals() -> tuple[type[Exception], ...]:
    """What `transformers` raises for a folder that it makes no model of; ImportError is a package that it asks for."""
    from huggingface_hub.errors import StrictDataclassError

    return OSError, ValueError, RuntimeError, KeyError, TypeError, AttributeError, ImportError, StrictDataclassError
