"""Families beyond BERT through the whole command line, in smoke size: nothing but the seams is tried here.

    python experiments/families/families.py [FAMILY...]      (default: all; needs the extra "lora")

A tiny random encoder of each family is saved with a tokenizer trained on the spot, then: encode, train (Adapted, live
blocks on the mix, LoRA, fine-tuning), evaluate, predict. A word's tag can be read off the word, so training has
something to learn. Rows go to results.jsonl beside this file; a family's earlier rows are replaced.
"""

import argparse
import contextlib
import io
import json
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from encodeonce.cli.main import cli

HERE = Path(__file__).parent
METHODS = ("adapted", "live_mix", "lora", "finetune")
BLOCKS, WIDTH = 3, 32
SIZES = {
    "hidden_size": WIDTH,
    "num_hidden_layers": BLOCKS,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2Config", {"n_embd": WIDTH, "n_layer": BLOCKS, "n_head": 4, "n_positions": 64}),
    "roberta": ("RobertaConfig", {**SIZES, "pad_token_id": 1}),
    "modernbert": ("ModernBertConfig", {**SIZES, "local_attention": 8}),
    "t5": ("T5Config", {"d_model": WIDTH, "num_layers": BLOCKS, "num_heads": 4, "d_kv": 8, "d_ff": 48}),
    "deberta_v2": ("DebertaV2Config", {**SIZES, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}),
}
LEXICON = {
    "DET": ["the", "every", "no"],
    "NOUN": ["cats", "river", "bank", "mat", "naïveté"],
    "VERB": ["sees", "likes", "finding", "paints"],
    "PUNCT": [".", "!"],
}
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]


def sentences(n: int, seed: int) -> list[list[tuple[str, str]]]:
    """Words with their tags."""
    drawn, patterns = random.Random(seed), ["DET NOUN VERB DET NOUN PUNCT", "NOUN VERB PUNCT", "DET NOUN VERB PUNCT"]
    return [[(drawn.choice(LEXICON[tag]), tag) for tag in drawn.choice(patterns).split()] for _ in range(n)]


def treebank(folder: Path, n: int) -> None:
    """train.conll and test.conll, in two columns."""
    for split, seed in (("train", 1), ("test", 2)):
        blocks = ["".join(f"{word}\t{tag}\n" for word, tag in own) for own in sentences(n, seed)]
        (folder / f"{split}.conll").write_text("\n".join(blocks), encoding="utf-8")


def tokenizer_of(family: str) -> Any:
    """Byte-level BPE, or a unigram model where the family has that; with the marks that the family puts around."""
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    lines = [" ".join(word for word, _ in own) for own in sentences(50, 0)]
    bytewise = family in ("gpt2", "roberta", "modernbert")
    backend = Tokenizer(models.BPE() if bytewise else models.Unigram())
    if bytewise:
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer: Any = trainers.BpeTrainer(
            vocab_size=300, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
        )
    else:
        backend.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(vocab_size=60, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False)
    backend.train_from_iterator(lines, trainer)
    around = {"gpt2": "$A", "t5": "$A </s>"}.get(family, "<s> $A </s>")
    marks = [mark for mark in ("<s>", "</s>") if mark in around]
    if marks:
        ids = [(mark, backend.token_to_id(mark)) for mark in marks]
        backend.post_processor = processors.TemplateProcessing(single=around, special_tokens=ids)
    backend.add_special_tokens([AddedToken(mark, special=True) for mark in SPECIAL])
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", pad_token="<pad>")


def checkpoint(family: str, folder: Path) -> None:
    """A random encoder and its tokenizer, as `transformers` saves them."""
    import torch
    import transformers

    tokenizer = tokenizer_of(family)
    tokenizer.save_pretrained(folder)
    name, sizes = FAMILIES[family]
    config = getattr(transformers, name)(vocab_size=len(tokenizer), **{"pad_token_id": 1, **sizes})
    torch.manual_seed(7)
    make = transformers.T5EncoderModel if family == "t5" else transformers.AutoModel.from_config
    make(config).save_pretrained(folder)


def command(*arguments: object) -> str:
    """What a command prints."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        cli.main([str(argument) for argument in arguments], standalone_mode=False)
    return shown.getvalue()


def smoke(family: str, folder: Path, n: int = 60, epochs: int = 4) -> list[dict[str, Any]]:
    """All of it in `folder`; the rows of `evaluate`, one a method."""
    treebank(folder, n)
    checkpoint(family, folder / f"tiny-{family}")
    config = folder / "config.toml"
    config.write_text(
        f'encoder = "tiny-{family}"\ndtype = "fp32"\ntasks = ["tag"]\n[data]\ntrain = "train.conll"\n'
        f"[adapter]\npre_norm_layers = true\n[train]\nlearning_rate = 1e-2\nnum_train_epochs = {epochs}\n"
    )
    stored = json.loads(command("encode", config, "--json"))
    assert stored["written"] > 0, stored
    rows = []
    for method in METHODS:
        run = folder / method
        done = json.loads(command("train", config, "-o", run, "--json", "--set", f"method={method}"))
        assert done["encode"]["written"] == 0, done["encode"]
        (row,) = json.loads(command("evaluate", run, folder / "test.conll", "--json"))
        command("predict", run, folder / "test.conll", "-o", folder / f"{method}.conll")
        answers, asked = ((folder / f"{name}.conll").read_text("utf-8").split("\n") for name in (method, "test"))
        assert [line.split("\t")[0] for line in answers] == [line.split("\t")[0] for line in asked]
        again = f"python experiments/families/families.py {family}"
        rows.append({**row, "experiment": "families", "variant": "smoke", "command": again})
    return rows


def main() -> None:
    """Run the families that are named and keep their rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=", ".join(FAMILIES))
    chosen: Sequence[str] = parser.parse_args().families or list(FAMILIES)
    out = HERE / "results.jsonl"
    kept = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    for family in chosen:
        with tempfile.TemporaryDirectory() as scratch:
            rows = smoke(family, Path(scratch))
        kept = [row for row in kept if row["encoder"] != f"tiny-{family}"] + rows
        out.write_text("".join(json.dumps(row) + "\n" for row in kept))
        print(family, {row["method"]: round(row["value"], 1) for row in rows}, flush=True)


if __name__ == "__main__":
    main()
