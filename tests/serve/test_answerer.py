"""Answers from a memory with their sources: a stand-in reader, then a real LUMEN run saved, loaded and asked."""

import inspect
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from encodeonce.corpus.windows import windows
from encodeonce.encoders.pooled import Pooled
from encodeonce.encoders.pretrained import Pretrained
from encodeonce.errors import ConfigError, DataError, RunError, SpecMismatch
from encodeonce.memory import Memory
from encodeonce.methods.lumen import Design, Lumen
from encodeonce.retrieval.bm25 import BM25
from encodeonce.serve.answerer import Answerer, Reader, finder
from encodeonce.serve.reader_run import ReaderRun, load_reader, save_reader
from encodeonce.serve.reading import MemoryReader
from encodeonce.types import Answer, Passage, Question

TEXT = "Norway has fjords. Its capital is Oslo since long ago."
PASSAGES = [Passage("norway.txt", "Norway", TEXT), Passage("sea", "The sea", "a boat lies by the sea")]


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda handle: None)


class Capital:
    """Answers "Oslo" where it stands, else nothing."""

    def answers(self, questions: Sequence[Question]) -> list[Answer]:
        found = []
        for question in questions:
            at = [(one, one.text.find("Oslo")) for one in question.passages]
            one, start = next(((one, start) for one, start in at if start >= 0), (None, -1))
            found.append(Answer("") if one is None else Answer("Oslo", one.id, start, start + 4, 0.9))
        return found


def test_an_answer_says_where_it_stands(tmp_path: Path) -> None:
    memory = Memory.create(tmp_path / "m", None)
    memory.add(windows(PASSAGES, 4))
    answerer = Answerer(Capital(), memory, BM25(memory.passages), k=2)
    assert isinstance(answerer.reader, Reader)
    found = answerer.ask("What is the capital?")
    assert (found.text, found.passage.id, found.whole.passage) == ("Oslo", "norway.txt#2", "norway.txt")
    assert TEXT[found.whole.start : found.whole.end] == "Oslo"
    values = json.loads(json.dumps(found.to_json()))
    assert values["source"] == {
        "passage": "norway.txt#2",
        "title": "Norway",
        "start": 11,
        "end": 15,
        "text": "norway.txt",
        "start_in_text": TEXT.find("Oslo"),
        "end_in_text": TEXT.find("Oslo") + 4,
    }
    assert [one["passage"] for one in values["read"]] == [hit.passage for hit in found.hits]
    assert memory.hits()[1] == {"norway.txt#2": 1}


def test_no_answer_and_no_passage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    memory = Memory.create(tmp_path / "m", None)
    memory.add(PASSAGES)
    answerer = Answerer(Capital(), memory, BM25(memory.passages))
    by_sea, unheard = answerer.ask_all(["what lies by the sea?", Question("q9", "zzz")])
    assert (by_sea.text, by_sea.passage, by_sea.to_json()["source"]) == ("", None, None)
    assert (unheard.hits, unheard.question.id, unheard.question.passages) == ((), "q9", ())
    assert "1 of 2 questions share no word with any passage" in caplog.text
    with pytest.raises(DataError, match="q: the question is empty"):
        answerer.ask(Question("q", " "))
    with pytest.raises(DataError, match=r"question 1: '\\udce9' is no character. Give the question in UTF-8"):
        answerer.ask("caf\udce9")
    for one in ("by sea?", Question("q", "by sea?")):
        with pytest.raises(DataError, match=r"is one question, and ask_all takes many. Give a list, or use ask"):
            inspect.unwrap(Answerer.ask_all)(answerer, one)  # no types are checked


@pytest.fixture(scope="module")
def tiny_bert(cases: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random BertModel of 3 blocks over the letters and a few words."""
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("tiny_bert")
    torch.manual_seed(0)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", "?", "oslo", "capital", "norway", "sea", "the", "is"]
    letters = [chr(97 + i) for i in range(26)]
    vocabulary = [*words, *letters, *("##" + letter for letter in letters)]
    (folder / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    sizes = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}
    BertModel(BertConfig(vocab_size=len(vocabulary), **sizes)).save_pretrained(folder)
    BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


def built(folder: Path, model: Path, live: int = 1) -> tuple[ReaderRun, Memory]:
    """A reader that answers wherever there is a passage, over windows of six words."""
    design = Design(live=live, question_pieces=16)
    encoder = design.encoder(model)
    method = Lumen.build(design, encoder)
    torch.nn.init.constant_(method.reader.head.none.bias, -100)  # type: ignore[union-attr, arg-type]
    run = ReaderRun(method, encoder, "fp32", scores={"dev": {"exact_match": 1.0}}, command="x")
    save_reader(run, folder)
    vectors = Pooled(Pretrained(model), "text")
    memory = Memory.create(folder / "memory", run.spec, vectors.spec(dtype="fp32"))
    memory.add(windows(PASSAGES, 6), encoder, vectors)
    return run, memory


@pytest.mark.parametrize("live", [0, 1, 3])
def test_a_saved_reader_answers_as_before(tmp_path: Path, tiny_bert: Path, live: int) -> None:
    run, memory = built(tmp_path / "run", tiny_bert, live)
    asked = [Question("a", "what is the capital?"), Question("b", "the sea?")]
    found = [replace(one, passages=tuple(memory.passages)) for one in asked]
    before = MemoryReader(run.method, run.encoder, memory.states).answers(found)
    torch.manual_seed(7)
    answerer = Answerer.load(tmp_path / "run", k=9)
    assert answerer.reader.answers(found) == before
    for one in answerer.ask_all(asked):
        assert one.text
        assert memory[one.answer.passage].text[one.answer.start : one.answer.end] == one.text
        whole = next(passage for passage in PASSAGES if passage.id == one.whole.passage)
        assert whole.text[one.whole.start : one.whole.end] == one.text


def test_a_decoder_of_another_checkpoint_comes_back(tmp_path: Path, tiny_bert: Path) -> None:
    other = Path(shutil.copytree(tiny_bert, tmp_path / "other"))
    design = Design(live=1, question_pieces=16, reader="generate", decoder_blocks=1, longest_answer=4)
    encoder = design.encoder(tiny_bert)
    method = Lumen.build(design, encoder, decoder=other).eval()
    save_reader(ReaderRun(method, encoder, "fp32"), tmp_path / "run")
    torch.manual_seed(7)
    held = load_reader(tmp_path / "run").method
    assert held.decoder == other.resolve()
    assert all(torch.equal(own, held.state_dict()[name]) for name, own in method.state_dict().items())
    other.rename(tmp_path / "gone")
    with pytest.raises(RunError, match=r"the checkpoint of this run's decoder, .*other, is not there"):
        load_reader(tmp_path / "run")
    assert load_reader(tmp_path / "run", decoder=str(tmp_path / "gone")).method.decoder == tmp_path / "gone"
    save_reader(load_reader(tmp_path / "run", decoder=str(tmp_path / "gone")), tmp_path / "run", whole=True)
    shutil.rmtree(tmp_path / "gone")
    again = load_reader(tmp_path / "run")
    assert (again.encoder.path, again.method.decoder) == (tmp_path / "run" / "encoder", tmp_path / "run" / "decoder")
    save_reader(again, tmp_path / "run", whole=True)
    assert all(torch.equal(own, again.method.state_dict()[name]) for name, own in method.state_dict().items())


def test_one_by_one_or_together_is_one_answer(tmp_path: Path, tiny_bert: Path) -> None:
    built(tmp_path / "run", tiny_bert)
    answerer = Answerer.load(tmp_path / "run", retriever="bm25")
    questions = ["capital of norway?", "the sea", "zz", "boat"]
    together = answerer.ask_all(questions)
    for text, found in zip(questions, together, strict=True):
        alone = answerer.ask(text)
        assert (alone.text, alone.answer.start, alone.hits) == (found.text, found.answer.start, found.hits)
        assert alone.answer.score == pytest.approx(found.answer.score, abs=1e-5)


def test_it_answers_on_while_another_process_frees_what_it_removed(tmp_path: Path, tiny_bert: Path) -> None:
    built(tmp_path / "run", tiny_bert)
    expected = Answerer.load(tmp_path / "run", retriever="bm25", k=1).ask("what is the capital?")
    answerer = Answerer.load(tmp_path / "run", retriever="bm25", k=1)
    other = Memory.open(tmp_path / "run" / "memory")
    assert other.remove(["sea"]) == 1
    assert [done.rewritten for done in other.gc()] == [1, 1]
    found = answerer.ask("what is the capital?")
    assert (found.answer.text, found.hits) == (expected.answer.text, expected.hits)
    assert found.answer.score == pytest.approx(expected.answer.score, abs=1e-5)


@pytest.mark.parametrize("retriever", ["bm25", "dense"])
def test_what_is_added_and_removed_through_its_own_memory_is_followed(
    tmp_path: Path, tiny_bert: Path, retriever: str
) -> None:
    run, _ = built(tmp_path / "run", tiny_bert)
    answerer = Answerer.load(tmp_path / "run", retriever=retriever, k=2)
    memory, vectors = answerer.memory, Pooled(Pretrained(tiny_bert), "text")
    answerer.ask("a boat")
    before = answerer.retriever
    answerer.ask("the sea")
    assert answerer.retriever is before, "nothing changed"
    memory.add([Passage("new", "", "a boat")], run.encoder, vectors)
    assert answerer.ask("a boat").hits[0].passage == "new"
    memory.remove(["new"])
    memory.gc()
    memory.add([Passage("newer", "", "a boat a boat")], run.encoder, vectors)
    assert "new" not in {hit.passage for hit in answerer.ask("a boat a boat").hits}
    assert "newer" in {hit.passage for hit in answerer.ask("a boat a boat").hits}


def test_FID_1_questions_with_none_three_and_one_passage(tmp_path: Path, tiny_bert: Path, cases: Path) -> None:
    """One batch of three works, empty slots add nothing: q2 alone is q2 in the batch."""
    from encodeonce.corpus.questions import read_questions

    questions = read_questions(cases / "FID-1.jsonl")
    run, _ = built(tmp_path / "run", tiny_bert)
    memory = Memory.create(tmp_path / "m", run.spec)
    memory.add([passage for question in questions for passage in question.passages], run.encoder)
    reader = MemoryReader(run.method, run.encoder, memory.states)
    together = reader.answers(questions)
    assert together[0].text == ""
    alone = reader.answers(questions[2:])[0]
    assert (alone.text, alone.start) == (together[2].text, together[2].start)
    assert alone.score == pytest.approx(together[2].score, abs=1e-5)


def test_a_memory_of_another_model_is_refused_by_name(tmp_path: Path, tiny_bert: Path) -> None:
    import shutil

    built(tmp_path / "run", tiny_bert)
    other = tmp_path / "other"
    shutil.copytree(tiny_bert, other)
    from safetensors.torch import load_file, save_file

    weights = load_file(other / "model.safetensors")
    weights["embeddings.word_embeddings.weight"][7, 0] += 1
    save_file(weights, other / "model.safetensors", {"format": "pt"})
    with pytest.raises(RunError, match=r"is not the encoder this run was trained on.*weights: "):
        load_reader(tmp_path / "run", str(other))
    built(tmp_path / "run2", other)
    with pytest.raises(SpecMismatch, match="weights: "):
        Answerer.load(tmp_path / "run", tmp_path / "run2" / "memory")
    built(tmp_path / "run3", tiny_bert, live=2)
    with pytest.raises(SpecMismatch, match="layers: "):
        Answerer.load(tmp_path / "run", tmp_path / "run3" / "memory")


def test_damaged_and_foreign_runs(tmp_path: Path, tiny_bert: Path) -> None:
    _, memory = built(tmp_path / "run", tiny_bert)
    config = json.loads((tmp_path / "run" / "config.json").read_text("utf-8"))
    assert (config["method"], config["stored"], config["scores"]) == ("lumen", [2], {"dev": {"exact_match": 1.0}})
    with pytest.raises(ConfigError, match="retriever='bm52' is not known"):
        finder(memory, "bm52")
    with (tmp_path / "run" / "model.safetensors").open("ab") as file:
        file.write(b"x")
    with pytest.raises(RunError, match=r"is not the file config.json was written for"):
        load_reader(tmp_path / "run")
    (tmp_path / "run" / "config.json").write_text(json.dumps({**config, "method": "aggregate"}), encoding="utf-8")
    with pytest.raises(RunError, match=r"run is a run of `train`: `evaluate` and `predict` read it.*method is lumen"):
        load_reader(tmp_path / "run")
    few = {key: value for key, value in config.items() if key != "method"} | {"kind": "few_shot", "schema": 3}
    (tmp_path / "run" / "config.json").write_text(json.dumps(few), encoding="utf-8")
    with pytest.raises(RunError, match=r"run is a few-shot estimator: .* FewShot.load"):
        load_reader(tmp_path / "run")
    (tmp_path / "run" / "config.json").write_text(json.dumps({**config, "method": "other"}), encoding="utf-8")
    with pytest.raises(RunError, match=r"method 'other'; this version reads schema 1, and here method lumen"):
        load_reader(tmp_path / "run")
    with pytest.raises(RunError, match=r"config.json is missing"):
        load_reader(tmp_path / "none")
