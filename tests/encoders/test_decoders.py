"""Decoders over a memory against `transformers`: logits, greedy and beam outputs.   Axes: B items  M memory  D width"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from encodeonce.encoders.decoder import Decoder, write
from encodeonce.encoders.t5_decoder import T5Decoder
from encodeonce.encoders.warm_decoder import WarmDecoder
from encodeonce.errors import ConfigError, EncoderError

SIZES: dict[str, Any] = {"d_model": 32, "num_layers": 3, "num_heads": 4, "d_kv": 8, "d_ff": 48, "vocab_size": 40}
MEMORY, READABLE = torch.randn(3, 7, 32, generator=torch.Generator().manual_seed(1)), torch.ones(3, 7, dtype=torch.bool)
READABLE[0, 4:] = READABLE[2, 1:3] = False


def t5(tmp_path: Path, v11: bool) -> tuple[Any, T5Decoder]:
    """A saved model whose norms matter, as transformers reads it, and ours."""
    import transformers

    kind = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False} if v11 else {}
    T5Decoder.shaped(tmp_path, **{"feed_forward_proj": "relu", "tie_word_embeddings": True, **SIZES, **kind})
    model = transformers.T5ForConditionalGeneration.from_pretrained(tmp_path)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(parameter))))
    model.save_pretrained(tmp_path)
    return model.eval(), T5Decoder.load(tmp_path).eval()


def outputs(model: Any) -> Any:
    from transformers.modeling_outputs import BaseModelOutput

    return {"encoder_outputs": BaseModelOutput(last_hidden_state=MEMORY), "attention_mask": READABLE.long()}


@pytest.mark.parametrize("v11", [False, True])
def test_t5_logits_and_outputs_equal_transformers(v11: bool, tmp_path: Path) -> None:
    model, ours = t5(tmp_path, v11)
    assert ours.tied is not v11
    assert (ours.scale == 1) is v11
    ids = torch.randint(2, 40, (3, 6))
    expected = model(decoder_input_ids=ids, **outputs(model)).logits
    torch.testing.assert_close(ours(ids, MEMORY, READABLE), expected, atol=2e-5, rtol=1e-5)
    for n_beams, penalty in ((1, 1.0), (3, 1.0), (4, 2.0), (4, 0.0)):
        kept = model.generate(
            **outputs(model), num_beams=n_beams, length_penalty=penalty, max_new_tokens=9, do_sample=False
        )
        written = write(ours, MEMORY, READABLE, longest=9, n_beams=n_beams, length_penalty=penalty)
        for line, one in zip(kept.tolist(), written, strict=True):
            body = line[1:]
            assert list(one.ids) == (body[: body.index(1)] if 1 in body else body), (n_beams, penalty)
        for item, one in enumerate(written):
            output = [*one.ids, 1][:9]
            given = torch.tensor([[0, *output[:-1]]])
            every = ours(given, MEMORY[item : item + 1], READABLE[item : item + 1])[0].log_softmax(-1)
            expected = every[range(len(output)), output].sum().item()
            assert one.log_probability == pytest.approx(expected, abs=1e-3), (n_beams, penalty)


def test_a_fresh_v11_model_starts_at_the_loss_of_a_guess_and_stays_untied(tmp_path: Path) -> None:
    """B8: transformers itself builds it tied and unscaled, at a loss several times as high."""
    T5Decoder.shaped(tmp_path, **SIZES)
    decoder = T5Decoder.load(tmp_path).eval()
    assert not decoder.tied
    ids = torch.randint(2, 40, (3, 8))
    logits = decoder(ids, MEMORY, READABLE)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.randint(0, 40, (24,)))
    assert abs(loss.item() - torch.tensor(40.0).log().item()) < 1.0


def slowly(decoder: Decoder, item: int, longest: int, prefix: list[int]) -> list[int]:
    """Greedy, all pieces from the start at every step, one item without padding."""
    ids = [*prefix, decoder.start]
    for _ in range(longest):
        memory = MEMORY[item : item + 1, READABLE[item]]
        readable = torch.ones(memory.shape[:2], dtype=torch.bool)
        ids.append(int(decoder(torch.tensor([ids]), memory, readable)[0, -1].argmax()))
        if ids[-1] == decoder.end:
            return ids[len(prefix) + 1 : -1]
    return ids[len(prefix) + 1 :]


@pytest.mark.parametrize("family", ["bert", "roberta", "electra", "t5"])
def test_greedy_with_cache_and_prefix_equals_one_item_at_a_time(
    family: str, tmp_path: Path, checkpoint: Callable[..., Path]
) -> None:
    decoder: Decoder
    if family == "t5":
        _, decoder = t5(tmp_path, True)
    else:
        sizes = {"embedding_size": 32} if family == "electra" else {}
        decoder = WarmDecoder.load(checkpoint(family, **sizes), 2, 3, 2).eval()
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    prefixes = [[5, 6, 7], [8], [9, 10]]
    real = torch.tensor([[len(one) > 2 - i for i in range(3)] for one in prefixes])
    ids = torch.zeros(3, 3, dtype=torch.long)
    ids[real] = torch.tensor([piece for one in prefixes for piece in one])
    written = write(decoder, MEMORY, READABLE, longest=6, prefix=ids, real=real)
    bare = write(decoder, MEMORY, READABLE, longest=6)
    with torch.no_grad():
        for item, prefix in enumerate(prefixes):
            assert list(written[item].ids) == slowly(decoder, item, 6, prefix)
            assert list(bare[item].ids) == slowly(decoder, item, 6, [])


def test_a_warm_decoder_is_transformers_own_with_new_cross_attention(checkpoint: Callable[..., Path]) -> None:
    import transformers

    folder = checkpoint("bert")
    decoder = WarmDecoder.load(folder, 2, 3).eval()
    encoder = transformers.AutoModel.from_pretrained(folder)
    own = dict(decoder.model.bert.named_parameters())
    for name, weight in encoder.named_parameters():
        if not name.startswith("pooler"):
            assert torch.equal(own[name], weight), name
    fresh = {id(parameter) for parameter in decoder.fresh()}
    names = {name for name, parameter in decoder.model.named_parameters() if id(parameter) in fresh}
    assert sum("crossattention" in name for name in names) == 10 * encoder.config.num_hidden_layers
    assert all("crossattention" in name or name.startswith("cls.") for name in names)
    with pytest.raises(
        EncoderError, match=r"'mpnet' has no decoder that starts as an encoder\. There is: bert, roberta"
    ):
        WarmDecoder.load(checkpoint("mpnet"), 2, 3)
    with pytest.raises(EncoderError, match="decoder_blocks=4 must lie between 1 and 3"):
        WarmDecoder.load(folder, 2, 3, 4)
    with pytest.raises(ConfigError, match="has a table of piece vectors of its own"):
        decoder.shares(torch.nn.Embedding(3, 2))
    with pytest.raises(ConfigError, match="longest=0 and n_beams=1 must be at least 1"):
        write(decoder, MEMORY, READABLE, longest=0)


def test_L05_a_shared_table_is_read_trained_and_kept_by_its_owner(tmp_path: Path) -> None:
    _, ours = t5(tmp_path, False)
    ids = torch.randint(2, 40, (3, 4))
    table = ours.table
    assert isinstance(table, torch.nn.Embedding)
    expected: Tensor = ours(ids, MEMORY, READABLE)
    ours.shares(table)
    assert not any("table" in name for name in ours.state_dict())
    found = ours(ids, MEMORY, READABLE)
    assert torch.equal(found, expected)
    found.sum().backward()
    assert table.weight.grad is not None


@pytest.mark.parametrize("family", ["bert", "roberta", "electra"])
def test_a_tied_weight_is_saved_once_and_comes_back(family: str, checkpoint: Callable[..., Path]) -> None:
    sizes = {"embedding_size": 32} if family == "electra" else {}
    folder = checkpoint(family, **sizes)
    decoder, other = (WarmDecoder.load(folder, 2, 3).eval() for _ in range(2))
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    state = decoder.state_dict()
    assert len({tensor.data_ptr() for tensor in state.values()}) == len(state)
    other.load_state_dict(state)
    ids = torch.tensor([[2, 5, 6]] * len(MEMORY))
    with torch.no_grad():
        assert torch.equal(other(ids, MEMORY, READABLE), decoder(ids, MEMORY, READABLE))
    del state[next(iter(state))]
    with pytest.raises(RuntimeError, match="Missing key"):
        other.load_state_dict(state)
