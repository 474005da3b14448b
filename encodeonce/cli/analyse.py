"""`encodeonce analyse weights|agreement|masking|paragraphs|windows`: FastDoc's analyses as numbers and pictures."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .options import Decorator, documents_option, drawable_picture, json_option, together

if TYPE_CHECKING:
    from ..types import Document

__all__ = ["analyse"]


path_option: Decorator = click.option(
    "--path", "field", default="category_path", show_default=True, help="Field of their category path."
)
seed_option: Decorator = click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of what is drawn."
)
pairs_options: Decorator = together(
    path_option,
    click.option(
        "--levels", type=click.IntRange(min=0), default=0, show_default=True, help="Levels of it that count; 0: all."
    ),
    click.option(
        "--pairs",
        type=click.IntRange(min=1),
        default=500,
        show_default=True,
        help="Pairs of either kind: a document with one of its category, and with one of another.",
    ),
    seed_option,
)
encoders_arguments: Decorator = together(
    click.argument("base"), click.argument("trained", nargs=-1, required=True, metavar="TRAINED...")
)
result_options: Decorator = together(
    click.option(
        "--output",
        "-o",
        type=click.Path(dir_okay=False, path_type=Path),
        callback=drawable_picture,
        help="A picture (.png, .svg, .pdf).",
    ),
    json_option,
)


@click.group()
def analyse() -> None:
    """What pre-training changed in an encoder, and what its documents have in common (FastDoc's analyses).

    BASE is the encoder that TRAINED ones were trained from: folders, hub names or quickstart.
    """


@analyse.command()
@encoders_arguments
@result_options
def weights(base: str, trained: tuple[str, ...], output: Path | None, as_json: bool) -> None:
    """Relative change of weights, by group.

    Of query, key, value and dense weights (Figure 2): r1 = sum |W' - W| / sum |W|, and r2 = |sum |W'| - sum |W|| / sum
    |W|; the paper's wording fits both. The picture has r1.
    """
    from .analysing import changes

    found = changes(base, trained)
    if output is not None:
        from ..report.analyses import changed

        _drawn(changed({name: {g: r1 for g, (r1, _) in by.items()} for name, by in found.items()}, output))
    if as_json:
        click.echo(json.dumps(found, indent=1))
        return
    groups = list(next(iter(found.values())))
    _table(["r1, r2", *groups], [[n, *(f"{r1:.2e} {r2:.2e}" for r1, r2 in by.values())] for n, by in found.items()])


@analyse.command()
@encoders_arguments
@documents_option
@path_option
@click.option("--limit", type=click.IntRange(min=4), default=100, show_default=True, help="Documents read, by content.")
@click.option("--sentence-encoder", help="Also read them as rows of this encoder's sentence vectors.")
@result_options
def agreement(
    base: str,
    trained: tuple[str, ...],
    documents: list["Document"],
    field: str,
    limit: int,
    sentence_encoder: str | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Agreement of vectors of the same documents.

    Those of BASE and of each TRAINED from pieces, and with --sentence-encoder, for each encoder, those from pieces and
    from sentences; BASE is the control (appendix G.4, Figure 7). Pearson and Spearman over all pairs of documents, a
    permutation test, linear CKA, common neighbours; where every document has a category path also of group means, and
    of k-means. The picture has each encoder's documents on their first two principal components.
    """
    from .analysing import agreements, views_of

    views = views_of(base, trained, documents, field, limit, sentence_encoder)
    found = {name: one.to_json() for name, one in agreements(views).items()}
    if output is not None:
        from ..report.analyses import projected

        _drawn(projected(views.vectors, views.groups, output, f"{len(views)} documents"))
    if as_json:
        click.echo(json.dumps(found, indent=1))
        return
    keys = list(next(iter(found.values())))
    _table(["agreement", *keys], [[name, *map(_shown, one.values())] for name, one in found.items()])


@analyse.command()
@encoders_arguments
@documents_option
@click.option("--limit", type=click.IntRange(min=1), default=500, show_default=True, help="Sentences drawn.")
@seed_option
@result_options
def masking(
    base: str,
    trained: tuple[str, ...],
    documents: list["Document"],
    limit: int,
    seed: int,
    output: Path | None,
    as_json: bool,
) -> None:
    """Agreement on what hiding other words changes.

    Whether encoders lean on the same words around a hidden one (appendix G.4, Table 29). In each sentence one drawn
    piece is hidden; then, one after another, every other piece with it. Of what that changes in the probability of the
    drawn piece: Spearman's correlation for each two of BASE and TRAINED, over all pieces pooled, and the mean over
    sentences. All need their masked-language head and one tokenizer. Give an encoder of masked-language training too:
    the correlation of BASE with it is the control. The picture has the correlations of single sentences.
    """
    from .analysing_masking import hidden_pieces

    found, left_out = hidden_pieces(base, trained, documents, limit, seed)
    rows = {
        name: {
            "pooled": one.pooled,
            "by_sentence": one.by_sentence,
            "sentences": len(one.of_sentences),
            "skipped": one.skipped,
        }
        for name, one in found.items()
    }
    if output is not None:
        from ..report.analyses import distributions

        panels = {"": {name: one.of_sentences for name, one in found.items()}}
        title = "Effect of hiding other pieces"
        _drawn(distributions(panels, output, "Spearman's correlation in a sentence", title, "sentences"))
    if as_json:
        click.echo(json.dumps({"longer_than_the_window": left_out, "pairs": rows}, indent=1))
        return
    _table(["Spearman", *next(iter(rows.values()))], [[n, *map(_shown, one.values())] for n, one in rows.items()])


@analyse.command()
@click.argument("encoders", nargs=-1, required=True, metavar="ENCODER...")
@documents_option
@pairs_options
@click.option(
    "--unit",
    type=click.Choice(["paragraph", "sentence"]),
    default="paragraph",
    show_default=True,
    help="What is compared; paragraphs stand between blank lines, or are lines. Of documents that bring their own "
    "sentences it is these.",
)
@result_options
def paragraphs(
    encoders: tuple[str, ...],
    documents: list["Document"],
    field: str,
    levels: int,
    pairs: int,
    unit: str,
    seed: int,
    output: Path | None,
    as_json: bool,
) -> None:
    """Paragraphs of similar documents, how similar.

    A paragraph's score is its cosine with the most similar paragraph of the other document (Figure 6). Scores of
    documents of one category and of different ones, and how often the former are higher. ENCODERs make the vectors
    (means of pieces).
    """
    from .analysing_pairs import paired, paragraph_scores

    drawn = paired(documents, field, levels, pairs, seed)
    found = paragraph_scores(encoders, drawn, unit)
    _pairs_said(len(drawn), len(drawn.documents))
    title = f"Nearest {unit} of the other document"
    _scores(found, output, as_json, ("cosine", title, f"{unit}s"), "higher")


@analyse.command()
@click.argument("encoder")
@documents_option
@click.option("--sentence-encoder", help="Its vectors stand for sentences.  [default: ENCODER]")
@pairs_options
@click.option(
    "--pieces",
    nargs=2,
    type=click.IntRange(min=1),
    metavar="LEAST MOST",
    help="Only documents of so many pieces.  [default: 1 and ENCODER's window; the paper: 400 512]",
)
@result_options
def windows(
    encoder: str,
    documents: list["Document"],
    sentence_encoder: str | None,
    field: str,
    levels: int,
    pairs: int,
    pieces: tuple[int, int] | None,
    seed: int,
    output: Path | None,
    as_json: bool,
) -> None:
    """Window length: how far apart like inputs stand.

    For every vector of a document, 1 + how many places the most similar one stands further on or before in the other;
    the mean over the document (Figure 8). Of ENCODER's piece vectors and of sentence vectors, for documents of one
    category and of different ones, and how often the former are lower. Lengths grow with the documents, so `chance` has
    what vectors without any order would give.
    """
    from .analysing_pairs import window_lengths

    found, drawn = window_lengths(encoder, sentence_encoder, documents, field, levels, pairs, pieces, seed)
    _pairs_said(len(drawn), len(drawn.documents))
    _scores(found, output, as_json, ("window length", "Window length", "pairs"), "lower")


def _scores(
    found: dict[str, dict[str, list[float]]],
    output: Path | None,
    as_json: bool,
    words: tuple[str, str, str],
    side: str,
) -> None:
    """Numbers and picture of scores of similar and dissimilar pairs; `side` says where the similar ones should be."""
    from .analysing_pairs import CHANCE, SIMILAR, above, spread

    what, title, counted = words
    if output is not None:
        from ..report.analyses import distributions

        panels = {panel: {n: v for n, v in by.items() if not n.startswith(CHANCE)} for panel, by in found.items()}
        _drawn(distributions(panels, output, what, title, counted))
    numbers = {panel: {name: spread(values) for name, values in by.items()} for panel, by in found.items()}
    often = {panel: above(by) if side == "higher" else 1 - above(by) for panel, by in found.items()}
    if as_json:
        click.echo(json.dumps({p: {**by, f"similar_{side}": often[p]} for p, by in numbers.items()}, indent=1))
        return
    lines = [
        [panel, name, *map(_shown, one.values()), f"{often[panel]:.3f}" if name == SIMILAR else ""]
        for panel, by in numbers.items()
        for name, one in by.items()
    ]
    keys = list(next(iter(next(iter(numbers.values())).values())))
    _table([what, "of", *keys, f"{side} than dissimilar"], lines)


def _pairs_said(n_pairs: int, n_documents: int) -> None:
    click.echo(f"{n_pairs:,} pairs of either kind, of {n_documents:,} documents", err=True)


def _table(header: list[str], lines: list[list[str]]) -> None:
    from ..report.table import aligned

    click.echo(aligned(header, lines))


def _shown(value: int | float | None) -> str:
    return "" if value is None else f"{value:.3f}".removesuffix(".000")


def _drawn(path: Path) -> None:
    click.echo(f"{path} written", err=True)
