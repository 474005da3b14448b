"""A saved reader of memory: the trained parts of `methods.lumen`, its design, and what its encoder must be.

FOLDER/config.json, model.safetensors, README.md     as of every run (`serve.folder`)
FOLDER/encoder/, decoder/                            their checkpoints, where the run was saved whole
FOLDER/memory/                                       by custom, the memory that it is asked over (`encodeonce.memory`)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from ..encoders.checkpoint import label
from ..encoders.pretrained import Pretrained
from ..encoders.saving import copy_checkpoint
from ..errors import EncodeOnceError, RunError
from ..methods.lumen import Design, Lumen
from ..types import Spec
from .folder import config_of, encoder_of, fill_modules, place_of, put, take

__all__ = ["ReaderRun", "design_of", "load_reader", "memory_of", "save_reader"]

METHOD = "lumen"


@dataclass(frozen=True)
class ReaderRun:
    """`encoder` is the design's, as the method was built on it. `dtype` is how its memory is stored. `training`,
    `scores`, `data` and `command` say what was done, as in a `Run`."""

    method: Lumen
    encoder: Pretrained
    dtype: str = "fp16"
    training: Mapping[str, Any] = field(default_factory=dict)
    scores: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, str] = field(default_factory=dict)
    command: str = ""

    @property
    def spec(self) -> Spec | None:
        """What the states of its memory must be made by; None where it stores nothing."""
        stored = self.method.plan.stored
        return self.encoder.spec(list(stored), self.dtype) if stored else None


def save_reader(run: ReaderRun, folder: str | Path, *, whole: bool = False) -> None:
    """Write the run; with `whole`, the checkpoints of its encoder and decoder too, so that the folder can be moved to a
    machine that has neither."""
    if whole:
        copy_checkpoint(run.encoder.path, Path(folder) / "encoder")
        if run.method.decoder is not None:
            copy_checkpoint(run.method.decoder, Path(folder) / "decoder")
    stored = run.method.plan.stored
    spec = run.encoder.spec(list(stored) if stored else "last", run.dtype)
    config = {
        "method": METHOD,
        "variant": run.method.design.to_json(),
        "form": run.method.form,
        "decoder": None if run.method.decoder is None else str(run.method.decoder.resolve()),
        "stored": list(stored),
        "spec": spec.to_json(),
        "training": dict(run.training),
        "scores": dict(run.scores),
        "data": dict(run.data),
        "command": run.command,
    }
    put(Path(folder), config, run.method.modules_of(), lambda _: _readme(run, spec))


def load_reader(folder: str | Path, encoder: str | None = None, decoder: str | None = None) -> ReaderRun:
    """A saved reader with its encoder: at the place that is given, in FOLDER/encoder, or under the name it had. Loads
    the encoder's weights.

    `decoder` is where the checkpoint of its decoder is now, where it has one that is not the encoder's; it is looked
    for in the same way.
    Raises RunError naming a missing or changed file, another method, and each difference of the encoder.
    """
    config, weights = take(Path(folder), [METHOD])
    try:
        spec, design = Spec.from_json(config["spec"]), Design(**config["variant"])
        model = encoder_of(Path(folder), spec, encoder)
        differences = spec.differences(model.spec(list(spec.layers), spec.dtype))
        if differences:
            raise RunError(
                f"{model.name} is not the encoder this run was trained on, {spec.encoder} (here: the run, there: the "
                f"encoder): {'; '.join(differences)}."
            )
        method = Lumen.build(design, model, form=config["form"], decoder=_decoder(Path(folder), config, decoder))
        fill_modules(method.modules_of(), weights)
    except RunError:
        raise
    except (KeyError, TypeError, RuntimeError, SafetensorError, EncodeOnceError) as problem:
        raise RunError(f"{folder}: the run cannot be rebuilt: {problem}") from None
    method.eval()
    own = (config[name] for name in ("training", "scores", "data", "command"))
    return ReaderRun(method, model, spec.dtype, *own)


def _decoder(folder: Path, config: Mapping[str, Any], name: str | None) -> Path | None:
    """The folder that the decoder's shape is read from: its weights are the run's own."""
    recorded = config.get("decoder")
    if name is None and recorded is None:
        return None
    own = Path(place_of(folder, "decoder", str(recorded), name))
    if not own.is_dir():
        raise RunError(
            f"the checkpoint of this run's decoder, {own}, is not there. Say where it is, decoder=..., or copy it to "
            f"{folder / 'decoder'}."
        )
    return own


def memory_of(folder: Path) -> tuple[Spec | None, Spec, str]:
    """What a saved reader's memory is made by (None where it stores nothing), the Spec of its encoder, and the form
    that passages are shown in. Loads no weights; RunError for what is no saved reader."""
    config = config_of(folder, [METHOD])
    try:
        spec = Spec.from_json(config["spec"])
        return (spec if config["stored"] else None), spec, str(config["form"])
    except (KeyError, EncodeOnceError) as problem:
        raise RunError(f"{folder / 'config.json'} is not the config of a saved reader: {problem}.") from None


def design_of(folder: Path) -> Design:
    """A saved reader's design, without its weights; RunError for what is no saved reader."""
    config = config_of(folder, [METHOD])
    try:
        return Design(**config["variant"])
    except (KeyError, TypeError, EncodeOnceError) as problem:
        raise RunError(f"{folder / 'config.json'} is not the config of a saved reader: {problem}.") from None


def _readme(run: ReaderRun, spec: Spec) -> str:
    plan = run.method.plan
    scores = [f"- {split}: {name} {value}" for split, own in run.scores.items() for name, value in own.items()]
    lines = [
        f"# A reader of memory over {label(spec.encoder)}",
        "",
        f"Memory after block {plan.cut} of {plan.n_blocks}, live blocks copied from {list(plan.blocks)}, "
        f"{run.method.design.reader} reader.",
        "",
        "Only the encoder with these files fits:",
        "",
        *(f"- {part}: `{getattr(spec, part)}`" for part in ("weights", "config", "tokenizer")),
        "",
        "## Scores",
        "",
        *(scores or ["Not recorded."]),
        "",
        "## Data",
        "",
        *([f"- {split}: {name}" for split, name in run.data.items()] or ["Not recorded."]),
        "",
        "## Made by",
        "",
        "```",
        run.command or "(not recorded)",
        "```",
    ]
    return "\n".join(lines) + "\n"
