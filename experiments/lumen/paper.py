"""The paper's configurations from Base to XXL, checked without weights: `python experiments/lumen/paper.py`.

Each size of t5.toml becomes a config, a model of shapes alone, a plan for each share of live blocks, and what it costs:
multiply-accumulates a question, to encode a passage once, and bytes of a passage in the memory.
"""

import json
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any

try:
    import tomllib
except ModuleNotFoundError:
    import tomli as tomllib

import torch

from encodeonce import costs
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.methods.lumen import Design
from encodeonce.train.settings import Settings

HERE = Path(__file__).parent


def parameters(sizes: dict[str, Any]) -> int:
    """Of the whole model, from shapes alone; a head of its own is counted."""
    from transformers import T5Config, T5ForConditionalGeneration

    with torch.device("meta"):
        model = T5ForConditionalGeneration(T5Config(**sizes))
    head = sizes["vocab_size"] * sizes["d_model"]
    return sum(p.numel() for p in model.parameters()) + head * (model.lm_head.weight is model.shared.weight)


def checked(name: str, own: dict[str, Any], reading: dict[str, Any]) -> list[str]:
    alphas = [float(Fraction(str(alpha))) for alpha in own.pop("alphas")]
    own.pop("checkpoint")
    sizes = {**own, "vocab_size": 32128, "feed_forward_proj": "gated-gelu", "model_type": "t5"}
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(sizes))
        encoder = Pretrained(folder)
        count = parameters({key: value for key, value in sizes.items() if key != "model_type"})
        for alpha in alphas:
            design = Design(
                alpha=alpha,
                reader="generate",
                question_pieces=reading["question_pieces"],
                longest_answer=reading["answer_pieces"],
                z_loss=reading["z_loss"],
            )
            plan = design.plan(encoder)
            live, width = len(plan.blocks), encoder.width
            n_source = reading["passages"] * (reading["question_pieces"] + reading["passage_pieces"])
            macs = costs.lumen_macs(n_source, reading["answer_pieces"], width, live, own["num_decoder_layers"])
            once = costs.precompute_macs(1, reading["passage_pieces"], width, plan.cut)
            held = costs.state_bytes(reading["passage_pieces"], 1, width, "bf16") if plan.cut else 0
            cells = [name, f"{count / 1e9:.2f}", f"{plan.cut} + {live}", f"{macs / 1e12:.3f}", f"{once / 1e9:.1f}"]
            lines.append(f"| {' | '.join(cells)} | {held:,} |")
    return lines


def main() -> None:
    whole = tomllib.loads((HERE / "t5.toml").read_text())
    Settings(**whole["recipe"])
    print("| size | 10^9 parameters | stored + live | 10^12 MACs a question | 10^9 MACs a passage, once | bytes |")
    print("| --- " * 6 + "|")
    for name, own in whole["sizes"].items():
        print("\n".join(checked(name, own, whole["reading"])))


if __name__ == "__main__":
    main()
