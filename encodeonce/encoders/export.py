"""A trained encoder as an ordinary folder: the base's own files with the trained weights put in (spec A11).

Whatever the base has beside its blocks (masked-language head, pooler, tokenizer, pooling modules) stays as it is, so
every tool that reads the base reads the export.
"""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..errors import EncoderError
from ..resolve import resolve
from . import checkpoint
from .live import LiveBlocks
from .loading import quiet
from .masked_lm import MaskedLM

__all__ = ["Export", "export"]

WEIGHTS = (
    *(".safetensors", ".bin", ".h5", ".msgpack", ".pt", ".pth", ".ckpt", ".ot", ".gguf", ".tflite"),
    *(".onnx", ".onnx_data", ".index.json"),
)
"""How weights are called in any form that a checkpoint may also have."""

TOLERANCE = 1e-5


@dataclass(frozen=True)
class Export:
    """What was written: tensors in all, `changed` of them, whether piece vectors are those of the base bit for bit, and
    whether a trained masked-language head was written (None: none was given; False: the base has no place for it)."""

    folder: str
    tensors: int
    changed: int
    piece_vectors_equal: bool
    head: bool | None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def export(
    blocks: LiveBlocks,
    base: Path,
    target: Path,
    head: MaskedLM | None = None,
    *,
    trained: bool = True,
    check: bool = True,
) -> Export:
    """Write `target`: `base` with the weights of `blocks` (all of them, embeddings included) and of `head`, in fp32.

    Low-rank terms are added to the weights they stand beside. A head that the base does not have is left out. `check`
    reads the folder back: the same names as the base, nothing missing or unexpected that was not so before, piece
    vectors bit-equal unless they were trained, equal outputs for ids and for their vectors, and, where it was
    `trained`, a changed block. Raises EncoderError where a weight has no place in the base or a check fails.
    """
    if target.resolve() == base.resolve():
        raise EncoderError(f"{target}: this is the base itself; export into another folder.")
    old = _tensors(base)
    new = _weights(blocks)
    prefix = f"{blocks.stack.model.base_model_prefix}."
    placed = {_name(names, prefix, old, base): new[names[0]] for names in _shared(blocks, new)}
    config = checkpoint.read_config(base)
    placed |= _head(head, blocks, config, base, old, placed)
    final = {name: placed.get(name, tensor) for name, tensor in old.items()}
    final = {n: t.detach().cpu().float().contiguous() if t.is_floating_point() else t for n, t in final.items()}
    changed = sum(not torch.equal(final[name], old[name].to(final[name].dtype)) for name in old)
    entrance = _entrance(blocks, placed)
    equal = torch.equal(final[entrance], old[entrance].float())
    _write(base, target, {name: tensor.clone() for name, tensor in final.items()})
    if check:
        _check(base, target, changed, trained, equal or _trains_pieces(blocks))
    has_head = head is not None and any(name in placed for name in _head_names(head, config, base))
    return Export(str(target), len(final), changed, equal, has_head if head is not None else None)


def _tensors(folder: Path) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for path in checkpoint.weight_files(folder):
        with safe_open(path, framework="pt") as file:
            found |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    return found


def _weights(blocks: LiveBlocks) -> dict[str, Tensor]:
    """The model's own names -> weights, low-rank terms merged in."""
    if blocks.lora is not None:
        blocks.merge_lora()
    state = {
        name.replace(".base_layer.", "."): tensor.detach().clone()
        for name, tensor in blocks.stack.model.state_dict().items()
        if tensor.numel() and ".lora_" not in name and tensor.is_floating_point()
    }
    if blocks.lora is not None:
        blocks.unmerge_lora()
    return state


def _shared(blocks: LiveBlocks, names: Mapping[str, Tensor]) -> list[list[str]]:
    """The names of each weight: one that modules share has several (T5's piece vectors), and files keep one of them."""
    found: dict[Any, list[str]] = {}
    own = dict(blocks.stack.model.named_parameters(remove_duplicate=False))
    for name in names:
        found.setdefault(id(own[name]) if name in own else name, []).append(name)
    return list(found.values())


def _name(names: Sequence[str], prefix: str, old: Mapping[str, Tensor], base: Path) -> str:
    """What the base's files call a weight: as the model, with its prefix, or with the norms' former names."""
    for name in names:
        former = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        for known in (name, prefix + name, former, prefix + former):
            if known in old:
                return known
    tried = f"{names[0]!r} (nor {prefix + names[0]!r})"
    raise EncoderError(f"{base}: its files hold no {tried}, so the weight has no place there.")


def _entrance(blocks: LiveBlocks, placed: Mapping[str, Tensor]) -> str:
    """The base's name of the piece vectors."""
    wanted = blocks.stack.model.get_input_embeddings().weight
    own = tuple(n for n, p in blocks.stack.model.named_parameters(remove_duplicate=False) if p is wanted)
    return next(name for name in placed if name.endswith(own))


def _trains_pieces(blocks: LiveBlocks) -> bool:
    return bool(blocks.stack.model.get_input_embeddings().weight.requires_grad)


def _head_names(head: MaskedLM, config: Mapping[str, Any], base: Path) -> dict[str, Tensor]:
    """The base's names of a head's weights."""
    paths = resolve("encoders", checkpoint.family_file(dict(config), str(base))).masked_paths(config)
    if paths is None:
        return {}
    parts = ((paths.dense, head.dense), (paths.norm, head.norm))
    found = {f"{path}.{n}": t for path, part in parts for n, t in part.state_dict().items()}
    if head.bias is not None:
        found[paths.bias] = head.bias
        if paths.tied_bias and config.get("tie_word_embeddings", True):
            found[paths.tied_bias] = head.bias
    if head.weight is not None and not head.tied:
        found[paths.weight] = head.weight
    return found


def _head(
    head: MaskedLM | None,
    blocks: LiveBlocks,
    config: Mapping[str, Any],
    base: Path,
    old: Mapping[str, Tensor],
    placed: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """A trained head under the base's names; its tied vectors too, where the files keep them twice."""
    family = resolve("encoders", checkpoint.family_file(dict(config), str(base)))
    paths = family.masked_paths(config)
    found = {} if head is None else {n: t for n, t in _head_names(head, config, base).items() if n in old}
    if paths is not None and paths.weight in old and config.get("tie_word_embeddings", True):
        found[paths.weight] = placed[_entrance(blocks, placed)]
    return found


def _write(base: Path, target: Path, tensors: dict[str, Tensor]) -> None:
    """The base's other files, then the weights under a temporary name: a folder with weights is whole."""
    target.mkdir(parents=True, exist_ok=True)
    for path in base.iterdir():
        if path.is_file() and not path.name.endswith(WEIGHTS):
            shutil.copyfile(path, target / path.name)
    if (base / "modules.json").is_file():
        for module in json.loads((base / "modules.json").read_text(encoding="utf-8")):
            if module.get("path") and (base / module["path"]).is_dir():
                shutil.copytree(base / module["path"], target / module["path"], dirs_exist_ok=True)
    config = json.loads((base / "config.json").read_text(encoding="utf-8"))
    for key in ("dtype", "torch_dtype"):
        if key in config:
            config[key] = "float32"
    (target / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    unfinished = target / "model.safetensors.tmp"
    save_file(tensors, unfinished, metadata={"format": "pt"})
    os.replace(unfinished, target / "model.safetensors")


def _check(base: Path, target: Path, changed: int, trained: bool, pieces_as_due: bool) -> None:
    """The self-check of spec A11."""
    if not pieces_as_due:
        raise EncoderError(f"{target}: piece vectors differ from those of {base} although none was trained.")
    if trained and not changed:
        raise EncoderError(f"{target}: no weight differs from {base}: nothing was trained.")
    before, after = _loaded(base), _loaded(target)
    if before != after:
        raise EncoderError(f"{target}: loads otherwise than {base}: missing and unexpected {after}, there {before}.")
    stack = resolve("encoders", checkpoint.family_file(checkpoint.read_config(target), str(target))).load(target)
    padding = stack.model.config.pad_token_id
    ids = torch.tensor([[i for i in range(5, 18) if i != padding]])
    with torch.no_grad():
        by_ids = stack.model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
        by_vectors = stack.run(stack.place(stack.lookup(ids)), None)[-1]
    apart = float((by_ids - by_vectors).abs().max())
    if not apart <= TOLERANCE * max(1.0, float(by_ids.abs().max())):
        raise EncoderError(f"{target}: outputs for ids and for their piece vectors differ by {apart:.2e}.")


def _loaded(folder: Path) -> tuple[list[str], list[str]]:
    """Missing and unexpected names where `transformers` loads the folder as the class its config names."""
    import transformers

    name = (checkpoint.read_config(folder).get("architectures") or ["AutoModel"])[0]
    with quiet():
        _, report = getattr(transformers, name, transformers.AutoModel).from_pretrained(
            str(folder), local_files_only=True, use_safetensors=True, dtype=torch.float32, output_loading_info=True
        )
    return sorted(report["missing_keys"]), sorted(report["unexpected_keys"])
