"""Generative LUMEN on T5 and T5.1.1, and with a warm decoder: the identities CL1 to CL17 on logits.

Axes: B questions   T pieces of an answer   V vocabulary
"""

import importlib.util
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
from torch import Tensor

from encodeonce.batching import Encodings
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.encoders.t5_decoder import T5Decoder
from encodeonce.errors import ConfigError, NonFinite
from encodeonce.methods.lumen import Design, Lumen, ReadingBatch, export, passage_document, question_document
from encodeonce.store import Store
from encodeonce.train.fit import fit
from encodeonce.train.settings import Settings
from encodeonce.types import Answer, Document, Encoding, Passage, Question

_made_by = importlib.util.spec_from_file_location("tiny_two", Path(__file__).parents[1] / "encoders" / "conftest.py")
assert _made_by is not None
assert _made_by.loader is not None
_tiny = importlib.util.module_from_spec(_made_by)
_made_by.loader.exec_module(_tiny)

P1 = Passage("p1", "", "the cat sat on the mat .")
P2 = Passage("p2", "river", "the river bank is running by")
P3 = Passage("p3", "", "a naive cafe")
QUESTIONS = (
    Question("q0", "the cat ?", (Answer("mat"), Answer("the mat")), (P1, P2, P3)),
    Question("q1", "is the bank", (Answer("river"),), (P2,)),
    Question("q2", "on", (), (P3, P1)),
)
KINDS = ("t5", "t5.1.1")
WARM = ("bert", "mpnet", "modernbert")
"""Encoders that a decoder of BERT's kind writes for."""
FORM = "fid"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, checkpoint: Callable[..., Path]) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def folder(kind: str) -> Path:
        if kind in WARM and kind not in made:
            made[kind] = tmp_path_factory.mktemp(kind) / "encoder"
            shutil.copytree(checkpoint(kind), made[kind])
            vocabulary = Pretrained(made[kind]).config["vocab_size"]
            _tiny.tiny_model("bert", vocabulary).save_pretrained(made[kind] / "decoder")
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp("kind")
            tokenizer = _tiny.unigram(begin=False)
            tokenizer.backend_tokenizer.decoder = tokenizers.decoders.Metaspace()
            tokenizer.save_pretrained(made[kind])
            sizes = {"d_model": 32, "num_layers": 3, "num_heads": 4, "d_kv": 8, "d_ff": 48, "eos_token_id": 2}
            old = {"feed_forward_proj": "relu", "tie_word_embeddings": True} if kind == "t5" else {}
            sizes = {**sizes, "num_decoder_layers": 2, "pad_token_id": 1, "decoder_start_token_id": 1, **old}
            T5Decoder.shaped(made[kind], vocab_size=len(tokenizer), **sizes)
        return made[kind]

    return folder


def whole(folder: Path) -> Any:
    import transformers

    return transformers.T5ForConditionalGeneration.from_pretrained(folder).eval()


def memory(encoder: Pretrained, layers: tuple[int, ...], form: str) -> Encodings:
    documents = [passage_document(passage, form) for passage in (P1, P2, P3)]
    pieces = encoder.cut(documents)
    found = dict(encoder.encode(pieces, list(layers)))
    spec = encoder.spec(list(layers), "fp32")
    return Encodings(spec, [Encoding(cut.key, found[i], cut.word) for i, cut in enumerate(pieces)])


def made(folder: Path, questions: Any = QUESTIONS, **options: Any) -> tuple[Lumen, ReadingBatch]:
    warm = folder / "decoder"
    form, decoder = ("plain", warm) if warm.is_dir() else (FORM, None)
    own = {"decoder_blocks": 1, "question_pieces": 16, "longest_answer": 16} if warm.is_dir() else {}
    wanted = Design(reader="generate", **{**own, **options})
    encoder = wanted.encoder(folder)
    method = Lumen.build(wanted, encoder, read_ahead=0, form=form, decoder=decoder).eval()
    draw = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in method.reader.decoder.fresh():  # type: ignore[union-attr, operator]
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=draw))  # a new cross-attention says little
    stored = method.plan.stored
    examples = method.read(questions, encoder, memory(encoder, stored, form) if stored else None)
    (batch,) = method.batches(examples, size=len(questions), order=None)
    return method, batch


LABELS = torch.tensor([[5, 6, 7, 2], [8, 2, 9, 3], [4, 5, 6, 2]])


def logits(method: Lumen, batch: ReadingBatch) -> Tensor:
    reader: Any = method.reader
    return reader.logits(method.states(batch), batch, LABELS[: len(batch.items)]).detach()


def ids_of(encoder: Pretrained, document: Document, end: bool) -> Tensor:
    ids = torch.from_numpy(encoder.cut([document])[0].ids.astype(np.int64))
    return ids if end else ids[:-1]


def oracle(folder: Path, question: Question, number: int, each: Callable[[Any, Tensor, Tensor], Tensor]) -> Tensor:
    """transformers' decoder over what `each(model, question ids, passage ids)` makes of every passage."""
    encoder, model = Pretrained(folder), whole(folder)
    asked = ids_of(encoder, question_document(question, FORM), False)
    parts = [each(model, asked, ids_of(encoder, passage_document(p, FORM), True)) for p in question.passages]
    states = torch.cat(parts, 1)
    starts = torch.full((1, 1), model.config.decoder_start_token_id)
    inputs = torch.cat([starts, LABELS[number : number + 1, :-1]], 1)
    return model(decoder_input_ids=inputs, encoder_outputs=(states,)).logits[0].detach()


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=3e-5, rtol=1e-5)


def joint(model: Any, asked: Tensor, read: Tensor) -> Tensor:
    return model.encoder(input_ids=torch.cat([asked, read])[None]).last_hidden_state


def apart(model: Any, asked: Tensor, read: Tensor) -> Tensor:
    return torch.cat([model.encoder(input_ids=ids[None]).last_hidden_state for ids in (asked, read)], 1)


@pytest.mark.parametrize("kind", KINDS)
def test_CL2_CL15_everything_live_is_fusion_in_decoder(kind: str, folders: Callable[[str], Path]) -> None:
    method, batch = made(folders(kind), live=3)
    found = logits(method, batch)
    for number, question in enumerate(QUESTIONS):
        close(found[number], oracle(folders(kind), question, number, joint))


@pytest.mark.parametrize("kind", KINDS)
def test_CL1_CL6_parts_that_do_not_meet_are_the_pure_memory(kind: str, folders: Callable[[str], Path]) -> None:
    expected = [oracle(folders(kind), question, n, apart) for n, question in enumerate(QUESTIONS)]
    for live in range(4):
        found = logits(*made(folders(kind), live=live, attention="neither", decoder_question="in_memory_each"))
        for number in range(len(QUESTIONS)):
            close(found[number], expected[number])


@pytest.mark.parametrize("kind", KINDS)
def test_CL17_no_mem2q_is_a_mask_of_the_ordinary_stack(kind: str, folders: Callable[[str], Path]) -> None:
    def masked(model: Any, asked: Tensor, read: Tensor) -> Tensor:
        ids = torch.cat([asked, read])[None]
        open_ = torch.ones(1, 1, ids.shape[1], ids.shape[1], dtype=torch.bool)
        open_[..., len(asked) :, : len(asked)] = False
        return model.encoder(input_ids=ids, attention_mask=open_).last_hidden_state

    found = logits(*made(folders(kind), live=3, attention="no_mem2q"))
    for number, question in enumerate(QUESTIONS):
        close(found[number], oracle(folders(kind), question, number, masked))


@pytest.mark.parametrize("kind", KINDS + WARM)
def test_CL7_CL8_order_repeats_and_batch_mates_change_no_logit(kind: str, folders: Callable[[str], Path]) -> None:
    found = logits(*made(folders(kind), live=1))
    first = QUESTIONS[0]
    for passages in (first.passages, first.passages[::-1], first.passages * 2):
        alone = logits(*made(folders(kind), (Question("q", first.text, first.answers, passages),), live=1))
        close(alone[0], found[0])
    fewer = logits(*made(folders(kind), (Question("q", first.text, first.answers, first.passages[:2]),), live=1))
    assert (fewer[0] - found[0]).abs().max() > 1e-3


@pytest.mark.parametrize("kind", KINDS + WARM)
def test_CL9_a_masked_passage_is_none_and_its_question_copy_is_masked_with_it(
    kind: str, folders: Callable[[str], Path]
) -> None:
    method, batch = made(folders(kind), QUESTIONS[:1], live=1)
    reader: Any = method.reader
    kept, readable = reader.memory(method.states(batch), batch)
    n_question = batch.pairs.question[0]
    more = torch.cat([kept, kept[:, :n_question], 9 * torch.randn(1, 5, kept.shape[-1])], 1)
    masked = torch.cat([readable, torch.zeros(1, n_question + 5, dtype=torch.bool)], 1)
    ids = LABELS[:1]
    close(reader.decoder(ids, more, masked), reader.decoder(ids, kept, readable))
    masked[:, kept.shape[1] : kept.shape[1] + n_question] = True
    assert (reader.decoder(ids, more, masked) - reader.decoder(ids, kept, readable)).abs().max() > 1e-3


@pytest.mark.parametrize("shown", ["in_memory_each", "prefix"])
@pytest.mark.parametrize("kind", KINDS + WARM)
def test_CL10_a_longer_question_beside_it_changes_no_logit(
    kind: str, shown: str, folders: Callable[[str], Path]
) -> None:
    long = Question("long", "the cat sat on the mat by the river bank ?", (Answer("mat"),), (P2,))
    alone = logits(*made(folders(kind), QUESTIONS[:1], live=1, decoder_question=shown))
    method, batch = made(folders(kind), (QUESTIONS[0], long), live=1, decoder_question=shown)
    assert batch.question_lengths[1] > batch.question_lengths[0]
    close(logits(method, batch)[0], alone[0])


def stepped(module: torch.nn.Module, loss: Tensor, rate: float = 0.3) -> None:
    loss.backward()
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.grad is not None:
                parameter -= rate * parameter.grad


@pytest.mark.parametrize("kind", KINDS)
def test_CL16_a_step_is_that_of_fusion_in_decoder_without_dropout_and_with_trained_piece_vectors(
    kind: str, folders: Callable[[str], Path], tmp_path: Path
) -> None:
    folder, questions = folders(kind), QUESTIONS[:2]
    encoder, plain = Pretrained(folder), whole(folder)
    _, batch = made(folder, questions, live=3)
    total = torch.zeros(())
    for question, line in zip(questions, batch.labels(), strict=True):
        asked, labels = ids_of(encoder, question_document(question, FORM), False), line[line >= 0][None]
        parts = [joint(plain, asked, ids_of(encoder, passage_document(p, FORM), True)) for p in question.passages]
        total = total + plain(encoder_outputs=(torch.cat(parts, 1),), labels=labels).loss * labels.numel()
    before = {name: tensor.clone() for name, tensor in plain.state_dict().items()}
    stepped(plain, total * batch.scale)
    expected = plain.state_dict()

    def apart(name: str, train: bool = False, **options: Any) -> set[str]:
        method, own = made(folder, questions, live=3, **options)
        torch.manual_seed(0)
        stepped(method.train(train).parts, method.loss(own))
        export(method, encoder, tmp_path / name)
        found = whole(tmp_path / name).state_dict()
        return {key for key in expected if (found[key] - expected[key]).abs().max() > 2e-5}

    assert all((before[key] - expected[key]).abs().max() > 1e-3 for key in ("shared.weight", "lm_head.weight"))
    assert apart("same") == set()
    tied = {key for key in expected if expected[key].data_ptr() == expected["shared.weight"].data_ptr()}
    assert apart("frozen", embeddings="frozen") == tied
    assert len(apart("dropping", train=True)) > len(expected) / 2


@pytest.mark.parametrize("kind", KINDS)
def test_CL11_gradients_reach_all_but_the_memory(kind: str, folders: Callable[[str], Path]) -> None:
    method, batch = made(folders(kind), live=1)
    method.loss(batch).backward()
    for name, parameter in method.parts.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name
    groups = method.groups("answer")
    assert {kind: len(own) for kind, own in groups.items()} == {"encoder": len(list(method.parts.parameters()))}
    names = [n for n, p in method.parts.named_parameters() if n.endswith("bias.weight") or "kept.tables" in n]
    assert len(names) == 3, "tables of the question encoder, the live blocks and the decoder (L-03)"


@pytest.mark.parametrize("kind", KINDS)
def test_CL12_a_store_in_bf16_is_near_the_memory_on_the_fly(
    kind: str, folders: Callable[[str], Path], tmp_path: Path
) -> None:
    wanted = Design(reader="generate", live=1)
    encoder = wanted.encoder(folders(kind))
    method = Lumen.build(wanted, encoder, read_ahead=0, form=FORM).eval()
    fly = logits(*made(folders(kind), live=1, memory="finetuned"))
    for dtype, tolerance in (("fp32", 3e-5), ("bf16", 0.1)):
        store = Store.open(tmp_path / dtype, encoder.spec(list(method.plan.stored), dtype))
        store.fill([passage_document(passage, FORM) for passage in (P1, P2, P3)], encoder)
        (batch,) = method.batches(method.read(QUESTIONS, encoder, store), size=3, order=None)
        assert (logits(method, batch) - fly).abs().max() < tolerance


@pytest.mark.parametrize("kind", KINDS)
def test_CL3_without_a_question_a_passage_is_encoded_alone(kind: str, folders: Callable[[str], Path]) -> None:
    method, batch = made(folders(kind), live=3)
    pairs = replace(batch.pairs, question=(0,) * len(batch.pairs.question))
    none = torch.zeros(0, dtype=torch.long)
    bare = replace(batch, question_ids=none, question_lengths=(0,) * len(batch.items), pairs=pairs)
    encoder, model = Pretrained(folders(kind)), whole(folders(kind))
    for part, passage in zip(
        method.states(bare).split(bare.lengths), [p for q in QUESTIONS for p in q.passages], strict=True
    ):
        ids = ids_of(encoder, passage_document(passage, FORM), True)[None]
        close(part, model.encoder(input_ids=ids).last_hidden_state[0].detach())


def test_NUM_1_a_stream_beyond_fp16_is_refused_by_the_store_and_fits_bf16(
    folders: Callable[[str], Path], tmp_path: Path
) -> None:
    model = whole(folders("t5"))
    with torch.no_grad():
        for block in model.encoder.block:
            block.layer[1].DenseReluDense.wo.weight *= 3e6
    folder = tmp_path / "loud"
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((folders("t5") / name).read_bytes())
    wanted = Design(reader="generate", live=1)
    encoder = wanted.encoder(folder)
    documents = [passage_document(passage, FORM) for passage in (P1, P2, P3)]
    with pytest.raises(NonFinite):
        Store.open(tmp_path / "fp16", encoder.spec([2], "fp16")).fill(documents, encoder)
    method = Lumen.build(wanted, encoder, read_ahead=0, form=FORM).eval()
    store = Store.open(tmp_path / "bf16", encoder.spec([2], "bf16"))
    store.fill(documents, encoder)
    (batch,) = method.batches(method.read(QUESTIONS, encoder, store), size=3, order=None)
    assert batch.memory.views.abs().max() > 65504
    assert torch.isfinite(logits(method, batch)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_L07_ways_of_showing_the_decoder_the_question(kind: str, folders: Callable[[str], Path]) -> None:
    folder, question = folders(kind), QUESTIONS[0]
    encoder, model = Pretrained(folder), whole(folder)
    asked = ids_of(encoder, question_document(question, FORM), False)
    seen = [0]

    def once(model: Any, asked: Tensor, read: Tensor) -> Tensor:
        seen[0] += 1
        return joint(model, asked, read)[:, 0 if seen[0] == 1 else len(asked) :]

    close(logits(*made(folder, live=3, decoder_question="in_memory_once"))[0], oracle(folder, question, 0, once))
    without = oracle(folder, question, 0, lambda m, q, p: joint(m, q, p)[:, len(q) :])
    close(logits(*made(folder, live=3, decoder_question="none"))[0], without)
    parts = [
        joint(model, asked, ids_of(encoder, passage_document(p, FORM), True))[:, len(asked) :]
        for p in question.passages
    ]
    starts = torch.tensor([model.config.decoder_start_token_id])
    inputs = torch.cat([asked, starts, LABELS[0, :-1]])[None]
    expected = model(decoder_input_ids=inputs, encoder_outputs=(torch.cat(parts, 1),)).logits[0, len(asked) :]
    close(logits(*made(folder, live=3, decoder_question="prefix"))[0], expected.detach())
    assert Design(live=0).question_for_decoder(Design(live=0).plan(encoder)) == "in_memory_once"


def test_outputs_equal_those_of_transformers(folders: Callable[[str], Path]) -> None:
    folder = folders("t5.1.1")
    encoder, model = Pretrained(folder), whole(folder)
    for n_beams in (1, 3):
        method, batch = made(folder, live=3, n_beams=n_beams, longest_answer=7)
        found = [answer["answer"] for answer in method.predict(batch)]
        for question, answer in zip(QUESTIONS, found, strict=True):
            asked = ids_of(encoder, question_document(question, FORM), False)
            parts = [joint(model, asked, ids_of(encoder, passage_document(p, FORM), True)) for p in question.passages]
            states = torch.cat(parts, 1)
            kept = model.generate(
                encoder_outputs=outputs_of(states),
                attention_mask=torch.ones(states.shape[:2], dtype=torch.long),
                num_beams=n_beams,
                max_new_tokens=7,
                do_sample=False,
            )
            assert answer.text == encoder.spell(kept[0].tolist())
            assert not answer.located


def outputs_of(states: Tensor) -> Any:
    from transformers.modeling_outputs import BaseModelOutput

    return BaseModelOutput(last_hidden_state=states)


def test_24_12_a_deep_memory_under_fewer_live_and_decoder_blocks(folders: Callable[[str], Path]) -> None:
    """Table 1's shape: the encoder is deeper than the decoder, and its last third is live."""
    method, batch = made(folders("t5"), live=1)
    assert (method.plan.n_blocks, method.plan.cut, method.plan.blocks) == (3, 2, (2,))
    assert len(method.reader.decoder.body.block) == 2  # type: ignore[union-attr, operator]
    assert torch.isfinite(logits(method, batch)).all()


class Exact:
    metric = "exact_match"

    def score(self, gold: Any, predicted: Any) -> dict[str, float | None]:
        pairs = [(texts, answer) for texts, answer in zip(gold, predicted, strict=True) if texts]
        return {"exact_match": 100 * float(np.mean([answer.text in texts for texts, answer in pairs]))}


@pytest.mark.parametrize("kind", ["t5.1.1", "bert"])
def test_it_learns_two_questions_by_heart(
    kind: str, folders: Callable[[str], Path], checkpoint: Callable[..., Path]
) -> None:
    wanted = Design(reader="generate", live=1, decoder_blocks=None if kind == "t5.1.1" else 1, question_pieces=8)
    encoder = wanted.encoder(folders(kind) if kind == "t5.1.1" else checkpoint("bert"))
    form = FORM if kind == "t5.1.1" else "plain"
    method = Lumen.build(wanted, encoder, form=form)
    documents = [passage_document(passage, form) for passage in (P1, P2, P3)]
    pieces = encoder.cut(documents)
    found = dict(encoder.encode(pieces, list(method.plan.stored)))
    spec = encoder.spec(list(method.plan.stored), "fp32")
    source = Encodings(spec, [Encoding(cut.key, found[i], cut.word) for i, cut in enumerate(pieces)])
    questions = [replace(question, answers=question.answers[:1]) for question in QUESTIONS[:2]]
    examples = method.read(questions, encoder, source)
    if kind == "bert":
        assert set(method.groups("answer")) == {"head", "encoder"}
    settings = Settings(learning_rate=5e-3, num_train_epochs=60, optim="adamw", lr_scheduler_type="constant")
    fit(method, examples, {"answer": Exact()}, settings)
    (batch,) = method.eval().batches(examples, size=2, order=None)
    assert [answer["answer"].text for answer in method.predict(batch)] == ["mat", "river"]


@pytest.mark.parametrize("reader", ["generate", "span"])
def test_a_stopped_training_goes_on_as_if_it_had_not_been(
    reader: str, folders: Callable[[str], Path], tmp_path: Path
) -> None:
    """With dropout and with targets that are drawn anew each epoch; the same weights to the bit."""
    wanted = Design(reader=reader, live=1)
    encoder = wanted.encoder(folders("t5.1.1"))
    settings = Settings(
        learning_rate=5e-3,
        num_train_epochs=2,
        per_device_train_batch_size=1,
        save_steps=1,
        optim="adafactor",
        lr_scheduler_type="constant",
    )

    def trained(folder: Path, stop: int | None = None) -> dict[str, Tensor]:
        method = Lumen.build(wanted, encoder, form=FORM)
        examples = method.read(QUESTIONS[:2], encoder, memory(encoder, method.plan.stored, FORM))
        losses, seen = method.losses, []

        def counted(batch: ReadingBatch, names: Any) -> Any:
            seen.append(batch)
            if stop is not None and len(seen) > stop:
                raise KeyboardInterrupt
            return losses(batch, names)

        method.losses = counted  # type: ignore[method-assign]
        fit(method, examples, {"answer": Exact()}, settings, dev=examples, folder=folder)
        return method.state_dict()

    whole = trained(tmp_path / "whole")
    for stop in (1, 3):
        with pytest.raises(KeyboardInterrupt):
            trained(tmp_path / str(stop), stop)
        torch.manual_seed(99)
        again = trained(tmp_path / str(stop))
        assert all(torch.equal(again[name], weight) for name, weight in whole.items()), stop


def test_z_loss_adds_the_square_of_the_normaliser(folders: Callable[[str], Path]) -> None:
    method, batch = made(folders("t5.1.1"), live=1)
    reader: Any = method.reader
    plain = method.loss(batch)
    reader.z_loss = 0.5
    labels = batch.labels()
    log_z = reader.logits(method.states(batch), batch, labels)[labels >= 0].exp().sum(-1).log()
    torch.testing.assert_close(method.loss(batch), plain + 0.5 * (log_z**2).sum() * batch.scale, rtol=1e-5, atol=0)


def test_a_decoder_is_not_given_more_than_it_has_positions_for(checkpoint: Callable[..., Path]) -> None:
    folder = checkpoint("bert")
    window = Pretrained(folder).window
    for options, message in (
        ({"longest_answer": window + 1}, f"longest_answer={window + 1} are more pieces than the decoder can be given"),
        (
            {"longest_answer": window - 7, "decoder_question": "prefix"},
            "question_pieces=8 before the output and longest",
        ),
    ):
        wanted = Design(reader="generate", live=1, question_pieces=8, **options)
        with pytest.raises(ConfigError, match=message):
            Lumen.build(wanted, wanted.encoder(folder))
    wanted = Design(reader="generate", live=1, question_pieces=8, longest_answer=window)
    Lumen.build(wanted, wanted.encoder(folder))
    with pytest.raises(ConfigError, match=r"knows 38 pieces, the encoder \d+: it would be given"):
        Lumen.build(wanted, wanted.encoder(checkpoint("modernbert")), decoder=folder)


def test_a_decoder_of_its_own_has_the_blocks_that_it_has(folders: Callable[[str], Path]) -> None:
    wanted = Design(reader="generate", live=1, decoder_blocks=1)
    with pytest.raises(ConfigError, match="decoder_blocks=1 is of a decoder that starts from an encoder's blocks"):
        Lumen.build(wanted, wanted.encoder(folders("t5")))


@pytest.mark.parametrize("kind", ["bert", "t5"])
def test_a_decoder_whose_pieces_are_others_is_refused(
    folders: Callable[[str], Path], tmp_path: Path, kind: str
) -> None:
    own = folders(kind)
    other = shutil.copytree(own, tmp_path / "other")
    design = Design(reader="generate", live=1, question_pieces=8, longest_answer=4)
    encoder = design.encoder(own)
    Lumen.build(design, encoder, decoder=other)
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    if isinstance(vocabulary, dict):
        first, second = list(vocabulary)[-2:]
        vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    else:
        vocabulary[-2], vocabulary[-1] = vocabulary[-1], vocabulary[-2]
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ConfigError, match=r"2 of the encoder's \d+ pieces are others to the decoder .*other, such as"):
        Lumen.build(design, encoder, decoder=other)


def test_targets_are_any_gold_answer_in_training_and_the_first_elsewhere(folders: Callable[[str], Path]) -> None:
    _, batch = made(folders("t5"), live=1)
    examples = batch.examples
    assert examples.chosen(None).tolist() == [0, 0, -1]
    drawn = {tuple(examples.chosen(np.random.default_rng(seed)).tolist()) for seed in range(20)}
    assert drawn == {(0, 0, -1), (1, 0, -1)}
    labels = batch.labels()
    assert labels[0].tolist()[-1] == 2 or labels[0].tolist().count(2) == 1
    assert (labels[2] == -100).all()
    assert abs(examples.scored - np.mean([len(ids) for own in examples.written for ids in own])) < 1e-9
