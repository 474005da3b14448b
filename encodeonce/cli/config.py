"""The config file: TOML to checked values. An unknown key is an error that names the nearest one and where it stands.

`Config` is the file of methods over stored pieces. Another command brings a `Section` of its own and gives it to
`load`; its fields of file names are of type `Files`, `FileName` or `EncoderName`. Relative paths are relative to the
config file. `--set a.b=value` replaces a key before anything is checked; the value is read as TOML where it is TOML
(numbers, true, lists, quoted strings) and as plain text otherwise.
"""

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, overload

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_serializer,
)

from ..errors import ConfigError
from ..resolve import nearest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = [
    "AdapterSection",
    "Config",
    "DataSection",
    "EncoderName",
    "FileName",
    "Files",
    "FinetuneSection",
    "LoopSection",
    "MethodSection",
    "Names",
    "Section",
    "TrainSection",
    "absolute",
    "load",
    "parse",
    "to_toml",
    "toml_value",
    "value_of",
]


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


@dataclass(frozen=True)
class Moves:
    """Marks a field of paths, which start at the config file's folder; of `folders`, what is no folder is a name."""

    folders: bool = False


Files = Annotated[list[str], BeforeValidator(_listed), Moves()]
FileName = Annotated[str, Moves()]
EncoderName = Annotated[str, Moves(folders=True)]
Names = Annotated[list[str], BeforeValidator(_listed)]


class Section(BaseModel):
    """A table of the file; any other key in it is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def need(self, *keys: str) -> None:
        """ConfigError naming the first of these dotted keys that is empty."""
        for key in keys:
            value: Any = self
            for part in key.split("."):
                value = getattr(value, part)
            if not value:
                raise ConfigError(f"{key} is not set. Write it into the config file or add --set {key}=...")


class DataSection(Section):
    """`[data]`: one file or a list of files a split."""

    train: Files = Field(default_factory=list, description="what is learned from")
    dev: Files = Field(default_factory=list, description="what chooses between epochs and learning rates")
    test: Files = Field(default_factory=list, description="what is scored at the end")
    format: str | None = Field(default=None, description="reader's name; by the file's ending where it is not given")
    columns: dict[str, int | str] | None = Field(default=None, description="where values stand: { form = 0, tag = 3 }")
    options: dict[str, bool | int | str] = Field(
        default_factory=dict, description="the reader's own: { comments = true }, { quoting = false }"
    )
    passages: FileName | None = Field(
        default=None, description="what questions name by id: TechQA's documents, a manual's sections, passages"
    )
    train_examples: int = Field(
        default=0, ge=0, description="training documents at most, chosen by their content; 0: all"
    )
    train_fraction: float = Field(
        default=1.0, gt=0, le=1, description="part of the training documents, chosen by their content"
    )
    dev_fraction: float = Field(
        default=0.0, ge=0, lt=1, description="without a dev file: part of train held out as dev, stratified by label"
    )


class AdapterSection(Section):
    """`[adapter]`: what an adapter takes; unset keys are the adapter's own defaults (the paper's)."""

    key_width: int | None = Field(default=None, gt=0, description="width of the layer attention's queries and keys")
    n_heads: int | None = Field(default=None, gt=0, description="attention heads")
    dropout: float | None = Field(default=None, ge=0, lt=1, description="rate in the adapter and in the head")
    include_embeddings: bool | None = Field(default=None, description="mix the embedding view too")
    pre_norm_layers: bool | None = Field(default=None, description="a LayerNorm on every view before it is mixed")
    compute: Literal["fp32", "bf16"] | None = Field(
        default=None, description="number type of the wide products in training"
    )

    def chosen(self) -> dict[str, Any]:
        """Only what the file sets."""
        return self.model_dump(exclude_none=True)


class FinetuneSection(Section):
    """`[finetune]`: what methods that train blocks of the encoder take; unset keys are `methods.finetune.Tuning`'s."""

    live: int | None = Field(default=None, ge=0, description="blocks that are trained; the method's own number")
    blocks: list[int] | None = Field(default=None, description="live_mix: which blocks, from 0")
    attention_only: list[int] | None = Field(
        default=None, description="live_mix: which of these run without their feed-forward network; -1 is the last"
    )
    over: Literal["linear", "agg", "adapted"] | None = Field(
        default=None, description="live_mix: what mixes the stored views under the blocks"
    )
    key_width: int | None = Field(default=None, gt=0, description="live_mix: width of that mix's queries and keys")
    n_heads: int | None = Field(default=None, gt=0, description="live_mix: its attention heads")
    residual: bool | None = Field(default=None, description="live_mix: add the mix to what the blocks make of it")
    pre_norm_layers: bool | None = Field(
        default=None, description="live_mix: a LayerNorm on every view before it is mixed"
    )
    lora: int | None = Field(default=None, ge=0, description="rank of low-rank terms; 0: train the blocks themselves")
    lora_alpha: float | None = Field(default=None, gt=0, description="their scale times the rank")
    dropout: float | None = Field(default=None, ge=0, lt=1, description="rate in the mix and in the head")
    compute: Literal["fp32", "bf16"] | None = Field(default=None, description="number type of matrix products")
    shared: bool | None = Field(default=None, description="one trunk under the heads of all tasks")

    def chosen(self) -> dict[str, Any]:
        """Only what the file sets."""
        return self.model_dump(exclude_none=True)


class LoopSection(Section):
    """What every `[train]` has: the loop, with Hugging Face's names where it has one."""

    learning_rate: float = Field(default=2e-3, gt=0, description="the schedule's peak")
    encoder_learning_rate: float | None = Field(
        default=None, ge=0, description="peak for blocks of the encoder, by default the method's own; 0: the same"
    )
    num_train_epochs: int = Field(default=10, gt=0, description="passes over the training documents")
    per_device_train_batch_size: int = Field(default=32, gt=0, description="documents in a batch")
    per_device_eval_batch_size: int = Field(default=32, gt=0, description="documents in a batch of predicting")
    gradient_accumulation_steps: int = Field(default=1, gt=0, description="batches to an optimiser step")
    seed: int = Field(default=42, ge=0, description="start values, order and dropout")
    optim: Literal["adam", "adamw", "adafactor"] = Field(default="adam", description="the optimiser")
    lr_scheduler_type: Literal["one_cycle", "linear", "constant"] = Field(
        default="one_cycle", description="course of the learning rate"
    )
    warmup_ratio: float = Field(default=0.3, ge=0, lt=1, description="part of the steps before the peak")
    div_factor: float = Field(default=25.0, gt=0, description="peak rate / first rate")
    final_div_factor: float = Field(default=1e4, gt=0, description="first rate / last rate")
    adam_beta1: float = Field(default=0.0, ge=0, lt=1, description="Adam's first beta; 0: as the schedule moves it")
    adam_beta2: float = Field(default=0.999, gt=0, lt=1, description="Adam's second beta")
    adam_epsilon: float = Field(default=1e-8, gt=0, description="Adam's epsilon")
    weight_decay: float = Field(default=0.0, ge=0, description="of AdamW; biases and norms have none")
    max_grad_norm: float = Field(default=0.0, ge=0, description="clips each task's gradient; 0: never")
    early_stopping_patience: int = Field(
        default=0, ge=0, description="epochs without a better dev score; 0: all epochs"
    )
    logging_steps: int = Field(default=50, gt=0, description="steps between lines of the log")
    save_steps: int = Field(default=0, ge=0, description="steps between checkpoints beside each epoch's; 0: none")


class TrainSection(LoopSection):
    """`[train]`: the loop, and what only methods that read documents have."""

    inside_learning_rate: float = Field(
        default=0.0, ge=0, description="peak for what a method adds inside the encoder; 0: the same"
    )
    per_device_train_batch_pieces: int = Field(
        default=0, ge=0, description="pieces in a batch, however many documents that are; 0: count documents"
    )


class MethodSection(TrainSection):
    """`[methods.NAME]`: values of a method's own, of any key of `[train]`; the rest is as there.

    In a comparison it is a line. `method` lets a line with options of its own have another name than its method.
    """

    method: str | None = Field(default=None, description="the method; NAME where not given")
    adapter: AdapterSection = AdapterSection()
    finetune: FinetuneSection = FinetuneSection()
    seeds: int | list[int] | None = Field(default=None, description="compare: how many seeds, or which")
    grid: dict[str, list[Any]] = Field(
        default_factory=dict, description="compare: values tried of a setting, chosen on dev with the first seed"
    )

    def own(self) -> dict[str, Any]:
        """The keys of `[train]` that are set here."""
        return {key: getattr(self, key) for key in TrainSection.model_fields if key in self.model_fields_set}

    @model_serializer(mode="wrap")
    def _set_keys_only(self, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        return {key: value for key, value in handler(self).items() if key in self.model_fields_set}


class Config(Section):
    """The whole file."""

    encoder: EncoderName = Field(description="a folder or a hub name")
    store: FileName = Field(default="states", description="folder of the stored views")
    layers: Literal["all", "last"] | int | list[int] = Field(
        default="all", description="views that are stored, 0 the embeddings"
    )
    dtype: Literal["fp32", "fp16", "bf16", "int8"] = Field(default="fp16", description="type they are stored in")
    compute: Literal["fp32", "bf16x3", "bf16"] = Field(default="fp32", description="arithmetic of the encoder")
    window: int | None = Field(
        default=None, gt=0, description="pieces the encoder sees at once; its own limit where not given"
    )
    tasks: Names = Field(
        default_factory=list, description="upos, ner, parsing, classification, ...; trained from one read"
    )
    method: str = Field(
        default="adapted",
        description="frozen, linear, fusion, agg, agg_tailor, adapted; finetune, top1, top2, lora, live_mix",
    )
    start: FileName | None = Field(
        default=None, description="a saved run of the same method whose trained weights this one begins with"
    )
    data: DataSection = DataSection()
    task: dict[str, dict[str, Any]] = Field(default_factory=dict, description="options of a task, by its name")
    adapter: AdapterSection = AdapterSection()
    finetune: FinetuneSection = FinetuneSection()
    train: TrainSection = TrainSection()
    methods: dict[str, MethodSection] = Field(default_factory=dict, description="values of a method's own")


S = TypeVar("S", bound=Section)


@overload
def load(path: Path, changes: Iterable[str] = ()) -> Config: ...


@overload
def load(path: Path, changes: Iterable[str] = (), *, model: type[S]) -> S: ...


def load(path: Path, changes: Iterable[str] = (), *, model: type[Section] = Config) -> Section:
    """Read, change, check, as a `model`. ConfigError names file and key path."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as problem:
        raise ConfigError(f"{path} cannot be read: {problem.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise ConfigError(f"{path} is not TOML: {problem}.") from None
    for change in changes:
        _change(values, change)
    folder = path.parent
    return _moved(parse(values, str(path), model=model), lambda name: str(folder / Path(name).expanduser()), folder)


@overload
def parse(values: Mapping[str, Any], place: str) -> Config: ...


@overload
def parse(values: Mapping[str, Any], place: str, *, model: type[S]) -> S: ...


def parse(values: Mapping[str, Any], place: str, *, model: type[Section] = Config) -> Section:
    """Check plain values; `place` stands in the message."""
    try:
        return model.model_validate(values)
    except ValidationError as problem:
        raise ConfigError("\n".join(_message(error, place, model) for error in problem.errors())) from None


def _message(error: Any, place: str, model: type[Section]) -> str:
    keys = [str(part) for part in error["loc"]]
    key = ".".join(keys)
    if error["type"] == "extra_forbidden":
        allowed = _allowed(model, keys[:-1])
        where = f"[{'.'.join(keys[:-1])}]" if keys[:-1] else "The file"
        return f"{place}: unknown key {key!r}.{nearest(keys[-1], allowed)} {where} takes: {', '.join(allowed)}."
    if error["type"] == "missing":
        return f"{place}: {key!r} is missing."
    allowed = _allowed(model, keys)
    hint = f" [{key}] is a table of: {', '.join(allowed)}." if allowed else ""
    return f"{place}: {key} = {error['input']!r}: {error['msg']}.{hint}"


def _allowed(model: type[Section], keys: list[str]) -> list[str]:
    """Keys of the table at this path; none where it is not a table with known keys."""
    kind: Any = model
    for key in keys:
        if isinstance(kind, type) and issubclass(kind, Section):
            kind = kind.model_fields[key].annotation if key in kind.model_fields else None
        else:  # a table of tables
            kind = next(reversed(get_args(kind)), None)
    return list(kind.model_fields) if isinstance(kind, type) and issubclass(kind, Section) else []


def value_of(text: str) -> Any:
    """What is written where it is TOML (a number, true, a list, a quoted string), and the text itself otherwise."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _change(values: dict[str, Any], change: str) -> None:
    key, equals, text = change.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {change!r}: write it as key=value or table.key=value.")
    value = value_of(text)
    *tables, last = key.strip().split(".")
    for table in tables:
        values = values.setdefault(table, {})
        if not isinstance(values, dict):
            raise ConfigError(f"--set {change!r}: {table!r} is a value, not a table.")
    values[last] = value


def _moved(section: S, move: Callable[[str], str], folder: Path = Path()) -> S:
    """The same with every path moved, those in tables too."""
    changed: dict[str, Any] = {}
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        optional = [mark for kind in get_args(field.annotation) for mark in getattr(kind, "__metadata__", ())]
        marks = [mark for mark in (*field.metadata, *optional) if isinstance(mark, Moves)]
        if isinstance(value, Section):
            moved_section = _moved(value, move, folder)
            changed |= {} if moved_section == value else {name: moved_section}  # an unset key stays unset
        elif isinstance(value, dict):
            tables = {key: _moved(one, move, folder) for key, one in value.items() if isinstance(one, Section)}
            changed |= {name: value | tables} if tables else {}
        elif marks and value is not None:
            listed = [value] if isinstance(value, str) else value
            moved = [move(one) if not marks[0].folders or (folder / one).is_dir() else one for one in listed]
            changed[name] = moved[0] if isinstance(value, str) else moved
    return section.model_copy(update=changed)


def absolute(config: S) -> S:
    """The same with every path absolute, so that it says the same wherever its file lies."""
    return _moved(config, os.path.abspath)


def to_toml(config: Section, folder: Path) -> str:
    """The resolved config as a TOML file that lies in `folder`; `load` gives it back. Unset keys are left out."""
    plain = _moved(config, lambda name: os.path.relpath(name, folder)).model_dump(exclude_none=True)
    lines = [f"{key} = {toml_value(value)}" for key, value in plain.items() if not isinstance(value, dict)]
    for key, value in plain.items():
        if isinstance(value, dict):
            lines += _table(key, value)
    return "\n".join(lines) + "\n"


def _table(name: str, values: Mapping[str, Any]) -> list[str]:
    own = [f"{_key(key)} = {toml_value(value)}" for key, value in values.items() if not isinstance(value, dict)]
    tables = {key: value for key, value in values.items() if isinstance(value, dict)}
    inner = [line for key, value in tables.items() for line in _table(f"{name}.{_key(key)}", value)]
    return (["", f"[{name}]", *own] if own else []) + inner


def _key(name: str) -> str:
    bare = name and all(c.isascii() and (c.isalnum() or c in "_-") for c in name)
    return name if bare else toml_value(name)


def toml_value(value: Any) -> str:
    """A value as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(toml_value(item) for item in value)}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{_key(name)} = {toml_value(item)}' for name, item in value.items())} }}"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(f"\\u{ord(c):04x}" if ord(c) < 32 or ord(c) == 127 else c for c in escaped) + '"'
    return repr(value)
