"""Prompt-based fine-tuning as a few-shot estimator uses it: the whole language model, asked by the user's own prompt.

FOLDER/model.safetensors    the trained model, its head restricted to the label words
FOLDER/prompt.json          the prompt, the task and what was trained

Axes: N items   C classes
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float, Int
from safetensors.torch import load_file, save_file

from ..batching import Cut
from ..encoders.pretrained import Pretrained
from ..encoders.prompter import Prompter
from ..errors import ConfigError
from ..methods.fewshot import Prompted, generated, prompted
from ..methods.fewshot.prompted import PIECE, source_of
from ..methods.finetune import Finetune
from ..prompts import Prompt, known, read_prompt
from ..tasks import Task, from_json
from ..train.atomic import json_bytes, write_bytes
from ..types import Document
from ._base import Schedule, answers_of, learned

__all__ = ["Asked", "Asking", "asked", "prompt_of", "prompter_for"]


@dataclass(frozen=True)
class Asking:
    """The whole language model, asked by a prompt whose labels are the numbers of the classes."""

    model: Pretrained
    prompter: Prompter
    compute: str

    @property
    def piece(self) -> str:
        """The head sees the gap; a decoder that writes the label sees all."""
        return "document" if self.prompter.written else PIECE

    def method(self, task: Task, seed: int) -> Prompted:
        """As pre-trained: nothing is drawn, whatever the seed."""
        make = generated if self.prompter.written else prompted
        return make(self.model, self.prompter, task, compute=self.compute)

    def source(self, documents: Sequence[Document]) -> Cut:
        """The prompted inputs, equal documents once. Long texts are cut, the template never."""
        return source_of(self.model, self.prompter, documents)

    def fits(self, documents: Sequence[Document]) -> Bool[np.ndarray, " N"]:
        """All do."""
        return np.ones(len(documents), bool)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"compute": self.compute, "prompt": self.prompter.prompt.to_json()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any], model: Pretrained) -> "Asking":
        """The inverse."""
        return cls(model, _prompter(model, Prompt(**values["prompt"])), values["compute"])


@dataclass(frozen=True)
class Asked:
    """A trained model that is asked by a prompt."""

    method: Finetune
    base: Asking
    task: Task

    FILES: ClassVar[tuple[str, ...]] = ("model.safetensors", "prompt.json")

    def answers(self, documents: Sequence[Document], n_classes: int) -> Float[np.ndarray, "N C"]:
        """Probabilities of the classes; see `answers_of`."""
        return answers_of(self.method, self.base, documents, n_classes)

    def save(self, folder: Path) -> None:
        """The files above."""
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: tensor.detach().clone() for name, tensor in self.method.state_dict().items()}
        save_file(tensors, folder / "model.safetensors")
        write_bytes(folder / "prompt.json", json_bytes({**self.base.to_json(), "task": self.task.to_json()}))

    @classmethod
    def load(cls, folder: Path, model: Pretrained) -> "Asked":
        """What `save` left, with the same answers."""
        described = json.loads((folder / "prompt.json").read_text(encoding="utf-8"))
        base, task = Asking.from_json(described, model), from_json(described["task"])
        method = base.method(task, seed=0)
        method.load_state_dict(load_file(folder / "model.safetensors"))
        method.settle()
        return cls(method, base, task)


def prompt_of(model: Pretrained, prompt: Any) -> Prompt:
    """A `Prompt` as it is, else the one in a TOML file, or that of a task by name: for T5, of the labels it writes.
    ConfigError for anything else."""
    if isinstance(prompt, Prompt):
        return prompt
    if not isinstance(prompt, str | Path):
        raise ConfigError(f"prompt={prompt!r}: give the name of a task, a .toml file, or a prompts.Prompt.")
    written = known(written=True) if model.family == "t5" else {}
    return written.get(str(prompt)) or read_prompt(prompt)


def prompter_for(model: Pretrained, prompt: Prompt, classes: Sequence[Any], pairs: bool) -> Prompter:
    """What lays texts into the prompt, with the words of these classes alone, by their numbers.

    Raises ConfigError for a template of pairs where there are none (`pairs`), or the other way round, for a class
    without a word and for label words of several pieces, EncoderError for a checkpoint without a masked-language-model
    head.
    """
    if prompt.pairs != pairs:
        raise ConfigError(
            f"{prompt.source or prompt.name}: the template {prompt.template!r} is for "
            f"{'pairs of texts' if prompt.pairs else 'single texts'}, and these are "
            f"{'pairs of texts' if pairs else 'single texts'}. {{pair}} is the second text's slot."
        )
    without = [str(label) for label in classes if str(label) not in prompt.words]
    if without:
        raise ConfigError(
            f"{prompt.source or prompt.name}: the prompt has no word for label {without[0]!r}. It has words for: "
            f"{', '.join(prompt.words)}."
        )
    words = {str(number): prompt.words[str(label)] for number, label in enumerate(classes)}
    _prompter(model, prompt)  # what is wrong with a word is said of the label by its name
    if model.family != "t5":
        model.masked_lm()
    return _prompter(model, replace(prompt, words=words, metric="accuracy", positive=""))


def asked(base: Asking, documents: Sequence[Document], classes: Int[np.ndarray, " N"], schedule: Schedule) -> Asked:
    """Trained on these documents; the last epoch's weights."""
    method, task, _ = learned(base, documents, classes, schedule)
    return Asked(method, base, task)


def _prompter(model: Pretrained, prompt: Prompt) -> Prompter:
    return model.prompter(prompt, written=model.family == "t5")
