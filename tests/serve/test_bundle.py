"""A saved run: rebuilt elsewhere to the last bit, refused by name where something does not fit."""

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from encodeonce.batching import Encodings
from encodeonce.errors import DataError, NotStored, RunError
from encodeonce.methods.aggregate import VARIANTS, Aggregate, Variant
from encodeonce.serve import bundle
from encodeonce.serve.bundle import Run, begin, load, save
from encodeonce.serve.predictor import Predictor, as_documents
from encodeonce.tasks import named
from encodeonce.train.fit import fit
from encodeonce.train.settings import Settings
from encodeonce.types import Document, Pieces, Spec

Corpus = Callable[..., tuple[list[Document], Encodings]]


def trained(
    make_corpus: Corpus, variant: str = "adapted", names: Sequence[str] = ("upos", "ner")
) -> tuple[Run, Any, Any]:
    documents, memory = make_corpus(8)
    tasks = tuple(named(name).learn(documents) for name in names)
    settings = Settings(num_train_epochs=1, per_device_train_batch_size=4)
    chosen = Variant(variant, key_width=4)
    method = Aggregate.build(chosen, memory.spec, tasks)
    fit(method, method.read(memory, documents, tasks), {task.name: task for task in tasks}, settings)
    run = Run(
        method,
        tasks,
        chosen,
        memory.spec,
        training={"settings": settings.to_json()},
        scores={"dev": {"upos": {"accuracy": 91.234, "n": 9.0}, "ner": {"f1_lenient": None}}},
        data={"train": "small corpus"},
        command="encodeonce train config.toml",
    )
    return run, documents, memory


def logits(method: Aggregate, memory: Encodings, documents: Sequence[Document]) -> dict[str, torch.Tensor]:
    batch = next(iter(method.batches(method.read(memory, documents), size=len(documents), order=None)))
    with torch.no_grad():
        return {name: method.part(name)(batch) for name in method.names}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_loaded_run_gives_the_same_logits(make_corpus: Corpus, tmp_path: Path, variant: str) -> None:
    run, documents, memory = trained(make_corpus, variant)
    save(run, tmp_path)
    torch.manual_seed(123)
    again = load(tmp_path)
    assert again.tasks == run.tasks
    assert (again.spec, again.variant, again.scores, again.command) == (run.spec, run.variant, run.scores, run.command)
    before = logits(run.method, memory, documents)
    for name, scores in logits(again.method, memory, documents).items():
        assert torch.equal(scores, before[name])


READER = """
import sys, torch, numpy as np
sys.path.insert(0, sys.argv[1])
from tests.methods import conftest
from encodeonce.serve.bundle import load
torch.manual_seed(987)
documents, memory = conftest.corpus(8)
method = load(__import__("pathlib").Path(sys.argv[2])).method
batch = next(iter(method.batches(method.read(memory, documents), size=8, order=None)))
with torch.no_grad():
    np.savez(sys.argv[3], **{name: method.part(name)(batch).numpy() for name in method.names})
"""


def test_TRAIN1_a_new_process_gives_the_same_logits(make_corpus: Corpus, tmp_path: Path) -> None:
    run, documents, memory = trained(make_corpus)
    save(run, tmp_path / "run")
    home = Path(__file__).parents[2]
    subprocess.run(
        [sys.executable, "-c", READER, str(home), str(tmp_path / "run"), str(tmp_path / "there.npz")], check=True
    )
    there = np.load(tmp_path / "there.npz")
    for name, scores in logits(run.method, memory, documents).items():
        np.testing.assert_allclose(there[name], scores, atol=1e-6, rtol=0)


def test_a_bundle_holds_three_files_and_no_pickle(make_corpus: Corpus, tmp_path: Path) -> None:
    run, _, _ = trained(make_corpus)
    save(run, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["schema"] == 1
    assert config["spec"]["weights"] == "w" * 64
    card = (tmp_path / "README.md").read_text()
    assert "| dev | upos | accuracy | 91.23 |" in card
    assert "| dev | ner | f1_lenient | undefined |" in card
    assert f"| weights | `{'w' * 64}` |" in card
    assert "encodeonce train config.toml" in card
    assert "- train: small corpus" in card


def test_a_run_is_not_saved_over_an_encoder(make_corpus: Corpus, tmp_path: Path) -> None:
    run, _, _ = trained(make_corpus)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(RunError, match=r"config\.json is not the config of a saved run.*Choose another folder"):
        save(run, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


class LiveTiny:
    """An encoder whose vectors are those of a Encodings."""

    def __init__(self, memory: Encodings, **changes: str) -> None:
        self.memory, self.changes, self.at_once = memory, changes, 3
        self.encoded: list[str] = []

    def spec(self, layers: Any = "all", dtype: str = "fp16") -> Spec:
        return replace(self.memory.spec, layers=tuple(layers), dtype=dtype, **self.changes)

    def cut(self, documents: Sequence[Document]) -> list[Pieces]:
        words = [self.memory.word(int(self.memory.index([d.key])[0])) for d in documents]
        return [
            Pieces(d.key, np.zeros(len(w), np.int32), w, len(d.words), ((0, len(w), 0, len(w)),))
            for d, w in zip(documents, words, strict=True)
        ]

    def encode(self, pieces: Sequence[Pieces], layers: Any = "all") -> Iterator[tuple[int, np.ndarray]]:
        raise AssertionError("nothing is kept")

    def encode_together(
        self, pieces: Sequence[Pieces], layers: Any = "all", dtype: str = "fp32"
    ) -> Iterator[tuple[list[int], torch.Tensor]]:
        order = sorted(range(len(pieces)), key=lambda i: -len(pieces[i]))
        kinds = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
        for some in (order[start : start + self.at_once] for start in range(0, len(order), self.at_once)):
            keys = [pieces[i].key for i in some]
            self.encoded += keys
            views = self.memory.batch(self.memory.index(keys), layers).views.to(kinds[dtype]).float()
            yield some, views
            views.fill_(torch.nan)  # the memory is another batch's now


@pytest.mark.parametrize("field", ["weights", "config", "tokenizer", "window"])
def test_another_encoder_is_refused_by_what_differs(make_corpus: Corpus, tmp_path: Path, field: str) -> None:
    run, _, memory = trained(make_corpus)
    save(run, tmp_path)
    load(tmp_path, LiveTiny(memory))
    other = LiveTiny(memory, **{field: 7 if field == "window" else "x" * 64})
    with pytest.raises(
        RunError, match=rf"the encoder \(tiny\) does not make the states .*: {field}: .* here, .* there"
    ):
        load(tmp_path, other)
    with pytest.raises(RunError, match=f"{field}: "):
        Predictor(run, encoder=other)


def test_an_encoder_of_another_name_with_the_same_hashes_is_welcome(make_corpus: Corpus, tmp_path: Path) -> None:
    run, _, memory = trained(make_corpus)
    save(run, tmp_path)
    load(tmp_path, LiveTiny(memory, encoder="moved/elsewhere"))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_missing_file_is_named_by_path(make_corpus: Corpus, tmp_path: Path, name: str) -> None:
    run, _, _ = trained(make_corpus)
    save(run, tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(RunError, match=rf"{tmp_path / name} is missing"):
        load(tmp_path)


def test_what_does_not_fit_is_refused(make_corpus: Corpus, tmp_path: Path) -> None:
    run, _, _ = trained(make_corpus)
    save(run, tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "schema": 9}))
    with pytest.raises(RunError, match=r"schema 9 and method 'aggregate'; this version reads schema 1"):
        load(tmp_path)
    path.write_text(json.dumps({**config, "method": "lumen"}))
    with pytest.raises(
        RunError, match=r"is a reader of memory: `memory build` and `ask` read it.*aggregate or finetune"
    ):
        load(tmp_path)
    fewer = {**config, "tasks": [{**config["tasks"][0], "labels": ["NOUN", "VERB"]}, config["tasks"][1]]}
    path.write_text(json.dumps(fewer))
    with pytest.raises(RunError, match=r"upos\.labels: \['DET', 'NOUN', 'VERB'\] then, \['NOUN', 'VERB'\] now"):
        load(tmp_path)
    path.write_text(json.dumps(config)[:-20])
    with pytest.raises(RunError, match="is not the config of a saved run"):
        load(tmp_path)
    path.write_text(json.dumps(config))
    weights = bytearray((tmp_path / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (tmp_path / "model.safetensors").write_bytes(weights)
    with pytest.raises(RunError, match=r"is not the file config.json was written for"):
        load(tmp_path)


def test_TRAIN1_a_label_list_of_the_same_length_is_no_other(make_corpus: Corpus, tmp_path: Path) -> None:
    """Swapped labels would load, and answer with each other's names. How answers are decoded may be changed."""
    run, documents, memory = trained(make_corpus)
    save(run, tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    upos, ner = config["tasks"]
    path.write_text(json.dumps({**config, "tasks": [{**upos, "labels": upos["labels"][::-1]}, ner]}))
    with pytest.raises(RunError, match=r"says other labels than the weights .*: upos\.labels: \['DET', .*\['VERB', "):
        load(tmp_path)
    path.write_text(json.dumps({**config, "tasks": [upos, {**ner, "constrained": True}]}))
    again = load(tmp_path)
    assert again.tasks[0] == run.tasks[0]
    for name, scores in logits(again.method, memory, documents).items():
        assert torch.equal(scores, logits(run.method, memory, documents)[name])


def test_a_run_whose_weights_say_less_of_what_was_learned_is_read(
    make_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one saved before tasks learned more than labels."""
    run, _, _ = trained(make_corpus)
    with monkeypatch.context() as patch:
        patch.setattr(bundle, "_learned", lambda tasks: {one.name: {"labels": list(one.labels)} for one in tasks})
        save(run, tmp_path)
    assert load(tmp_path).tasks == run.tasks


def test_TRAIN1_a_run_is_begun_from_weights_of_the_same_labels_only(make_corpus: Corpus, tmp_path: Path) -> None:
    """Lists of the same length, too: types of relations, which are learned beside those of entities."""
    _, memory = make_corpus(2)
    typed = {"labels": ("A", "B"), "relations": ("r", "s"), "longest": 1}
    task = replace(named("relations", hidden=4), **typed)
    variant = Variant("linear")
    save(Run(Aggregate.build(variant, memory.spec, [task]), (task,), variant, memory.spec), tmp_path)
    fresh = Aggregate.build(variant, memory.spec, [task], seed=9)
    begin(fresh, [replace(task, longest=3)], tmp_path, LiveTiny(memory))
    saved = load(tmp_path).method.state_dict()
    assert all(torch.equal(tensor, saved[name]) for name, tensor in fresh.state_dict().items())
    for key, other in (("labels", ["A", "C"]), ("relations", ["s", "r"])):
        was = list(getattr(task, key))
        said = rf"other labels than 'relations', .*: {re.escape(f'{key}: {was} then, {other} now')}"
        with pytest.raises(RunError, match=said):
            begin(fresh, [replace(task, **{key: tuple(other)})], tmp_path, LiveTiny(memory))


class Partial:
    """A store that lacks some items."""

    def __init__(self, memory: Encodings, keys: set[str], **changes: Any) -> None:
        self._memory, self._keys = memory, keys
        self.spec = replace(memory.spec, **changes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory, name)

    def missing(self, keys: Sequence[str]) -> list[int]:
        return [i for i, key in enumerate(keys) if key not in self._keys and key not in keys[:i]]


def rounded(memory: Encodings, dtype: torch.dtype) -> Encodings:
    """The memory as a store of that type would give it back."""
    other = Encodings(memory.spec, [])
    other._places, other._words = memory._places, memory._words
    other._states = [states.to(dtype).float() for states in memory._states]
    return other


def test_stored_and_live_predictions_agree_and_keep_their_order(make_corpus: Corpus) -> None:
    run, documents, memory = trained(make_corpus)
    run = replace(run, spec=replace(run.spec, dtype="fp16"))
    stored = rounded(memory, torch.float16)
    everything = Partial(stored, {d.key for d in documents}, dtype="fp16")
    half = Partial(stored, {d.key for d in documents[::2]}, dtype="fp16")
    asked = [*documents, Document("none"), documents[1]]
    encoder = LiveTiny(memory)
    from_store = Predictor(run, store=everything).predict(asked)
    mixed = Predictor(run, store=half, encoder=encoder)
    assert mixed.predict(asked) == from_store
    assert (mixed.hits, mixed.misses) == (4, 5)
    assert sorted(encoder.encoded) == sorted(d.key for d in documents[1::2])  # each text once
    assert Predictor(run, encoder=LiveTiny(memory)).predict(asked) == from_store
    assert from_store[8] == {"upos": (), "ner": ()}
    assert [len(answer["upos"]) for answer in from_store] == [len(d.words) for d in asked]


def test_a_pair_is_refused_where_words_are_labelled_whatever_its_second_text_is(make_corpus: Corpus) -> None:
    run, documents, memory = trained(make_corpus)
    for pair in ("b", " "):
        with pytest.raises(DataError, match="a pair of texts has no words to label"):
            Predictor(run, encoder=LiveTiny(memory)).predict([replace(documents[0], pair=pair)])


def test_live_vectors_are_rounded_as_stored_ones(make_corpus: Corpus) -> None:
    run, documents, memory = trained(make_corpus)
    for dtype, kind in (("fp16", torch.float16), ("bf16", torch.bfloat16), ("fp32", torch.float32)):
        predictor = Predictor(replace(run, spec=replace(run.spec, dtype=dtype)), encoder=LiveTiny(memory))
        expected, seen = rounded(memory, kind), []
        for live, places in predictor._encoded(predictor._cut(documents), [[i] for i in range(len(documents))]):
            assert len(places) <= 3
            for document in (documents[place] for place in places):
                a, b = live.batch(live.index([document.key])), expected.batch(expected.index([document.key]))
                assert torch.equal(a.views, b.views)
            seen += places
        assert sorted(seen) == list(range(len(documents)))


def test_answers_do_not_depend_on_how_many_are_answered_at_once(make_corpus: Corpus) -> None:
    run, documents, memory = trained(make_corpus)
    asked = [*documents, *documents[::3]]
    whole = Predictor(run, store=Partial(memory, {d.key for d in documents})).predict(asked, size=len(asked))
    for size in (1, 3, 64):
        encoder = LiveTiny(memory)
        encoder.at_once = size
        predictor = Predictor(run, encoder=encoder)
        assert predictor.predict(asked) == whole
        assert Predictor(run, store=Partial(memory, set(encoder.encoded))).predict(asked, size=size) == whole
        assert (predictor.hits, predictor.misses) == (0, len(asked))


def test_what_a_predictor_cannot_answer(make_corpus: Corpus) -> None:
    run, documents, memory = trained(make_corpus)
    with pytest.raises(NotStored, match=r"corpus:2: 7 of 8 texts are not stored and there is no encoder"):
        Predictor(run, store=Partial(memory, {documents[0].key})).predict(documents)
    with pytest.raises(DataError, match=r"'a text' is one string, and predict takes many. Give a list: predict"):
        Predictor(run, encoder=LiveTiny(memory)).predict("a text")
    with pytest.raises(DataError, match=r"is one document, and predict takes many"):
        inspect.unwrap(as_documents)(documents[0])  # no types are checked
    with pytest.raises(DataError, match=r"running text: cut it into words first"):
        Predictor(run, encoder=LiveTiny(memory)).predict([Document("t", text="running text")])
    with pytest.raises(RunError, match=r"the store .* dtype: 'fp32' here, 'int8' there"):
        Predictor(run, store=Partial(memory, set(), dtype="int8"))


@pytest.mark.parametrize("item", [None, float("nan"), 1, ("a", "b", "c"), ["a"], b"x", (1, "b")])
def test_what_is_no_text_is_named_with_its_number(item: Any) -> None:
    with pytest.raises(DataError, match=r"^text 2 is .*: give a string, a pair of strings, or a Document"):
        inspect.unwrap(as_documents)(["a text", item])  # no types are checked
    pair, alone = inspect.unwrap(as_documents)([("a", "b"), ("a", None)])
    assert (pair.text, pair.pair, alone.pair) == ("a", "b", "")
