"""An encoder's cost by formula against what torch counts, family by family.

Axes: B items   T pieces
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from encodeonce.costs import encoder_products, forward_macs, step_macs
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.encoders.shape import shape_of
from encodeonce.resolve import resolve

ITEMS, LENGTH = 2, 7
FAMILIES = ("bert", "distilbert", "electra", "mpnet", "modernbert", "gpt2", "t5")


def counted(model: Pretrained, live: int | None) -> int:
    """MACs by torch's counter, attention written out, of the top `live` blocks' training step or of one pass (None)."""
    stack = resolve("encoders", model.family).load(model.path)
    stack.model.config._attn_implementation = "eager"
    ids = torch.randint(5, 20, (ITEMS, LENGTH))
    blocks = stack.n_blocks if live is None else live
    with torch.no_grad():
        first = stack.place(stack.lookup(ids))
        stored = [first, *stack.run(first, None)][stack.n_blocks - blocks]
    for module in [] if live is None else [stack.model] if live == stack.n_blocks else stack.blocks[-live:]:
        module.requires_grad_(True)
    with FlopCounterMode(display=False) as counter:
        states = stack.place(stack.lookup(ids)) if blocks == stack.n_blocks else stored
        top = stack.run(states, None, stack.n_blocks - blocks)[-1]
        if live is not None:
            top.square().sum().backward()
    return int(counter.get_total_flops()) // 2


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("live", [None, 1, "all"])
def test_an_encoders_macs_are_what_torch_counts(
    checkpoint: Callable[..., Path], family: str, live: int | str | None
) -> None:
    model = Pretrained(checkpoint(family))
    shape = model.shape
    chosen = shape.n_blocks if live == "all" else live
    assert chosen is None or isinstance(chosen, int)
    products = encoder_products(shape, ITEMS * LENGTH, ITEMS * LENGTH**2, chosen)
    expected = forward_macs(products) if chosen is None else step_macs(products)
    assert counted(model, chosen) == expected


def test_blocks_that_share_their_weights_cost_as_much(checkpoint: Callable[..., Path]) -> None:
    model = Pretrained(checkpoint("albert"))
    shape = model.shape
    products = encoder_products(shape, ITEMS * LENGTH, ITEMS * LENGTH**2)
    assert shape.embedding == 16
    assert counted(model, None) == forward_macs(products)


def test_what_is_left_out_of_deberta_is_its_positions_own_projection(checkpoint: Callable[..., Path]) -> None:
    model = Pretrained(checkpoint("deberta_v2"))
    shape = model.shape
    products = encoder_products(shape, ITEMS * LENGTH, ITEMS * LENGTH**2)
    assert shape.relative == 2 * 2 * 8
    left_out = shape.n_blocks * shape.relative * shape.width * shape.attention
    assert counted(model, None) == forward_macs(products) + left_out


def test_a_published_config_gives_its_known_shape() -> None:
    t5 = {"model_type": "t5", "d_model": 1024, "num_layers": 24, "d_kv": 64, "num_heads": 16, "d_ff": 2816}
    assert shape_of({**t5, "feed_forward_proj": "gated-gelu"}).linear == 12.25 * 1024**2
    gpt2 = shape_of({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_inner": None})
    assert (gpt2.feed, gpt2.linear, gpt2.quadratic) == (3072, 12 * 768**2, 2 * 768)
