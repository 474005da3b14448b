"""`encodeonce retrieve`: how well encoders find the section, sentence or clause that is asked for."""

import json
from pathlib import Path

import click

from .options import json_option

__all__ = ["retrieve"]

FILE = click.Path(exists=True, path_type=Path)


@click.command()
@click.argument("questions", type=FILE)
@click.argument("encoders", nargs=-1, required=True, metavar="ENCODER...")
@click.option("--documents", "-d", type=FILE, help="Sections or contracts that are looked into.")
@click.option("--split", default="", help="Of these, those whose field `split` is this.")
@click.option("--limit", type=click.IntRange(min=1), help="Questions (contracts, for clauses) at most, by content.")
@click.option("--pooling", type=click.Choice(["mean", "cls"]), default="mean", show_default=True)
@click.option(
    "--compute",
    type=click.Choice(["fp32", "bf16x3", "bf16"]),
    default="bf16x3",
    show_default=True,
    help="The encoders' arithmetic.",
)
@json_option
def retrieve(
    questions: Path,
    encoders: tuple[str, ...],
    documents: Path | None,
    split: str,
    limit: int | None,
    pooling: str,
    compute: str,
    as_json: bool,
) -> None:
    """Rank parts of documents for each of QUESTIONS by cosine, untrained, BM25 beside.

    Sections of a manual (HITS@K, and ROUGE-L of the answer), sentences of a document (TechQA's scores), or clauses of
    contracts (CUAD's AUPR and precision at 80 % recall): the fields of QUESTIONS say which. ENCODERs are folders, hub
    names or quickstart; give a domain encoder and the one it was trained from.
    """
    from ..corpus import read
    from ..corpus.asked import read_ranking

    given = [] if documents is None else read(documents)
    ranking = read_ranking(questions, given, split=split, limit=limit)
    from ..report.table import aligned
    from .retrieving import retrieved

    answered = sum(bool(one.gold) for one in ranking.questions)
    click.echo(
        f"{ranking.form}: {len(ranking.questions):,} questions, {answered:,} with an answer; {ranking.left_out:,} left "
        "out, whose answer is not in the documents",
        err=True,
    )
    found = retrieved(ranking, encoders, pooling, compute)
    if as_json:
        counts = {"form": ranking.form, "questions": len(ranking.questions), "left_out": ranking.left_out}
        click.echo(json.dumps({**counts, "scores": found}, indent=1))
        return
    keys = list(found["BM25"])
    shown = {name: ["–" if one[key] is None else f"{one[key]:.2f}" for key in keys] for name, one in found.items()}
    click.echo(aligned(["encoder", *keys], [[name, *own] for name, own in shown.items()]))
