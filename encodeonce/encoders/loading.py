"""Reading a model's weights into memory with `transformers`, quietly and strictly."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import EncoderError

__all__ = ["hollow_model", "load_and_grow", "load_model", "quiet"]

SPARE = ("pooler.",)
"""Weights that no view needs."""


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

    Raises EncoderError where it cannot be read, and where weights of the blocks are missing: they would be random.
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
        except (OSError, ValueError, RuntimeError, KeyError, AttributeError) as problem:
            raise EncoderError(f"{folder}: config.json describes no model that can be made: {problem}") from problem


def load_and_grow(auto: str, folder: Path, new: tuple[str, ...], **config: Any) -> tuple[Any, list[str]]:
    """The same where parts that hold one of `new` in their names may be missing and start at random; their names."""
    import torch
    import transformers

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
        except (OSError, ValueError, RuntimeError, KeyError) as problem:
            raise EncoderError(f"{folder}: the model cannot be loaded: {problem}") from problem
    absent = sorted(name for name in report["missing_keys"] if not name.startswith(SPARE))
    missing = [name for name in absent if not any(part in name for part in new)]
    if missing:
        raise EncoderError(
            f"{folder}: {len(missing)} weights are missing and would be random, among them {missing[:3]}. The files"
            f" hold another model than config.json describes ({type(model).__name__})."
        )
    return model, absent
