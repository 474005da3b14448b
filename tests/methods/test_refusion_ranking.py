"""Ranking schemes against NumPy loops written from the equations; identities 22, 23 of the spec."""

import math

import numpy as np
import pytest
import torch

from encodeonce.methods.refusion import Fusing
from encodeonce.methods.refusion.fusion import Fusion, Site
from encodeonce.methods.refusion.ranking import gumbel, kept, mask_weights, ranks, released_weights

M, K, D, B = 3, 5, 4, 2


def fusion(*schemes: str, k: int = K, seed: int = 1, **settings: object) -> Fusion:
    """One slot in M blocks, with random parameters."""
    made = Fusion(Fusing(slots=["value"], schemes=schemes, k=k, **settings), [Site(m, "value", D) for m in range(M)], D)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed)))
    return made.eval()


def near(k: int = K) -> torch.Tensor:
    return torch.randn(B, k, D, generator=torch.Generator().manual_seed(3))


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


@pytest.mark.parametrize("convex", [False, True])
def test_reranker_is_eqs_5_and_6(convex: bool) -> None:
    made = fusion("reranker", scale="convex" if convex else "paper")
    rows = near().numpy()
    assert made.rank is not None
    for m, delta in enumerate(made.deltas(near())):
        r = made.rank[m].detach().numpy().astype(float)
        w = np.exp(r) / np.exp(r).sum()
        expected = sum(w[i] * rows[:, i] for i in range(K)) / (1 if convex else K)
        np.testing.assert_allclose(delta.detach(), expected, atol=1e-6)


@pytest.mark.parametrize("convex", [False, True])
def test_ordered_mask_is_eqs_7_to_10_in_evaluation(convex: bool) -> None:
    made = fusion("mask", scale="convex" if convex else "paper")
    rows = near().numpy()
    assert made.chain is not None
    for m, delta in enumerate(made.deltas(near())):
        beta = made.chain[m].detach().numpy()
        expected = np.zeros((B, D))
        for d in range(D):
            v = [math.prod(sigmoid(beta[j, d]) for j in range(i)) for i in range(K)]
            total = sum(v) if convex else K
            for b in range(B):
                expected[b, d] = sum(v[i] * rows[b, i, d] for i in range(K)) / total
        np.testing.assert_allclose(delta.detach(), expected, atol=1e-6)


def test_add_is_the_mean() -> None:
    for delta in fusion("add").deltas(near()):
        torch.testing.assert_close(delta, near().mean(1))


def test_one_item_and_one_module_give_what_a_batch_gives() -> None:
    made = fusion("identity", "add", "reranker", "mask")
    made.ending = "soft"
    every = made.deltas(near())
    for m in range(M):
        torch.testing.assert_close(made.delta(m, near()), every[m])
    for b in range(B):
        for m, delta in enumerate(made.deltas(near()[b : b + 1])):
            torch.testing.assert_close(delta[0], every[m][b])


def test_I21_the_mixture_is_the_weighted_sum_and_one_hot_is_the_candidate() -> None:
    schemes = ("identity", "reranker", "mask")
    made = fusion(*schemes)
    made.ending = "soft"
    assert made.architecture is not None
    alone = {name: fusion(name) for name in ("reranker", "mask")}
    with torch.no_grad():
        alone["reranker"].rank.copy_(made.rank)
        alone["mask"].chain.copy_(made.chain)
    shares = made.architecture.softmax(1)
    mixed = made.deltas(near())
    for m in range(M):
        expected = shares[m, 1] * alone["reranker"].deltas(near())[m] + shares[m, 2] * alone["mask"].deltas(near())[m]
        torch.testing.assert_close(mixed[m], expected)
    for place, name in enumerate(schemes):
        with torch.no_grad():
            made.architecture.fill_(0)[:, place] = 1e4
        for ending in ("soft", "argmax"):
            made.ending = ending
            for m, delta in enumerate(made.deltas(near())):
                if name == "identity":
                    assert delta is None or not delta.any()
                else:
                    torch.testing.assert_close(delta, alone[name].deltas(near())[m])


def test_I28_the_mixtures_gradients_are_those_of_a_sum_over_neighbours() -> None:
    """Of the architecture, alone and beside the ranking parameters, for a loss that weighs every feature by itself."""
    made = fusion("identity", "add", "reranker", "mask")
    weighed = torch.randn(B, M, D, generator=torch.Generator().manual_seed(5))
    assert made.architecture is not None
    shares = made.architecture.softmax(1)
    mask = mask_weights(kept(made.chain), convex=False)
    weights = (shares[:, 1, None] / K + shares[:, 2, None] * ranks(made.rank, convex=False))[:, :, None]
    weights = weights + shares[:, 3, None, None] * mask
    by_sum = sum(weights[:, i] * near()[:, i, None] for i in range(K))
    every = [made.architecture, *made.lower()]
    expected = torch.autograd.grad((by_sum * weighed).sum(), every)
    with made.searching():
        found = torch.autograd.grad((torch.stack(made.deltas(near()), 1) * weighed).sum(), every)
        made.requires_grad_(False)
        made.architecture.requires_grad_(True)
        alone = torch.autograd.grad((torch.stack(made.deltas(near()), 1) * weighed).sum(), made.architecture)
    for own, other in zip((*found, *alone), (*expected, expected[0]), strict=True):
        torch.testing.assert_close(own, other)


def test_I22_equal_ranks_are_the_mean_over_k_and_constant_ones_shrink_to_1_over_k() -> None:
    made = fusion("reranker")
    with torch.no_grad():
        made.rank.fill_(0.7)
    torch.testing.assert_close(made.deltas(near())[0], near().mean(1) / K)
    big = fusion("reranker", k=64)
    torch.testing.assert_close(big.deltas(torch.ones(1, 64, D))[0], torch.full((1, D), 1 / 64))


def test_I22_a_large_rank_is_that_neighbour_over_k() -> None:
    made = fusion("reranker")
    with torch.no_grad():
        made.rank.fill_(0)[:, 2] = 200
    torch.testing.assert_close(made.deltas(near())[1], near()[:, 2] / K)


def test_I22_permuting_neighbours_with_their_ranks_changes_nothing() -> None:
    made = fusion("reranker")
    before = made.deltas(near())[0]
    order = torch.tensor([3, 0, 4, 1, 2])
    with torch.no_grad():
        made.rank.copy_(made.rank[:, order])
    torch.testing.assert_close(made.deltas(near()[:, order])[0], before)


def test_I23_the_mask_starts_at_1_never_rises_and_stays_in_0_1() -> None:
    chain = torch.randn(M, K - 1, D)
    for noise in (None, gumbel(torch.empty(M, K, D))):
        v = kept(chain, noise=noise)
        torch.testing.assert_close(v[:, 0], torch.ones(M, D))
        assert (v.diff(dim=1) <= 1e-6).all()
        assert (v >= -1e-6).all()
        assert (v <= 1 + 1e-6).all()


def test_I23_the_chain_sums_to_1_and_the_last_mask_is_its_last_choice() -> None:
    chain, noise = torch.randn(M, K - 1, D), torch.zeros(M, K, D)
    v = kept(chain, noise=noise)
    c = torch.cat([-v.diff(dim=1), v[:, -1:]], dim=1)
    torch.testing.assert_close(c.sum(1), torch.ones(M, D))
    b = chain.sigmoid()
    torch.testing.assert_close(c[:, -1], b.prod(1), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(v, kept(chain), atol=1e-6, rtol=1e-5)


def test_the_noise_is_standard_gumbel() -> None:
    drawn = gumbel(torch.empty(1, 1, 50_000)).flatten()
    assert not drawn.isnan().any()
    for x in (-1.5, -0.5, 0.5, 2.0, 4.0):
        assert abs(float((drawn < x).float().mean()) - math.exp(-math.exp(-x))) < 0.01


def test_a_draw_of_0_leaves_one_neighbour_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch draws 0 once in 2^24: the noise was -inf, and a single rank's softmax over it NaN."""
    monkeypatch.setattr(torch, "rand_like", torch.zeros_like)
    made = fusion("mask", k=1).train()
    torch.testing.assert_close(made.deltas(near(1))[0], near(1)[:, 0])
    assert gumbel(torch.empty(1, 3, 2)).isfinite().all()


def test_I23_without_temperature_a_staircase_whose_mean_is_the_evaluation_mask() -> None:
    chain = torch.randn(1, K - 1, 1)
    draws = 20_000
    wide = chain.expand(1, K - 1, draws).contiguous()
    v = kept(wide, temperature=1e-4, noise=gumbel(torch.empty(1, K, draws)))
    assert ((v < 1e-3) | (v > 1 - 1e-3)).float().mean() > 0.999
    torch.testing.assert_close(v.mean(2), kept(chain)[..., 0], atol=0.015, rtol=0)


def test_I23_all_large_is_add_and_one_neighbour_makes_all_schemes_add() -> None:
    made = fusion("mask")
    with torch.no_grad():
        made.chain.fill_(50)
    torch.testing.assert_close(made.deltas(near())[0], near().mean(1))
    for scheme in ("reranker", "mask"):
        torch.testing.assert_close(fusion(scheme, k=1).deltas(near(1))[0], near(1)[:, 0])


def test_start_values_of_the_specification() -> None:
    """B3: .79, .62, .38 at ranks 16, 32, 64; 41 of 64 kept on average."""
    made = Fusion(Fusing(slots=["value"], schemes=["mask"]), [Site(0, "value", 1)], 1)
    v = kept(made.chain.detach())[0, :, 0]
    assert [round(float(v[rank - 1]), 2) for rank in (16, 32, 64)] == [0.79, 0.62, 0.38]
    assert round(float(v.sum())) == 41
    undecided = Fusion(Fusing(slots=["value"]), [Site(0, "value", 1)], 1)
    assert undecided.decisions()[0].chosen == "identity"
    assert undecided.decisions()[0].lead == 0


def test_fewer_neighbours_are_ranked_among_themselves() -> None:
    made, three = fusion("reranker"), near()[:, :3]
    shorter = fusion("reranker", k=3)
    with torch.no_grad():
        shorter.rank.copy_(made.rank[:, :3])
    torch.testing.assert_close(made.deltas(three)[0], shorter.deltas(three)[0])
    masked, less = fusion("mask"), fusion("mask", k=3)
    with torch.no_grad():
        less.chain.copy_(masked.chain[:, :2])
    torch.testing.assert_close(masked.deltas(three)[0], less.deltas(three)[0])


def test_released_mask_is_small_over_features_and_noisy_in_evaluation() -> None:
    """B3 (a)-(f): a softmax over D features, about (k + 1 - i) / D, drawn anew each time."""
    k, d = 64, 1024
    chain = torch.empty(1, k, d).uniform_(-0.074, 0.074)
    v = released_weights(chain, temperature=5.0, noise=gumbel(chain)) * k
    assert float(v[0, 0].mean()) == pytest.approx(k / d, rel=1e-3)
    assert float(v[0, -1].mean()) == pytest.approx(1 / d, rel=1e-3)
    assert float(v.mean()) == pytest.approx(0.032, abs=0.001)
    made = fusion("released_mask")
    assert not torch.equal(made.deltas(near())[0], made.deltas(near())[0])


def test_released_mask_is_what_the_released_code_computes() -> None:
    """B3 (a)-(f), a number at a time: the chance of stopping at a rank, its own going on included, as a logit of a
    softmax over features; added up from the nearest rank on, then turned round."""
    k, d, tau = 4, 3, 5.0
    draw = np.random.default_rng(0)
    chain = 6 * draw.standard_normal((1, k, d))  # some are clipped to 5
    noise = draw.gumbel(size=(1, k, d))
    assert (np.abs(chain) > 5).any()
    c = np.zeros((k, d))
    for i in range(k):
        b = [[1 / (1 + math.exp(-max(-5.0, min(5.0, chain[0, m, f])))) for f in range(d)] for m in range(i + 1)]
        logit = [(math.prod(row[f] for row in b) * (1 - b[i][f]) + noise[0, i, f]) / tau for f in range(d)]
        total = sum(map(math.exp, logit))
        c[i] = [math.exp(value) / total for value in logit]
    due = [[sum(c[: k - i, f]) / k for f in range(d)] for i in range(k)]
    found = released_weights(torch.from_numpy(chain), temperature=tau, noise=torch.from_numpy(noise))
    np.testing.assert_allclose(found[0], due, atol=1e-12)


@pytest.mark.parametrize(("name", "bound"), [("rank", 0.304), ("released", 0.074), ("architecture", 1.22)])
def test_released_start_values_are_drawn_as_wide_as_the_released_codes(name: str, bound: float) -> None:
    """Xavier, uniform, for k = 64 and width 1024 (B3, B5)."""
    release = Fusing(schemes=("identity", "reranker", "released_mask"), xavier=True, leak=True)
    made = Fusion(release, [Site(m, "value", 1024) for m in range(200 if name != "released" else 2)], 1024)
    drawn = getattr(made, name).detach()
    assert float(drawn.abs().max()) <= bound + 0.005
    assert float(drawn.abs().max()) > 0.98 * bound
    assert float(drawn.std()) == pytest.approx(bound / math.sqrt(3), rel=0.05)


def test_weights_kept_in_evaluation_follow_the_parameters() -> None:
    made = fusion("mask", "reranker")
    with torch.no_grad():
        first = made.deltas(near())[0]
        assert made.weights(K) is made.weights(K)
        made.chain.add_(1)
        made.rank.add_(torch.arange(float(K)))
        assert not torch.equal(made.deltas(near())[0], first)
        again = made.deltas(near())[0]
    torch.testing.assert_close(made.deltas(near())[0], again)


def test_weights_kept_in_evaluation_follow_a_fused_optimiser() -> None:
    """Its step changes parameters and leaves their version as it was."""
    made = fusion("mask", "reranker").eval()
    with torch.no_grad():
        first = made.deltas(near())[0]
    optimiser = torch.optim.Adam(made.lower(), lr=0.5, fused=True)
    made.train()
    made.deltas(near())[0].square().sum().backward()
    optimiser.step()
    made.eval()
    due = made.deltas(near())[0]  # with gradients nothing is kept
    with torch.no_grad():
        assert not torch.allclose(due, first, atol=1e-2)
        torch.testing.assert_close(made.deltas(near())[0], due)


def test_ranks_and_masks_scaled() -> None:
    weights = ranks(torch.randn(M, K), convex=True)
    torch.testing.assert_close(weights.sum(1), torch.ones(M))
    torch.testing.assert_close(mask_weights(kept(torch.randn(M, K - 1, D)), convex=True).sum(1), torch.ones(M, D))
