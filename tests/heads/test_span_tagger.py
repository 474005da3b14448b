"""Constrained decoding never breaks a span."""

import pytest
import torch

from encodeonce.errors import ConfigError
from encodeonce.heads.span_tagger import SpanTagger
from encodeonce.nn.rows import Rows

BIO = ("O", "B-x", "I-x", "B-y", "I-y")


def test_an_orphan_inside_becomes_well_formed() -> None:
    scores = torch.tensor([[0.0, 1, 3, 0, 0], [0, 0, 3, 0, 0]])
    assert SpanTagger(4, BIO, constrained=False).decode(scores, Rows.of((2,))) == [("I-x", "I-x")]
    assert SpanTagger(4, BIO).decode(scores, Rows.of((2,))) == [("B-x", "I-x")]
    assert SpanTagger(4, BIO).decode(scores, Rows.of((1, 1))) == [("B-x",), ("O",)]


def test_a_label_of_another_form_is_named() -> None:
    with pytest.raises(ConfigError, match="'NOUN' is no BIO or BIOES label"):
        SpanTagger(4, ("O", "NOUN"))
    assert SpanTagger(4, ("O", "NOUN"), constrained=False).labels == ("O", "NOUN")


def test_where_no_sequence_is_well_formed_the_fewest_breaks_win() -> None:
    head = SpanTagger(4, ("B-x", "E-x"))
    assert head.decode(torch.tensor([[5.0, 0.0]]), Rows.of((1,))) == [("B-x",)]
    assert head.decode(torch.tensor([[5.0, 0], [5, 0], [0, 0]]), Rows.of((3,))) == [("B-x", "B-x", "E-x")]
