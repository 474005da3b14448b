"""LUMEN over encoders against `transformers` and against itself: one model from all-memory to all-live.

Axes: R rows of all pairs   D width
"""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from encodeonce.batching import Encodings
from encodeonce.corpus.questions import read_questions
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.encoders.stack import additive
from encodeonce.errors import ConfigError, DataError, NotStored, RunError, SpecMismatch
from encodeonce.heads.span_reader import SpanScores
from encodeonce.methods.lumen import Design, Lumen, ReadingBatch, ReadingExamples, export, n_live, passage_document
from encodeonce.metrics.answers import AnswerScorer
from encodeonce.store import Store
from encodeonce.train.evaluate import evaluate
from encodeonce.train.fit import fit
from encodeonce.train.settings import Settings
from encodeonce.types import Answer, Encoding, Passage, Question

FAMILIES: dict[str, dict[str, Any]] = {
    "bert": {},
    "mpnet": {},
    "modernbert": {},
    "t5": {"feed_forward_proj": "relu"},
    "t5.1.1": {"feed_forward_proj": "gated-gelu"},
}
"""Name -> settings of the tiny checkpoint."""
FIRST = 8
PASSAGES = {
    "p1": Passage("p1", "", "the cat sat on the mat ."),
    "p2": Passage("p2", "river", "the river bank is running by"),
    "p3": Passage("p3", "", "a naive cafe"),
}
QUESTIONS = (
    Question("q0", "the cat ?", (Answer("mat", "p1", 19, 22),), (PASSAGES["p1"], PASSAGES["p2"], PASSAGES["p3"])),
    Question("q1", "is the bank a cafe", (Answer("river"),), (PASSAGES["p2"],)),
    Question("q2", "on", (Answer(""),), (PASSAGES["p3"], PASSAGES["p1"])),
    Question("q3", "by the river", (), ()),
)


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request: pytest.FixtureRequest, checkpoint: Callable[..., Path]) -> Path:
    return checkpoint(request.param.removesuffix(".1.1"), **FAMILIES[request.param])


def design(**options: Any) -> Design:
    return Design(question_pieces=FIRST, **options)


def memory(encoder: Pretrained, layers: tuple[int, ...]) -> Encodings:
    """The passages in fp32, as a store would hold them."""
    documents = [passage_document(passage) for passage in PASSAGES.values()]
    pieces = encoder.cut(documents)
    found = dict(encoder.encode(pieces, list(layers)))
    encodings = [Encoding(cut.key, found[i], cut.word) for i, cut in enumerate(pieces)]
    return Encodings(encoder.spec(list(layers), "fp32"), encodings)


def made(folder: Path, wanted: Design, questions: Any = QUESTIONS) -> tuple[Lumen, ReadingExamples, ReadingBatch]:
    encoder = wanted.encoder(folder)
    method = Lumen.build(wanted, encoder, read_ahead=0).eval()
    stored = method.plan.stored
    examples = method.read(questions, encoder, memory(encoder, stored) if stored else None)
    (batch,) = method.batches(examples, size=len(questions), order=None)
    return method, examples, batch


def run(model: Any, parts: list[tuple[Tensor, bool]], gap: int = 0, **options: Any) -> Tensor:
    """Last states by transformers' own `model` over parts put together, behind `gap` places of padding that nothing
    reads after the first; True: stands where a passage does."""
    kind = model.config.model_type
    pieces, places, segments, real = [], [], [], []
    for part, late in parts:
        pieces += [part] if not pieces else [torch.ones(gap, dtype=torch.long), part]
        real += [torch.ones(len(part))] if not real else [torch.zeros(gap), torch.ones(len(part))]
        places += [torch.arange(len(part)) + FIRST * late]
        segments += [torch.full((len(part),), int(late))]
    if kind in ("bert", "mpnet"):
        at = torch.arange(sum(map(len, pieces))) if gap else torch.cat(places)
        options["position_ids"] = at[None] + (2 if kind == "mpnet" else 0)
    if kind == "bert":
        late = torch.arange(sum(map(len, pieces))) >= FIRST if gap else torch.cat(segments)
        options["token_type_ids"] = late.long()[None]
    if gap:
        options["attention_mask"] = torch.cat(real)[None]
    states = model(input_ids=torch.cat(pieces)[None], **options).last_hidden_state[0]
    return states[torch.cat(real).bool()]


loaded = cache(Pretrained)


def encoded(folder: Path, parts: list[tuple[Tensor, bool]], gap: int = 0) -> Tensor:
    return run(loaded(folder).stack().model, parts, gap).detach()


def pairs_of(batch: ReadingBatch, states: Tensor) -> list[tuple[int, int, Tensor, Tensor]]:
    """(question, passage number or -1, question rows, passage rows) of every pair."""
    found = []
    for n, part in enumerate(states.split(batch.lengths)):
        owner = int(batch.pairs.owner[n])
        first = int(np.searchsorted(batch.pairs.owner, owner))
        own = batch.examples.of_question[batch.items[owner]]
        number = int(own[n - first]) if len(own) else -1
        found.append((owner, number, part[: batch.pairs.question[n]], part[batch.pairs.question[n] :]))
    return found


def ids_of(folder: Path, examples: ReadingExamples, number: int) -> Tensor:
    pieces = loaded(folder).cut([passage_document(examples.passages[number])])[0]
    return torch.from_numpy(pieces.ids.astype(np.int64))


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=3e-5, rtol=0)


def test_CL2_CL15_everything_live_is_the_encoder_on_question_and_passage(folder: Path) -> None:
    blocks = Pretrained(folder).n_blocks
    method, examples, batch = made(folder, design(live=blocks))
    assert method.plan.stored == ()
    assert method.plan.alpha == 1
    for owner, number, question, passage in pairs_of(batch, method.states(batch)):
        parts = [(torch.from_numpy(examples.question_ids[owner]), False)]
        parts += [(ids_of(folder, examples, number), True)] if number >= 0 else []
        close(torch.cat([question, passage]), encoded(folder, parts))


def test_CL3_without_a_question_a_passage_is_encoded_alone(folder: Path) -> None:
    method, examples, batch = made(folder, design(live=Pretrained(folder).n_blocks), QUESTIONS[:3])
    pairs = replace(batch.pairs, question=(0,) * len(batch.pairs.question))
    none = torch.zeros(0, dtype=torch.long)
    bare = replace(batch, question_ids=none, question_lengths=(0,) * len(batch.items), pairs=pairs)
    for _, number, question, passage in pairs_of(bare, method.states(bare)):
        assert not len(question)
        close(passage, encoded(folder, [(ids_of(folder, examples, number), True)]))


def test_CL10_a_longer_question_beside_it_changes_no_state(folder: Path) -> None:
    short = Question("short", "the", (), QUESTIONS[0].passages)
    for live in (1, Pretrained(folder).n_blocks):
        method, _, alone = made(folder, design(live=live), (short,))
        _, _, both = made(folder, design(live=live), (QUESTIONS[1], short))
        assert both.question_lengths[0] > both.question_lengths[1] == alone.question_lengths[0]
        close(method.states(both)[-sum(alone.lengths) :], method.states(alone))


def test_CL17_no_mem2q_is_a_mask_of_the_ordinary_model(folder: Path) -> None:
    method, examples, batch = made(
        folder, design(live=Pretrained(folder).n_blocks, attention="no_mem2q"), QUESTIONS[:1]
    )
    model = Pretrained(folder).stack().model
    asked = torch.from_numpy(examples.question_ids[0])
    for _, number, question, passage in pairs_of(batch, method.states(batch)):
        read = ids_of(folder, examples, number)
        at = torch.arange(len(asked) + len(read))
        may = ~((at[:, None] >= len(asked)) & (at < len(asked)))
        mask: Any = additive(may[None], torch.float32)
        if model.config.model_type == "modernbert":
            near = (at[:, None] - at).abs() <= model.config.sliding_window
            mask = {"full_attention": mask, "sliding_attention": additive((may & near)[None], torch.float32)}
        whole = run(model, [(asked, False), (read, True)], attention_mask=mask).detach()
        close(torch.cat([question, passage]), whole)
        close(passage, encoded(folder, [(read, True)]))


def test_L04_static_positions_are_those_of_a_padded_question(folder: Path) -> None:
    """T5X's fixed shapes: what `transformers` gives where padding stands between question and passage."""
    blocks = Pretrained(folder).n_blocks
    method, examples, batch = made(folder, design(live=blocks, positions="static"), QUESTIONS[:3])
    compact, _, other = made(folder, design(live=blocks), QUESTIONS[:3])
    states = method.states(batch)
    for owner, number, question, passage in pairs_of(batch, states):
        asked = torch.from_numpy(examples.question_ids[owner])
        parts = [(asked, False), (ids_of(folder, examples, number), True)]
        close(torch.cat([question, passage]), encoded(folder, parts, gap=FIRST - len(asked)))
    apart = (states - compact.states(other)).abs().max().item()
    assert (apart < 1e-6) is (Pretrained(folder).family == "bert"), "BERT's line counts no distances"
    one, _, own = made(folder, design(live=1, memory="conditioned", positions="static"), QUESTIONS[:1])
    assert one.states(own).isfinite().all()


def test_CL16_a_step_is_that_of_the_ordinary_model_with_the_same_head(folder: Path, tmp_path: Path) -> None:
    encoder = Pretrained(folder)
    method, examples, batch = made(folder, design(live=encoder.n_blocks), QUESTIONS[:3])
    plain, head = copy.deepcopy(encoder.stack().model), copy.deepcopy(method.reader.head)  # type: ignore[union-attr]
    plain.requires_grad_(True)
    before = {name: weight.detach().clone() for name, weight in plain.named_parameters()}
    parts = []
    for owner, number, *_ in pairs_of(batch, method.states(batch)):
        asked = torch.from_numpy(examples.question_ids[owner])
        parts.append(run(plain, [(asked, False), (ids_of(folder, examples, number), True)]))
    expected = head.loss(head(torch.cat(parts), batch.pairs), batch.gold()) * batch.scale
    loss = method.loss(batch)
    assert abs(loss.item() - expected.item()) < 1e-4
    for module, one in ((method.parts, loss), (nn.ModuleList([plain, head]), expected)):
        one.backward()
        with torch.no_grad():
            for parameter in module.parameters():
                if parameter.grad is not None:
                    parameter -= 0.01 * parameter.grad / parameter.grad.norm().clamp(min=1e-3)
    export(method, encoder, tmp_path / "new")
    found = dict(Pretrained(tmp_path / "new").stack().model.named_parameters())
    far = {name: (weight - before[name]).abs().max() for name, weight in plain.named_parameters()}
    assert sum(one > 1e-4 for one in far.values()) > len(far) / 2
    for name, weight in plain.named_parameters():
        torch.testing.assert_close(found[name], weight, atol=2e-5, rtol=0, msg=name)
    for ours, theirs in zip(method.reader.head.parameters(), head.parameters(), strict=True):  # type: ignore[union-attr]
        torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=0)


@pytest.mark.parametrize("attention", ["no_mem2q", "no_q2mem", "neither"])
def test_CL1_CL4_CL5_CL6_a_part_that_reads_nothing_else_is_encoded_alone(folder: Path, attention: str) -> None:
    for live in range(Pretrained(folder).n_blocks + 1):
        method, examples, batch = made(folder, design(live=live, attention=attention))
        for owner, number, question, passage in pairs_of(batch, method.states(batch)):
            if attention != "no_mem2q" or live == 0:
                close(question, encoded(folder, [(torch.from_numpy(examples.question_ids[owner]), False)]))
            if number >= 0 and (attention != "no_q2mem" or live == 0):
                close(passage, encoded(folder, [(ids_of(folder, examples, number), True)]))


def test_a_part_that_may_read_the_other_does(folder: Path) -> None:
    both, one, none = (
        made(folder, design(live=2, attention=attention)) for attention in ("both", "no_mem2q", "neither")
    )
    full, half, apart = (pairs_of(batch, method.states(batch))[0] for method, _, batch in (both, one, none))
    assert (full[3] - apart[3]).abs().max() > 1e-2
    assert (half[2] - apart[2]).abs().max() > 1e-2


def answers(method: Lumen, batch: ReadingBatch) -> list[Answer]:
    """Never "no answer" where there is a passage."""
    reader: Any = method.reader
    head = reader.head
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(head, "decode", partial(head.decode, forced=True))
        return [answer["answer"] for answer in method.predict(batch)]


def test_CL7_CL8_FID_1_order_repeats_and_neighbours_change_nothing(folder: Path) -> None:
    method, _, batch = made(folder, design(live=2))
    found = answers(method, batch)
    assert found[3].text == ""
    assert not found[3].located
    first = QUESTIONS[0]
    turned = Question(first.id, first.text, first.answers, first.passages[::-1])
    alone = [made(folder, design(live=2), (question,)) for question in (first, turned, QUESTIONS[1], QUESTIONS[3])]
    one, other, second, lone = (answers(m, b)[0] for m, _, b in alone)
    for ours, expected in ((one, found[0]), (other, found[0]), (second, found[1]), (lone, found[3])):
        assert (ours.text, ours.passage, ours.start) == (expected.text, expected.passage, expected.start)
        assert abs(ours.score - expected.score) < 1e-4
    losses = [m.loss(b).item() for m, _, b in alone[:2]]
    assert abs(losses[0] - losses[1]) < 1e-4


def test_an_answer_carries_its_passage_and_characters(folder: Path) -> None:
    method, examples, batch = made(folder, design(live=1))
    texts = {passage.id: passage.text for passage in examples.passages}
    for answer in answers(method, batch)[:3]:
        assert answer.text
        assert texts[answer.passage][answer.start : answer.end] == answer.text


@pytest.mark.parametrize(("longest", "expected"), [(None, 30), (2, 2), (40, 40)])
def test_no_span_is_longer_than_the_longest_answer(
    longest: int | None, expected: int, checkpoint: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    """The gold is all 40 pieces; start and end of any span are likelier the nearer they are to its ends."""
    text = " ".join(["a"] * 40)
    passage = Passage("p", "", text)
    wanted = design(live=1, longest_answer=longest)
    encoder = wanted.encoder(checkpoint("bert"))
    method = Lumen.build(wanted, encoder, read_ahead=0).eval()
    pieces = encoder.cut([passage_document(passage)])
    store = Encodings(encoder.spec([2], "fp32"), [Encoding(pieces[0].key, np.zeros((1, 42, 32), "f4"), pieces[0].word)])
    examples = method.read([Question("q", "a", (Answer(text, "p", 0, len(text)),), (passage,))], encoder, store)
    (batch,) = method.batches(examples, size=1, order=None)
    rise = torch.arange(42.0)
    reader: Any = method.reader
    reader.head.forward = lambda states, pairs: SpanScores(torch.stack([-rise, rise]), torch.tensor([-99.0]), pairs)
    (answer,) = [found["answer"] for found in method.predict(batch)]
    assert len(answer.text.split()) == expected
    said = f"1 of 1 questions have no answer of at most {expected} pieces: none is ever given. Raise longest_answer."
    assert (said in caplog.text) is (expected < 40)


def test_gold_spans_are_the_pieces_of_the_answers(folder: Path) -> None:
    _, examples, batch = made(folder, design(live=1))
    for spans, text in ((examples.spans[0], "mat"), (examples.spans[1], "river")):
        assert spans is not None
        ((place, first, last),) = spans
        number = examples.of_question[0 if text == "mat" else 1][place]
        rows = examples.characters[number][first : last + 1]
        assert examples.passages[number].text[rows[0, 0] : rows[-1, 1]] == text
    assert examples.spans[2] is not None
    assert len(examples.spans[2]) == 0
    assert examples.spans[3] is None
    assert examples.gold["answer"] == (("mat",), ("river",), ("",), ())
    assert [None if spans is None else len(spans) for spans in batch.gold()] == [1, 1, 0, None]


def test_CL11_gradients_reach_what_is_trained_and_nothing_else(folder: Path) -> None:
    method, _, batch = made(folder, design(live=1))
    encoder = Pretrained(folder)
    before = {name: tensor.clone() for name, tensor in encoder.stack().state_dict().items()}
    method.loss(batch).backward()
    for name, parameter in method.parts.named_parameters():
        assert parameter.grad is not None, name
        if "reader" not in name and "key.bias" not in name and ".k.bias" not in name:
            assert parameter.grad.abs().max() > 0, name
    assert sorted(method.parts) == ["live", "question", "reader"]
    for name, tensor in encoder.stack().state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_CL12_a_store_is_the_memory_on_the_fly(folder: Path, tmp_path: Path) -> None:
    wanted = design(live=1)
    encoder = wanted.encoder(folder)
    method = Lumen.build(wanted, encoder, read_ahead=0).eval()
    store = Store.open(tmp_path / "memory", encoder.spec(list(method.plan.stored), "fp32"))
    store.fill([passage_document(passage) for passage in PASSAGES.values()], encoder)
    (batch,) = method.batches(method.read(QUESTIONS, encoder, store), size=4, order=None)
    fly, _, other = made(folder, design(live=1, memory="finetuned"))
    close(method.states(batch), fly.states(other))
    _, _, direct = made(folder, wanted)
    assert torch.equal(method.states(batch), method.states(direct)), "encoded in the same batch, to the bit"
    with pytest.raises(NotStored, match="lacks 1 of 1 items"):
        method.read([Question("q", "the", passages=(Passage("new", "", "z"),))], encoder, store)
    with pytest.raises(SpecMismatch, match=r"layers: .* needed.*Encode the passages again"):
        Lumen.build(design(live=2), encoder).read(QUESTIONS, encoder, store)
    if encoder.counts_positions:
        ordinary = Store.open(tmp_path / "other", Pretrained(folder).spec(list(method.plan.stored), "fp32"))
        with pytest.raises(SpecMismatch, match=f"first_position: 0 here, {FIRST} there"):
            method.read(QUESTIONS, encoder, ordinary)


def test_conditioned_memory_is_made_of_question_and_passage_and_keeps_the_passage(folder: Path) -> None:
    blocks = Pretrained(folder).n_blocks
    method, _, batch = made(folder, design(live=1, memory="conditioned"))
    full, _, other = made(folder, design(live=blocks))
    for (_, number, question, ours), (_, _, asked, expected) in zip(
        pairs_of(batch, method.states(batch)), pairs_of(other, full.states(other)), strict=True
    ):
        assert number < 0 or (ours - expected).abs().max() > 1e-4, "its question rows come from the question encoder"
        assert question.shape == asked.shape
    method.loss(batch).backward()
    assert "memory" not in method.parts


def test_CL14_a_frozen_question_encoder_is_the_memory_encoder(folder: Path) -> None:
    method, _, batch = made(folder, design(live=1, question_encoder="frozen"))
    trained, _, other = made(folder, design(live=1))
    close(method.states(batch), trained.states(other))
    assert sorted(method.parts) == ["live", "reader"]
    method.train()
    assert torch.equal(method._questions(batch), method._questions(batch)), "no dropout in what is frozen"
    method.loss(batch).backward()


def test_a_second_copy_of_middle_blocks_over_any_view(folder: Path) -> None:
    method, _, batch = made(folder, design(blocks=(1, 1), cut=2))
    assert method.plan.stored == (2,)
    kind = Pretrained(folder).family
    assert method.plan.dtype == ("bf16" if kind in ("t5", "modernbert") else "fp16")
    stack = Pretrained(folder).stack()
    inner, _, lower = made(folder, design(live=0, cut=2))
    for (_, _, question, passage), (_, _, asked, read) in zip(
        pairs_of(batch, method.states(batch)), pairs_of(lower, inner.states(lower)), strict=True
    ):
        states = torch.cat([asked, read])[None]
        for _ in range(2):
            states = stack.block(1, states, stack.context(states, None, torch.arange(states.shape[1])[None]))
        close(torch.cat([question, passage]), stack.finish(states)[0])


def test_a_stored_mix_starts_near_the_view_after_the_cut(folder: Path) -> None:
    mixed, _, batch = made(folder, design(live=1, layers=(0, 1, Pretrained(folder).n_blocks - 1)))
    mixed.loss(batch).backward()
    weights = mixed.parts["mix"].alpha
    assert weights.grad is not None
    assert weights.grad.abs().max() > 0
    assert weights.softmax(0)[-1] > 0.85


def test_it_learns_two_questions_by_heart(checkpoint: Callable[..., Path]) -> None:
    class Exact:
        metric = "exact_match"

        def score(self, gold: Any, predicted: Any) -> dict[str, float | None]:
            right = [answer.text in texts for texts, answer in zip(gold, predicted, strict=True)]
            return {"exact_match": 100 * float(np.mean(right))}

    wanted = design(live=1)
    encoder = wanted.encoder(checkpoint("bert"))
    method = Lumen.build(wanted, encoder)
    examples = method.read(QUESTIONS[:3], encoder, memory(encoder, method.plan.stored))
    settings = Settings(learning_rate=1e-2, encoder_learning_rate=1e-3, num_train_epochs=40)
    fit(method, examples, {"answer": Exact()}, settings)
    found = evaluate(method, examples, {"answer": Exact()})
    assert found.scores["answer"]["exact_match"] == 100
    assert found.predictions[0]["answer"].passage == "p1"
    assert found.predictions[2]["answer"].text == ""


def test_a_batch_without_any_passage(folder: Path) -> None:
    for options in ({"live": 1}, {"live": 1, "memory": "finetuned"}, {"live": Pretrained(folder).n_blocks}):
        method, _, batch = made(folder, design(**options), (QUESTIONS[3],))
        assert answers(method, batch) == [Answer("", score=1.0)]


def test_long_questions_are_cut_and_counted_and_long_passages_refused(
    checkpoint: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    wanted = design(live=3)
    encoder = wanted.encoder(checkpoint("bert"))
    method = Lumen.build(wanted, encoder)
    long = Question("long", "the cat sat on the mat by the river", passages=(PASSAGES["p1"],), place="f:3")
    examples = method.read([long], encoder)
    assert "1 of 1 questions have more than 8 pieces and were cut there, the first long (f:3)" in caplog.text
    assert len(examples.question_ids[0]) == FIRST
    assert examples.question_ids[0][-1] == 3
    with pytest.raises(DataError, match=r"x:1: 42 pieces, but a passage that is not read .* behind the question, 32"):
        method.read([Question("q", "a", passages=(Passage("p", "", "a " * 40, place="x:1"),))], encoder)
    with pytest.raises(DataError, match=r"reads view \[2\] of every passage from a store: give one"):
        Lumen.build(design(live=1), encoder).read([long], encoder)


def test_FID_1_none_three_and_one_passage_share_a_batch(checkpoint: Callable[..., Path], cases: Path) -> None:
    questions = read_questions(cases / "FID-1.jsonl")
    assert [len(question.passages) for question in questions] == [0, 3, 1]
    wanted = design(live=4)
    encoder = wanted.encoder(checkpoint("modernbert"))
    method = Lumen.build(wanted, encoder, read_ahead=0).eval()
    (together,) = method.batches(method.read(questions, encoder), size=3, order=None)
    found = answers(method, together)
    assert found[0] == Answer("", score=found[0].score)
    assert [p.text for p in together.examples.passages] == ["in Oslo", "by sea", "north", "in 1999"], "order is kept"
    for question, expected in zip(questions, found, strict=True):
        (alone,) = method.batches(method.read([question], encoder), size=1, order=None)
        (answer,) = answers(method, alone)
        assert (answer.text, answer.passage, answer.start) == (expected.text, expected.passage, expected.start)
        assert abs(answer.score - expected.score) < 1e-5
    method.loss(together).backward()


def test_designs_that_cannot_be_are_refused(checkpoint: Callable[..., Path]) -> None:
    encoder = Pretrained(checkpoint("bert"))
    for wrong, message in (
        ({"live": 1, "alpha": 0.5}, "live and alpha each say how much is live: give one"),
        ({"alpha": 1.5}, "alpha=1.5 must lie between 0"),
        ({"memory": "finetune"}, "memory='finetune' is not known.*Did you mean 'finetuned'"),
        ({"live": 4}, "live=4 must lie between 0 and 3"),
        ({"live": 2, "cut": 2}, r"live blocks \[2, 3\] over cut=2 must be among 0 to 2. Name others"),
        ({"blocks": (0,), "cut": 4}, "cut=4 must lie between 0"),
        ({"live": 3, "memory": "finetuned"}, "with cut=0 there is no memory"),
        ({"live": 1, "layers": (0, 1)}, r"layers=\[0, 1\] must hold the cut, 2"),
        ({"live": 1, "layers": (1, 2), "memory": "conditioned"}, "are of a stored memory; this one is conditioned"),
        ({"question_pieces": 2}, "question_pieces=2 must be at least 3"),
        ({"longest_answer": 0}, "longest_answer=0 must be at least 1"),
        ({"n_beams": 2, "z_loss": 1e-4}, "n_beams and z_loss are of a reader that writes, and .* reader='generate'"),
        ({"decoder_question": "prefix"}, "decoder_question are of a reader that writes"),
    ):
        with pytest.raises(ConfigError, match=message):
            Design(**wrong).plan(encoder)
    with pytest.raises(ConfigError, match=r"decoder=.*: a reader that points at spans has none"):
        Lumen.build(Design(live=1), encoder, decoder=encoder.path)
    with pytest.raises(ConfigError, match=r"question_pieces=40 leaves no room for a passage: .* can hold 40 pieces"):
        Design(live=1, question_pieces=40).encoder(encoder.path)  # case QA-1: a question that fills the window


def test_a_run_does_not_go_on_as_another_design(checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    """The two have the same weights by name and shape, settings and data."""
    settings = Settings(num_train_epochs=1)
    for attention, allowed in (("both", True), ("both", True), ("no_mem2q", False)):
        method, examples, _ = made(checkpoint("bert"), design(live=1, attention=attention))
        scorers = {"answer": AnswerScorer()}
        if allowed:
            fit(method, examples, scorers, settings, folder=tmp_path)
        else:
            with pytest.raises(RunError, match=r"method.design.attention: '\(absent\)' then, 'no_mem2q' now"):
                fit(method, examples, scorers, settings, folder=tmp_path)


def test_L01_rounding() -> None:
    table = {12: {1 / 8: 2, 1 / 6: 2, 1 / 4: 3, 1 / 3: 4, 1 / 2: 6}, 6: {1 / 8: 1, 1 / 3: 2}}
    table[24] = {1 / 12: 2, 1 / 8: 3, 1 / 6: 4, 1 / 4: 6, 1 / 3: 8, 1 / 2: 12}
    for blocks, expected in table.items():
        assert {alpha: n_live(alpha, blocks) for alpha in expected} == expected
        assert (n_live(0.0, blocks), n_live(1.0, blocks)) == (0, blocks)
