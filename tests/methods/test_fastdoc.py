"""FastDoc's identities 1 to 9 (spec, part C): masked means, positions, losses, what takes a gradient, presets, LoRA."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from encodeonce.batching import Encodings
from encodeonce.encoders.live import LiveBlocks
from encodeonce.encoders.masked_lm import MaskedLM
from encodeonce.encoders.pooled import Pooled
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.errors import ConfigError, DataError
from encodeonce.methods.fastdoc.examples import DocumentExamples
from encodeonce.methods.fastdoc.fastdoc import MODULE, FastDoc, TripletScorer
from encodeonce.methods.fastdoc.losses import Hierarchy, distances, triplet_loss, tuple_loss
from encodeonce.methods.fastdoc.masking import hidden, in_words, windows_of
from encodeonce.methods.fastdoc.measure import norms
from encodeonce.methods.fastdoc.objective import Objective
from encodeonce.methods.fastdoc.reading import over_sentences, shown_in
from encodeonce.train.fit import fit
from encodeonce.train.settings import Settings
from encodeonce.types import Document, Encoding, Spec

Checkpoint = Callable[..., Path]
WORDS = ["the", "cat", "sat", "a", "dog", "mat", "red", "on"]
CLASSES = (3, 5)
WEIGHTS = "model.safetensors"


def documents(n: int = 12, seed: int = 0) -> list[Document]:
    generator = np.random.default_rng(seed)
    made = []
    for i in range(n):
        some = tuple(" ".join(generator.choice(WORDS, 4)) for _ in range(int(generator.integers(1, 6))))
        made.append(Document(f"d{i}", sentences=some, text=" ".join(some), place=f"f:{i}"))
    return made


def sentence_store(items: list[Document], width: int = 32, seed: int = 0) -> Encodings:
    generator = np.random.default_rng(seed)
    spec = Spec("t", "w" * 64, "c" * 64, "t" * 64, 2, width, (2,), 64, 8, unit="sentence", pooling="mean", dtype="fp32")
    held = [
        Encoding(
            d.key_in("sentence"),
            generator.normal(size=(1, len(d.sentences), width)).astype(np.float32),
            np.arange(len(d.sentences), dtype=np.int32),
        )
        for d in items
    ]
    return Encodings(spec, held)


def examples(items: list[Document], n: int = 8, k: int = 3, seed: int = 0, **more: Any) -> DocumentExamples:
    generator = np.random.default_rng(seed)
    tuples = np.stack([generator.choice(len(items), k, replace=False) for _ in range(n)])
    labels = np.stack([generator.integers(0, c, len(items)) for c in CLASSES], 1)
    return DocumentExamples.read(items, tuples, labels, source=sentence_store(items), **more)


def trainee(checkpoint: Checkpoint, name: str = "both", family: str = "bert", **changes: Any) -> FastDoc:
    objective = Objective.named(name, **changes)
    return FastDoc(Pretrained(checkpoint(family)).stack(), objective, CLASSES, seed=1)


def one(method: FastDoc, data: DocumentExamples, size: int = 8) -> Any:
    return next(iter(method.batches(data, size=size, order=None)))


# the forward pass


@pytest.mark.parametrize("family", ["bert", "roberta", "mpnet", "modernbert"])
def test_fd1_fd2_masked_mean_is_the_unpadded_mean_whatever_the_padding(checkpoint: Checkpoint, family: str) -> None:
    """The packed batch of unequal documents against transformers, one document at a time, without padding."""
    method, data = trainee(checkpoint, family=family), examples(documents(9))
    method.eval()
    batch = one(method, data)
    with torch.no_grad():
        found = method.vectors(batch)
    stack, source = Pretrained(checkpoint(family)).stack(), data.source
    assert source is not None
    for k in range(3):
        for b, n in enumerate(data.tuples[:, k]):
            vectors = source.batch(data.index[[n]]).views[0]
            shown: dict[str, Any] = {"inputs_embeds": vectors[None], "attention_mask": torch.ones(1, len(vectors))}
            if family in ("roberta", "mpnet"):
                shown["position_ids"] = torch.arange(len(vectors))[None] + stack.model.embeddings.padding_idx + 1
            with torch.no_grad():
                due = stack.model(**shown).last_hidden_state.mean(1)[0]
            torch.testing.assert_close(found[k, b], due, atol=2e-5, rtol=0)


def test_fd3_order_matters_only_through_positions(checkpoint: Checkpoint) -> None:
    """Sentences reversed with their positions: the same vector; reversed alone: another."""
    method = trainee(checkpoint)
    method.eval()
    vectors = torch.randn(5, 32, generator=torch.Generator().manual_seed(0))
    stack = method.blocks.stack
    places = torch.arange(5)
    with torch.no_grad():
        plain = method.blocks(stack.place(vectors[None], places[None])[0], (5,)).mean(0)
        both = method.blocks(stack.place(vectors.flip(0)[None], places.flip(0)[None])[0], (5,)).mean(0)
        alone = method.blocks(method.blocks.place(vectors.flip(0), (5,)), (5,)).mean(0)
    torch.testing.assert_close(both, plain, atol=1e-5, rtol=0)
    assert (alone - plain).abs().max() > 1e-3


# losses


def test_fd4_triplet_values() -> None:
    def at(*places: float) -> torch.Tensor:
        return torch.stack([torch.tensor([place, 0.0]) for place in places])[:, None]

    for anchor, positive, negative, due in (
        (0.0, 0.0, 0.0, 1.0),
        (0.0, 5.0, 5.0, 1.0),
        (0.0, 1.0, 3.0, 0.0),
        (0.0, 3.0, 1.0, 3.0),
        (0.0, 0.0, 0.5, 0.5),
    ):
        assert tuple_loss(at(anchor, positive, negative)).item() == pytest.approx(due, abs=1e-5)
    a, p, n = torch.randn(3, 50, 8, generator=torch.Generator().manual_seed(0))
    assert triplet_loss(a, p, n) + triplet_loss(a, n, p) >= 2
    assert distances(a, a).max().item() == pytest.approx(1e-6 * math.sqrt(8), rel=1e-3)
    due_mean = np.maximum(np.linalg.norm(a - p, axis=1) - np.linalg.norm(a - n, axis=1) + 1, 0).mean()
    assert triplet_loss(a, p, n).item() == pytest.approx(float(due_mean), abs=1e-4)


def test_fd5_zero_heads_know_nothing_and_null_is_a_class() -> None:
    for n_documents in (3, 4):
        heads = Hierarchy(6, (17 + 1, 54 + 1, 8 + 1))
        for parameter in heads.parameters():
            torch.nn.init.zeros_(parameter)
        vectors, labels = torch.randn(n_documents, 5, 6), torch.zeros(n_documents, 5, 3, dtype=torch.long)
        due = n_documents * (math.log(18) + math.log(55) + math.log(9))
        assert heads(vectors, labels).item() == pytest.approx(due, rel=1e-6)
        heads.mean = True
        assert heads(vectors, labels).item() == pytest.approx(due / (3 * n_documents), rel=1e-6)


def test_fd5_the_hierarchy_is_the_sum_of_each_level_and_document() -> None:
    heads, vectors = Hierarchy(6, (3, 4)), torch.randn(3, 5, 6)
    labels = torch.stack([torch.randint(3, (3, 5)), torch.randint(4, (3, 5))], -1)
    due = 0.0
    for k in range(3):
        for h, head in enumerate(heads.heads):
            logits = head(vectors[k]).detach().double().numpy()
            chance = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
            due -= np.log(chance[np.arange(5), labels[k, :, h].numpy()]).mean()
    assert heads(vectors, labels).item() == pytest.approx(due, rel=1e-5)


def test_fd6_a_quadruplet_without_the_far_positive_is_a_triplet() -> None:
    vectors = torch.randn(4, 7, 6)
    assert tuple_loss(vectors, far=0.0) == tuple_loss(vectors[[0, 1, 3]])
    due = triplet_loss(vectors[0], vectors[1], vectors[3]) + 0.5 * triplet_loss(vectors[0], vectors[2], vectors[3])
    assert tuple_loss(vectors, far=0.5).item() == pytest.approx(due.item())


# training


def trained(method: FastDoc, data: DocumentExamples, folder: Path | None = None, **settings: Any) -> Any:
    values = {"learning_rate": 1e-3, "num_train_epochs": 1, "per_device_train_batch_size": 4, "max_grad_norm": 1.0}
    chosen = Settings(**{**values, "optim": "adamw", "lr_scheduler_type": "linear", "warmup_ratio": 0.0, **settings})
    return fit(method, data, {"documents": TripletScorer()}, chosen, folder=folder)


@pytest.mark.parametrize("name", ["both", "triplet", "hier"])
def test_fd7_fd8_what_moves_and_what_stays(checkpoint: Checkpoint, name: str) -> None:
    """Piece vectors and position rows beyond the longest document bit-equal; attention moved; no unused heads."""
    method, data = trainee(checkpoint, name), examples(documents())
    before = {key: tensor.clone() for key, tensor in method.blocks.state_dict().items()}
    trained(method, data)
    after = method.blocks.state_dict()
    table = next(key for key in before if key.endswith("word_embeddings.weight"))
    assert torch.equal(before[table], after[table])
    places = next(key for key in before if key.endswith("position_embeddings.weight"))
    longest = int(data.lengths[data.tuples].max())
    assert torch.equal(before[places][longest:], after[places][longest:])
    assert not torch.equal(before[places][:longest], after[places][:longest])
    query = next(key for key in before if key.endswith("query.weight"))
    assert not torch.equal(before[query], after[query])
    assert (method.hierarchy is None) == (name == "triplet")


def test_it_learns_what_can_be_learned(checkpoint: Checkpoint) -> None:
    """Two groups of documents around two directions: the held-out accuracy rises, losses fall, the trace says how."""
    items = documents(24)
    store = sentence_store(items, seed=3)
    group = np.arange(24) % 2
    generator = np.random.default_rng(0)
    tuples = np.array(
        [
            [
                *generator.choice(np.flatnonzero(group == g), 2, replace=False),
                generator.choice(np.flatnonzero(group != g)),
            ]
            for g in (0, 1) * 40
        ]
    )
    labels = np.stack([group + 1, np.zeros(24, np.int64)], 1)
    data = DocumentExamples.read(items, tuples, labels, source=store)
    method = FastDoc(Pretrained(checkpoint("bert")).stack(), Objective.named("both"), (3, 2), seed=0, trace_every=5)
    result = trained(method, data, num_train_epochs=6, learning_rate=3e-3)
    losses = [epoch["loss"] for epoch in result.epochs]
    assert losses[-1] < 0.6 * losses[0]
    first, last = method.trace[0], method.trace[-1]
    assert first["hierarchy"] == pytest.approx(3 * (math.log(3) + math.log(2)), rel=0.5)
    assert last["triplet"] < first["triplet"]
    assert (
        last["negative_distance"] - last["positive_distance"] > first["negative_distance"] - first["positive_distance"]
    )
    assert first["triplet_gradient"] > 0
    assert method.positions["run"] >= method.positions["real"] > 0


def test_lora_trains_low_rank_terms_alone_and_a_projection_bridges_widths(checkpoint: Checkpoint) -> None:
    method = trainee(checkpoint, lora=2)
    assert set(method.groups(MODULE)) == {"head"}
    trained(method, examples(documents()))
    assert all(".lora_" in n for n, p in method.blocks.named_parameters() if p.requires_grad)
    stack = Pretrained(checkpoint("bert")).stack()
    with pytest.raises(ConfigError, match="width 20, the encoder's piece vectors 32"):
        FastDoc(stack, Objective.named("triplet"), sentence_width=20)
    for kind, trains in (("linear", True), ("frozen", False)):
        made = FastDoc(stack, Objective.named("triplet", projection=kind), sentence_width=20).projection
        assert made is not None
        assert made.weight.requires_grad is trains
        assert torch.equal(made.weight.detach(), torch.eye(32, 20))


@pytest.mark.parametrize("length", [9, 3])
def test_release_is_the_authors_arithmetic(checkpoint: Checkpoint, length: int) -> None:
    """All documents padded with zeros, or cut, to one length, no mask: triplet loss over rows of equal position, heads
    over the mean of all."""
    assert Objective.named("release").padded == 64
    method, data = trainee(checkpoint, "release", padded=length), examples(documents())
    method.eval()
    batch = one(method, data, size=4)
    assert batch.vectors is not None
    stack, padded = Pretrained(checkpoint("bert")).stack(), torch.zeros(12, length, 32)
    for place, own in zip(padded, batch.vectors.views[0].split(list(batch.lengths)), strict=True):
        place[: len(own)] = own[:length]
    with torch.no_grad():
        out = stack.model(inputs_embeds=padded).last_hidden_state
        parts = method.parts(batch)
        one_, two, three = out.split(4)
        due = torch.nn.TripletMarginLoss(margin=1.0, p=2)(one_, two, three)
        assert method.hierarchy is not None
        heads = method.hierarchy(out.mean(1).unflatten(0, (3, 4)), batch.labels)
    assert parts["triplet"].item() == pytest.approx(due.item(), abs=1e-4)
    assert parts["hierarchy"].item() == pytest.approx(heads.item(), abs=1e-4)
    method.train()
    method.vectors(batch)
    assert method.positions == {"real": sum(min(n, length) for n in batch.lengths), "run": 12 * length}


def test_a_released_vector_depends_on_no_other_document(checkpoint: Checkpoint) -> None:
    """A document read beside longer ones is what it is alone; of another length to pad to it is another."""
    data, made = examples(documents()), {n: trainee(checkpoint, "release", padded=n).eval() for n in (6, 8)}
    with torch.no_grad():
        together = made[6].vectors(one(made[6], data, size=8))
        alone = torch.cat([made[6].vectors(b) for b in made[6].batches(data, size=1, order=None)], dim=1)
        longer = made[8].vectors(one(made[8], data, size=8))
    torch.testing.assert_close(together, alone, atol=2e-5, rtol=0)
    assert (together - longer).abs().max() > 1e-2


def test_full_variant_trains_the_sentence_encoder_too(checkpoint: Checkpoint) -> None:
    """At its start it gives what stored vectors give; a step moves both."""
    items = documents()
    source = Pooled(Pretrained(checkpoint("bert")))
    cut = source.cut(items)
    stored = [Encoding(c.key, views, c.word) for c, (_, views) in zip(cut, source.encode(cut, "last"), strict=True)]
    tuples = examples(items).tuples
    live = DocumentExamples.read(items, tuples, texts=cut)
    held = DocumentExamples.read(items, tuples, source=Encodings(source.spec(dtype="fp32"), stored))
    stack = Pretrained(checkpoint("bert")).stack()
    method = FastDoc(stack, Objective.named("triplet"), lower=stack)
    plain = FastDoc(stack, Objective.named("triplet"))
    method.eval(), plain.eval()
    with torch.no_grad():
        torch.testing.assert_close(
            method.vectors(one(method, live)), plain.vectors(one(plain, held)), atol=1e-4, rtol=0
        )
    before = {key: tensor.clone() for key, tensor in method.state_dict().items()}
    trained(method, live)
    moved = {key.split(".")[0] for key, tensor in method.state_dict().items() if not torch.equal(tensor, before[key])}
    assert moved == {"blocks", "lower", "seen"}


# masked language


def window_list(checkpoint: Checkpoint) -> list[Any]:
    items = documents()
    return windows_of(Pretrained(checkpoint("bert"), overlap=0).cut(items), [d.place for d in items])


def masked_trainee(checkpoint: Checkpoint, name: str, **changes: Any) -> FastDoc:
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    folder = checkpoint("bert")
    with_head = folder.parent / "with_head"
    if not with_head.exists():
        torch.manual_seed(5)
        config = AutoModelForMaskedLM.from_config(Pretrained(folder).stack().model.config)
        config.bert.load_state_dict(Pretrained(folder).stack().model.state_dict(), strict=False)
        config.save_pretrained(with_head)
        AutoTokenizer.from_pretrained(folder).save_pretrained(with_head)
    objective = Objective.named(name, **changes)
    classes = CLASSES if objective.hierarchy else ()
    stack = Pretrained(with_head).stack()
    return FastDoc(stack, objective, classes, head=MaskedLM.load(with_head), mask_id=4, seed=1)


def test_the_masked_loss_is_that_of_transformers(checkpoint: Checkpoint) -> None:
    from transformers import AutoModelForMaskedLM

    method, data = masked_trainee(checkpoint, "masked"), DocumentExamples(windows=tuple(window_list(checkpoint)))
    method.eval()
    batch = one(method, data)
    assert batch.masked is not None
    model = AutoModelForMaskedLM.from_pretrained(checkpoint("bert").parent / "with_head").eval()
    due, at = [], 0
    with torch.no_grad():
        for length in batch.masked.lengths:
            logits = model(input_ids=batch.masked.ids[at : at + length][None]).logits[0]
            inside = (batch.masked.rows >= at) & (batch.masked.rows < at + length)
            wanted = batch.masked.targets[inside]
            due.append(
                torch.nn.functional.cross_entropy(logits[batch.masked.rows[inside] - at], wanted, reduction="none")
            )
            at += length
        assert method.losses(batch, [MODULE])[MODULE].item() == pytest.approx(torch.cat(due).mean().item(), abs=1e-4)


def test_masked_training_moves_the_tied_table_and_combined_has_every_part(checkpoint: Checkpoint) -> None:
    windows = window_list(checkpoint)
    method = masked_trainee(checkpoint, "masked")
    table = method.blocks.stack.model.get_input_embeddings().weight
    before = table.detach().clone()
    assert table.requires_grad
    first = trained(method, DocumentExamples(windows=tuple(windows)), num_train_epochs=8, learning_rate=5e-3)
    assert first.epochs[-1]["loss"] < first.epochs[0]["loss"]
    assert not torch.equal(before, table)
    both = masked_trainee(checkpoint, "combined")
    data = examples(documents(), windows=windows, windows_per_batch=3)
    assert set(both.parts(one(both, data))) == {"triplet", "hierarchy", "masked"}
    with pytest.raises(ConfigError, match="needs the checkpoint's head"):
        trainee(checkpoint, "masked")


def test_hidden_pieces_are_never_special_and_whole_words_go_together() -> None:
    word = np.array([-1, 0, 0, 1, 2, 2, 2, -1])
    generator = np.random.default_rng(0)
    share = np.mean([hidden(word, 0.15, False, generator) for _ in range(4000)], axis=0)
    assert share[[0, -1]].tolist() == [0, 0]
    assert np.abs(share[1:-1] - 0.15).max() < 0.03
    for _ in range(200):
        chosen = hidden(word, 0.5, True, generator)
        assert not chosen[[0, -1]].any()
        assert chosen[1] == chosen[2]
        assert chosen[4] == chosen[5] == chosen[6]


def test_marks_and_chinese_characters_are_words_of_their_own(checkpoint: Checkpoint) -> None:
    """Each piece is in the word that its characters are in: what BERT's basic tokenizer cuts off is hidden alone."""
    text = "the cats, running by: 河岸 rents."
    encoder = Pretrained(checkpoint("bert"), overlap=0)
    (cut,) = encoder.cut([Document("d", text=text)])
    assert cut.word.tolist() == [-1, 0, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 5, -1], "what stands between blanks"
    (window,) = windows_of(in_words([cut], encoder.spans([text]), [text]), ["d"])
    assert window.word.tolist() == [-1, 0, 1, 1, 2, 3, 3, 4, 5, 6, 7, 8, 8, 9, -1]
    more = " ".join([text] * 9)
    (long,) = in_words(encoder.cut([Document("d", text=more)]), encoder.spans([more]), [more])
    assert len(windows_of([long], ["d"])) > 1
    assert long.word.max() == 89
    assert long.n_words == 90


@pytest.mark.parametrize(
    ("family", "piece", "position"),
    [
        ("bert", "embeddings.word_embeddings", "embeddings.position_embeddings"),
        ("distilbert", "embeddings.word_embeddings", "embeddings.position_embeddings"),
        ("gpt2", "wte", "wpe"),
        ("modernbert", "embeddings.tok_embeddings", ""),
        ("t5", "shared", ""),
    ],
)
def test_norms_are_the_mean_lengths_of_the_tables_rows(
    checkpoint: Checkpoint, family: str, piece: str, position: str
) -> None:
    """And vectors scaled by them are as long as piece vectors, whether they were longer or shorter."""
    weights = {name.removesuffix(".weight"): t.numpy() for name, t in load_file(checkpoint(family) / WEIGHTS).items()}
    due = [float(np.linalg.norm(weights[name], axis=1).mean()) if name else 0.0 for name in (piece, position)]
    stack = Pretrained(checkpoint(family)).stack()
    for length in (0.1, 30.0):
        vectors = np.random.default_rng(0).normal(size=(7, 32)).astype(np.float32)
        vectors *= length / np.linalg.norm(vectors, axis=1, keepdims=True)
        found = norms(stack, vectors)
        assert [found.piece, found.position, found.sentence] == pytest.approx([*due, length], rel=1e-5)
        scaled, plain = (
            FastDoc(stack, Objective.named("triplet", scale=scale), token_scale=found.token_scale)
            for scale in ("token", "")
        )
        entered = torch.from_numpy(vectors)
        assert scaled.entering(entered).norm(dim=1).tolist() == pytest.approx([due[0]] * 7, rel=1e-4)
        assert torch.equal(plain.entering(entered), entered)


def test_settings_that_cannot_be_are_refused(checkpoint: Checkpoint) -> None:
    with pytest.raises(ConfigError, match=r"objective 'tripel' is not known.*Did you mean 'triplet'"):
        Objective.named("tripel")
    with pytest.raises(ConfigError, match=r"objective has no 'marginn'\. Did you mean 'margin'"):
        Objective.named("both", marginn=2)
    for name, value, rule in (
        ("margin", "1", "a number"),
        ("lora", 1.5, "a whole number"),
        ("lora", True, "a whole number"),
        ("whole_words", "yes", "true or false"),
        ("triplet", 3, "true or false"),
        ("scale", 2, "a string"),
    ):
        with pytest.raises(ConfigError, match=f"{name}={value!r} must be {rule}"):
            Objective.named("both", **{name: value})
    for name in ("lora", "head_hidden", "padded", "lora_alpha"):
        with pytest.raises(ConfigError, match=r"lora=.*, head_hidden=.* and padded=.* must be 0"):
            Objective.named("both", **{name: -1})
    assert Objective.named("both", margin=2).margin == 2
    assert Objective.named("triplet").idle(["reduction", "far", "lora_alpha", "margin"]) == ["reduction", "lora_alpha"]
    with pytest.raises(ConfigError, match="nothing to train on"):
        Objective(triplet=False, hierarchy=False)
    with pytest.raises(ConfigError, match="needs padded=64"):
        Objective(triplet_on="positions")
    with pytest.raises(ConfigError, match="needs a taxonomy"):
        FastDoc(Pretrained(checkpoint("bert")).stack(), Objective.named("both"))
    with pytest.raises(DataError, match="no tuples"):
        DocumentExamples.read(documents(), np.zeros((0, 3), np.int64))


@pytest.mark.parametrize("family", ["bert", "roberta", "mpnet", "modernbert"])
def test_a_document_longer_than_the_positions_is_read_in_runs(family: str, checkpoint: Checkpoint) -> None:
    """As its runs one by one, none left out; its vector is the mean over all of its sentences."""
    stack = Pretrained(checkpoint(family)).stack()
    blocks = LiveBlocks(stack, range(stack.n_blocks), final=True, embeddings=True).eval()
    longest = stack.window
    lengths = (2 * longest + 1, 3, longest)
    vectors = torch.randn(sum(lengths), stack.width, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        found, at = over_sentences(blocks, vectors, lengths), 0
        third = (2 * longest + 1) // 3
        shown = shown_in(lengths, longest)
        assert shown == (third + (third * 3 < 2 * longest + 1), *shown[1:3], 3, longest)
        assert sum(shown) == sum(lengths)
        assert max(shown[:3]) - min(shown[:3]) <= 1
        for n in shown:
            alone = stack.run(stack.place(vectors[None, at : at + n]), None)[-1][0]
            torch.testing.assert_close(found[at : at + n], alone, atol=1e-5, rtol=1e-5)
            at += n
    assert shown_in((5, 7), None) == (5, 7)
