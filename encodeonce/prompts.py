"""Prompts: a text put into a sentence with a gap, and a word for each label to fill it (Gao et al. 2021; spec B10).

A template is literal text with slots: `{text}`, `{pair}` (the second text) and `{mask}`, the gap.

    {text} It was{mask}.
    {text:no_stop}?{mask}, {pair:lower_first}

`no_stop` drops a sentence's closing mark, `lower_first` makes its first letter small; both stand with a comma between.
White space before a slot belongs to the slot. A template without a gap gets one at its end.
"""

import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from .errors import ConfigError
from .resolve import nearest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["PAIR_TASKS", "SINGLE_TASKS", "Part", "Prompt", "known", "read_prompt"]

SINGLE_TASKS = ("sst2", "sst5", "mr", "cr", "mpqa", "subj", "trec", "cola")
PAIR_TASKS = ("mnli", "mnli_mm", "snli", "qnli", "rte", "mrpc", "qqp")
"""The 15 tasks, in the order of the papers' tables."""

METRICS = ("accuracy", "matthews", "f1", "macro_f1")
CHANGES = ("no_stop", "lower_first")
SLOT = re.compile(r"(\s*)\{(\w*)(?::([\w,]*))?\}")
STOPS = ".!?;:,"
KINDS: Mapping[str, tuple[type, str]] = {
    **dict.fromkeys(("name", "template", "metric", "positive"), (str, "a text")),
    **dict.fromkeys(("max_pieces", "text_pieces"), (int, "a whole number")),
    "words": (dict, "a table, a word a label"),
}
"""What a file may say of each field."""


@dataclass(frozen=True)
class Part:
    """Of a template: `kind` is "literal", "text", "pair" or "mask"; `spaced` where white space stands before."""

    kind: str
    literal: str = ""
    spaced: bool = False
    changes: tuple[str, ...] = ()

    def filled(self, text: str) -> str:
        """What stands in the slot for this text."""
        text = text.strip()
        if "no_stop" in self.changes and text[-1:] in STOPS:
            text = text[:-1].rstrip()
        if "lower_first" in self.changes:
            text = text[:1].lower() + text[1:]
        return f" {text}" if self.spaced and text else text


@dataclass(frozen=True)
class Prompt:
    """`words` gives every label the word that stands for it, in class-index order. Immutable, checked at birth.

    `metric` is the score the task is published under ("f1" is that of the label `positive`), `max_pieces` the longest
    prompted input (0: what the model holds), `text_pieces` the longest first text (0: no limit of its own). Raises
    ConfigError for a template that cannot be read, and for labels without a word of their own.
    """

    name: str
    template: str
    words: Mapping[str, str]
    metric: str = "accuracy"
    positive: str = ""
    max_pieces: int = 0
    text_pieces: int = 0
    source: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", dict(self.words))
        where = self.source or f"prompt {self.name!r}"
        if len(self.words) < 2:
            raise ConfigError(f"{where}: [words] holds {len(self.words)} labels; a task needs at least two.")
        for label, word in self.words.items():
            if not isinstance(word, str) or not word.strip():
                raise ConfigError(f"{where}: the word of label {label!r} is {word!r}; give it one word.")
        if self.metric not in METRICS:
            raise ConfigError(f"{where}: metric={self.metric!r} is not known. There is: {', '.join(METRICS)}.")
        if (self.metric == "f1") != bool(self.positive) or (self.positive and self.positive not in self.words):
            raise ConfigError(
                f"{where}: metric={self.metric!r}, positive={self.positive!r}: f1 is the score of one label, so name"
                f" it (one of {', '.join(self.words)}); other metrics take none."
            )
        if self.max_pieces < 0 or self.text_pieces < 0:
            raise ConfigError(f"{where}: max_pieces={self.max_pieces}, text_pieces={self.text_pieces}: 0 or more.")
        self._check_slots(where)

    def _check_slots(self, where: str) -> None:
        kinds = [part.kind for part in self.parts]
        for kind, least, most in (("text", 1, 1), ("pair", 0, 1), ("mask", 1, 1)):
            if not least <= kinds.count(kind) <= most:
                raise ConfigError(
                    f"{where}: the template {self.template!r} has {kinds.count(kind)} slots {{{kind}}}; it takes "
                    f"{'exactly one' if least else 'at most one'}."
                )

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The template, read; a gap at the end where it has none."""
        found: list[Part] = []
        end = 0
        template = re.sub(r"\[MASK\]|<mask>", "{mask}", self.template)
        if "{mask" not in template:
            template = f"{template.rstrip()} {{mask}}"
        for slot in SLOT.finditer(template):
            if literal := template[end : slot.start()]:
                found.append(Part("literal", literal))
            found.append(self._slot(*slot.groups()))
            end = slot.end()
        if literal := template[end:]:
            found.append(Part("literal", literal))
        stray = next((part.literal for part in found if part.kind == "literal" and set(part.literal) & set("{}")), None)
        if stray is not None:
            raise ConfigError(f"{self.source or self.name}: the template has a stray brace in {stray!r}.")
        return tuple(found)

    def _slot(self, space: str, kind: str, changes: str | None) -> Part:
        where, asked = self.source or f"prompt {self.name!r}", tuple(filter(None, (changes or "").split(",")))
        if kind not in ("text", "pair", "mask"):
            raise ConfigError(
                f"{where}: the template has a slot {{{kind}}}. There is: {{text}}, {{pair}}, {{mask}}."
                f"{nearest(kind, ['text', 'pair', 'mask'])}"
            )
        unknown = [one for one in asked if one not in CHANGES]
        if unknown:
            raise ConfigError(
                f"{where}: {{{kind}:{changes}}}: {unknown[0]!r} is not known. There is: {', '.join(CHANGES)}."
                f"{nearest(unknown[0], list(CHANGES))}"
            )
        return Part(kind, spaced=bool(space), changes=asked)

    @property
    def labels(self) -> tuple[str, ...]:
        """In class-index order."""
        return tuple(self.words)

    @property
    def pairs(self) -> bool:
        """Whether an input is two texts."""
        return any(part.kind == "pair" for part in self.parts)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "source": ""}


@cache
def known(written: bool = False) -> Mapping[str, Prompt]:
    """The prompts of the 15 tasks, by name; with `written` those for a decoder that writes the label (T5)."""
    path = Path(__file__).with_name("prompts_written.toml" if written else "prompts.toml")
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    return {name: Prompt(name=name, **values) for name, values in tables.items()}


def read_prompt(name: str | Path) -> Prompt:
    """One of the 15 by name, or the prompt in a TOML file: `template`, `[words]`, and any other field of `Prompt`.

    Raises ConfigError with the file for an unknown name or key, and for a value of the wrong kind.
    """
    path = Path(name)
    if path.suffix != ".toml":
        if str(name) not in known():
            names = list(known())
            raise ConfigError(
                f"prompt {str(name)!r} is not known. There is: {', '.join(names)}.{nearest(str(name), names)} Your own"
                " is a .toml file with template and [words]."
            )
        return known()[str(name)]
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise ConfigError(f"{path}: cannot be read: {problem}.") from None
    for key, value in values.items():
        if key not in KINDS:
            raise ConfigError(f"{path}: unknown key {key!r}.{nearest(key, list(KINDS))} There is: {', '.join(KINDS)}.")
        kind, due = KINDS[key]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ConfigError(f"{path}: {key}={value!r} must be {due}.")
    missing = [key for key in ("template", "words") if key not in values]
    if missing:
        raise ConfigError(f"{path}: {missing[0]!r} is missing. A prompt is a template and [words], a word a label.")
    return Prompt(**{"name": path.stem, "source": str(path), **values})
