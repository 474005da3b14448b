"""Tiny random models of every family with a tokenizer that fits, made in the process and saved as real checkpoints."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tokenizers
import torch
from tokenizers import AddedToken, models, normalizers, pre_tokenizers, processors, trainers

WORDPIECES = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "the",
    "cat",
    "sat",
    "on",
    "mat",
    "river",
    "bank",
    "##ing",
    "##s",
    "a",
    "b",
    "c",
    ".",
    ",",
    "run",
    "##ning",
    "naive",
    "caf",
    "##e",
    "cafe",
    "rent",
    "co",
    "##op",
    "x",
    "y",
    "z",
    "and",
    "by",
    "op",
    "in",
    "of",
    "to",
    "is",
]
LINES = ["the cat sat on the mat", "running by the river bank , a naive cafe .", "rents and co op x y z"] * 20
SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertConfig", SIZES),
    "roberta": ("RobertaConfig", {**SIZES, "pad_token_id": 1}),
    "xlm_roberta": ("XLMRobertaConfig", {**SIZES, "pad_token_id": 1}),
    "electra": ("ElectraConfig", {**SIZES, "embedding_size": 16}),
    "distilbert": (
        "DistilBertConfig",
        {"dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 40},
    ),
    "albert": ("AlbertConfig", {**SIZES, "embedding_size": 16, "num_hidden_layers": 4, "num_hidden_groups": 2}),
    "mpnet": ("MPNetConfig", {**SIZES, "pad_token_id": 1}),
    "deberta_v2": (
        "DebertaV2Config",
        {
            **SIZES,
            "relative_attention": True,
            "position_buckets": 8,
            "pos_att_type": ["p2c", "c2p"],
            "share_att_key": True,
            "norm_rel_ebd": "layer_norm",
            "position_biased_input": False,
            "type_vocab_size": 0,
        },
    ),
    "modernbert": ("ModernBertConfig", {**SIZES, "local_attention": 4, "num_hidden_layers": 4}),
    "gpt2": ("GPT2Config", {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 40}),
    "t5": (
        "T5Config",
        {"d_model": 32, "num_layers": 3, "num_heads": 4, "d_kv": 8, "d_ff": 48, "feed_forward_proj": "gated-gelu"},
    ),
}
"""Family file -> its config class and sizes."""

ALIKE = {"bert": "wordpiece", "electra": "wordpiece", "distilbert": "wordpiece", "mpnet": "wordpiece"}
ALIKE |= {"roberta": "bytes", "modernbert": "bytes", "gpt2": "bare bytes"}
ALIKE |= {"xlm_roberta": "unigram", "albert": "unigram", "deberta_v2": "unigram", "t5": "unigram end"}


SEGMENTED, DOUBLED = ("bert", "electra", "albert", "deberta_v2"), ("roberta", "xlm_roberta")
"""Families whose tokenizers number the two texts of a pair; families with two separators between them."""


def wordpiece(words: list[str] = WORDPIECES, lowercase: bool = True) -> Any:
    """BERT's tokenizer over a handful of pieces."""
    backend = tokenizers.Tokenizer(models.WordPiece({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return _wrapped(backend, "[CLS]", "[SEP]", "[PAD]", "[UNK]")


def slow(pairs: bool = False) -> Any:
    """A Python tokenizer with the same pieces as `wordpiece()` for the words of these tests, and no word_ids; with
    `pairs` it has a form for two texts."""
    from transformers import PythonBackend

    fast, vocabulary = wordpiece(), {piece: i for i, piece in enumerate(WORDPIECES)}

    class Slow(PythonBackend):
        def __init__(self, **settings: Any) -> None:
            super().__init__(unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]", **settings)

        @property
        def vocab_size(self) -> int:
            return len(vocabulary)

        def get_vocab(self) -> dict[str, int]:
            return dict(vocabulary)

        def _tokenize(self, text: str, **_: Any) -> list[str]:
            return fast.tokenize(text)

        def _convert_token_to_id(self, token: str) -> int:
            return vocabulary.get(token, 1)

        def _convert_id_to_token(self, index: int) -> str:
            return WORDPIECES[index]

        def build_inputs_with_special_tokens(
            self, token_ids_0: list[int], token_ids_1: list[int] | None = None
        ) -> list[int]:
            return [2, *token_ids_0, 3, *((*token_ids_1, 3) if token_ids_1 and pairs else ())]

        def create_token_type_ids_from_sequences(
            self, token_ids_0: list[int], token_ids_1: list[int] | None = None
        ) -> list[int]:
            return [0] * (len(token_ids_0) + 2) + [1] * (len(token_ids_1 or []) + 1)

    return Slow()


def byte_level(special: bool = True, add_prefix_space: bool = False) -> Any:
    """Byte-level BPE, trained on a few lines; built without the word-start space, as ModernBERT's is."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    names = ["<s>", "<pad>", "</s>", "<unk>"]
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=names, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    backend.train_from_iterator(LINES, trainer)
    return _wrapped(backend, "<s>" if special else None, "</s>" if special else None, "<pad>", "<unk>")


def unigram(begin: bool = True) -> Any:
    """A sentence-piece style unigram model with the word mark."""
    backend = tokenizers.Tokenizer(models.Unigram())
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    names = ["<s>", "<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=70, special_tokens=names, unk_token="<unk>", show_progress=False)
    backend.train_from_iterator(LINES, trainer)
    return _wrapped(backend, "<s>" if begin else None, "</s>", "<pad>", "<unk>")


def _wrapped(backend: Any, first: str | None, last: str | None, padding: str, unknown: str) -> Any:
    from transformers import PreTrainedTokenizerFast

    marks = [mark for mark in (first, last) if mark]
    if marks:
        template = [mark for mark in (first, "$A", last) if mark]
        pair = [*template, "$B:1", *(f"{mark}:1" for mark in (last,) if mark)]
        backend.post_processor = processors.TemplateProcessing(
            single=" ".join(template),
            pair=" ".join(pair),
            special_tokens=[(mark, backend.token_to_id(mark)) for mark in marks],
        )
    backend.add_special_tokens([AddedToken(m, special=True) for m in {*marks, padding, unknown}])
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token=unknown, pad_token=padding)


TOKENIZERS: dict[str, Callable[[], Any]] = {
    "wordpiece": wordpiece,
    "bytes": byte_level,
    "bare bytes": lambda: byte_level(special=False),
    "unigram": unigram,
    "unigram end": lambda: unigram(begin=False),
}


def as_family(tokenizer: Any, family: str) -> Any:
    """The tokenizer with the family's own form of a pair: RoBERTa's two separators, BERT's segments."""
    if family in SEGMENTED:
        names = ["input_ids", "token_type_ids", "attention_mask"]
        tokenizer.model_input_names = tokenizer.init_kwargs["model_input_names"] = names
    if family in DOUBLED:
        backend = tokenizer.backend_tokenizer
        backend.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>",
            pair="<s> $A </s> </s> $B </s>",
            special_tokens=[(mark, backend.token_to_id(mark)) for mark in ("<s>", "</s>")],
        )
    return tokenizer


def tiny_model(family: str, vocab_size: int, masked: bool = False, **settings: Any) -> Any:
    """A random model whose every parameter matters: norms are not 1, biases are not 0. `masked`: with its head."""
    import transformers

    name, sizes = CONFIGS[family]
    config = getattr(transformers, name)(vocab_size=vocab_size, **{"pad_token_id": 0, **sizes, **settings})
    with torch.random.fork_rng():
        torch.manual_seed(7)
        auto = transformers.AutoModelForMaskedLM if masked else transformers.AutoModel
        model = (transformers.T5EncoderModel if family == "t5" else auto.from_config)(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.2)
    return model.eval()


def close(found: Any, expected: Any, within: float = 1e-5) -> None:
    """Hold views against views. `within` is for normed views, which reach 4 or so; rounding errors grow with the
    numbers, T5's residual stream reaches 20, and which bits differ depends on the processor."""
    found, expected = torch.as_tensor(found).detach(), torch.as_tensor(expected).detach()
    widest = max(1.0, float(expected.abs().max()) / 4)
    torch.testing.assert_close(found, expected, atol=within * widest, rtol=0)


@pytest.fixture(scope="session")
def tiny() -> SimpleNamespace:
    """The functions of this file, for tests that need a tokenizer or a model without a folder."""
    return SimpleNamespace(
        words=WORDPIECES, wordpiece=wordpiece, slow=slow, byte_level=byte_level, unigram=unigram, model=tiny_model
    )


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`checkpoint(family, **settings)`: the folder of a tiny saved model with its tokenizer, made once."""
    made: dict[str, Path] = {}

    def build(family: str, **settings: Any) -> Path:
        key = family + repr(sorted(settings.items()))
        if key not in made:
            folder = tmp_path_factory.mktemp(family)
            tokenizer = as_family(TOKENIZERS[ALIKE[family]](), family)
            tokenizer.save_pretrained(folder)
            tiny_model(family, len(tokenizer), **settings).save_pretrained(folder)
            made[key] = folder
        return made[key]

    return build
