"""`encodeonce ask`: questions answered from a memory of passages, each answer with its source."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import encoder_option, json_option, k_option, run_argument, vectors_option

if TYPE_CHECKING:
    from ..memory import Memory
    from ..serve.answerer import Answered, Answerer
    from ..types import Question

__all__ = ["ask"]

log = logging.getLogger("encodeonce")

TOGETHER = 64
"""Questions that are answered before their answers are written."""


@click.command()
@run_argument
@click.argument("question", required=False)
@click.option(
    "--file", "file", type=click.Path(exists=True, path_type=Path), help="Questions, in any form that is read."
)
@click.option(
    "--memory", "-m", type=click.Path(exists=True, file_okay=False, path_type=Path), help="[default: RUN/memory]"
)
@k_option
@click.option(
    "--retriever",
    type=click.Choice(["auto", "bm25", "dense"]),
    default="auto",
    show_default=True,
    help="How passages are found; auto: dense where the memory has vectors.",
)
@click.option("--batch-size", type=click.IntRange(min=1), default=8, show_default=True, help="Questions read at once.")
@click.option("--format", "-f", help="Format of the file of questions.")
@click.option("--output", "-o", type=click.Path(dir_okay=False, path_type=Path), help="[default: stdout]")
@encoder_option
@vectors_option
@json_option
def ask(
    run: Path,
    question: str | None,
    file: Path | None,
    memory: Path | None,
    k: int,
    retriever: str,
    batch_size: int,
    format: str | None,
    output: Path | None,
    encoder: str | None,
    vectors: str | None,
    as_json: bool,
) -> None:
    """Answer QUESTION, or all questions of a file, with RUN from its memory of passages.

    An answer comes with the passage and the characters it stands at. A file's answers are JSON, one a line, written to
    OUTPUT when all are given; where the file has the right answers too, exact match and F1 are printed at the end.
    """
    if (question is None) == (file is None):
        raise click.UsageError("Give a question, or a file of them with --file.")
    from ..corpus._files import write_text
    from ..corpus.questions import read_questions
    from ..errors import ConfigError
    from ..serve.answerer import Answerer

    if file is not None and output is not None and output.exists() and output.samefile(file):
        raise ConfigError(f"--output {output} is the file of questions, which would be lost. Name another.")
    asked: list[str | Question] = [question] if question is not None else []
    if file is not None:
        asked += read_questions(file, format=format, bare=True)
    answerer = Answerer.load(
        run,
        memory,
        encoder=encoder,
        vectors=vectors,
        retriever=retriever,
        k=k,
        size=batch_size,
    )
    found: list[Answered] = []
    lines = _lines(answerer, asked, found, as_json or file is not None)
    if output is not None:
        write_text(output, lines)
    for line in lines:
        click.echo(line, nl=False)
    if any(one.question.answers for one in found):
        click.echo(json.dumps(_scores(found, k)), err=True)
    _keep_hits(answerer.memory)


def _lines(
    answerer: "Answerer", asked: "list[str | Question]", found: "list[Answered]", as_json: bool
) -> Iterator[str]:
    """Each answer as it is written, once it is given, and then in `found`."""
    for first in range(0, len(asked), TOGETHER):
        for one in answerer.ask_all(asked[first : first + TOGETHER]):
            found.append(one)
            yield (json.dumps(one.to_json(), ensure_ascii=False) if as_json else _text(one)) + "\n"


def _keep_hits(memory: "Memory") -> None:
    """The answers are given: a memory that cannot be written to now costs the count alone, and says so."""
    from ..errors import StoreError

    try:
        memory.save_hits()
    except (StoreError, OSError) as problem:
        log.warning("what was found and what answered is not counted: %s", problem)


def _text(one: "Answered") -> str:
    """For people."""
    titles = {passage.id: passage.title for passage in one.question.passages}
    read = [f"  {hit.score:8.3f}  {hit.passage}  {titles[hit.passage]}".rstrip() for hit in one.hits]
    lines = [f"{one.text or '(no answer)'}    {one.answer.score:.3f}"]
    if one.passage is not None:
        answer, passage = one.answer, one.passage
        lines.append(f"source     {passage.id}, characters {answer.start} to {answer.end}  {passage.title}".rstrip())
        if passage.source:
            lines.append(f"text       {passage.source}, characters {one.whole.start} to {one.whole.end}")
        lines.append(f"           {_around(passage.text, answer.start, answer.end)}")
    return "\n".join([*lines, f"read       {len(read)} passages", *read])


def _around(text: str, start: int, end: int, width: int = 40) -> str:
    """The answer in its sentence, marked."""
    before, after = text[max(0, start - width) : start], text[end : end + width]
    marked = (
        f"{'...' if start > width else ''}{before}[{text[start:end]}]{after}{'...' if end + width < len(text) else ''}"
    )
    return " ".join(marked.split())


def _scores(found: list["Answered"], k: int) -> dict[str, Any]:
    """Against the answers that the file has."""
    from ..metrics.qa import answer_scores
    from ..metrics.retrieval import answer_recall

    gold = [[answer.text for answer in one.question.answers] for one in found]
    texts = [[passage.text for passage in one.question.passages] for one in found]
    recall = answer_recall(gold, texts, ks=(k,))
    return {**answer_scores(gold, [one.text for one in found]), f"answer_recall@{k}": recall[f"answer_recall@{k}"]}
