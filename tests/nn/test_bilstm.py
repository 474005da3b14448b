"""The LSTM against torch's own, item by item; its dropout against a plain loop with the same masks."""

import pytest
import torch
from torch import Tensor, nn

from encodeonce.errors import ConfigError
from encodeonce.nn.bilstm import BiLSTM
from encodeonce.nn.shared_dropout import RowDropout, SharedDropout

WIDTH, HIDDEN = 6, 5
LENGTHS = (3, 1, 7, 3, 4)


def rows() -> Tensor:
    return torch.randn(sum(LENGTHS), WIDTH, dtype=torch.float64, requires_grad=True)


def as_torch(ours: BiLSTM, layer: int) -> nn.LSTM:
    """torch's module with the weights of one layer."""
    weights = (ours.inputs[layer], ours.past[layer], ours.bias[layer])
    theirs = nn.LSTM(weights[0].shape[2], weights[1].shape[2], bidirectional=True).double()
    for d, suffix in ((0, ""), (1, "_reverse")):
        for name, weight in zip(("weight_ih", "weight_hh", "bias_ih"), weights, strict=True):
            getattr(theirs, f"{name}_l0{suffix}").data = weight.data[d].clone()
        getattr(theirs, f"bias_hh_l0{suffix}").data.zero_()
    return theirs


@pytest.mark.parametrize("n_layers", [1, 2, 3])
def test_equals_torchs_lstm_item_by_item_with_its_gradients(n_layers: int) -> None:
    ours, x = BiLSTM(WIDTH, HIDDEN, n_layers, dropout=0.5).double().eval(), rows()
    for bias in ours.bias:
        nn.init.normal_(bias)
    layers = [as_torch(ours, layer) for layer in range(n_layers)]
    found = ours(x, LENGTHS)
    items = []
    for item in x.split(LENGTHS):
        for layer in layers:
            item = layer(item)[0]
        items.append(item)
    expected = torch.cat(items)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
    weigh = torch.randn_like(found)
    theirs = [p for layer in layers for p in layer.parameters()]
    to_x, *_ = torch.autograd.grad((expected * weigh).sum(), [x], retain_graph=True)
    (expected * weigh).sum().backward(inputs=theirs)
    (found * weigh).sum().backward()
    torch.testing.assert_close(x.grad, to_x, atol=1e-12, rtol=0)
    for k, layer in enumerate(layers):
        for d, suffix in ((0, ""), (1, "_reverse")):
            for name, weight in (("weight_ih", ours.inputs), ("weight_hh", ours.past), ("bias_ih", ours.bias)):
                slope = getattr(layer, f"{name}_l0{suffix}").grad
                torch.testing.assert_close(weight[k].grad[d], slope, atol=1e-12, rtol=0)


def test_A8_one_mask_for_all_steps_in_the_state_and_between_layers() -> None:
    """The loop in the open: the state is masked on its way to the next step, not on its way out."""
    ours, x = BiLSTM(WIDTH, HIDDEN, 2, dropout=0.4).double(), rows()
    torch.manual_seed(5)
    found = ours(x, LENGTHS)
    torch.manual_seed(5)
    masks, layer_in = ours.between, x
    for layer in range(2):
        if layer:
            between = masks.factors(len(LENGTHS), 2 * HIDDEN).double()
            layer_in = layer_in * between.repeat_interleave(torch.tensor(LENGTHS), 0)
        kept = masks.factors(2, len(LENGTHS), HIDDEN).double()
        assert sorted(kept.unique().tolist()) == pytest.approx([0, 1 / 0.6])
        out = []
        for b, item in enumerate(layer_in.split(LENGTHS)):
            sides = [_loop(ours, layer, d, item.flip(0) if d else item, kept[d, b]) for d in (0, 1)]
            out.append(torch.cat([sides[0], sides[1].flip(0)], 1))
        layer_in = torch.cat(out)
    torch.testing.assert_close(found, layer_in, atol=1e-12, rtol=0)
    gradients = [torch.autograd.grad(y.square().sum(), (x, *ours.parameters())) for y in (found, layer_in)]
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, atol=1e-11, rtol=0)


def _loop(ours: BiLSTM, layer: int, d: int, item: Tensor, kept: Tensor) -> Tensor:
    cell, state = torch.zeros(2, HIDDEN, dtype=item.dtype)
    out = []
    for row in item:
        gates = ours.inputs[layer][d] @ row + ours.past[layer][d] @ state + ours.bias[layer][d]
        i, f, g, o = gates.chunk(4)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        out.append(o.sigmoid() * cell.tanh())
        state = out[-1] * kept
    return torch.stack(out)


def test_an_item_does_not_depend_on_its_neighbours() -> None:
    ours, x = BiLSTM(WIDTH, HIDDEN, 2).double().eval(), rows()
    together = ours(x, LENGTHS).split(LENGTHS)
    for item, found in zip(x.split(LENGTHS), together, strict=True):
        torch.testing.assert_close(ours(item, (len(item),)), found, atol=1e-14, rtol=0)


def test_bf16_products_stay_close_in_value_and_gradient() -> None:
    lengths = tuple(range(1, 30))
    exact, rounded = BiLSTM(32, 24, 2), BiLSTM(32, 24, 2, compute="bf16")
    rounded.load_state_dict(exact.state_dict())
    results = []
    for model in (exact, rounded):
        x = torch.linspace(-2, 2, sum(lengths) * 32).sin().view(-1, 32).requires_grad_()
        out = model(x, lengths)
        (out * torch.linspace(-1, 1, out.numel()).view(out.shape)).sum().backward()
        results.append([out, x.grad, *(p.grad for p in model.parameters())])
    for a, b in zip(*results, strict=True):
        assert b.dtype == torch.float32
        assert (a - b).norm() < 0.02 * a.norm()


def test_start_values_are_orthogonal_and_no_layers_change_nothing() -> None:
    model = BiLSTM(3, 4, 2)
    for weight, width in zip((*model.inputs, *model.past), (3, 8, 4, 4), strict=True):
        for block in weight.view(8, 4, width):
            product = block.T @ block if width <= 4 else block @ block.T
            torch.testing.assert_close(product, torch.eye(min(4, width)), atol=1e-5, rtol=0)
    assert not any(bias.any() for bias in model.bias)
    none, x = BiLSTM(WIDTH, HIDDEN, 0), rows()
    assert none(x, LENGTHS) is x
    assert (none.width, model.width) == (WIDTH, 8)
    assert model(torch.zeros(0, 3), ()).shape == (0, 8)


def test_bad_settings_are_named() -> None:
    with pytest.raises(ConfigError, match="n_lstm_layers=-1 must be 0 or more, lstm_width=4 at least 1"):
        BiLSTM(3, 4, -1)
    with pytest.raises(ConfigError, match=r"compute='fp8' is unknown\. There is: fp32, bf16"):
        BiLSTM(3, 4, compute="fp8")


def test_A8_row_dropout_zeroes_whole_rows_and_scales_nothing() -> None:
    x = torch.rand(2000, 3) + 1
    dropped = RowDropout(0.33)(x)
    gone = (dropped == 0).all(1)
    assert torch.equal(dropped[~gone], x[~gone])
    assert 0.28 < gone.float().mean() < 0.38
    assert RowDropout(0.33).eval()(x) is x


def test_A8_shared_dropout_has_one_mask_an_item() -> None:
    dropout, x = SharedDropout(0.33), torch.ones(sum(LENGTHS), 400)
    items = dropout(x, LENGTHS).split(LENGTHS)
    for item in items:
        assert torch.equal(item, item[:1].expand_as(item))
        assert sorted(item.unique().tolist()) == pytest.approx([0, 1 / 0.67])
    assert not torch.equal(items[0][0], items[1][0])
    assert dropout.eval()(x, LENGTHS) is x
