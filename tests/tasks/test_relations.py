"""The task: gold, ids, names of scores; and a handful of sentences learned by heart."""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from encodeonce.batching import Encodings, Examples
from encodeonce.corpus import read
from encodeonce.errors import ConfigError, DataError, RunError
from encodeonce.graphs import UNTYPED, Graph, Relation
from encodeonce.heads.partition_filter import ENTITY, RELATION
from encodeonce.methods.aggregate import VARIANTS, Aggregate, Variant
from encodeonce.spans import Span
from encodeonce.tasks import from_json, named
from encodeonce.tasks.relations import Relations
from encodeonce.train.evaluate import evaluate
from encodeonce.train.fit import fit
from encodeonce.train.settings import Settings
from encodeonce.types import Document, Encoding, Spec

GRAPH = Graph((Span("P", 0, 2), Span("Q", 1, 2), Span("P", 3, 4)), (Relation("r", 0, 2), Relation("s", 0, 2)))


def document(graph: Graph, number: int = 1, n_words: int = 5) -> Document:
    words = tuple(f"w{number}-{i}" for i in range(n_words))
    return Document(f"d{number}", words, meta=graph.to_json(), place=f"f.json:{number}")


def test_learned_from_training_alone() -> None:
    task = named("relations").learn([document(GRAPH)])
    assert isinstance(task, Relations)
    assert (task.labels, task.relations, task.longest) == (("P", "Q"), ("r", "s"), 2)
    assert (task.name, task.piece, task.head) == ("relations", "pieces", "partition_filter")
    sizes = {"hidden": 300, "dropconnect": 0.1, "prior": 0.01}
    assert task.head_options == {"relations": ("r", "s"), "longest": 2, **sizes}
    assert from_json(json.loads(json.dumps(task.to_json()))) == task
    with pytest.raises(RunError, match="cannot be rebuilt"):
        from_json({**task.to_json(), "colour": 1})


def test_REL1_labels_sit_on_the_mention_that_is_meant(cases: Path) -> None:
    documents = read(cases / "REL-1.jsonl")
    task = named("relations").learn(documents)
    assert isinstance(task, Relations)
    (gold,) = task.gold(documents)
    ids = task.ids(gold)
    expected = json.loads((cases / "REL-1.expected.json").read_text("utf-8"))
    told = ids[ids[:, 0] == RELATION]
    assert sorted(told[:, 1].tolist()) == expected["relation_head_start_tokens"]
    assert sorted(told[:, 2].tolist()) == expected["relation_tail_start_tokens"]
    assert (ids[:, 0] == ENTITY).sum() == expected["entities"]


def test_ids_are_cells_each_once_and_a_type_never_seen_is_none() -> None:
    task = named("relations").learn([document(GRAPH)])
    twice = Graph((*GRAPH.entities, GRAPH.entities[0]), (*GRAPH.relations, Relation("r", 3, 2), Relation("s", 2, 0)))
    assert task.ids(twice).tolist() == [
        [0, 0, 1, 0],
        [0, 1, 1, 1],
        [0, 3, 3, 0],
        [1, 0, 3, 0],
        [1, 0, 3, 1],
        [1, 3, 0, 1],
    ]
    assert task.scored(task.ids(twice)) == 6
    new = Graph((Span("Z", 0, 1), Span("P", 1, 2)), (Relation("x", 0, 1),))
    assert task.ids(new).tolist() == [[0, 1, 1, 0]]
    assert list(task.unseen(new)) == ["Z", "x"]
    assert task.ids(Graph()).shape == (0, 4)
    assert task.ids(Graph()).dtype == np.int64


def test_a_type_never_seen_is_a_miss_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    task = named("relations").learn([document(GRAPH)])
    other = [document(Graph((Span("Z", 0, 1), Span("P", 1, 2)), (Relation("x", 0, 1),)), n) for n in (1, 2)]
    memory = stored([*other])
    with caplog.at_level(logging.WARNING, "encodeonce"):
        Examples.read(memory, other, [task], "dev")
    assert caplog.messages == [
        "task relations: labels of dev that training never saw, so never predicted: 'Z' (2), 'x' (2)"
    ]
    scores = task.score(task.gold(other), [Graph((Span("P", 1, 2),)), ()])
    assert (scores["n"], scores["ner_recall_strict"], scores["re_recall_strict"]) == (6, 25.0, 0.0)


def test_score_names_say_the_rule_and_the_sum_of_strict_f1_decides() -> None:
    task = named("relations").learn([document(GRAPH)])
    predicted = Graph((Span("P", 0, 2), Span("P", 1, 2), Span("P", 3, 4)), (Relation("r", 0, 2),))
    scores = task.score([GRAPH], [predicted])
    assert scores["ner_f1_boundary"] == 100.0
    assert scores["ner_f1_strict"] == pytest.approx(200 / 3)
    assert scores["re_f1_strict"] == pytest.approx(200 / 3)
    assert scores["ner+re"] == pytest.approx(400 / 3)
    assert task.metric == "ner+re"
    assert scores["ner_precision_strict"] == pytest.approx(200 / 3)
    assert task.score([Graph()], [Graph()])["ner+re"] is None
    assert task.score([Graph()], [Graph((Span("P", 0, 1),))])["ner+re"] == 0.0


def test_n_counts_once_what_gold_says_twice() -> None:
    """As the scores do: one P, one Q and one r between them, however often the file lists them."""
    twice = Graph((Span("P", 0, 2), Span("P", 0, 2), Span("Q", 3, 4)), (Relation("r", 0, 2), Relation("r", 1, 2)))
    task = named("relations").learn([document(twice)])
    assert task.score([twice], [twice])["n"] == 3


def test_A9_untyped_head_words_are_scored_under_their_own_name() -> None:
    task = named("relations", head_words=True).learn([document(GRAPH)])
    assert isinstance(task, Relations)
    assert (task.labels, task.longest, task.rules) == ((UNTYPED,), 1, ("head word",))
    (gold,) = task.gold([document(GRAPH)])
    assert gold == Graph((Span(UNTYPED, 1, 2), Span(UNTYPED, 3, 4)), (Relation("r", 0, 1), Relation("s", 0, 1)))
    scores = task.score([gold], [gold])
    assert scores["ner+re"] == 200.0
    assert scores["re_f1_head_word"] == 100.0
    assert not any("strict" in name for name in scores)


def test_A9_a_run_without_types_misses_no_type_of_an_entity(caplog: pytest.LogCaptureFixture) -> None:
    """A run of triples on a file of typed spans is scored by head words; nothing is said to be a miss that is none."""
    untyped = Graph((Span(UNTYPED, 0, 2), Span(UNTYPED, 3, 4)), (Relation("r", 0, 1), Relation("s", 0, 1)))
    task = named("relations").learn([document(untyped)])
    assert task.gold([document(untyped)]) == [untyped]  # whole spans are learned
    typed = document(GRAPH, 2)
    with caplog.at_level(logging.WARNING, "encodeonce"):
        Examples.read(stored([typed]), [typed], [task], "test")
    assert caplog.messages == []
    assert task.score(task.gold([typed]), [untyped])["ner+re"] == 200.0
    assert list(task.unseen(GRAPH._replace(relations=(Relation("x", 0, 1),)))) == ["x"]


def test_what_cannot_be_learned_is_named() -> None:
    bare = Document("d", ("a",), place="f.json:3")
    with pytest.raises(DataError, match=r"f.json:3 \(d\): no 'entities': training and evaluation need gold"):
        named("relations").learn([bare])
    with pytest.raises(DataError, match="the 1 training documents have no relation"):
        named("relations").learn([document(Graph((Span("P", 0, 1),)))])
    with pytest.raises(DataError, match=r"f.json:1 \(d1\): entity 0: words 3 to 9 are no span of the 5 words"):
        named("relations").learn([document(Graph((Span("P", 3, 9),)))])
    with pytest.raises(ConfigError, match="piece='first': the filter reads all pieces"):
        named("relations", piece="first")


def test_predictions_as_fields() -> None:
    task = named("relations").learn([document(GRAPH)])
    assert task.columns([], [GRAPH, ()]) == {
        "entities": [GRAPH.to_json()["entities"], []],
        "relations": [GRAPH.to_json()["relations"], []],
    }


WIDTH = 16


def stored(documents: list[Document]) -> Encodings:
    """Random states of three views; every second word has two pieces, and the ends are special."""
    spec = Spec("tiny", "w" * 64, "c" * 64, "t" * 64, 2, WIDTH, (0, 1, 2), 512, 128, dtype="fp32")
    random, encodings = np.random.default_rng(0), []
    for one in documents:
        pieces = [1 + i % 2 for i in range(len(one.words))]
        word = np.array([-1, *np.repeat(np.arange(len(pieces)), pieces), -1], dtype=np.int32)
        encodings.append(Encoding(one.key, random.normal(size=(3, len(word), WIDTH)).astype(np.float32), word))
    return Encodings(spec, encodings)


def test_a_handful_of_sentences_is_learned_by_heart() -> None:
    flat = Graph((Span("Q", 0, 1), Span("P", 4, 5)), (Relation("s", 0, 1), Relation("r", 1, 0)))
    itself = Graph((Span("Q", 2, 4),), (Relation("s", 0, 0),))
    documents = [
        document(graph, n) for n, graph in enumerate((GRAPH, flat, itself, Graph((Span("P", 0, 1),)), Graph()))
    ]
    task = named("relations", hidden=24, dropconnect=0.0).learn(documents)
    memory = stored(documents)
    method = Aggregate.build(Variant("linear", dropout=0.0), memory.spec, [task])
    examples = method.read(memory, documents, [task])
    settings = Settings(num_train_epochs=60, per_device_train_batch_size=3, learning_rate=2e-2)
    done = fit(method, examples, {"relations": task}, settings)
    assert done.epochs[-1]["loss"] < 0.2 < done.epochs[0]["loss"]
    found = evaluate(method, examples, {"relations": task}, size=2)
    assert [answer["relations"] for answer in found.predictions] == list(examples.gold["relations"])
    assert found.scores["relations"]["ner+re"] == 200.0
    alone = evaluate(method, examples, {"relations": task}, size=1)
    assert alone.predictions == found.predictions


def test_start_values_depend_on_seed_and_task_alone() -> None:
    documents = [document(GRAPH)]
    task = named("relations", hidden=8).learn(documents)
    one, two = (Aggregate.build(Variant("linear"), stored(documents).spec, [task], seed=5) for _ in range(2))
    for mine, other in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(mine, other)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_network_stands_on_every_adapter(variant: str) -> None:
    """What it learns reaches all of the adapter; an answer is a graph of the sentence's words."""
    documents = [document(GRAPH), document(Graph(), 2, 3)]
    task = named("relations", hidden=6, prior=0.5).learn(documents)
    memory = stored(documents)
    method = Aggregate.build(Variant(variant, key_width=4), memory.spec, [task])
    batch = next(iter(method.batches(method.read(memory, documents, [task]), size=2, order=None)))
    method.loss(batch).backward()
    adapter: Any = method.part("relations").adapter
    assert all(weight.grad is not None and weight.grad.any() for weight in adapter.parameters())
    method.eval()
    head: Any = method.part("relations").head
    with torch.no_grad():
        for table in (head.entity_table, head.relation_table):
            table.out.bias.fill_(20.0)  # whatever it has learned, every cell is likely
    for one, answer in zip(documents, method.predict(batch), strict=True):
        graph = answer["relations"]
        spans = [(kind, i, j) for kind in ("P", "Q") for i in range(len(one.words)) for j in (i + 1, i + 2)]
        possible = {Span(kind, i, j) for kind, i, j in spans if j <= len(one.words)}
        assert set(graph.entities) == possible, "up to two words, the longest of training"
        assert len(graph.relations) == 2 * len(one.words) ** 2, "an entity begins at every word"
