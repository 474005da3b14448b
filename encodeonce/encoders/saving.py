"""A checkpoint with some of its weights replaced: what was trained, as a folder that every tool reads."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from ..errors import EncoderError
from ..resolve import resolve
from . import checkpoint
from .loading import load_model

__all__ = ["copy_checkpoint", "save_checkpoint"]


def save_checkpoint(base: Path, weights: Mapping[str, Tensor], folder: Path, auto: str | None = None) -> None:
    """Write the model of `base`, with `weights` in place of its own of these names, and its tokenizer into `folder`.

    `auto` is the `transformers` class that reads it (None: the family's encoder). EncoderError for a name that the
    model does not have, or another shape.
    """
    family = checkpoint.family_file(checkpoint.read_config(base), str(base))
    model = load_model(auto or resolve("encoders", family).AUTO, base)
    own = dict(model.named_parameters(remove_duplicate=False))
    for name, weight in weights.items():
        if name not in own or own[name].shape != weight.shape:
            there = "no weight" if name not in own else f"a weight of shape {tuple(own[name].shape)}"
            raise EncoderError(f"{base}: {name}, {tuple(weight.shape)}, has {there} of this name to take the place of.")
    with torch.no_grad():
        for name, weight in weights.items():
            own[name].copy_(weight)
    model.save_pretrained(folder)
    for name in checkpoint.TOKENIZER_FILES:
        if (base / name).is_file():
            shutil.copyfile(base / name, folder / name)


def copy_checkpoint(base: Path, folder: Path) -> None:
    """Config, tokenizer and weights of `base`, file by file, into `folder`, in the place of what is there."""
    if folder.is_dir() and folder.samefile(base):
        return
    names = ["config.json", *checkpoint.TOKENIZER_FILES, checkpoint.WEIGHT_FILES[1]]
    files = [*(base / name for name in names), *checkpoint.weight_files(base)]
    partly = folder.with_name(folder.name + ".part")
    shutil.rmtree(partly, ignore_errors=True)
    partly.mkdir(parents=True)
    for file in files:
        if file.is_file():
            shutil.copyfile(file, partly / file.name)
    shutil.rmtree(folder, ignore_errors=True)
    partly.rename(folder)
