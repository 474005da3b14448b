"""Batches: sorted, within budget, and without any say in the vectors (cases NUM-1, NUM-2)."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from encodeonce.encoders.encode import batches, encode
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.encoders.stack import Stack, ranks
from encodeonce.encoders.t5 import T5
from encodeonce.errors import ConfigError, EncoderError
from encodeonce.types import Document, Pieces

from .conftest import close

WORDS = ["the", "cat", "sat", "on", "the", "mat", ",", "running", "by", "a", "river", "bank", "."]


def documents(n: int, longest: int = 13) -> list[Document]:
    draw = np.random.default_rng(3)
    return [Document(str(i), tuple(draw.choice(WORDS, size=int(draw.integers(1, longest))))) for i in range(n)]


@pytest.mark.parametrize("seed", range(20))
def test_batches_hold_every_window_once_within_the_budget(seed: int) -> None:
    draw = np.random.default_rng(seed)
    lengths, budget = draw.integers(1, 60, size=200).tolist(), int(draw.integers(40, 400))
    made = list(batches(lengths, budget))
    assert sorted(i for batch in made for i in batch) == list(range(200))
    flat = [lengths[i] for batch in made for i in batch]
    assert flat == sorted(lengths, reverse=True)
    for batch in made:
        longest, pieces = lengths[batch[0]], sum(lengths[i] for i in batch)
        assert longest * len(batch) <= budget or len(batch) == 1
        assert longest * len(batch) - pieces <= 0.05 * longest * len(batch)
    assert made == list(batches(lengths, budget))


def test_many_items_of_few_lengths_need_next_to_no_padding() -> None:
    lengths = [5, 6, 7] * 200
    made = list(batches(lengths, 100))
    assert sum(len({lengths[i] for i in batch}) > 1 for batch in made) <= 2  # where one length ends and the next begins


@pytest.mark.parametrize("family", ["bert", "gpt2", "t5"])
def test_NUM_2_vectors_do_not_depend_on_batch_mates(family: str, checkpoint: Callable[..., Path]) -> None:
    folder = checkpoint(family)
    model = Pretrained(folder)
    pieces = model.cut(documents(30))
    alone = [next(iter(model.encode([cut])))[1] for cut in pieces]
    for shown, budget in ((pieces, 60), (pieces[::-1], 200), (pieces[7:], 10)):
        for index, views in Pretrained(folder, batch_pieces=budget).encode(shown):
            same = next(i for i, cut in enumerate(pieces) if cut is shown[index])
            close(views, alone[same])


@pytest.mark.parametrize("family", ["bert", "gpt2", "t5"])
@pytest.mark.parametrize("left", [False, True])
def test_NUM_2_padding_on_either_side(family: str, left: bool, checkpoint: Callable[..., Path]) -> None:
    stack, short = Pretrained(checkpoint(family)).stack(), torch.randint(5, 30, (1, 6))
    mates = torch.randint(5, 30, (1, 11))
    padded = torch.full((2, 11), int(stack.model.config.pad_token_id))
    rows = slice(5, 11) if left else slice(0, 6)
    padded[0, rows], padded[1] = short[0], mates[0]
    mask = torch.ones(2, 11, dtype=torch.bool)
    mask[0] = False
    mask[0, rows] = True
    first = stack.place(stack.lookup(padded), ranks(mask))
    alone = stack.run(stack.place(stack.lookup(short)), None)
    for view, expected in zip(stack.run(first, mask), alone, strict=True):
        close(view[0, rows], expected[0])


def test_the_order_depends_on_the_lengths_alone(checkpoint: Callable[..., Path]) -> None:
    model = Pretrained(checkpoint("bert"), batch_pieces=50)
    pieces = model.cut(documents(40))
    first, second = ([i for i, _ in model.encode(pieces)] for _ in range(2))
    assert first == second
    lengths = [len(pieces[i]) for i in first]
    assert lengths == sorted(lengths, reverse=True)


def test_chosen_layers_are_those_of_all(checkpoint: Callable[..., Path]) -> None:
    model = Pretrained(checkpoint("gpt2"))
    pieces = model.cut(documents(6))
    everything = dict(model.encode(pieces, "all"))
    for layers, rows in (([1, 3], [1, 3]), ("last", [3]), (2, [2, 3]), ([0], [0])):
        for index, views in model.encode(pieces, layers):
            np.testing.assert_array_equal(views, everything[index][rows])


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2", "t5"])
def test_LONG_1_windows_equal_the_model_on_each_window(family: str, checkpoint: Callable[..., Path]) -> None:
    model = Pretrained(checkpoint(family), window=16, overlap=5, batch_pieces=40)
    pieces = model.cut(documents(5, 60) + documents(3, 5))
    assert max(len(cut.windows) for cut in pieces) > 3
    for index, views in model.encode(pieces):
        cut = pieces[index]
        assert np.isfinite(views).all()
        before, after = cut.windows[0][0], cut.windows[-1][1]
        for start, stop, keep_start, keep_stop in cut.windows:
            ids = [*cut.ids[:before], *cut.ids[start:stop], *cut.ids[after:]]
            output = model.stack().model(torch.tensor([ids]), output_hidden_states=True)
            expected = torch.stack(output.hidden_states)[:, 0].detach().numpy()
            shift = start - before
            close(views[:, keep_start:keep_stop], expected[:, keep_start - shift : keep_stop - shift])


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_a_batch_at_a_time_gives_the_same_views_rounded_as_a_store_rounds(
    dtype: str, checkpoint: Callable[..., Path]
) -> None:
    """Items of several lengths in one batch, and items of several windows among them."""
    model = Pretrained(checkpoint("bert"), window=16, overlap=5, batch_pieces=40)
    pieces = model.cut(documents(9, 40) + documents(30, 7))
    kind = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[dtype]
    expected = {i: torch.from_numpy(views).to(kind).float() for i, views in model.encode(pieces, [0, 2])}
    seen, sizes = [], set()
    for items, views in model.encode_together(pieces, [0, 2], dtype):
        assert views.is_contiguous()
        assert torch.equal(views, torch.cat([expected[i] for i in items], dim=1))
        seen += items
        sizes.add(len(items))
        views.fill_(torch.nan)  # nobody counts on it any more
    assert sorted(seen) == list(range(len(pieces)))
    assert max(sizes) > 4
    assert list(model.encode_together([])) == []


def test_bf16_stays_within_its_precision(checkpoint: Callable[..., Path]) -> None:
    folder = checkpoint("bert")
    exact, half = Pretrained(folder), Pretrained(folder, compute="bf16")
    pieces = exact.cut(documents(20))
    found, expected = dict(half.encode(pieces)), dict(exact.encode(pieces))
    error = sum(float(np.square(found[i] - expected[i]).sum()) for i in found)
    size = sum(float(np.square(expected[i]).sum()) for i in found)
    assert 0 < (error / size) ** 0.5 < 2e-2
    assert all(views.dtype == np.float32 for views in found.values())
    assert exact.spec().differences(half.spec()) == ["compute: 'fp32' here, 'bf16' there"]


def scaled(tiny: SimpleNamespace, factor: float) -> tuple[Stack, list[Pieces]]:
    model = tiny.model("t5", 40, feed_forward_proj="relu", num_layers=2)
    with torch.no_grad():
        for block in model.encoder.block:
            block.layer[1].DenseReluDense.wo.weight *= factor
    ids = np.array([5, 6, 7, 1], np.int32)
    return T5(model), [Pieces("0123456789abcdef", ids, np.array([0, 1, 2, -1], np.int32), 3, ((0, 3, 0, 4),))]


def test_NUM_1_values_beyond_fp16_pass_and_are_for_the_store_to_name(tiny: SimpleNamespace) -> None:
    stack, pieces = scaled(tiny, 3e5)
    ((_, views),) = encode(stack, pieces, (0, 1, 2), budget=100)
    assert np.isfinite(views).all()
    assert np.abs(views[1]).max() > 65504


def test_NUM_1_a_model_that_gives_inf_in_fp32_is_named_with_its_block(tiny: SimpleNamespace) -> None:
    stack, pieces = scaled(tiny, 3e38)
    with pytest.raises(EncoderError, match=r"view 1 \(after block 1\) of item 0 \(key 0123456789ab\) holds inf or NaN"):
        list(encode(stack, pieces, (0, 1, 2), budget=100))


def test_nothing_to_encode_loads_nothing(checkpoint: Callable[..., Path]) -> None:
    model = Pretrained(checkpoint("bert"))
    assert list(model.encode([])) == []
    assert not model.loaded


@pytest.mark.parametrize("family", ["bert", "roberta", "mpnet", "electra"])
def test_L10_items_behind_others_are_placed_and_marked_so(family: str, checkpoint: Callable[..., Path]) -> None:
    segment = int(family in ("bert", "electra"))
    late = Pretrained(checkpoint(family), first_position=9, segment=segment)
    assert late.window == Pretrained(checkpoint(family)).window - 9
    pieces = late.cut(documents(4))
    for i, views in late.encode(pieces):
        first = 9 + (int(late.config["pad_token_id"]) + 1 if family in ("roberta", "mpnet") else 0)
        ids = torch.from_numpy(pieces[i].ids.astype(np.int64))[None]
        options = {"position_ids": torch.arange(first, first + ids.shape[1])[None]}
        if segment:
            options["token_type_ids"] = torch.ones_like(ids)
        hidden = late.stack().model(ids, output_hidden_states=True, **options).hidden_states
        close(views, torch.stack(hidden)[:, 0])
    own = Pretrained(checkpoint(family)).spec()
    assert own.differences(late.spec())[-1 - segment] == "first_position: 0 here, 9 there"


def test_places_that_a_model_does_not_have_are_refused(checkpoint: Callable[..., Path]) -> None:
    with pytest.raises(ConfigError, match="first_position=3 must be 0: this model knows distances only"):
        Pretrained(checkpoint("t5"), first_position=3)
    with pytest.raises(ConfigError, match="first_position=-1 must be 0 or more"):
        Pretrained(checkpoint("bert"), first_position=-1)
    with pytest.raises(ConfigError, match="segment=1 must lie between 0 and 0"):
        Pretrained(checkpoint("mpnet"), segment=1)
