"""A folder that holds something trained: config.json, model.safetensors, README.md. Checked when read.

FOLDER/encoder/ may hold the encoder too; it is found there before it is looked for under the name it had.
"""

import hashlib
import json
import platform
from collections.abc import Callable, Collection, Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from safetensors.torch import load as tensors_of
from safetensors.torch import save as tensor_bytes
from torch import Tensor, nn

from ..encoders.checkpoint import label
from ..encoders.pretrained import Pretrained
from ..errors import ConfigError, EncoderError, RunError
from ..train.atomic import json_bytes, write_bytes
from ..train.checkpoint import of_module
from ..types import Spec

__all__ = [
    "config_of",
    "encoder_for",
    "encoder_of",
    "fill_modules",
    "place_of",
    "put",
    "refuse_other",
    "refuse_written",
    "take",
]

SCHEMA = 1
FILES = ("config.json", "model.safetensors")
WRITTEN = ("config.json", "config.toml", "model.safetensors", "README.md")
BEGUN = ("log.jsonl", "checkpoint")
"""What a folder holds before its run is saved."""

READ_BY = {
    **dict.fromkeys(
        ("aggregate", "finetune"), "a run of `train`: `evaluate` and `predict` read it, load_run in Python"
    ),
    "lumen": "a reader of memory: `memory build` and `ask` read it, load_reader in Python",
    "few_shot": "a few-shot estimator: `evaluate` and `predict` read it, FewShot.load in Python",
}
"""What a folder is whose config.json says this method or kind, and what reads it."""

Readme = Callable[[Mapping[str, Any]], str]
"""Makes README.md from all that config.json says."""


def put(
    folder: Path,
    config: Mapping[str, Any],
    modules: Mapping[str, nn.Module],
    readme: Readme,
    header: Mapping[str, str] | None = None,
) -> None:
    """Write config and weights, named MODULE/PARAMETER; a folder that holds a run already is replaced file by file,
    config.json last. `header` stands in the file of the weights, as safetensors' metadata. RunError where the folder
    holds an encoder."""
    _refuse_other_config(folder)
    named = {
        f"{name}/{key}": tensor.detach().contiguous().cpu()
        for name, module in modules.items()
        for key, tensor in module.state_dict().items()
    }
    weights = tensor_bytes(named, None if header is None else dict(header))
    names = ("encodeonce", "torch", "numpy", "safetensors")
    versions = {"python": platform.python_version(), **{name: metadata.version(name) for name in names}}
    whole = {"schema": SCHEMA, **config, "model_sha256": hashlib.sha256(weights).hexdigest(), "versions": versions}
    write_bytes(folder / "model.safetensors", weights)
    write_bytes(folder / "README.md", readme(whole).encode())
    write_bytes(folder / "config.json", json_bytes(whole))


def refuse_other(folder: Path) -> None:
    """RunError where files would be overwritten that are no run's: an encoder's, or a config that lies there."""
    _refuse_other_config(folder)
    if any((folder / name).exists() for name in ("config.json", *BEGUN)):
        return
    refuse_written(folder, WRITTEN, "saved run")


def refuse_written(folder: Path, names: Iterable[str], what: str) -> None:
    """RunError where a folder that is not of this kind holds files of these names, which saving would overwrite."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file; a {what} is a folder. Choose another name.")
    there = [name for name in names if (folder / name).exists()]
    if there:
        raise RunError(
            f"{folder} is no {what} and holds {', '.join(there)}, which would be overwritten. Choose another folder."
        )


def _refuse_other_config(folder: Path) -> None:
    path = folder / "config.json"
    if not path.exists():
        return
    try:
        saved = {"schema", "method", "model_sha256"} <= set(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError):
        saved = False
    if not saved:
        raise RunError(
            f"{path} is not the config of a saved run: it and model.safetensors, an encoder's perhaps, would be "
            "overwritten. Choose another folder."
        )


def config_of(folder: Path, methods: Collection[str]) -> dict[str, Any]:
    """What config.json says. RunError for a missing file, another schema, or none of these methods."""
    for name in FILES:
        if not (folder / name).is_file():
            why = f"{folder} is no saved run, or was not copied whole"
            if (folder / "checkpoint").is_dir():
                why = f"the training in {folder} has not ended. Give its command again: it goes on from its checkpoint"
            raise RunError(f"{folder / name} is missing: {why}.")
    path = folder / "config.json"
    try:
        config = dict(json.loads(path.read_text(encoding="utf-8")))
        schema, _ = config["schema"], config["model_sha256"]
    except (ValueError, KeyError, TypeError) as problem:
        raise RunError(f"{path} is not the config of a saved run: {problem!r}.") from None
    kind = config.get("method", config.get("kind"))
    if kind not in methods and kind in READ_BY:
        raise RunError(f"{folder} is {READ_BY[kind]}. Here a run is read whose method is {' or '.join(methods)}.")
    if schema != SCHEMA or kind not in methods:
        raise RunError(
            f"{path} has schema {schema!r} and method {kind!r}; this version reads schema {SCHEMA}, "
            f'and here method {", ".join(methods)}. A run of another version is read by the one named under "versions".'
        )
    return config


def take(folder: Path, methods: Collection[str]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Config and weights. RunError as `config_of`, and for weights that are not those of the config."""
    config = config_of(folder, methods)
    content = (folder / "model.safetensors").read_bytes()
    if hashlib.sha256(content).hexdigest() != config["model_sha256"]:
        raise RunError(
            f"{folder / 'model.safetensors'} is not the file config.json was written for: copy the run again."
        )
    return config, tensors_of(content)


def fill_modules(modules: Mapping[str, nn.Module], weights: Mapping[str, Tensor]) -> None:
    """Give every module its weights; RuntimeError as `load_state_dict` does where they are others."""
    for name, module in modules.items():
        module.load_state_dict(of_module(weights, name))


def place_of(folder: Path, part: str, recorded: str, given: str | None = None) -> str:
    """Where a checkpoint that belongs to a run is: as `given`, in FOLDER/`part`, or under the name it had."""
    own = folder / part
    return given or (str(own) if (own / "config.json").is_file() else recorded)


def encoder_of(folder: Path, spec: Spec, name: str | None = None) -> Pretrained:
    """The encoder of a run in `folder` by what made its states, at the place that is given or found (`place_of`).

    No weights are loaded. EncoderError that says which encoder is missing and how it can be found; RunError for one
    that cannot have made these states, as its window is too short for them.
    """
    place = place_of(folder, "encoder", spec.encoder, name)
    try:
        return encoder_for(spec, place)
    except ConfigError as problem:
        raise RunError(
            f"the encoder ({place}) does not make the states that {folder} was trained on, by {spec.encoder}: {problem}"
        ) from None
    except EncoderError as problem:
        raise EncoderError(
            f"{problem} {folder} needs {label(spec.encoder)}, weights {spec.weights[:12]}: name its place "
            f"(--encoder where a command has it, in Python encoder=...), or copy it to {folder / 'encoder'}."
        ) from None


def encoder_for(spec: Spec, name: str | None = None) -> Pretrained:
    """The encoder with the settings that made states of this Spec; no weights are loaded."""
    return Pretrained(
        name or spec.encoder,
        compute=spec.compute,
        window=spec.window,
        overlap=spec.overlap,
        first_position=spec.first_position,
        segment=spec.segment,
    )
