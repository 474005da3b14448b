"""A fitted few-shot estimator on disk.

FOLDER/config.json          schema, the Spec of the vectors, classes, weights, what was tried; written last
FOLDER/model.safetensors    the probes, named METHOD/ARRAY
FOLDER/finetune/            a saved run (`serve.bundle`), where fine-tuning has a weight
FOLDER/prompt/              the model that is asked by a prompt (`_asked`), where it has one
FOLDER/FUSION/              base model and fusion apart (`_fused`), for each fusion that has one
"""

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load as arrays_of
from safetensors.numpy import save as array_bytes

from ..encoders.pretrained import Pretrained
from ..errors import RunError
from ..methods.fewshot import Probe, TrainedProbe
from ..methods.finetune import Finetune, Tuning
from ..serve import bundle
from ..serve.folder import refuse_written
from ..train.atomic import json_bytes, write_bytes
from ..types import Spec
from ._asked import Asked
from ._fused import FUSED, Inner
from ._material import TextVectors
from ._tuned import Tuned, Whole

__all__ = ["PROMPT", "TUNED", "Trained", "is_estimator", "refuse_other", "save", "saved", "trained"]

Trained = TrainedProbe | Tuned | Inner | Asked

SCHEMA = 3
KEPT = (
    *("parameters", "prompt", "classes", "pairs", "column", "mixture", "tried"),
    *("corpus", "probes", "folders", "model_sha256"),
)
"""What an estimator is made of again."""
KIND = "few_shot"
TUNED = "finetune"
PROMPT = "prompt"


def save(folder: Path, spec: Spec, values: Mapping[str, Any], methods: Mapping[str, Trained]) -> None:
    """Write it; a folder that already holds one is replaced file by file, config.json last, and what that one alone
    had is removed. See `refuse_other`."""
    refuse_other(folder)
    before = _folders(folder) if is_estimator(folder) else set()
    probes = {name: own for name, own in methods.items() if isinstance(own, TrainedProbe)}
    whole = {name: own for name, own in methods.items() if not isinstance(own, TrainedProbe)}
    arrays = {
        f"{name}/{key}": np.ascontiguousarray(array)
        for name, own in probes.items()
        for key, array in own.arrays().items()
    }
    content = array_bytes(arrays)
    for name, own in whole.items():
        if isinstance(own, Tuned):
            bundle.save(own.run, folder / TUNED)
        else:
            own.save(folder / name)
    write_bytes(folder / "model.safetensors", content)
    config = {
        "schema": SCHEMA,
        "kind": KIND,
        "spec": spec.to_json(),
        **values,
        "probes": {name: own.probe.to_json() for name, own in probes.items()},
        "model_sha256": hashlib.sha256(content).hexdigest(),
        "folders": {name: _hashes(folder / name, own.FILES) for name, own in whole.items()},
    }
    write_bytes(folder / "config.json", json_bytes(config))
    for name in sorted(before - set(whole)):  # of an estimator that was here before
        shutil.rmtree(folder / name, ignore_errors=True)


def _folders(folder: Path) -> set[str]:
    """The folders of an estimator's methods, which may be of an older schema."""
    named = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("folders", {})
    return {TUNED, PROMPT, *FUSED} & set(named)


def is_estimator(folder: Path) -> bool:
    """Whether the folder's config.json says that it is one."""
    try:
        return bool(json.loads((folder / "config.json").read_text(encoding="utf-8"))["kind"] == KIND)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def refuse_other(folder: Path) -> None:
    """RunError where the folder holds something else, such as a checkpoint, whose files would be lost, or is none."""
    refuse_written(folder, () if is_estimator(folder) else ("config.json", "model.safetensors"), "few-shot estimator")


def saved(folder: Path) -> tuple[dict[str, Any], Spec]:
    """The values of config.json and the Spec of the vectors. RunError where there is no such estimator."""
    path = folder / "config.json"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if values["schema"] != SCHEMA or values["kind"] != KIND:
            raise RunError(f"{path}: schema {values['schema']!r} of {values['kind']!r}; this reads {SCHEMA} of {KIND}.")
        lacking = [name for name in KEPT if name not in values]
        if lacking:
            raise RunError(f"{path}: {', '.join(lacking)} is missing; it was cut or changed. Copy the folder again.")
        return dict(values), Spec.from_json(values["spec"])
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise RunError(f"{path} is not the config of a saved few-shot estimator: {problem!r}.") from None


def trained(
    folder: Path, values: Mapping[str, Any], spec: Spec, vectors: TextVectors, model: Pretrained
) -> dict[str, Trained]:
    """The trained methods. RunError for changed files, and naming each difference between the encoders."""
    here = vectors.spec
    differences = spec.differences(here)
    if differences:
        raise RunError(
            f"{folder} was trained on vectors of {spec.encoder}, and {here.encoder} makes others (here: the saved one):"
            f" {'; '.join(differences)}."
        )
    path = folder / "model.safetensors"
    content = path.read_bytes() if path.is_file() else b""
    if hashlib.sha256(content).hexdigest() != values["model_sha256"]:
        raise RunError(f"{path} is not the file config.json was written for: copy the folder again.")
    arrays = arrays_of(content)
    found: dict[str, Trained] = {}
    for name in values["mixture"]["weights"]:
        files = (Tuned if name == TUNED else Asked if name == PROMPT else Inner).FILES
        # of fine-tuning there is no entry in older folders; its run checks its own weights
        if name in values["folders"] and _hashes(folder / name, files) != values["folders"][name]:
            raise RunError(f"{folder / name} does not hold the files config.json was written for: copy it again.")
        if name == TUNED:
            run = bundle.load(folder / TUNED, model)
            assert isinstance(run.method, Finetune)
            assert isinstance(run.variant, Tuning)
            run.method.settle()  # as it was after training
            found[name] = Tuned(run, Whole(model, run.variant.compute))
            continue
        if name in (PROMPT, *FUSED):
            own_folder = folder / name
            found[name] = Asked.load(own_folder, model) if name == PROMPT else Inner.load(own_folder, model, vectors)
            continue
        own = {key.removeprefix(f"{name}/"): array for key, array in arrays.items() if key.startswith(f"{name}/")}
        found[name] = TrainedProbe.from_arrays(Probe(**values["probes"][name]), own)
    return found


def _hashes(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """Of the files of a saved method; one that is missing is left out."""
    paths = [folder / name for name in names]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths if path.is_file()}
