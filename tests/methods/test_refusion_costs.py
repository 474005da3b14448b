"""What a pass with fusion and one over concatenated texts cost, counted by torch and by formula.   Axes: none"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fusion_world import WIDTH, K, World
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from encodeonce import costs
from encodeonce.batching import Batch
from encodeonce.methods.finetune import Finetune
from encodeonce.methods.refusion import Fusing
from encodeonce.types import Document


def attention(query: Any, key: Any, value: Any, *rest: Any, out_shape: Any = None, **more: Any) -> int:
    """FLOPs by shapes."""
    return sdpa_flop_count(query, key, value)


ATTENTION = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: attention}
"""What torch's counter does not know by itself."""
TEXTS = ("the cat sat on mat", "on mat the river cat", "cat on the sat mat")
"""Of one length, so that nothing is padded."""
N, PIECES = len(TEXTS), 7


@pytest.fixture(scope="module")
def world(checkpoint: Callable[..., Path]) -> World:
    own = [Document(f"e{i}", text=text, meta={"label": "ab"[i % 2]}) for i, text in enumerate(TEXTS)]
    world = World(checkpoint("bert"), own)
    assert [len(pieces) for pieces in world.model.cut(own)] == [PIECES] * N
    return world


def counted(method: Finetune, batch: Batch) -> int:
    """Of the blocks, without the head."""
    (part,) = method.eval().parts
    with FlopCounterMode(display=False, custom_mapping=ATTENTION) as counter, torch.no_grad():
        part.adapter(batch.packed)  # type: ignore[operator, union-attr]
    return counter.get_total_flops()


@pytest.mark.parametrize(
    ("fusing", "by_rank", "by_feature"),
    [
        (Fusing(k=K, schemes=["add"]), True, False),
        (Fusing(k=K, schemes=["reranker"]), True, False),
        (Fusing(k=K, schemes=["mask"]), False, True),
        (Fusing(k=K, ending="soft"), True, True),
        (Fusing(k=K, slots=["value"], schemes=["mask"], project="linear"), False, True),
    ],
)
def test_a_pass_with_fusion_is_the_plain_one_and_its_products(
    fusing: Fusing, by_rank: bool, by_feature: bool, world: World
) -> None:
    plain = costs.encoder_products(world.model.shape, N * PIECES, N * PIECES**2)
    assert counted(world.plain(), world.batch(world.plain(), n=N)) == costs.flops(costs.forward_macs(plain))
    method = world.made(fusing)
    size, projected = len(method.fusion.sites), WIDTH if fusing.project == "linear" else 0
    added = costs.fusion_products(N, size, K, WIDTH, by_rank=by_rank, by_feature=by_feature, projected=projected)
    batch = world.batch(method, world.near(), n=N)
    assert counted(method, batch) == costs.flops(costs.forward_macs([*plain, *added]))


def test_texts_laid_before_are_pieces_of_a_longer_text(checkpoint: Callable[..., Path]) -> None:
    before = 4 * PIECES
    text = " ".join([*["the"] * before, TEXTS[0]])
    world = World(
        checkpoint("bert"),
        [Document("l", text=text, meta={"label": "a"}), Document("m", text="the", meta={"label": "b"})],
    )
    plain, pieces = world.plain(), before + PIECES
    products = costs.encoder_products(world.model.shape, pieces, pieces**2)
    assert counted(plain, world.batch(plain, n=1)) == costs.flops(costs.forward_macs(products))


def test_exact_search_is_a_product_of_queries_and_rows() -> None:
    with FlopCounterMode(display=False) as counter:
        torch.randn(3, 8) @ torch.randn(50, 8).T
    assert counter.get_total_flops() == costs.flops(costs.search_macs(3, 50, 8))
