"""A run's state on disk: tensors in one safetensors file, everything else in `state.json`, which names it.

    FOLDER/state.json                    written last: without it there is no checkpoint
    FOLDER/step-00000042.safetensors     the file that state.json names; older ones are deleted after it is in place

A second checkpoint of a step, made once its epoch is scored, has a name of its own beside the first. No pickle. A
checkpoint that was cut or changed is refused by its SHA-256.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as tensors_of
from safetensors.torch import save as tensor_bytes
from torch import Tensor

from ..errors import RunError
from .atomic import json_bytes, write_bytes

__all__ = ["Checkpoint", "differences", "of_module"]

FORMAT = 2


@dataclass(frozen=True)
class Checkpoint:
    """`origin` is what a resumed run must agree with, `values` and `tensors` where it goes on."""

    origin: Mapping[str, Any]
    values: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    def save(self, folder: Path) -> None:
        """Write atomically, then delete what the last checkpoint held."""
        content = tensor_bytes({key: tensor.detach().contiguous().cpu() for key, tensor in self.tensors.items()})
        digest, step = hashlib.sha256(content).hexdigest(), f"step-{self.values['step']:08d}"
        name = f"{step}.safetensors"
        if (folder / name).exists():  # state.json may name it: it stays whole until the next one is in place
            name = f"{step}-{digest[:8]}.safetensors"
        state = {
            "format": FORMAT,
            "tensors": name,
            "sha256": digest,
            "origin": dict(self.origin),
            "values": dict(self.values),
        }
        write_bytes(folder / name, content)
        write_bytes(folder / "state.json", json_bytes(state))
        for old in (*folder.glob("step-*.safetensors"), *folder.glob(".*.tmp")):  # .tmp: of a writer that was killed
            if old.name != name:
                old.unlink(missing_ok=True)

    @classmethod
    def load(cls, folder: Path) -> "Checkpoint | None":
        """The checkpoint in `folder`, None where there is none. RunError names a file that was cut or changed."""
        path = folder / "state.json"
        if not path.is_file():
            return None
        again = f"Delete {folder} to begin anew."
        try:
            state = json.loads(path.read_text(encoding="utf-8"))
            if state["format"] != FORMAT:
                raise RunError(f"{path} has format {state['format']}; this version reads format {FORMAT}. {again}")
            content = (folder / state["tensors"]).read_bytes()
            if hashlib.sha256(content).hexdigest() != state["sha256"]:
                raise RunError(
                    f"{folder / state['tensors']} was cut or changed: its SHA-256 is not the recorded one. {again}"
                )
            return cls(state["origin"], state["values"], tensors_of(content))
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as problem:
            raise RunError(f"the checkpoint {path} cannot be read: {problem!r}. {again}") from None


def of_module(tensors: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    """The tensors named NAME/PARAMETER, by parameter. Names may hold a slash, parameters do not."""
    parts = ((key.rpartition("/"), tensor) for key, tensor in tensors.items())
    return {parameter: tensor for (owner, _, parameter), tensor in parts if owner == name}


def differences(then: Any, now: Any, name: str = "") -> list[str]:
    """Each leaf on which two JSON values differ, as "a.b: 1 then, 2 now"."""
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        keys = [*then, *(key for key in now if key not in then)]
        return [
            line
            for key in keys
            for line in differences(
                then.get(key, "(absent)"), now.get(key, "(absent)"), f"{name}.{key}" if name else key
            )
        ]
    return [] if then == now else [f"{name}: {_short(then)} then, {_short(now)} now"]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
