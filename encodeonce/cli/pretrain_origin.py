"""Which run a folder of `pretrain` holds: what it is made of, kept beside it and compared when it is begun again."""

import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from ..encoders.pooled import Pooled
from ..encoders.pretrained import Pretrained
from ..errors import RunError
from ..serve.folder import refuse_written
from ..train.atomic import write_bytes
from ..train.checkpoint import differences
from ..train.settings import HARMLESS
from .pretrain_config import PretrainConfig
from .pretrain_material import Material
from .steps import held

__all__ = ["alone", "begun", "holds", "made_of", "refuse_other"]

WRITTEN = ("encoder", "sentence-encoder", "heads.safetensors", "classes.json", "report.json", "train")
"""What a run writes into its folder, beside what says which run it is."""

ADDED = {"n_topics": 0, "min_documents": 5, "topics": "", "full": False, "interpolate": 1.0}
"""Keys of the config and of `[sample]` that runs did not always have, and what these did."""


def refuse_other(folder: Path) -> None:
    """RunError where the folder is no run's and holds what a run would write over: an encoder, a report."""
    refuse_written(folder, () if (folder / "origin.json").is_file() else WRITTEN, "folder of `pretrain`")


def alone(folder: Path) -> AbstractContextManager[None]:
    """Keep another `pretrain` out of the folder meanwhile. RunError where one is at it."""
    return held(folder, "pretrain", "overwrite each other's checkpoints, encoder and report")


def begun(folder: Path) -> bool:
    """Whether the folder holds a run that has a checkpoint, or is whole: its checkpoint may be removed."""
    return (folder / "train" / "checkpoint" / "state.json").is_file() or _whole(folder)


def holds(folder: Path, config: PretrainConfig, base: Pretrained, source: Pooled, material: Material) -> bool:
    """Whether the folder holds this run, finished. What the run is made of is kept there, or compared with that of the
    run that was begun there: RunError with every difference."""
    path, now = folder / "origin.json", made_of(config, base, source, material)
    if not begun(folder):
        text = json.dumps(now, indent=1) + "\n"
        if not path.is_file() or path.read_text() != text:
            for of_another in ("size.json", "encode.json", "encode-scored.json", "report.json"):
                (folder / of_another).unlink(missing_ok=True)
            write_bytes(path, text.encode())
        return False
    changed = differences(json.loads(path.read_text()), now)
    if changed:
        raise RunError(
            f"{folder} holds a run that was started differently, so going on would mix two runs: "
            f"{'; '.join(changed)}. Put it back as it was, choose another folder, or delete this one."
        )
    return _whole(folder)


def made_of(config: PretrainConfig, base: Pretrained, source: Pooled, material: Material) -> dict[str, Any]:
    """All that a run depends on: its settings, what its encoders hold, its documents."""
    left_out = {"store", "encoder", "sentence_encoder", "probe"}
    chosen = _counting(config.model_dump(mode="json", exclude=left_out))
    for section, names in (("data", ("train", "format", "columns", "taxonomy")), ("train", HARMLESS)):
        chosen[section] = {key: value for key, value in chosen[section].items() if key not in names}
    chosen["sample"] = _sample_of(config)
    frozen = source.spec(dtype=config.dtype).to_json()
    return {
        **chosen,
        "encoder": base.spec().weights,
        "sentences": {key: value for key, value in frozen.items() if key not in ("encoder", "revision")},
        "documents": material.digest(),
    }


def _whole(folder: Path) -> bool:
    """Whether its report, which is written last, and its encoder are there."""
    return (folder / "report.json").is_file() and (folder / "encoder" / "model.safetensors").is_file()


def _sample_of(config: PretrainConfig) -> dict[str, Any]:
    """`[sample]` as it is compared: a key that was added since counts where it changes something."""
    idle = set() if config.sample.topic_levels else {"min_children"}
    dumped = config.sample.model_dump(mode="json", exclude=idle)
    return _counting(dumped)


def _counting(values: dict[str, Any]) -> dict[str, Any]:
    """Without the keys that were added and do what was done before."""
    return {key: value for key, value in values.items() if ADDED.get(key, ...) != value}
