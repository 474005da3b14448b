"""From one task to another (de Jong et al. 2023, section 4.3): what was trained goes on, the memory stays or is new."""

import hashlib
from pathlib import Path

from ...encoders.live import LiveBlocks
from ...encoders.pretrained import Pretrained
from ...encoders.saving import save_checkpoint
from ...encoders.t5_decoder import T5Decoder
from ...errors import ConfigError
from .generator import Generator
from .lumen import Lumen

__all__ = ["carry", "export"]

CARRIED = ("question", "live", "mix", "reader")


def carry(source: Lumen, target: Lumen) -> None:
    """Start `target` from what `source` learned (L-09): question encoder, live blocks, mix and reader, never a memory.

    `target` then says so: a training of it that was stopped is not resumed from another start. ConfigError where the
    two are not cut alike, or not made of the same parts.
    """
    if (source.plan.cut, source.plan.blocks) != (target.plan.cut, target.plan.blocks):
        raise ConfigError(
            f"a model cut at {source.plan.cut} with live blocks {list(source.plan.blocks)} cannot start one cut at "
            f"{target.plan.cut} with {list(target.plan.blocks)}."
        )
    learned, wanted = ([name for name in CARRIED if name in one.parts] for one in (source, target))
    if learned != wanted or type(source.reader) is not type(target.reader):
        raise ConfigError(
            f"{', '.join(learned)} with a {source.design.reader} reader were trained, {', '.join(wanted)} with a "
            f"{target.design.reader} reader would start from them. Give both designs the same question_encoder, "
            "layers and reader."
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
