"""Questions and passages as a reader is trained on them: which rows are gold."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from encodeonce.encoders.pretrained import Pretrained
from encodeonce.methods.lumen import Design, Lumen
from encodeonce.types import Answer, Passage, Question


def test_an_answer_is_gold_in_a_text_without_blanks_and_a_split_that_lacks_its_answers_says_so(
    checkpoint: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    asked = [
        Question("q0", "the", (Answer("北京"),), (Passage("p0", text="中国的首都是北京。"),)),
        Question("q1", "the", (Answer("cat"),), (Passage("p1", text="the cat"),)),
        Question("q2", "the", (Answer("cat"),), (Passage("p2", text="a category"),), place="f:3"),
    ]
    design = Design(question_pieces=8, live=Pretrained(checkpoint("bert")).n_blocks)
    encoder = design.encoder(checkpoint("bert"))
    method = Lumen.build(design, encoder)
    spans = method.read(asked, encoder).spans
    assert [None if own is None else len(own) for own in spans] == [1, 1, 0]
    assert "none of their passages" not in caplog.text
    method.read([asked[2], asked[0], replace(asked[2], id="q3")], encoder)
    assert (
        "2 of 3 questions that have an answer have it in none of their passages, the first f:3 ('cat')" in caplog.text
    )
