"""Checks that tagging heads share.   Axes: R rows  D width  C labels"""

import pytest
import torch

from encodeonce.errors import ConfigError
from encodeonce.heads import IGNORE, Head
from encodeonce.heads.span_tagger import SpanTagger
from encodeonce.heads.tagger import Tagger
from encodeonce.nn.rows import Rows

WIDTH, LABELS = 10, ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
every_tagger = pytest.mark.parametrize("cls", [Tagger, SpanTagger])


@every_tagger
def test_loss_is_the_sum_over_rows_that_count(cls: type[Head]) -> None:
    head = cls(WIDTH, LABELS).eval()
    scores, gold = head(torch.randn(4, WIDTH)), torch.tensor([2, IGNORE, 0, 4])
    by_hand = -sum(scores[row].log_softmax(0)[gold[row]] for row in (0, 2, 3))
    torch.testing.assert_close(head.loss(scores, gold), by_hand)


@every_tagger
def test_nothing_labelled_is_loss_zero_with_gradients_zero(cls: type[Head]) -> None:
    head = cls(WIDTH, LABELS)
    loss = head.loss(head(torch.randn(2, WIDTH)), torch.full((2,), IGNORE))
    loss.backward()
    assert loss == 0
    assert all(not parameter.grad.any() for parameter in head.parameters())


@every_tagger
def test_gold_scores_decode_to_gold(cls: type[Head]) -> None:
    gold = [("B-PER", "I-PER", "O"), ("B-LOC",), ("O", "B-LOC", "I-LOC", "B-PER")]
    ids = torch.tensor([LABELS.index(label) for item in gold for label in item])
    scores = 9.0 * torch.nn.functional.one_hot(ids, len(LABELS))
    assert cls(WIDTH, LABELS).decode(scores, Rows.of((3, 1, 4))) == gold


@every_tagger
def test_no_items_and_no_rows(cls: type[Head]) -> None:
    head = cls(WIDTH, LABELS).eval()
    assert head.decode(head(torch.zeros(0, WIDTH)), Rows.of(())) == []


@every_tagger
def test_labels_are_checked(cls: type[Head]) -> None:
    with pytest.raises(ConfigError, match="at least one label and each once; there is none"):
        cls(WIDTH, ())
    with pytest.raises(ConfigError, match=r"each once; repeated: \['O'\]"):
        cls(WIDTH, ("O", "B-X", "O"))


@every_tagger
def test_a_single_label_is_allowed(cls: type[Head]) -> None:
    head = cls(WIDTH, ("O",)).eval()
    assert head.decode(head(torch.randn(2, WIDTH)), Rows.of((2,))) == [("O", "O")]


@every_tagger
def test_every_parameter_gets_a_gradient(cls: type[Head]) -> None:
    head = cls(WIDTH, LABELS)
    head.loss(head(torch.randn(20, WIDTH)), torch.arange(20) % 5).backward()
    assert all(parameter.grad.any() for parameter in head.parameters())
