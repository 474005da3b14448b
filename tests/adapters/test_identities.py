"""Identities CA1 to CA13 and CA16 of the adapter's specification.   Axes: L views  P rows  D width"""

import math

import numpy as np
import pytest
import torch
from torch import nn

from encodeonce.adapters.adapted import Adapted
from encodeonce.adapters.aggregation import Aggregation
from encodeonce.adapters.fusion import Fusion
from encodeonce.adapters.last import Last
from encodeonce.adapters.linear import Linear
from encodeonce.adapters.normed import Normed
from encodeonce.errors import ConfigError
from encodeonce.nn.packed import Packed

WIDTH, N_VIEWS, LENGTHS = 32, 5, (6, 2, 9)


@pytest.fixture
def batch() -> Packed:
    return Packed.of([torch.randn(N_VIEWS, length, WIDTH) for length in LENGTHS])


def trained_like(adapter: nn.Module) -> nn.Module:
    """Random parameters, biases included, so that nothing holds only because something is zero."""
    for parameter in adapter.parameters():
        nn.init.normal_(parameter, std=0.3)
    return adapter.eval()


def close(a: torch.Tensor, b: torch.Tensor, atol: float = 1e-6) -> None:
    torch.testing.assert_close(a, b, atol=atol, rtol=1e-5)


def numpy_softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def by_hand(adapter: Adapted, item: torch.Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(A^T, G, out) of one item by the equations of A2-A4, row by row in NumPy, fp64."""
    p = {name: value.detach().double().numpy() for name, value in adapter.state_dict().items()}

    def apply(x: np.ndarray, *names: str) -> np.ndarray:
        for name in names:
            x = x @ p[f"{name}.weight"].T + p[f"{name}.bias"]
        return x

    def head_maps(q: np.ndarray, k: np.ndarray, n_heads: int = 2) -> np.ndarray:
        h = q.shape[-1] // n_heads
        parts = [slice(g * h, (g + 1) * h) for g in range(n_heads)]
        return np.mean([numpy_softmax(q[:, s] @ k[:, s].T / math.sqrt(h)) for s in parts], axis=0)

    views = item.double().numpy()
    query = apply(views.mean(0), "attention.query.reduce", "attention.query.within")
    key = apply(views.mean(1), "attention.key.reduce", "attention.key.within")
    weights = head_maps(query, key)
    mixed = np.stack([sum(weights[j, i] * views[i, j] for i in range(len(views))) for j in range(views.shape[1])])
    centred = mixed - mixed.mean(-1, keepdims=True)
    normed = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
    normed = normed * p["tailor.norm.weight"] + p["tailor.norm.bias"]
    full = mixed + np.maximum(apply(normed, "tailor.feed"), 0)
    reduced = apply(full, "tailor.attention.reduce")
    between = head_maps(apply(reduced, "tailor.attention.query"), apply(reduced, "tailor.attention.key"))
    return weights, mixed, mixed + between @ full


def test_the_whole_adapter_equals_the_equations_in_numpy(batch: Packed) -> None:
    adapter = trained_like(Adapted(WIDTH))
    out, weights = adapter(batch), adapter.layer_weights(batch)
    for start, length in zip(batch.starts, LENGTHS, strict=True):
        rows = slice(start, start + length)
        expected = by_hand(adapter, batch.views[:, rows])
        np.testing.assert_allclose(weights[rows].detach(), expected[0], atol=1e-6)
        np.testing.assert_allclose(out[rows].detach(), expected[2], atol=2e-5, rtol=1e-5)


def test_ca1_layer_weights_sum_to_one(batch: Packed) -> None:
    weights = trained_like(Aggregation(WIDTH)).layer_weights(batch)
    assert (weights >= 0).all()
    close(weights.sum(1), torch.ones(sum(LENGTHS)), 1e-6)


def test_ca2_zero_queries_give_the_layer_mean(batch: Packed) -> None:
    adapter = trained_like(Aggregation(WIDTH))
    for parameter in adapter.attention.query.parameters():
        nn.init.zeros_(parameter)
    close(adapter(batch), batch.views.mean(0))


def test_ca3_identical_layers_give_that_layer(batch: Packed) -> None:
    one = batch.views[:1].expand(N_VIEWS, -1, -1)
    close(trained_like(Aggregation(WIDTH))(Packed(one, LENGTHS)), one[0])


def test_ca4_key_biases_change_nothing(batch: Packed) -> None:
    adapter = trained_like(Aggregation(WIDTH))
    before = adapter(batch)
    nn.init.normal_(adapter.attention.key.reduce.bias, std=3)
    nn.init.normal_(adapter.attention.key.within.bias, std=3)
    close(adapter(batch), before, 5e-6)


def test_ca5_layer_permutation(batch: Packed) -> None:
    adapter, order = trained_like(Aggregation(WIDTH)), torch.tensor([3, 0, 4, 2, 1])
    moved = Packed(batch.views[order], LENGTHS)
    close(adapter(moved), adapter(batch), 2e-6)
    close(adapter.layer_weights(moved), adapter.layer_weights(batch)[:, order], 2e-6)


def test_ca6_token_permutation_within_items(batch: Packed) -> None:
    adapter = trained_like(Adapted(WIDTH))
    pieces = zip(batch.starts, LENGTHS, strict=True)
    order = torch.cat([start + torch.randperm(length) for start, length in pieces])
    close(adapter(Packed(batch.views[:, order], LENGTHS)), adapter(batch)[order], 5e-6)


def test_ca7_packed_equals_padded_and_padding_is_invisible(batch: Packed) -> None:
    """The padded textbook form, pads filled with noise, gives the same real rows; see also test_shared."""
    adapter = trained_like(Adapted(WIDTH))
    expected = textbook_rows(adapter, batch, pad_noise=1.0)
    close(adapter(batch), expected, 5e-6)
    close(textbook_rows(adapter, batch, pad_noise=9.0), expected, 5e-6)


def test_ca8_convexity(batch: Packed) -> None:
    mixed = trained_like(Aggregation(WIDTH))(batch)
    assert (mixed >= batch.views.amin(0) - 1e-6).all()
    assert (mixed <= batch.views.amax(0) + 1e-6).all()


def test_ca9_linear(batch: Packed) -> None:
    adapter = Linear(N_VIEWS)
    close(adapter(batch), batch.views.mean(0))
    for view in range(N_VIEWS):
        adapter.alpha.data = 200.0 * nn.functional.one_hot(torch.tensor(view), N_VIEWS)
        close(adapter(batch), batch.views[view])
    close(adapter(batch), Last()(batch))
    adapter.scale.data = torch.tensor(-2.0)
    close(adapter(batch), -2 * Last()(batch))


def test_ca10_fusion_starts_at_the_layer_mean(batch: Packed) -> None:
    close(Fusion(WIDTH, N_VIEWS)(batch), batch.views.mean(0))


def test_fusion_equals_a_loop(batch: Packed) -> None:
    adapter = trained_like(Fusion(WIDTH, N_VIEWS))
    views, query = batch.views.double().numpy(), adapter.query.detach().double().numpy()
    for row, out in enumerate(adapter(batch).detach().numpy()):
        weights = numpy_softmax(views[:, row] @ query)
        np.testing.assert_allclose(out, weights @ views[:, row], atol=1e-5)


def test_fusion_of_the_authors(batch: Packed) -> None:
    """A-08: LayerNorm over the (D, L) plane, weighted sum of the normed views, GELU; queries start at ones."""
    adapter = Fusion(WIDTH, N_VIEWS, reference=True).eval()
    assert torch.equal(adapter.query.detach(), torch.ones(WIDTH))
    assert sum(p.numel() for p in adapter.parameters()) == WIDTH + 2 * WIDTH * N_VIEWS
    plane_PDL = batch.views.permute(1, 2, 0)
    flat = plane_PDL.flatten(1)
    normed = (flat - flat.mean(1, keepdim=True)) / (flat.var(1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    normed = normed.view_as(plane_PDL)
    weights = normed.sum(1).softmax(-1)
    close(adapter(batch), nn.functional.gelu((normed * weights[:, None]).sum(-1)), 5e-6)
    close(adapter.layer_weights(batch), weights)


def test_ca11_tailor_without_weights_is_the_item_mean(batch: Packed) -> None:
    adapter = trained_like(Adapted(WIDTH))
    tailor = adapter.tailor
    for layer in (tailor.feed, tailor.attention.reduce):
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
    aggregation = Aggregation(WIDTH)
    aggregation.attention = adapter.attention
    mixed = aggregation(batch)
    means = torch.cat([part.mean(0, keepdim=True).expand_as(part) for part in mixed.split(LENGTHS)])
    close(adapter(batch), mixed + means)


def test_ca12_adapted_is_agg_plus_agg_tailor(batch: Packed) -> None:
    adapted = trained_like(Adapted(WIDTH))
    tailored = Adapted(WIDTH, residual=False).eval()
    tailored.load_state_dict(adapted.state_dict())
    aggregation = Aggregation(WIDTH)
    aggregation.attention = adapted.attention
    close(adapted(batch), aggregation(batch) + tailored(batch))


@pytest.mark.parametrize(("width", "count"), [(384, 168_176), (768, 630_128), (1024, 1_101_936), (1280, 1_704_816)])
def test_ca13_parameter_counts(width: int, count: int) -> None:
    """A5's totals without the dead tensors; the aggregator's with its 544 dead ones is the table's column."""
    adapted, aggregation = Adapted(width), Aggregation(width)
    assert sum(p.numel() for p in adapted.parameters()) == count
    assert (
        sum(p.numel() for p in aggregation.parameters()) + 544
        == {
            384: 13_408,
            768: 25_696,
            1024: 33_888,
            1280: 42_080,
        }[width]
    )
    assert sum(p.numel() for p in Fusion(width, 7).parameters()) == width
    assert sum(p.numel() for p in Linear(7).parameters()) == 8


def test_ca13_initialisation_is_the_authors() -> None:
    adapter = Adapted(384)
    attention, tailor = adapter.attention, adapter.tailor
    for projection, bound in (
        (attention.query.within, math.sqrt(6 / 64)),
        (attention.key.within, math.sqrt(6 / 64)),
        (tailor.attention.query, math.sqrt(6 / 64)),
        (tailor.attention.key, math.sqrt(6 / 64)),
        (tailor.attention.reduce, math.sqrt(6 / 400)),
        (attention.query.reduce, 1 / math.sqrt(384)),
        (tailor.feed, 1 / math.sqrt(384)),
    ):
        assert 0.9 * bound < projection.weight.abs().max() <= bound
    for projection in (attention.query.within, attention.key.within, tailor.attention.query, tailor.attention.key):
        assert not projection.bias.any()
    assert tailor.norm.eps == 1e-12
    assert tailor.attention.reduce.bias.any()


def textbook_rows(adapter: Adapted, batch: Packed, pad_noise: float) -> torch.Tensor:
    """The padded form with torch's own MultiheadAttention in the authors' layout; real rows, end to end."""
    checkpoint = authors_layout(adapter)
    longest = max(batch.lengths)
    views = pad_noise * torch.randn(len(batch.lengths), N_VIEWS, longest, WIDTH)
    real = torch.arange(longest) < torch.tensor(batch.lengths)[:, None]
    for index, (start, length) in enumerate(zip(batch.starts, batch.lengths, strict=True)):
        views[index, :, :length] = batch.views[:, start : start + length]

    def attention(prefix: str) -> nn.MultiheadAttention:
        module = nn.MultiheadAttention(16, 2, batch_first=True)
        module.load_state_dict(
            {k.removeprefix(f"{prefix}."): v for k, v in checkpoint.items() if k.startswith(f"{prefix}.")}
        )
        return module.eval()

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return nn.functional.linear(x, checkpoint[f"{name}.weight"], checkpoint[f"{name}.bias"])

    query = linear(views.mean(1), "query_projector")
    token_means = (views * real[:, None, :, None]).sum(2) / real.sum(1)[:, None, None]
    key = linear(token_means, "key_projector")
    _, weights = attention("token_layer_attention")(query, key, key)
    mixed = torch.einsum("bnl,blnd->bnd", weights, views)
    gain, shift = checkpoint["tailor.FF.0.weight"], checkpoint["tailor.FF.0.bias"]
    normed = nn.functional.layer_norm(mixed, (WIDTH,), gain, shift, 1e-12)
    full = mixed + linear(normed, "tailor.FF.1").relu()
    reduced = linear(full, "tailor.tailor_query_dim_reducer")
    _, maps = attention("tailor.self_attention")(reduced, reduced, reduced, key_padding_mask=~real)
    return (mixed + maps @ full)[real]


def authors_layout(adapter: Adapted) -> dict[str, torch.Tensor]:
    """The adapter's tensors as a checkpoint of the authors' code, dead tensors random."""
    ours = {name: value.detach().clone() for name, value in adapter.state_dict().items()}
    names = {
        "attention.query.reduce": "query_projector",
        "attention.key.reduce": "key_projector",
        "tailor.norm": "tailor.FF.0",
        "tailor.feed": "tailor.FF.1",
        "tailor.attention.reduce": "tailor.tailor_query_dim_reducer",
    }
    theirs = {f"{new}.{kind}": ours[f"{old}.{kind}"] for old, new in names.items() for kind in ("weight", "bias")}
    for new, query, key in (
        ("token_layer_attention", "attention.query.within", "attention.key.within"),
        ("tailor.self_attention", "tailor.attention.query", "tailor.attention.key"),
    ):
        for kind in ("weight", "bias"):
            parts = [ours[f"{query}.{kind}"], ours[f"{key}.{kind}"]]
            theirs[f"{new}.in_proj_{kind}"] = torch.cat([*parts, torch.randn_like(parts[0])])
        theirs[f"{new}.out_proj.weight"] = torch.randn(16, 16)
        theirs[f"{new}.out_proj.bias"] = torch.randn(16)
    return theirs


def test_ca16_equals_torch_multihead_attention(batch: Packed) -> None:
    """Weights averaged over heads, both blocks, through `nn.MultiheadAttention(need_weights=True)`."""
    adapter = trained_like(Adapted(WIDTH))
    close(adapter(batch), textbook_rows(adapter, batch, pad_noise=0.0), 5e-6)


def test_authors_checkpoint_round_trip(batch: Packed) -> None:
    adapter, fresh = trained_like(Adapted(WIDTH)), Adapted(WIDTH).eval()
    left_out = fresh.load_authors({**authors_layout(adapter), "encoder.embeddings.weight": torch.zeros(2)})
    assert torch.equal(fresh(batch), adapter(batch))
    assert "encoder.embeddings.weight" in left_out
    assert "token_layer_attention.in_proj_weight[value]" in left_out
    assert "tailor.self_attention.out_proj.bias" in left_out
    assert len(left_out) == 1 + 2 * 4


def test_authors_checkpoint_is_read_strictly() -> None:
    layout, fresh = authors_layout(Adapted(WIDTH)), Adapted(WIDTH)
    before = {name: value.clone() for name, value in fresh.state_dict().items()}
    with pytest.raises(ConfigError, match=r"no place in the adapter: \['classifier.weight'\]"):
        fresh.load_authors({**layout, "classifier.weight": torch.zeros(1)})
    with pytest.raises(ConfigError, match=r"tailor.feed.bias: none given, \(32,\) wanted"):
        fresh.load_authors({name: value for name, value in layout.items() if name != "tailor.FF.1.bias"})
    with pytest.raises(ConfigError, match=r"tailor.norm.weight: \(32,\) given, none wanted"):
        Aggregation(WIDTH).load_authors(layout)
    with pytest.raises(ConfigError, match="Check width, key_width"):
        Adapted(48).load_authors(layout)
    assert all(torch.equal(value, before[name]) for name, value in fresh.state_dict().items())


def test_tailor_values_dropped_or_not() -> None:
    """A-04: in training the paper's T = M R and the code's T = M Dropout(R) differ, in eval mode they do not."""
    batch = Packed(torch.randn(3, 4, WIDTH), (4,))
    code, paper = Adapted(WIDTH, residual=False), Adapted(WIDTH, residual=False, drop_values=False)
    paper.load_state_dict(code.state_dict())
    assert torch.equal(code.eval()(batch), paper.eval()(batch))
    code.train(), paper.train()
    state = torch.get_rng_state()
    dropped = code(batch)
    torch.set_rng_state(state)
    assert not torch.equal(dropped, paper(batch))


def test_normed_views_have_mean_zero_and_unit_variance(batch: Packed) -> None:
    scaled = Packed(batch.views * torch.tensor([0.01, 1, 5, 0.2, 100])[:, None, None] + 3, LENGTHS)
    out = Normed(Last())(scaled)
    close(out.mean(1), torch.zeros(sum(LENGTHS)))
    close(out.var(1, unbiased=False), torch.ones(sum(LENGTHS)), 1e-4)


def test_a_wrong_number_of_views_is_named(batch: Packed) -> None:
    for adapter in (Linear(7), Fusion(WIDTH, 7)):
        with pytest.raises(ConfigError, match="mixes 7 views and the batch has 5"):
            adapter(batch)


def test_heads_must_divide_the_key_width() -> None:
    with pytest.raises(ConfigError, match="key_width=16 cannot be cut into n_heads=3"):
        Aggregation(WIDTH, n_heads=3)
    with pytest.raises(ConfigError, match="key_width=6 cannot be cut into n_heads=4"):
        Adapted(WIDTH, key_width=6, n_heads=4)
