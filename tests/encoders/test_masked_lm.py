"""The masked-language-model head against `transformers`' own, for every family that has one."""

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from encodeonce.encoders import checkpoint as files
from encodeonce.encoders.masked_lm import MaskedLM
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.errors import ConfigError, EncoderError
from encodeonce.resolve import resolve

FAMILIES = [name for name in files.families() if resolve("encoders", name).MASKED is not None]


def logits_of(model: Any, ids: Tensor) -> Tensor:
    with torch.no_grad():
        return model(ids).logits


def states_of(folder: Path, ids: Tensor) -> Tensor:
    """The last view, items end to end."""
    stack = Pretrained(folder).stack()
    with torch.no_grad():
        return stack.run(stack.place(stack.lookup(ids)), None)[-1].flatten(0, 1)


def test_every_family_but_the_two_without_a_head_has_one() -> None:
    assert set(files.families()) - set(FAMILIES) == {"gpt2", "t5"}


@pytest.mark.parametrize("family", [*FAMILIES, "deberta_v2 as its authors'"])
def test_logits_equal_transformers(family: str, checkpoint: Callable[..., Path], tiny: SimpleNamespace) -> None:
    family, *authors = family.split(" ", 1)
    settings = {"masked": True, **({"legacy": False} if authors else {})}
    folder = checkpoint(family, **settings)
    ids = torch.randint(5, 30, (2, 9), generator=torch.Generator().manual_seed(1))
    import transformers

    expected = logits_of(transformers.AutoModelForMaskedLM.from_pretrained(folder).eval(), ids).flatten(0, 1)
    head = Pretrained(folder).masked_lm()
    states = states_of(folder, ids)
    torch.testing.assert_close(head(states), expected, atol=2e-5, rtol=1e-5)
    columns = torch.tensor([7, 3, 21])
    torch.testing.assert_close(head(states, columns), expected[:, columns], atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(head.only(columns)(states), expected[:, columns], atol=2e-5, rtol=1e-5)
    table = Pretrained(folder).stack().model.get_input_embeddings().weight
    assert head.tied
    assert torch.equal(head(states, table=table), head(states))


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_of_an_untied_head_equal_transformers(family: str, checkpoint: Callable[..., Path]) -> None:
    """Whose vectors are its own, and whose two biases differ, of which one alone is added."""
    import transformers

    folder = checkpoint(family, masked=True, tie_word_embeddings=False)
    ids = torch.randint(5, 30, (2, 9), generator=torch.Generator().manual_seed(1))
    expected = logits_of(transformers.AutoModelForMaskedLM.from_pretrained(folder).eval(), ids).flatten(0, 1)
    head = Pretrained(folder).masked_lm()
    assert not head.tied
    torch.testing.assert_close(head(states_of(folder, ids)), expected, atol=2e-5, rtol=1e-5)


def test_minilm_mlm_equals_transformers(shared: Path) -> None:
    folder = shared / "models" / "minilm-mlm"
    import transformers

    ids = torch.tensor([[101, 2023, 3185, 2001, 103, 1012, 102]])
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float32).eval()
    head = Pretrained(folder).masked_lm()
    torch.testing.assert_close(head(states_of(folder, ids)), logits_of(model, ids)[0], atol=2e-4, rtol=1e-5)


def test_every_parameter_takes_a_gradient_and_the_encoder_none(checkpoint: Callable[..., Path]) -> None:
    folder = checkpoint("bert", masked=True)
    pretrained = Pretrained(folder)
    head, again = pretrained.masked_lm(), pretrained.masked_lm()
    head(torch.randn(3, 32))[:, 2].sum().backward()
    assert all(parameter.grad is not None for parameter in head.parameters())
    assert all(parameter.grad is None for parameter in (*again.parameters(), *pretrained.stack().parameters()))


def test_a_head_that_forgot_its_table_needs_one(checkpoint: Callable[..., Path]) -> None:
    head = Pretrained(checkpoint("bert", masked=True)).masked_lm()
    states, table = torch.randn(2, 32), head.weight
    assert table is not None
    before = head(states)
    head.forget_table()
    assert not any(name.endswith("weight") and value.shape == table.shape for name, value in head.named_parameters())
    assert torch.equal(head(states, table=table), before)
    with pytest.raises(ConfigError, match="give forward the table of piece vectors"):
        head(states)
    with pytest.raises(ConfigError, match="no column can be taken"):
        head.only(torch.tensor([1]))


def test_a_head_of_its_own_cannot_forget_it(checkpoint: Callable[..., Path]) -> None:
    head = Pretrained(checkpoint("bert", masked=True, tie_word_embeddings=False)).masked_lm()
    assert not head.tied
    with pytest.raises(ConfigError, match="vectors of its own"):
        head.forget_table()


@pytest.mark.parametrize("family", ["gpt2", "t5"])
def test_a_family_without_a_head_is_refused_by_name(family: str, checkpoint: Callable[..., Path]) -> None:
    with pytest.raises(EncoderError, match=f"family '{family}' has no masked-language-model head. Families that have"):
        Pretrained(checkpoint(family)).masked_lm()


@pytest.mark.parametrize("family", ["bert", "electra", "modernbert"])
def test_a_checkpoint_without_a_head_is_refused_by_name(family: str, checkpoint: Callable[..., Path]) -> None:
    with pytest.raises(EncoderError, match=r"hold no masked-language-model head .*classification head on its vectors"):
        MaskedLM.load(checkpoint(family))


def test_minilm_itself_is_refused(minilm: Path) -> None:
    with pytest.raises(EncoderError, match="masked-language-model head"):
        Pretrained(os.fspath(minilm)).masked_lm()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_new_head_is_that_of_transformers(family: str, checkpoint: Callable[..., Path]) -> None:
    """Drawn with the seed, over the same table of piece vectors; the generator of before is left as it was."""
    import transformers

    folder, ids = checkpoint(family), torch.randint(5, 30, (2, 9), generator=torch.Generator().manual_seed(1))
    torch.manual_seed(11)
    expected = logits_of(transformers.AutoModelForMaskedLM.from_pretrained(folder).eval(), ids).flatten(0, 1)
    before = torch.random.get_rng_state()
    head = MaskedLM.load(folder, seed=11)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.testing.assert_close(head(states_of(folder, ids)), expected, atol=2e-5, rtol=1e-5)
    assert head.tied
    assert not torch.equal(MaskedLM.load(folder, seed=12).dense.weight, head.dense.weight)


def test_a_seed_changes_no_head_that_is_there(checkpoint: Callable[..., Path]) -> None:
    folder = checkpoint("bert", masked=True)
    with_seed, without = MaskedLM.load(folder, seed=1).state_dict(), MaskedLM.load(folder).state_dict()
    assert all(torch.equal(without[name], value) for name, value in with_seed.items())
