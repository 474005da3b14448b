"""Heads of whole documents, against sums in plain Python.   Axes: B items  D width  C labels"""

import math

import pytest
import torch

from encodeonce.errors import ConfigError
from encodeonce.heads import IGNORE
from encodeonce.heads.classifier import Classifier
from encodeonce.heads.multilabel import Multilabel
from encodeonce.heads.regressor import Regressor
from encodeonce.heads.tagger import Tagger
from encodeonce.nn.rows import Rows

WIDTH, LABELS = 6, ("a", "b", "c")
ROWS = Rows.of((1, 1, 1))


def test_a_classifier_is_a_tagger_of_single_rows() -> None:
    head, vectors = Classifier(WIDTH, LABELS).eval(), torch.randn(3, WIDTH)
    scores = head(vectors, ROWS)
    assert torch.equal(scores, head.tagger(vectors))
    assert [(label,) for label in head.decode(scores, ROWS)] == head.tagger.decode(scores, ROWS)
    gold = torch.tensor([2, IGNORE, 0])
    by_hand = -sum(scores[row].log_softmax(0)[gold[row]] for row in (0, 2))
    torch.testing.assert_close(head.loss(scores, gold, (1, 1, 1)), by_hand)


def test_probabilities_of_a_classifier_are_its_softmax_and_agree_with_its_answer() -> None:
    head = Classifier(WIDTH, LABELS).eval()
    scores = head(torch.randn(3, WIDTH), ROWS)
    for row, chances, label in zip(
        scores.tolist(), head.probabilities(scores, ROWS), head.decode(scores, ROWS), strict=True
    ):
        exponents = [math.exp(score) for score in row]
        assert chances == pytest.approx({name: e / sum(exponents) for name, e in zip(LABELS, exponents, strict=True)})
        assert label == max(chances, key=chances.__getitem__)


def test_multilabel_loss_is_the_sum_of_each_labels_cross_entropy() -> None:
    head = Multilabel(WIDTH, LABELS).eval()
    scores, gold = head(torch.randn(2, WIDTH), ROWS), torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    by_hand = 0.0
    for line, wanted in zip(scores.tolist(), gold.tolist(), strict=True):
        for score, y in zip(line, wanted, strict=True):
            chance = 1 / (1 + math.exp(-score))
            by_hand -= y * math.log(chance) + (1 - y) * math.log(1 - chance)
    assert head.loss(scores, gold, (1, 1)).item() == pytest.approx(by_hand, rel=1e-5)


@pytest.mark.parametrize("threshold", [0.5, 0.9, 0.1])
def test_multilabel_predicts_what_lies_above_its_threshold(threshold: float) -> None:
    head = Multilabel(WIDTH, LABELS, threshold=threshold).eval()
    scores = torch.tensor([[-3.0, 0.0, 3.0], [0.1, -0.1, 5.0], [-5.0, -4.0, -6.0]])
    chances = head.probabilities(scores, ROWS)
    wanted = [tuple(label for label, chance in one.items() if chance > threshold) for one in chances]
    assert head.decode(scores, ROWS) == wanted
    with pytest.raises(ConfigError, match=r"threshold=1\.0 must lie between 0 and 1"):
        Multilabel(WIDTH, LABELS, threshold=1.0)


def test_a_regressor_learns_in_one_scale_and_answers_in_the_other() -> None:
    head = Regressor(WIDTH, ("label",), mean=2.5, deviation=2.0).eval()
    scores = head(torch.randn(3, WIDTH), ROWS)
    assert scores.shape == (3,)
    gold = torch.tensor([0.5, -100.0, 0.0])
    by_hand = sum((s - g) ** 2 for s, g in zip(scores.tolist(), gold.tolist(), strict=True))
    assert head.loss(scores, gold, (1, 1, 1)).item() == pytest.approx(by_hand, rel=1e-5)
    assert head.decode(scores, ROWS) == pytest.approx([2.5 + 2 * s for s in scores.tolist()])
    for labels, deviation in ((("a", "b"), 1.0), ((), 1.0), (("a",), 0.0)):
        with pytest.raises(ConfigError, match="one output and deviation > 0; given"):
            Regressor(WIDTH, labels, deviation=deviation)


@pytest.mark.parametrize("head", [Classifier(WIDTH, LABELS), Multilabel(WIDTH, LABELS), Regressor(WIDTH, ("y",))])
def test_every_parameter_gets_a_gradient_and_no_rows_are_fine(head: Classifier | Multilabel | Regressor) -> None:
    gold = {Classifier: torch.arange(9) % 3, Multilabel: (torch.randn(9, 3) > 0).float(), Regressor: torch.randn(9)}
    head.loss(head(torch.randn(9, WIDTH), Rows.of((1,) * 9)), gold[type(head)], (1,) * 9).backward()
    assert all(parameter.grad.any() for parameter in head.parameters())
    none = Rows.of(())
    assert head.decode(head(torch.zeros(0, WIDTH), none), none) == []


@pytest.mark.parametrize("head", [Tagger(WIDTH, LABELS), Regressor(WIDTH, ("y",))])
def test_heads_without_labels_of_an_item_give_no_probabilities(head: Tagger | Regressor) -> None:
    with pytest.raises(ConfigError, match=r"the head '(tagger|regressor)' gives no probabilities"):
        head.probabilities(torch.zeros(1), ROWS)
