"""A tiny random BERT with its tokenizer in a folder, and a tiny treebank that a tagger can learn."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from encodeonce.cli.main import cli
from encodeonce.types import Document

LEXICON = {
    "DET": ["the", "a", "every"],
    "NOUN": ["cat", "dog", "tree", "house", "bird"],
    "VERB": ["sees", "likes", "finds", "paints"],
    "ADV": ["often", "never"],
    "PUNCT": ["."],
}
PATTERNS = [
    ("DET", "NOUN", "VERB", "DET", "NOUN", "PUNCT"),
    ("DET", "NOUN", "ADV", "VERB", "DET", "NOUN", "PUNCT"),
    ("NOUN", "VERB", "PUNCT"),
]
RELATIONS = {"DET": "det", "NOUN": "obj", "VERB": "root", "ADV": "advmod", "PUNCT": "punct"}

Run = Callable[..., Result]


def sentence(rng: random.Random, number: int) -> str:
    rows = []
    for i, tag in enumerate(rng.choice(PATTERNS), start=1):
        word = rng.choice(LEXICON[tag])
        rows.append(f"{i}\t{word}\t{word}\t{tag}\t{tag[0]}\t_\t{0 if tag == 'VERB' else 2}\t{RELATIONS[tag]}\t_\t_")
    return f"# sent_id = s{number}\n" + "\n".join(rows) + "\n\n"


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.conllu (60 sentences), dev.conllu (12) and test.conllu (12)."""
    folder, rng = tmp_path_factory.mktemp("corpus"), random.Random(1)
    for split, size in (("train", 60), ("dev", 12), ("test", 12)):
        text = "".join(sentence(rng, number) for number in range(size))
        (folder / f"{split}.conllu").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of 2 blocks, width 16, with random weights, and a WordPiece vocabulary of the treebank's words."""
    return _bert(tmp_path_factory.mktemp("tiny-bert"), "BertModel")


@pytest.fixture(scope="session")
def tiny_masked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with a masked-language-model head, and a tokenizer that names its mask piece."""
    return _bert(tmp_path_factory.mktemp("tiny-masked"), "BertForMaskedLM", mask_token="[MASK]")


def _bert(folder: Path, kind: str, **pieces: str) -> Path:
    import torch
    import transformers

    words = [word for group in LEXICON.values() for word in group]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, *"abcdefghijklmnopqrstuvwxyz"]
    torch.manual_seed(7)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
    )
    getattr(transformers, kind)(config).save_pretrained(folder)
    _tokenizer(vocabulary).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "model_max_length": 32, **pieces})
    )
    return folder


def _tokenizer(vocabulary: list[str]) -> object:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    ids = {piece: number for number, piece in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])]
    )
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    return tokenizer


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Call the command line in this process, from an empty folder; a wanted exit code other than 0 is given."""
    monkeypatch.chdir(tmp_path)

    def call(*args: object, code: int = 0) -> Result:
        result = CliRunner().invoke(cli, [str(arg) for arg in args])
        assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
        return result

    return call


@pytest.fixture
def config(tiny: Path, corpus: Path, tmp_path: Path) -> Path:
    """A config for two tasks with a store of its own."""
    path = tmp_path / "config.toml"
    files = "".join(f'{split} = "{corpus / split}.conllu"\n' for split in ("train", "dev", "test"))
    path.write_text(
        f'encoder = "{tiny}"\nstore = "states"\ntasks = ["upos", "deprel"]\nmethod = "linear"\n'
        f"[data]\n{files}[train]\nnum_train_epochs = 3\nper_device_train_batch_size = 8\nlearning_rate = 0.02\n",
        encoding="utf-8",
    )
    return path


@pytest.fixture(scope="session")
def uneven() -> list[Document]:
    """120 sentences of 1 to 60 words, most of them short; a word's tag is the word."""
    rng = random.Random(3)
    words = [word for group in LEXICON.values() for word in group]
    lengths = [min(60, 1 + int(rng.expovariate(1 / 8))) for _ in range(120)]
    sentences = [tuple(rng.choice(words) for _ in range(n)) for n in lengths]
    return [Document(str(i), own, columns={"tag": own}) for i, own in enumerate(sentences)]
