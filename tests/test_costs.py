"""Costs as formulas against the integers of the spec, a counter of floating point operations, and the store's files.

Axes: B items   T pieces of an item   L views   D width   W words
"""

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from encodeonce import costs
from encodeonce.adapters import Adapter
from encodeonce.adapters.adapted import Adapted
from encodeonce.adapters.aggregation import Aggregation
from encodeonce.adapters.fusion import Fusion
from encodeonce.adapters.last import Last
from encodeonce.adapters.linear import Linear
from encodeonce.costs import Amount, Product, Shape
from encodeonce.errors import ConfigError
from encodeonce.heads.tagger import Tagger
from encodeonce.nn.packed import Packed
from encodeonce.types import Spec

SOURCE, TARGET, PASSAGE = 20 * 256, 32, 208
BASE, LARGE, XL, XXL = (12, 768), (24, 1024), (24, 2048), (24, 4096)


# B6, the memory reader


@pytest.mark.parametrize(
    ("size", "fid", "memory", "third", "small", "live"),
    [
        (BASE, 510_513_905_664, 75_648_466_944, 220_603_613_184, 148_126_040_064, 2),
        (LARGE, 1_815_160_553_472, 268_972_326_912, 784_368_402_432, 462_245_855_232, 3),
        (XL, 7_260_642_213_888, 1_075_889_307_648, 3_137_473_609_728, 1_848_983_420_928, 3),
        (XXL, 29_042_568_855_552, 4_303_557_230_592, 12_549_894_438_912, 7_395_933_683_712, 3),
    ],
)
def test_B6_reader_costs_are_the_spec_integers(
    size: tuple[int, int], fid: int, memory: int, third: int, small: int, live: int
) -> None:
    n_blocks, width = size
    assert costs.fid_macs(SOURCE, TARGET, width, n_blocks) == fid
    assert costs.memory_fid_macs(SOURCE, TARGET, width, n_blocks) == memory
    assert costs.lumen_macs(SOURCE, TARGET, width, n_blocks // 3, n_blocks) == third
    assert costs.lumen_macs(SOURCE, TARGET, width, live, n_blocks) == small


@pytest.mark.parametrize(
    ("size", "macs", "values"),
    [
        (BASE, 17_666_408_448, 159_744),
        (LARGE, 62_813_896_704, 212_992),
        (XL, 251_255_586_816, 425_984),
        (XXL, 1_005_022_347_264, 851_968),
    ],
)
def test_B6_memory_of_a_passage_is_the_spec_integers(size: tuple[int, int], macs: int, values: int) -> None:
    n_blocks, width = size
    assert costs.precompute_macs(1, PASSAGE, width, n_blocks) == macs
    assert costs.memory_values(1, PASSAGE, width) == values


def test_B6_components_and_ratios() -> None:
    n_blocks, width = BASE
    encoder = 12 * SOURCE * n_blocks * width**2
    assert encoder == 434_865_438_720
    assert costs.lumen_macs(SOURCE, 0, width, 0, n_blocks) == 72_477_573_120
    assert costs.lumen_macs(0, TARGET, width, 0, n_blocks) == 3_170_893_824
    fid = costs.fid_macs(SOURCE, TARGET, width, n_blocks)
    ratios = [costs.lumen_macs(SOURCE, TARGET, width, live, n_blocks) / fid for live in (0, 4, 6, 8)]
    assert [round(ratio, 4) for ratio in ratios] == [0.1482, 0.4321, 0.5741, 0.7161]
    # 24-12: the live encoder has 12 blocks, as FiD's has
    assert costs.lumen_macs(SOURCE, TARGET, width, 12, 12) == 510_513_905_664
    assert costs.precompute_macs(1, PASSAGE, width, 8) == 11_777_605_632
    assert costs.lumen_question_macs(48, width, 8) == 2_717_908_992


def test_B6_bytes_of_the_dump_and_of_a_question() -> None:
    passages, bf16 = 21_015_324, 2
    per_passage = [bf16 * costs.memory_values(1, PASSAGE, width) for _, width in (BASE, LARGE, XL, XXL)]
    assert per_passage == [319_488, 425_984, 851_968, 1_703_936]
    whole = [bf16 * costs.memory_values(passages, PASSAGE, width) / 1e12 for _, width in (BASE, LARGE, XL, XXL)]
    assert [round(terabytes, 2) for terabytes in whole] == [6.71, 8.95, 17.9, 35.81]
    question = [bf16 * costs.memory_values(20, PASSAGE, width) / 1e6 for _, width in (BASE, LARGE, XL, XXL)]
    assert [round(megabytes, 1) for megabytes in question] == [6.4, 8.5, 17.0, 34.1]


def test_B6_memory_pays_off_whatever_the_model() -> None:
    passages, n_blocks = 21_015_324, 12
    questions = costs.memory_break_even(passages, PASSAGE, SOURCE)
    assert questions == pytest.approx(853_747.54, abs=0.01)
    trained = costs.memory_break_even(passages, PASSAGE, SOURCE, n_finetuning=1000)
    assert trained == pytest.approx(questions - 3000)
    for n_questions in (math.floor(questions), math.ceil(questions)):
        saved = costs.fid_macs(SOURCE, TARGET, 768, n_blocks) - costs.memory_fid_macs(SOURCE, TARGET, 768, n_blocks)
        paid = costs.precompute_macs(passages, PASSAGE, 768, n_blocks) < n_questions * saved
        assert paid == (n_questions > questions)


def test_CL13_lumen_is_linear_between_its_ends() -> None:
    n_blocks, width = LARGE
    lumen = [costs.lumen_macs(SOURCE, TARGET, width, live, n_blocks) for live in range(n_blocks + 1)]
    assert lumen[0] == costs.memory_fid_macs(SOURCE, TARGET, width, n_blocks)
    assert lumen[-1] == costs.fid_macs(SOURCE, TARGET, width, n_blocks)
    assert {after - before for before, after in pairwise(lumen)} == {SOURCE * 12 * width**2}
    assert lumen[-1] - lumen[0] == SOURCE * n_blocks * 12 * width**2


def test_B6_totals_and_exact_terms() -> None:
    one = costs.fid_macs(SOURCE, TARGET, 768, 12)
    total = costs.reader_total_macs(one, n_pretraining=5, n_finetuning=7, n_tasks=2, n_inference=11)
    assert total == one * (3 * 5 + 3 * 7 * 2 + 11)
    # two products of n x S scores of width D in every live block, over all passages; the same for the answer
    assert costs.lumen_score_macs(SOURCE, 256, 768, 4) == 20 * 4 * 2 * 256 * 256 * 768
    assert costs.lumen_cross_score_macs(SOURCE, TARGET, 768, 12) == 12 * 2 * TARGET * SOURCE * 768


@pytest.mark.parametrize(
    ("size", "feed", "heads", "ratio"), [(BASE, 2048, 12, 12.0), (LARGE, 2816, 16, 12.25), (XL, 5120, 32, 11.5)]
)
def test_B1_exact_block_of_T5(size: tuple[int, int], feed: int, heads: int, ratio: float) -> None:
    n_blocks, width = size
    assert Shape(n_blocks, width, heads * 64, feed, matrices=3).linear == ratio * width**2


# A12, storing


def test_A12_bytes_of_a_sentence_of_26_pieces() -> None:
    sizes = [costs.state_bytes(26, views, width, "fp16") / 1e6 for views, width in ((25, 1024), (13, 768), (7, 384))]
    assert [round(size, 2) for size in sizes] == [1.33, 0.52, 0.14]
    assert costs.state_bytes(26, 7, 384, "fp32") == 2 * costs.state_bytes(26, 7, 384, "bf16")
    assert costs.state_bytes(1, 7, 384, "int8") == 7 * (384 + 2)


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16", "int8"])
def test_an_item_adds_what_the_shards_layout_says(dtype: str) -> None:
    from encodeonce.store.format import Layout

    spec = Spec("e", "w", "c", "t", 6, 48, (0, 2, 6), 64, 16, dtype=dtype)

    def data(items: int, rows: int) -> int:
        layout = Layout.of(spec, items, rows)
        return layout.size - len(layout.header)

    for rows in (1, 3, 50):
        assert data(8, 100 + rows) - data(7, 100) == costs.item_bytes(spec, rows)


def test_A12_times() -> None:
    encode, forward, backward = 0.020, 0.003, 0.005
    for epochs in (1, 2, 10):
        training = costs.training_seconds(encode, forward, backward, epochs)
        assert training == pytest.approx(encode / epochs + forward + backward)
        cheaper = training < costs.inference_seconds(encode, forward)
        assert cheaper == costs.training_beats_inference(encode, backward, epochs)
    assert not costs.training_beats_inference(encode, backward, 1)
    assert costs.training_beats_inference(encode, backward, 2)
    with pytest.raises(ConfigError, match="epochs=0 must be at least 1"):
        costs.training_seconds(1.0, 1.0, 1.0, 0)


def test_break_even_is_where_the_two_costs_meet() -> None:
    once, cached, live = 60.0, 4.0, 24.0
    number = costs.break_even(once, cached, live)
    assert number == 3.0
    assert once + number * cached == number * live
    assert costs.break_even(0.0, cached, live) == 0.0
    assert costs.break_even(once, live, cached) is None


# MACs against torch's counter


def counted(work: Callable[[], Tensor], backward: bool) -> int:
    """MACs that torch's counter sees: half its FLOPs."""
    with FlopCounterMode(display=False) as counter:
        scores = work()
        if backward:
            scores.square().sum().backward()
    return counter.get_total_flops() // 2


def unseen(products: list[Product], names: tuple[str, ...]) -> list[Product]:
    """Without the products that are computed element by element, which the counter does not see."""
    return [product for product in products if product.name not in names]


ADAPTERS: dict[str, Adapter] = {
    "frozen": Last(),
    "linear": Linear(3),
    "fusion": Fusion(24, 3),
    "agg": Aggregation(24, 8, 2),
    "agg_tailor": Adapted(24, 8, 2, dropout=0.0, residual=False),
    "adapted": Adapted(24, 8, 2, dropout=0.0),
}


@pytest.mark.parametrize("name", list(ADAPTERS))
@pytest.mark.parametrize("backward", [False, True])
def test_a_step_of_an_adapter_and_its_head_is_what_torch_counts(name: str, backward: bool) -> None:
    """Widths that no compiled kernel takes; items of one length, every piece a word: nothing is padded."""
    lengths, n_views, width, labels = (5, 5, 5), 3, 24, tuple("abcd")
    adapter = ADAPTERS[name]
    adapter.zero_grad(set_to_none=True)
    head = Tagger(width, labels, dropout=0.0)
    batch = Packed(torch.randn(n_views, sum(lengths), width), lengths)

    def work() -> Tensor:
        vectors = adapter(batch, None)
        return head.outer(torch.tanh(head.inner(vectors)))

    amount = Amount.of(lengths, lengths)
    products = [
        *costs.adapter_products(name, amount, n_views, width, 8),
        *costs.tagger_products(amount.words, width, len(labels), trained_below=name != "frozen"),
    ]
    products = unseen(products, ("layer scores", "scores"))
    expected = costs.step_macs(products) if backward else costs.forward_macs(products)
    assert counted(work, backward) == expected


def test_words_alone_are_read_where_words_alone_are_wanted() -> None:
    few, all_ = Amount.of([9, 9], [4, 4]), Amount.of([9, 9], [9, 9])
    assert (few.squares, few.pairs) == (162, 72)
    for name in ADAPTERS:
        less, more = (costs.forward_macs(costs.adapter_products(name, amount, 7, 384)) for amount in (few, all_))
        assert less == more == 0 if name == "frozen" else less < more


def test_an_unknown_adapter_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"no formula for the adapter 'lineer'.*Did you mean 'linear'"):
        costs.adapter_products("lineer", Amount.of([1], [1]), 7, 384)


def test_live_below_all_reads_states_that_take_no_gradient() -> None:
    shape = Shape(n_blocks=6, width=32, attention=32, feed=64)
    one = costs.encoder_products(shape, 100, 2500, live=1)
    inputs = 100 * 3 * 32 * 32
    assert costs.step_macs(one) == 3 * costs.forward_macs(one) - inputs
    all_ = costs.encoder_products(shape, 100, 2500, live=6)
    assert costs.step_macs(all_) == 3 * costs.forward_macs(costs.encoder_products(shape, 100, 2500))
    assert costs.encoder_products(shape, 100, 2500, live=0) == []
    assert costs.flops(7) == 14
    with pytest.raises(ConfigError, match="live=7 must lie between 0 and the encoder's 6"):
        costs.encoder_products(shape, 100, 2500, live=7)
