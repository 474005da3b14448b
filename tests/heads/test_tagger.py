"""The tagger against its formula."""

import pytest
import torch

from encodeonce.errors import ConfigError
from encodeonce.heads.tagger import Tagger


def test_paper_head_is_linear_tanh_linear() -> None:
    head, x = Tagger(6, ("a", "b", "c")).eval(), torch.randn(5, 6)
    inner, outer = head.inner, head.outer
    expected = torch.tanh(x @ inner.weight.T + inner.bias) @ outer.weight.T + outer.bias
    torch.testing.assert_close(head(x), expected)
    assert sum(p.numel() for p in head.parameters()) == 6 * 6 + 6 + 3 * 6 + 3


def test_reference_head_is_two_linear_maps() -> None:
    """A-10: 256 wide, no tanh, so the two maps are one."""
    head, x = Tagger(6, ("a", "b", "c"), reference=True).eval(), torch.randn(5, 6)
    inner, outer = head.inner, head.outer
    assert inner.weight.shape == (256, 6)
    expected = x @ (outer.weight @ inner.weight).T + outer.weight @ inner.bias + outer.bias
    torch.testing.assert_close(head(x), expected)


def test_dropout_acts_in_training_only() -> None:
    head, x = Tagger(64, ("a", "b"), dropout=0.5), torch.randn(5, 64)
    assert not torch.equal(head(x), head(x))
    head.eval()
    assert torch.equal(head(x), head(x))


def test_bad_settings_are_named() -> None:
    with pytest.raises(ConfigError, match=r"dropout=1.0 must lie in \[0, 1\)"):
        Tagger(4, ("a",), dropout=1.0)
    with pytest.raises(ConfigError, match=r"compute='fp8' is unknown\. There is: fp32, bf16"):
        Tagger(4, ("a",), compute="fp8")


def test_bf16_products_stay_close() -> None:
    exact, rounded = Tagger(64, ("a", "b", "c")).eval(), Tagger(64, ("a", "b", "c"), compute="bf16").eval()
    rounded.load_state_dict(exact.state_dict())
    x = torch.randn(30, 64)
    torch.testing.assert_close(rounded(x), exact(x), atol=0.02, rtol=0.02)
    assert rounded(x).dtype == torch.float32
