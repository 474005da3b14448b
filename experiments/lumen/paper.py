"""The paper's models from Base to XXL, checked without weights: `python experiments/lumen/paper.py`.

For every size and share of live blocks, t5.toml goes through `memory train --dry-run` with a checkpoint that has
nothing but its shape. Printed is what each comes to: multiply-accumulates a question, those to encode a passage once,
and bytes of a passage in the memory.
"""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch

from encodeonce import costs
from encodeonce.cli.config import load
from encodeonce.cli.reader_config import ReaderConfig
from encodeonce.cli.reader_training import ReaderPlan, plan_reader
from encodeonce.corpus.questions import write_questions
from encodeonce.types import Answer, Passage, Question

CONFIG = Path(__file__).with_name("t5.toml")
PASSAGES, PASSAGE_PIECES, VOCABULARY = 20, 208, 32128
SHARES = {12: (0, 2, 4, 6, 8, 12), 24: (0, 3, 8, 12, 16, 24), 36: (12,)}
"""Live blocks by the encoder's blocks; the paper's shares are 1/8 (of 12 blocks: 2), 1/3, 1/2 and 2/3."""


def shape(width: int, blocks: int, decoder: int, heads: int, feed: int) -> dict[str, int]:
    return {
        "d_model": width,
        "num_layers": blocks,
        "num_decoder_layers": decoder,
        "num_heads": heads,
        "d_kv": 64,
        "d_ff": feed,
        "vocab_size": VOCABULARY,
    }


SIZES = {
    "base": shape(768, 12, 12, 12, 2048),
    "large": shape(1024, 24, 24, 16, 2816),
    "xl": shape(2048, 24, 24, 32, 5120),
    "xxl": shape(4096, 24, 24, 64, 10240),
    "base 24-12": shape(768, 36, 12, 12, 2048),
}
"""Of the public T5 v1.1 checkpoints; the last is the paper's deep, narrow memory (section 4.4), which has none."""


def parameters(sizes: Mapping[str, int]) -> int:
    """Of the whole model, from shapes alone; a head of its own is counted."""
    from transformers import T5Config, T5ForConditionalGeneration

    with torch.device("meta"):
        model = T5ForConditionalGeneration(T5Config(feed_forward_proj="gated-gelu", **sizes))
    head = sizes["vocab_size"] * sizes["d_model"]
    return sum(p.numel() for p in model.parameters()) + head * (model.lm_head.weight is model.shared.weight)


def checked(sizes: Mapping[str, int], live: int, folder: Path) -> ReaderPlan:
    """What `memory train --dry-run` says of this size and share, for two questions of 20 passages each."""
    (folder / "t5").mkdir(exist_ok=True)
    config = {**sizes, "model_type": "t5", "feed_forward_proj": "gated-gelu"}
    (folder / "t5" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    passages = [Passage(f"p{i}", f"title {i}", f"text {i}") for i in range(2 * PASSAGES)]
    questions = [
        Question(f"q{i}", f"question {i}", (Answer("text"),), tuple(passages[i * PASSAGES : (i + 1) * PASSAGES]))
        for i in range(2)
    ]
    write_questions(folder / "questions.json", questions, format="fid")
    changes = [f"data.{split}={folder / 'questions.json'}" for split in ("train", "dev", "test")]
    changes += [f"encoder={folder / 't5'}", f"design.live={live}", f"store={folder / 'memory'}"]
    return plan_reader(load(CONFIG, changes, model=ReaderConfig))


def main() -> None:
    design = load(CONFIG, model=ReaderConfig).design
    assert design.question_pieces is not None
    assert design.longest_answer is not None
    n_source = PASSAGES * (design.question_pieces + PASSAGE_PIECES)
    print("| size | 10^9 parameters | stored + live | 10^12 MACs a question | 10^9 MACs a passage, once | bytes |")
    print("| --- " * 6 + "|")
    for name, sizes in SIZES.items():
        count, width = parameters(sizes), sizes["d_model"]
        for live in SHARES[sizes["num_layers"]]:
            with tempfile.TemporaryDirectory() as folder:
                plan = checked(sizes, live, Path(folder))
            macs = costs.lumen_macs(n_source, design.longest_answer, width, live, sizes["num_decoder_layers"])
            once = costs.precompute_macs(1, PASSAGE_PIECES, width, plan.cut)
            held = costs.state_bytes(PASSAGE_PIECES, 1, width, "bf16") if plan.cut else 0
            cells = [name, f"{count / 1e9:.2f}", f"{plan.cut} + {live}", f"{macs / 1e12:.3f}", f"{once / 1e9:.1f}"]
            print(f"| {' | '.join(cells)} | {held:,} |")


if __name__ == "__main__":
    main()
