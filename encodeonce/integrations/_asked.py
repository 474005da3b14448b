"""Prompt-based fine-tuning as a few-shot estimator uses it: the whole language model, asked by the user's own prompt.

FOLDER/model.safetensors    the trained model, its head restricted to the label words
FOLDER/prompt.json          the prompt, the task and what was trained

Axes: N items   C classes
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from safetensors.torch import load_file, save_file

from ..encoders.pretrained import Pretrained
from ..encoders.prompter import Prompter
from ..errors import ConfigError
from ..methods.fewshot import Prompted, generated, prompted
from ..methods.fewshot.prompted import PIECE, source_of
from ..prompts import Prompt, known, read_prompt
from ..tasks import Task, from_json
from ..train.atomic import json_bytes, write_bytes
from ..train.fit import fit
from ..types import Document
from ._tuned import TASK, Schedule, task_of

__all__ = ["Asked", "asked", "prompt_of", "prompter_for"]

BATCH = 32


@dataclass(frozen=True)
class Asked:
    """A trained model that is asked by a prompt, whose labels are the numbers of the classes."""

    method: Prompted
    model: Pretrained
    prompter: Prompter
    task: Task
    compute: str

    FILES: ClassVar[tuple[str, ...]] = ("model.safetensors", "prompt.json")

    def answers(self, documents: Sequence[Document], n_classes: int) -> Float[np.ndarray, "N C"]:
        """Probabilities of the classes; 0 for one that training never saw."""
        distinct = list({document.key: document for document in documents}.values())
        method, said = self.method.eval(), dict[str, dict[str, float]]()
        examples = method.read(source_of(self.model, self.prompter, distinct), distinct)
        with torch.no_grad():
            found = [
                answer[TASK][1]
                for batch in method.batches(examples, size=BATCH, order=None)
                for answer in method.predict(batch, True)
            ]
        said = {document.key: answer for document, answer in zip(distinct, found, strict=True)}
        lines = [[said[d.key].get(str(label), 0.0) for label in range(n_classes)] for d in documents]
        return np.array(lines).reshape(len(documents), n_classes)

    def save(self, folder: Path) -> None:
        """The files above."""
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: tensor.detach().clone() for name, tensor in self.method.state_dict().items()}
        save_file(tensors, folder / "model.safetensors")
        described = {
            "prompt": self.prompter.prompt.to_json(),
            "task": self.task.to_json(),
            "compute": self.compute,
        }
        write_bytes(folder / "prompt.json", json_bytes(described))

    @classmethod
    def load(cls, folder: Path, model: Pretrained) -> "Asked":
        """What `save` left, with the same answers."""
        described = json.loads((folder / "prompt.json").read_text(encoding="utf-8"))
        prompter = _prompter(model, Prompt(**described["prompt"]))
        task, compute = from_json(described["task"]), described["compute"]
        method = _made(model, prompter, task, compute)
        method.load_state_dict(load_file(folder / "model.safetensors"))
        method.settle()
        return cls(method, model, prompter, task, compute)


def prompt_of(model: Pretrained, prompt: str | Path | Prompt) -> Prompt:
    """A `Prompt` as it is, else the one in a TOML file, or that of a task by name: for T5, of the labels it writes."""
    if isinstance(prompt, Prompt):
        return prompt
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


def asked(
    model: Pretrained,
    prompter: Prompter,
    documents: Sequence[Document],
    classes: Int[np.ndarray, " N"],
    schedule: Schedule,
) -> Asked:
    """Trained on these documents; the last epoch's weights. Long texts are cut, the template never."""
    labelled, task = task_of(documents, classes, "document" if prompter.written else PIECE)
    method = _made(model, prompter, task, schedule.compute)
    distinct = list({document.key: document for document in labelled}.values())
    examples = method.read(source_of(model, prompter, distinct), labelled, [task])
    fit(method, examples, {TASK: task}, schedule.settings(len(labelled)))
    method.settle()
    return Asked(method, model, prompter, task, schedule.compute)


def _prompter(model: Pretrained, prompt: Prompt) -> Prompter:
    return model.prompter(prompt, written=model.family == "t5")


def _made(model: Pretrained, prompter: Prompter, task: Task, compute: str) -> Prompted:
    if prompter.written:
        return generated(model, prompter, task, compute=compute)
    return prompted(model, prompter, task, compute=compute)
