"""What the files of a checkpoint say before anything is loaded: where they lie, the config, three hashes.

Imports neither torch nor transformers: a store can be opened and compared without them.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import EncoderError
from ..resolve import ROOT, available, nearest
from .quickstart import QUICKSTART, QUICKSTART_MODEL, quickstart_folder

__all__ = [
    "Stamps",
    "config_hash",
    "counts_positions",
    "families",
    "family_file",
    "label",
    "locate",
    "n_blocks",
    "named",
    "read_config",
    "tokenizer_hash",
    "usable_window",
    "weights_hash",
    "width",
]

NOT_FAMILIES = (
    "attention",
    "checkpoint",
    "decoder",
    "encode",
    "export",
    "live",
    "loading",
    "lora",
    "masked_lm",
    "pieces",
    "pooled",
    "pretrained",
    "prompter",
    "quickstart",
    "saving",
    "shape",
    "slots",
    "stack",
    "t5_decoder",
    "warm_decoder",
    "windows",
)
"""The files of this room that are no family; every other file is one, named as its checkpoints' `model_type`."""

Stamps = tuple[tuple[str, int, int, int], ...]
"""What tells cheaply that files may have changed; see `stamps`."""

VOCABULARY_FILES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "bpe.codes",
    "sentencepiece.bpe.model",
    "spiece.model",
    "spm.model",
    "tokenizer.model",
)
SETTINGS_FILES = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
TOKENIZER_FILES = (*VOCABULARY_FILES, "merges.txt", *SETTINGS_FILES)

WEIGHT_FILES = ("model.safetensors", "model.safetensors.index.json")

ADAPTER = "adapter_config.json"
"""What makes `transformers` add a PEFT adapter to the model that it loads from a folder."""

UNHEARD = frozenset(
    [
        "_name_or_path",
        "name_or_path",
        "transformers_version",
        "architectures",
        "torch_dtype",
        "dtype",
        "use_cache",
        "gradient_checkpointing",
        "id2label",
        "label2id",
        "num_labels",
        "problem_type",
        "finetuning_task",
        "output_hidden_states",
        "output_attentions",
        "return_dict",
        "_attn_implementation",
        "task_specific_params",
        "initializer_range",
        "initializer_factor",
        "classifier_dropout",
        "tokenizer_file",
        "special_tokens_map_file",
        "model_max_length",
        "max_length",
        "padding_side",
        "truncation_side",
        "stride",
        "pad_to_multiple_of",
        "padding",
        "truncation",
        "pad_token_type_id",
        "pad_type_id",
        "processor_class",
        "is_local",
        "local_files_only",
    ]
)
"""Keys of config.json, tokenizer_config.json and tokenizer.json that cannot change a vector: names, heads, training,
padding and truncation (pieces are cut by our own windows)."""

AFTER_PADDING = frozenset({"roberta", "xlm-roberta", "mpnet", "camembert"})
"""Families whose first position has number pad_token_id + 1, so that the table holds fewer pieces than it has rows."""


NO_POSITIONS = frozenset({"t5", "modernbert"})
"""Families that know distances between pieces and no positions."""


def counts_positions(config: Mapping[str, Any]) -> bool:
    """Whether a piece's vector depends on its absolute position; else only distances count."""
    return config.get("model_type") not in NO_POSITIONS and bool(config.get("position_biased_input", True))


def families() -> list[str]:
    """Families with a file in this room, by file name."""
    return [name for name in available("encoders") if name not in NOT_FAMILIES]


def family_file(config: Mapping[str, Any], source: str) -> str:
    """The file name of the config's family; EncoderError names what there is and the nearest."""
    model_type = str(config.get("model_type", ""))
    name = model_type.replace("-", "_")
    if name not in families():
        raise EncoderError(
            f"{source}: no family for model_type={model_type!r}. There is: {', '.join(families())}."
            f"{nearest(name, families())} A new one is a single file in {ROOT.name}/encoders."
        )
    return name


def named(name: str | Path) -> str:
    """What a Spec calls a checkpoint: a folder absolutely, the packaged encoder by its model's name, a hub name as it
    is."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        return str(folder.resolve())
    return QUICKSTART_MODEL if str(name) == QUICKSTART else str(name)


def label(name: str) -> str:
    """What results call a checkpoint: a hub name, or a folder's last part; never a path."""
    return Path(name).resolve().name if Path(name).is_dir() or Path(name).is_absolute() else name


def locate(name: str | Path) -> tuple[Path, str]:
    """The folder of a checkpoint and its revision ("" for a local folder, and for the packaged encoder, "quickstart").

    A hub name is looked for in the local Hugging Face cache first and is downloaded only where the hub is not switched
    off (HF_HUB_OFFLINE=1). Raises EncoderError with the path or name where nothing is found, MissingExtra
    where the packaged encoder is not installed.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder, ""
    text = str(name)
    if text in (QUICKSTART, QUICKSTART_MODEL):
        return quickstart_folder(), ""
    if folder.is_absolute() or text.startswith(".") or text.count("/") > 1 or not text:
        raise EncoderError(f"{folder}: no such folder. Give a folder with config.json, or a hub name such as org/name.")
    from huggingface_hub import constants, snapshot_download

    wanted = [*TOKENIZER_FILES, "config.json", "model*.safetensors", "model.safetensors.index.json"]
    attempts = (True,) if constants.HF_HUB_OFFLINE else (True, False)
    for local in attempts:
        try:
            found = Path(snapshot_download(text, allow_patterns=wanted, local_files_only=local))
            return found, found.name
        except (OSError, ValueError) as problem:
            cause = problem
    where = (
        f"nor in the cache {constants.HF_HUB_CACHE}"
        if len(attempts) == 1
        else f"and the hub gave: {' '.join(str(cause).split()).rstrip('.')}"
    )
    switched = " The hub is switched off (HF_HUB_OFFLINE)." if len(attempts) == 1 else ""
    raise EncoderError(f"{text!r} is no folder here ({folder.resolve()}) {where}.{switched} Give a folder.") from None


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; EncoderError with the path where it is missing or broken."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise EncoderError(f"{path}: no such file; a checkpoint folder needs it.") from None
    except ValueError as problem:
        raise EncoderError(f"{path}: not JSON: {problem}.") from None
    if not isinstance(value, dict):
        raise EncoderError(f"{path}: holds a {type(value).__name__}, not an object.")
    return value


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of a checkpoint folder. EncoderError where there is a PEFT adapter: `transformers` would add it to
    the weights, and no hash of ours would know."""
    if (folder / ADAPTER).is_file():
        beside = "an adapter" if not (folder / "config.json").is_file() else "an adapter beside its model"
        raise EncoderError(
            f"{folder / ADAPTER}: the folder holds {beside}, and an encoder is a model whose weights are whole. Merge"
            " it once: PeftModel.from_pretrained(model, folder).merge_and_unload().save_pretrained(new_folder), and the"
            " tokenizer beside it; or take the adapter's files away to use the model without it."
        )
    inside = folder / "encoder"
    if not (folder / "config.json").is_file() and (inside / "config.json").is_file():
        raise EncoderError(f"{folder / 'config.json'}: no such file, but {inside} holds an encoder: take that.")
    return read_json(folder / "config.json")


def _number(config: Mapping[str, Any], *names: str) -> int:
    for name in names:
        if config.get(name) is not None:
            return int(config[name])
    raise EncoderError(f"config.json has none of {', '.join(names)}.")


def n_blocks(config: Mapping[str, Any]) -> int:
    """Blocks that run one after another (ALBERT's shared block counts once for every run)."""
    return _number(config, "num_hidden_layers", "n_layer", "n_layers", "num_layers") * int(
        config.get("inner_group_num", 1)
    )


def width(config: Mapping[str, Any]) -> int:
    """Width of the views."""
    return _number(config, "hidden_size", "n_embd", "dim", "d_model")


def usable_window(config: Mapping[str, Any], tokenizer_limit: int | float = 0) -> int:
    """Pieces, special ones included, that the model can be given at once.

    The rows of its position table, less those that RoBERTa's line keeps for padding (case LONG-2); without a table the
    tokenizer's limit where it has a sane one, else 512.
    """
    for name in ("max_position_embeddings", "n_positions"):
        if config.get(name) is not None and int(config[name]) > 0:
            padding = config.get("pad_token_id")
            kept = (1 if padding is None else int(padding)) + 1 if config.get("model_type") in AFTER_PADDING else 0
            return int(config[name]) - kept
    return int(tokenizer_limit) if 0 < tokenizer_limit < 1e6 else 512


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=True).encode("ascii")).hexdigest()


def _file_hash(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _heard(value: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a config that can change an output."""
    silent = ("dropout", "dropout_prob", "_pdrop", "dropout_rate")
    return {k: v for k, v in value.items() if k not in UNHEARD and not k.endswith(silent) and v is not None}


def config_hash(config: Mapping[str, Any]) -> str:
    """SHA-256 of the config's keys that can change a vector."""
    return _digest(_heard(config))


def tokenizer_hash(folder: Path) -> str:
    """SHA-256 of all tokenizer files; padding and truncation, which a tokenizer saves with itself, do not count."""
    parts: dict[str, Any] = {}
    for name in TOKENIZER_FILES:
        path = folder / name
        if path.is_file():
            as_json = name in ("tokenizer.json", *SETTINGS_FILES)
            parts[name] = _digest(_heard(read_json(path))) if as_json else _file_hash(path)
    if not parts.keys() & set(VOCABULARY_FILES):
        raise EncoderError(
            f"{folder}: there is no vocabulary; the tokenizer needs one of {', '.join(VOCABULARY_FILES)}."
        )
    return _digest(parts)


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that hold the weights.

    Raises EncoderError where there is none, naming the pickle that lies there instead and what to do.
    """
    single, index = (folder / name for name in WEIGHT_FILES)
    if single.is_file():
        return [single]
    if index.is_file():
        shards = [folder / name for name in sorted(set(read_json(index).get("weight_map", {}).values()))]
        for shard in shards:
            if not shard.is_file():
                raise EncoderError(f"{shard}: no such file; {index.name} names it.")
        return shards
    pickles = sorted(path.name for path in folder.glob("pytorch_model*.bin"))
    if pickles:
        raise EncoderError(
            f"{folder}: weights only as {pickles[0]}, a pickle, which may run code when opened. Convert it once where"
            " you trust it: AutoModel.from_pretrained(folder).save_pretrained(new_folder) writes model.safetensors."
        )
    raise EncoderError(f"{single}: no such file; the folder holds no weights.")


def weights_hash(folder: Path) -> str:
    """SHA-256 of model.safetensors, or of the SHA-256s of all shards in order of name."""
    hashes = [_file_hash(path) for path in weight_files(folder)]
    return hashes[0] if len(hashes) == 1 else _digest(hashes)


def stamps(folder: Path) -> Stamps:
    """Name, size, time and inode of every file that a hash covers: equal stamps need no second hashing in a process."""
    names = sorted(
        path.name for path in folder.iterdir() if path.name in TOKENIZER_FILES or path.suffix == ".safetensors"
    )
    status = [(name, os.stat(folder / name)) for name in [*names, "config.json"] if (folder / name).exists()]
    return tuple((name, s.st_size, s.st_mtime_ns, s.st_ino) for name, s in status)
