"""What LUMEN's formulas count, counted by torch.   Axes: none"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from encodeonce import costs
from encodeonce.batching import Encodings
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.encoders.t5_decoder import T5Decoder
from encodeonce.errors import ConfigError
from encodeonce.methods.lumen import Design, Lumen, carry, export, passage_document
from encodeonce.types import Encoding, Passage, Question

WIDTH, BLOCKS, DECODER = 48, 3, 2
"""4 d^2 of attention and 3 d (8/3 d) of a gated feed-forward part: a block is exactly the formula's 12 d^2."""


def read(folder: Path, wanted: Design, questions: list[Question]) -> tuple[Lumen, Encodings | None]:
    encoder = wanted.encoder(folder)
    method = Lumen.build(wanted, encoder, read_ahead=0).eval()
    if not method.plan.stored:
        return method, None
    documents = [passage_document(passage) for question in questions for passage in question.passages]
    pieces = encoder.cut(documents)
    found = dict(encoder.encode(pieces, list(method.plan.stored)))
    items = [Encoding(cut.key, found[i], cut.word) for i, cut in enumerate(pieces)]
    return method, Encodings(encoder.spec(list(method.plan.stored), "fp32"), items)


@pytest.mark.parametrize("live", range(BLOCKS + 1))
def test_measured_flops_are_the_formula(live: int, tmp_path: Path, checkpoint: Callable[..., Path]) -> None:
    vocabulary = 400
    sizes = {"d_model": WIDTH, "num_layers": BLOCKS, "num_decoder_layers": DECODER, "num_heads": 4, "d_kv": 12}
    T5Decoder.shaped(tmp_path, vocab_size=vocabulary, d_ff=WIDTH * 8 // 3, **sizes)
    donor = checkpoint("t5")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((donor / name).read_bytes())
    passages = tuple(Passage(f"p{i}", "", "cat " * 6) for i in range(3))
    questions = [Question("q", "the river bank", (), passages)]
    wanted = Design(live=live, reader="generate", decoder_question="in_memory_each")
    method, memory = read(tmp_path, wanted, questions)
    stack = method.parts["live"].stack if live else None  # type: ignore[union-attr]
    for model in (stack, method.parts["question"].stack):  # type: ignore[union-attr]
        if model is not None:
            model.model.config._attn_implementation = "eager"  # type: ignore[union-attr]
            model.model.encoder.config._attn_implementation = "eager"  # type: ignore[union-attr]
    reader = method.reader
    reader.decoder.body.config._attn_implementation = "eager"  # type: ignore[union-attr]
    examples = method.read(questions, wanted.encoder(tmp_path), memory)
    (batch,) = method.batches(examples, size=1, order=None)
    assert len(set(batch.lengths)) == 1, "nothing is padded, so that nothing uncounted is computed"
    labels = torch.tensor([[5, 6, 7, 1]])
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        reader.logits(method.states(batch), batch, labels)  # type: ignore[operator]
    n_source, n_target, n_question = sum(batch.lengths), labels.shape[1], batch.question_lengths[0]
    together = batch.lengths[0]
    expected = (
        costs.lumen_macs(n_source, n_target, WIDTH, live, DECODER)
        + costs.lumen_score_macs(n_source, together, WIDTH, live)
        + costs.lumen_cross_score_macs(n_source, n_target, WIDTH, DECODER)
        + costs.lumen_question_macs(n_question, WIDTH, BLOCKS - live)
        + 2 * n_question**2 * WIDTH * (BLOCKS - live)  # scores of the question's own pass
        + 2 * n_target**2 * WIDTH * DECODER  # scores among the answer's pieces
        + n_target * WIDTH * vocabulary  # the output head
    )
    assert counter.get_total_flops() == costs.flops(expected)


def test_transfer_carries_all_but_the_memory_and_a_trained_memory_is_a_checkpoint(
    checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    folder = checkpoint("bert")
    questions = [Question("q", "the river", (), (Passage("p", "", "the cat sat"), Passage("r", "", "a bank")))]
    trained, _ = read(folder, Design(live=1, memory="finetuned", question_pieces=8), questions)
    with torch.no_grad():
        for parameter in trained.parts.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    encoder = Design(live=1, question_pieces=8).encoder(folder)
    export(trained, encoder, tmp_path / "new")
    target, memory = read(tmp_path / "new", Design(live=1, question_pieces=8), questions)
    carry(trained, target)
    states = []
    for method, store, home in ((trained, None, folder), (target, memory, tmp_path / "new")):
        examples = method.read(questions, method.design.encoder(home), store)
        (batch,) = method.batches(examples, size=1, order=None)
        states.append(method.states(batch))
    torch.testing.assert_close(states[1], states[0], atol=2e-5, rtol=0)
    assert Pretrained(folder).spec().weights != Pretrained(tmp_path / "new").spec().weights
    with pytest.raises(ConfigError, match="this memory was not trained"):
        export(target, encoder, tmp_path / "none")
    with pytest.raises(ConfigError, match=r"cut: 2 there, 1 here; blocks: \[2\] there, \[1, 2\] here. Make them"):
        carry(trained, read(folder, Design(live=2, question_pieces=8), questions)[0])
    frozen = Design(live=1, question_encoder="frozen", question_pieces=8)
    with pytest.raises(ConfigError, match="question_encoder: 'trained' there, 'frozen' here"):
        carry(trained, read(folder, frozen, questions)[0])
    writer = Design(live=1, reader="generate", decoder_blocks=1, question_pieces=8)
    with pytest.raises(ConfigError, match="reader: 'span' there, 'generate' here"):
        carry(trained, read(folder, writer, questions)[0])
    plain = Design(live=1, question_pieces=8)
    shown = Lumen.build(plain, plain.encoder(folder), form="fid")
    with pytest.raises(ConfigError, match="form: 'plain' there, 'fid' here"):
        carry(trained, shown)
    wide = checkpoint("bert", hidden_size=64)
    with pytest.raises(ConfigError, match=r"weights of the question part .*\(32,\) there, \(64,\) here. Give both"):
        carry(trained, read(wide, plain, questions)[0])


def test_an_encoder_trained_whole_is_a_checkpoint_with_its_decoder(
    tmp_path: Path, checkpoint: Callable[..., Path]
) -> None:
    donor, start = checkpoint("t5"), tmp_path / "start"
    sizes = {"d_model": 32, "num_layers": 3, "num_heads": 4, "d_kv": 8, "d_ff": 48}
    T5Decoder.shaped(start, vocab_size=100, **sizes)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (start / name).write_bytes((donor / name).read_bytes())
    questions = [Question("q", "the river", (), (Passage("p", "", "the cat sat"),))]
    wanted = Design(live=3, reader="generate")
    trained, _ = read(start, wanted, questions)
    with torch.no_grad():
        for parameter in trained.parts.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    export(trained, wanted.encoder(start), tmp_path / "new")
    again, _ = read(tmp_path / "new", wanted, questions)
    found = []
    for method, home in ((trained, start), (again, tmp_path / "new")):
        (batch,) = method.batches(method.read(questions, wanted.encoder(home)), size=1, order=None)
        found.append(method.reader.logits(method.states(batch), batch, torch.tensor([[5, 6, 1]])))  # type: ignore[operator]
    torch.testing.assert_close(found[1], found[0], atol=2e-5, rtol=0)
