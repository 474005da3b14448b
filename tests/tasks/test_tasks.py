"""Tasks against hand-made columns and the field cases."""

import logging

import numpy as np
import pytest

from encodeonce.errors import ConfigError, DataError, RunError
from encodeonce.heads import IGNORE
from encodeonce.tasks import from_json, named
from encodeonce.tasks.chunking import Chunking
from encodeonce.tasks.ner import NER
from encodeonce.tasks.tagging import Tagging
from encodeonce.types import Document


def document(words: str = "Dogs bark", **columns: str) -> Document:
    values = {name: tuple(value.split()) for name, value in columns.items()}
    return Document("u1", tuple(words.split()), columns=values, meta={"lines": [2, 3]}, place="f.conllu:1")


@pytest.mark.parametrize(
    ("name", "kind", "piece"),
    [
        ("upos", Tagging, "last"),
        ("xpos", Tagging, "last"),
        ("deprel", Tagging, "last"),
        ("feats:Number", Tagging, "last"),
        ("anything", Tagging, "last"),
        ("ner", NER, "first"),
        ("chunk", Chunking, "last"),
        ("chunking", Chunking, "last"),
    ],
)
def test_A7_names_and_their_pieces(name: str, kind: type, piece: str) -> None:
    task = named(name)
    assert isinstance(task, kind)
    assert task.piece == piece
    assert task.name == ("chunk" if kind is Chunking else name)
    assert named(name, piece="mean").piece == "mean"


def test_a_task_learns_sorted_labels_and_nothing_else_changes_them() -> None:
    task = Tagging("upos").learn([document(upos="VERB NOUN"), document(upos="ADJ NOUN")])
    assert task.labels == ("ADJ", "NOUN", "VERB")
    assert task.ids(("VERB", "X", "ADJ")).tolist() == [2, IGNORE, 0]
    assert task.ids(("VERB",)).dtype == np.int64


def test_feats_attribute_absent_is_underscore() -> None:
    feats = document(feats="Case=Nom|Number=Sing _", upos="NOUN VERB")
    assert Tagging("feats:Number").gold([feats]) == [("Sing", "_")]
    assert Tagging("feats:Case").gold([feats]) == [("Nom", "_")]
    assert Tagging("feats:Num").gold([feats]) == [("_", "_")]
    assert Tagging("feats").gold([feats]) == [("Case=Nom|Number=Sing", "_")]


@pytest.mark.parametrize("column", ["upos", "xpos", "deprel", "head"])
def test_CONLLU2_an_unannotated_word_is_refused_by_sentence_line_and_column(column: str) -> None:
    bad = document(**{column: "x _"})
    with pytest.raises(DataError, match=rf"f.conllu:3 \(sent_id u1\): column {column.upper()} of word 2 \('bark'\)"):
        Tagging(column).gold([bad])


def test_CONLLU2_case_file(shared: object, cases: object) -> None:
    from encodeonce.corpus.conllu import read

    documents = read(f"{cases}/CONLLU-2.conllu")
    with pytest.raises(DataError, match=r"CONLLU-2.conllu:2 \(sent_id u1\): column DEPREL of word 1"):
        Tagging("deprel").learn(documents)
    assert Tagging("upos").learn(documents).labels == ("INTJ", "NOUN", "VERB")
    assert Tagging("deprel").learn(documents[1:]).labels == ("root",)


def test_underscore_is_a_value_where_columns_use_it_so() -> None:
    assert Tagging("misc").gold([document(misc="_ SpaceAfter=No")]) == [("_", "SpaceAfter=No")]


def test_a_missing_column_names_what_there_is() -> None:
    with pytest.raises(DataError, match=r"reads column 'upso', and there is deprel, upos. Did you mean 'upos'\?"):
        named("upso").learn([document(upos="A B", deprel="a b")])
    with pytest.raises(DataError, match="there is no gold column"):
        named("upos").learn([document()])
    with pytest.raises(DataError, match=r"Say where it stands with columns, such as upos=NAME\."):
        named("upos").learn([document(pos="A B")])
    with pytest.raises(
        DataError, match=r"there is deprel, upos\. Several tasks are a list: tasks = \[\"upos\", \"deprel\"\]"
    ):
        named("upos,deprel").learn([document(upos="A B", deprel="a b")])


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (["A"], "1 values for 2 words"),
        (["A", None], "word 2 has null; labels are strings"),
        ([0, 1], "word 1 has 0; labels are strings"),
    ],
)
def test_a_column_that_is_none_says_why(values: list[object], why: str) -> None:
    bad = Document("d", ("the", "cat"), meta={"pos": values}, place="f.jsonl:3")
    with pytest.raises(DataError, match=rf"f.jsonl:3 \(sent_id d\): task 'pos' reads column 'pos': {why}"):
        named("pos").learn([bad])


def test_LABELS2_no_word_is_refused() -> None:
    with pytest.raises(DataError, match="task 'upos': no examples"):
        named("upos").learn([])


def test_settings_that_do_not_exist_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="piece='middle': a word is represented by its first, last, mean"):
        named("upos", piece="middle")
    with pytest.raises(ConfigError, match=r"scheme='BIOX' is no tagging scheme. There is: IOB1"):
        named("ner", scheme="BIOX")
    settings = "column, piece, scheme, source, constrained"
    with pytest.raises(ConfigError, match=rf"task 'ner' has no setting 'colour'\..* It has: {settings}\.$"):
        named("ner", colour="red")
    with pytest.raises(ConfigError, match=r"task 'ner' has no setting 'labels'\."):  # training alone says them
        named("ner", labels=["O", "B-X"])
    with pytest.raises(ConfigError, match=r"task 'ner': constrained = 'yes' must be true or false\."):
        named("ner", constrained="yes")
    with pytest.raises(ConfigError, match="names no attribute"):
        named("feats:")


def test_accuracy_by_hand() -> None:
    scores = Tagging("upos").score([("A", "B"), ("C",)], [("A", "A"), ("C",)])
    assert scores["accuracy"] == pytest.approx(200 / 3)
    assert scores["n"] == 3


def test_iob1_is_detected_converted_and_said(caplog: pytest.LogCaptureFixture) -> None:
    train = [document("a b c", tag="I-X B-X O"), document("a b c", tag="I-X I-X O")]
    with caplog.at_level(logging.INFO, "encodeonce"):
        task = NER().learn(train)
    assert isinstance(task, NER)
    assert (task.source, task.detected) == ("IOB1", True)
    assert "tags are IOB1" in caplog.text
    assert "converted to IOB2" in caplog.text
    assert task.gold(train) == [("B-X", "B-X", "O"), ("B-X", "I-X", "O")]
    assert task.labels == ("B-X", "I-X", "O")


def test_bioes_by_name() -> None:
    task = NER(scheme="BIOES").learn([document("a b c d", tag="B-X I-X O B-Y")])
    assert task.labels == ("B-X", "E-X", "O", "S-Y")


def test_SPANS1_the_score_says_both_rules() -> None:
    task = NER()
    scores = task.score([("B-X", "I-X")], [("I-X", "I-X")])
    assert (scores["f1_lenient"], scores["f1_strict"]) == (100.0, 0.0)
    assert task.metric == "f1_lenient"


def test_tags_without_a_scheme_are_refused_and_a_named_one_is_taken() -> None:
    mixed = [document("a b c d e", tag="B-X O I-X I-X O"), document("a b", tag="E-X O")]
    with pytest.raises(DataError, match=r"keep to no scheme: .*source='IOB2'"):
        NER().learn(mixed)
    assert NER(source="IOB2").learn(mixed).gold(mixed)[0] == ("B-X", "O", "I-X", "I-X", "O")


def test_a_file_in_another_scheme_than_the_training_data_is_refused_with_what_it_is_written_in() -> None:
    """The same two spans: the strict rule found none of them in IOB1, without a word."""
    task = NER().learn([document("a b c", tag="B-X I-X O"), document("a b c", tag="B-X B-X O")])
    iob1 = [document("a b c", tag="O I-X B-X")]
    said = r"f.conllu:3 \(sent_id u1\): tags \['I-X'\] of words 2 to 2 break IOB2, in which task 'ner' found .*are IOB1"
    with pytest.raises(DataError, match=said + r'.*source = "IOB2" under \[task.ner\], which reads them by'):
        task.gold(iob1)
    other = NER().learn([document("a b c", tag="I-X B-X O")])
    with pytest.raises(DataError, match=r"break IOB1, in which task 'ner' found .* are IOB2 .*source = \"IOB1\" under"):
        other.gold([document("a b c", tag="O B-X O")])
    lenient = NER(source="IOB2").learn([document("a b c", tag="B-X I-X O")])
    assert lenient.gold(iob1) == [("O", "I-X", "B-X")]


@pytest.mark.parametrize(
    ("text", "task", "said"),
    [
        (Document("a", text="x y", meta={"label": "A"}), "label", "'label' is of the whole text: say so with kind = "),
        (Document("a", text="x y", meta={"label": "A"}), "classificaton", "Did you mean 'classification'?"),
        (Document("a", text="x y", meta={"label": "A"}), "lable", "Did you mean 'label'?"),
        (Document("a", text="EU NNP B-ORG"), "ner", "this is running text. Where a file has a word a line, name its"),
        (Document("a", meta={"tags": []}), "upos", "labels words, and this document has none: leave it out"),
    ],
)
def test_a_document_without_words_says_why_it_has_no_labels_a_word(text: Document, task: str, said: str) -> None:
    with pytest.raises(DataError) as caught:
        named(task).learn([text])
    assert said in str(caught.value)
    assert "such as" not in str(caught.value)


def test_parts_of_speech_are_no_chunk_tags() -> None:
    with pytest.raises(DataError, match="'NOUN' is no chunk tag"):
        NER(column="upos").learn([document(upos="NOUN VERB")])


@pytest.mark.parametrize("name", ["upos", "feats:Number", "ner", "chunk"])
def test_a_learned_task_survives_json(name: str) -> None:
    task = named(name).learn([document(upos="A B", feats="Number=Sing _", tag="B-X O")])
    assert from_json(task.to_json()) == task
    with pytest.raises(RunError, match="cannot be rebuilt"):
        from_json({**task.to_json(), "colour": 1})
