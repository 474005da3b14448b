"""From one task to another (de Jong et al. 2023, section 4.3): what was trained goes on, the memory stays or is new."""

import hashlib
from pathlib import Path
from typing import Any

from ...encoders.live import LiveBlocks
from ...encoders.pretrained import Pretrained
from ...encoders.saving import save_checkpoint
from ...encoders.t5_decoder import T5Decoder
from ...errors import ConfigError
from .design import Design, Plan
from .generator import Generator
from .lumen import Lumen

__all__ = ["carry", "export", "refuse_unlike"]

CARRIED = ("question", "live", "mix", "reader")

Made = tuple[Design, Plan, str]
"""What a reader is made by: its design, what that comes to, and the form that passages are shown in."""


def refuse_unlike(source: Made, target: Made) -> None:
    """ConfigError naming every difference where one reader cannot start another: cut, parts or form."""
    theirs, ours = _parts(*source), _parts(*target)
    differing = [f"{name}: {theirs[name]!r} there, {own!r} here" for name, own in ours.items() if theirs[name] != own]
    if differing:
        raise ConfigError(
            f"a reader cannot start from one of other parts: {'; '.join(differing)}. Make them alike, or start from "
            "another."
        )


def _parts(design: Design, plan: Plan, form: str) -> dict[str, Any]:
    return {
        "cut": plan.cut,
        "blocks": list(plan.blocks),
        "layers": list(plan.stored) if len(plan.stored) > 1 else [],
        "question_encoder": design.question_encoder,
        "reader": design.reader,
        "decoder_blocks": design.decoder_blocks or plan.n_blocks,
        "form": form,
    }


def carry(source: Lumen, target: Lumen) -> None:
    """Start `target` from what `source` learned (L-09): question encoder, live blocks, mix and reader, never a memory.

    `target` then says so: a training of it that was stopped is not resumed from another start. ConfigError where the
    two are not cut alike, not made of the same parts, or not of the same shapes.
    """
    refuse_unlike(*((one.design, one.plan, one.form) for one in (source, target)))
    learned = [name for name in CARRIED if name in source.parts]
    for name in learned:
        theirs, ours = (
            {key: tuple(t.shape) for key, t in one.parts[name].state_dict().items()} for one in (source, target)
        )
        other = sorted(key for key in theirs | ours if theirs.get(key) != ours.get(key))
        if other:
            raise ConfigError(
                f"{len(other)} weights of the {name} part have another shape where they were trained, the first "
                f"{other[0]}: {theirs.get(other[0], 'none')} there, {ours.get(other[0], 'none')} here. Give both "
                "readers an encoder and a decoder of one shape."
            )
    digest = hashlib.sha256()
    for name in learned:
        weights = source.parts[name].state_dict()
        target.parts[name].load_state_dict(weights)
        for key in sorted(weights):
            digest.update(f"{name}/{key}".encode() + weights[key].detach().cpu().contiguous().numpy().tobytes())
    target.origin = digest.hexdigest()


def export(method: Lumen, encoder: Pretrained, folder: Path) -> None:
    """The encoder as trained, as a checkpoint folder: a trained memory's blocks, from which a corpus is encoded again
    (Memory transfer), or all blocks where nothing is stored, with T5's decoder where it was trained.

    ConfigError where the blocks of the memory were not trained: they are those of the checkpoint there is.
    """
    weights = {}
    auto = None
    if "memory" in method.parts:
        weights = _named(method, "memory")
    elif method.plan.cut == 0 and method.plan.blocks == tuple(range(method.plan.n_blocks)):
        weights = {**_named(method, "live"), **_named(method, "question")}
        if isinstance(method.reader, Generator) and isinstance(method.reader.decoder, T5Decoder):
            weights |= method.reader.decoder.named_weights()
            auto = "T5ForConditionalGeneration"
    else:
        raise ConfigError("this memory was not trained: its blocks are those of the encoder's own checkpoint.")
    save_checkpoint(encoder.path, weights, folder, auto)


def _named(method: Lumen, name: str) -> dict:
    part = method.parts[name]
    assert isinstance(part, LiveBlocks)
    return part.named_weights()
