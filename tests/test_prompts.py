"""Templates, label words and the table of the 15 tasks."""

from pathlib import Path

import pytest

from encodeonce.errors import ConfigError
from encodeonce.prompts import PAIR_TASKS, SINGLE_TASKS, Prompt, known, read_prompt

WORDS = {"neg": "terrible", "pos": "great"}


def filled(prompt: Prompt, text: str, pair: str = "", mask: str = "<mask>") -> str:
    shown = {"text": text, "pair": pair}
    return "".join(
        part.literal if part.kind == "literal" else mask if part.kind == "mask" else part.filled(shown[part.kind])
        for part in prompt.parts
    )


SENTIMENT = "negative terrible, positive great"
NLI = "contradiction No, entailment Yes, neutral Maybe"
ENTAILED = "entailment Yes, not_entailment No"

B10 = {  # filled, label and word in class order, score, longest input, longest first text (0: as the input)
    "sst2": ("A fine film. It was<mask>.", SENTIMENT, "accuracy", 128, 0),
    "sst5": (
        "A fine film. It was<mask>.",
        "very negative terrible, negative bad, neutral okay, positive good, very positive great",
        "accuracy",
        128,
        110,
    ),
    "mr": ("A fine film. It was<mask>.", SENTIMENT, "accuracy", 128, 110),
    "cr": ("A fine film. It was<mask>.", SENTIMENT, "accuracy", 128, 110),
    "mpqa": ("A fine film. It was<mask>.", SENTIMENT, "accuracy", 128, 110),
    "subj": ("A fine film. This is<mask>.", "subjective subjective, objective objective", "accuracy", 128, 110),
    "trec": (
        "<mask>: A fine film.",
        "description Description, entity Entity, abbreviation Expression, human Human, location Location, "
        "number Number",
        "accuracy",
        128,
        110,
    ),
    "cola": ("A fine film. This is<mask>.", "unacceptable incorrect, acceptable correct", "matthews", 128, 0),
    "mnli": ("A fine film?<mask>, it Was seen.", NLI, "accuracy", 256, 0),
    "mnli_mm": ("A fine film?<mask>, it Was seen.", NLI, "accuracy", 256, 0),
    "snli": ("A fine film?<mask>, it Was seen.", NLI, "accuracy", 256, 0),
    "qnli": ("A fine film?<mask>, it Was seen.", ENTAILED, "accuracy", 128, 0),
    "rte": ("A fine film?<mask>, it Was seen.", ENTAILED, "accuracy", 256, 240),
    "mrpc": ("A fine film.<mask>, it Was seen.", "not_equivalent No, equivalent Yes", "f1", 128, 0),
    "qqp": ("A fine film.<mask>, it Was seen.", "not_duplicate No, duplicate Yes", "f1", 128, 0),
}


def test_I34_the_15_tasks_are_those_of_the_table() -> None:
    """Spec B10, written out by hand."""
    assert tuple(known()) == (*SINGLE_TASKS, *PAIR_TASKS) == tuple(B10)
    for name, prompt in known().items():
        assert [part.kind for part in prompt.parts].count("mask") == 1
        words = ", ".join(f"{label} {word}" for label, word in prompt.words.items())
        shown = filled(prompt, "A fine film.", "It Was seen.")
        assert (shown, words, prompt.metric, prompt.max_pieces, prompt.text_pieces or 0) == B10[name]
    assert [name for name, prompt in known().items() if prompt.pairs] == list(PAIR_TASKS)
    assert {name: p.positive for name, p in known().items() if p.positive} == {"mrpc": "equivalent", "qqp": "duplicate"}


def test_the_written_prompts_have_the_lengths_of_the_table_and_words_that_the_question_names() -> None:
    for name, prompt in known(written=True).items():
        assert (prompt.max_pieces, prompt.text_pieces or 0) == B10[name][3:]
        asked = {"sst2", "sst5", "mr", "cr", "mpqa", "subj", "trec", "cola"}
        if name in asked:
            question = filled(prompt, "")
            assert all(word in question for word in prompt.words.values())
        else:
            assert tuple(prompt.words.values()) == tuple(known()[name].words.values())


def test_a_closing_mark_is_dropped_but_never_a_letter() -> None:
    prompt = Prompt("mine", "{text:no_stop}? {mask}, {pair:lower_first,no_stop}", WORDS)
    assert filled(prompt, "Dogs bark", "They Do!") == "Dogs bark?<mask>, they Do"


def test_a_template_without_a_gap_gets_one_at_its_end() -> None:
    assert [part.kind for part in Prompt("mine", "{text} It was", WORDS).parts] == ["text", "literal", "mask"]


def test_the_gap_may_be_written_as_the_tokenizer_writes_it() -> None:
    for written in ("[MASK]", "<mask>", "{mask}"):
        assert [p.kind for p in Prompt("mine", f"{{text}} ok {written} .", WORDS).parts].count("mask") == 1


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("It was {mask}.", r"has 0 slots \{text\}; it takes exactly one"),
        ("{text} {mask} {mask}", r"has 2 slots \{mask\}"),
        ("{text} {texte} {mask}", r"slot \{texte\}. There is: .*Did you mean 'text'"),
        ("{text:no_stopp} {mask}", r"'no_stopp' is not known.*Did you mean 'no_stop'"),
        ("{text} {mask} }", "stray brace"),
    ],
)
def test_templates_that_cannot_be_read_are_refused(template: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Prompt("mine", template, WORDS)


def test_labels_are_checked() -> None:
    with pytest.raises(ConfigError, match="at least two"):
        Prompt("mine", "{text} {mask}", {"pos": "great"})
    with pytest.raises(ConfigError, match="word of label 'pos' is ' '"):
        Prompt("mine", "{text} {mask}", {"pos": " ", "neg": "bad"})
    with pytest.raises(ConfigError, match="f1 is the score of one label"):
        Prompt("mine", "{text} {mask}", WORDS, metric="f1")


def test_a_task_of_ones_own_is_ten_lines_of_toml(tmp_path: Path) -> None:
    path = tmp_path / "tickets.toml"
    path.write_text('template = "{text} It is {mask}."\nmax_pieces = 64\n[words]\nbug = "broken"\nwish = "missing"\n')
    prompt = read_prompt(path)
    assert (prompt.name, prompt.labels, prompt.max_pieces) == ("tickets", ("bug", "wish"), 64)
    path.write_text('tempate = "{text} {mask}"\n[words]\na = "b"\nc = "d"\n')
    with pytest.raises(ConfigError, match=r"tickets.toml: unknown key 'tempate'. Did you mean 'template'"):
        read_prompt(path)
    path.write_text('[words]\na = "b"\nc = "d"\n')
    with pytest.raises(ConfigError, match=r"tickets.toml: 'template' is missing"):
        read_prompt(path)
    words = '[words]\na = "b"\nc = "d"\n'
    for lines, message in (
        (f"template = 3\n{words}", r"tickets.toml: template=3 must be a text"),
        ('template = "{text}"\nwords = "b"\n', r"tickets.toml: words='b' must be a table, a word a label"),
        ('template = "{text}"\nwords = ["b", "d"]\n', r"words=\['b', 'd'\] must be a table"),
        (f'template = "{{text}}"\nmax_pieces = "12"\n{words}', "max_pieces='12' must be a whole number"),
        (f'template = "{{text}}"\nmax_pieces = 12.5\n{words}', "max_pieces=12.5 must be a whole number"),
        (f'template = "{{text}}"\ntext_pieces = true\n{words}', "text_pieces=True must be a whole number"),
    ):
        path.write_text(lines)
        with pytest.raises(ConfigError, match=message):
            read_prompt(path)
    with pytest.raises(ConfigError, match=r"prompt 'sst3' is not known.*Did you mean 'sst"):
        read_prompt("sst3")


def test_prompts_survive_json() -> None:
    for prompt in known().values():
        assert Prompt(**prompt.to_json()) == prompt
