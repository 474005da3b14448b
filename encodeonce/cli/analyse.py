"""`encodeonce analyse`: what training changed in an encoder, and whether its two ways of reading agree."""

import json
from pathlib import Path
from typing import Any

import click

from .options import columns_option, format_option, json_option

__all__ = ["analyse"]


@click.command()
@click.argument("base")
@click.argument("trained", nargs=-1, required=True)
@click.option("--documents", "-d", type=click.Path(exists=True, path_type=Path), help="Documents to be read by both.")
@click.option("--path", "field", default="category_path", show_default=True, help="Field of their category path.")
@click.option("--limit", type=click.IntRange(min=4), default=100, show_default=True, help="Documents read, by content.")
@click.option("--sentence-encoder", help="Also read them as rows of this encoder's sentence vectors.")
@click.option("--output", "-o", type=click.Path(dir_okay=False, path_type=Path), help="A picture of the change.")
@format_option
@columns_option
@json_option
def analyse(
    base: str,
    trained: tuple[str, ...],
    documents: Path | None,
    field: str,
    limit: int,
    sentence_encoder: str | None,
    output: Path | None,
    format: str | None,
    columns: dict[str, int | str] | None,
    as_json: bool,
) -> None:
    """Compare encoders with the BASE they were trained from (FastDoc's Figure 2 and appendix G.4).

    Always the relative change of query, key, value and dense weights: r1 = sum |W' - W| / sum |W|, and r2, the change
    of sum |W|. With --documents, how far vectors of the same documents agree: those of BASE and TRAINED from pieces,
    and with --sentence-encoder, for each encoder, those from pieces and from sentences; BASE is the control.
    """
    from .analysing import analysed

    found = analysed(base, trained, documents, field, limit, sentence_encoder, format, columns)
    if output is not None:
        from ..report.plots import changed

        changed({name: {g: r1 for g, (r1, _) in by.items()} for name, by in found["change"].items()}, output)
        click.echo(f"{output} written", err=True)
    click.echo(json.dumps(found, indent=1) if as_json else _text(found))


def _text(found: dict[str, Any]) -> str:
    from ..report.table import aligned

    groups = list(next(iter(found["change"].values())))
    lines = [[name, *(f"{r1:.2e} {r2:.2e}" for r1, r2 in by.values())] for name, by in found["change"].items()]
    parts = [aligned(["r1, r2", *groups], lines)]
    if found["agreement"]:
        keys = list(next(iter(found["agreement"].values())))
        rows = [
            [name, *("" if value is None else f"{value:.3f}".removesuffix(".000") for value in one.values())]
            for name, one in found["agreement"].items()
        ]
        parts.append(aligned(["agreement", *keys], rows))
    return "\n\n".join(parts)
