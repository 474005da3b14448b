"""`encodeonce demo`: the main job on text that every Python carries, with a packaged encoder, without a download."""

from pathlib import Path

import click

__all__ = ["demo"]


@click.command()
@click.option(
    "--output", "-o", "folder", default="demo", show_default=True, type=click.Path(file_okay=False, path_type=Path)
)
@click.option("--encoder", "-e", default="quickstart", show_default=True, help="A folder or a hub name instead.")
@click.option(
    "--sentences", type=click.IntRange(min=50), default=2400, show_default=True, help="Sentences of the manual."
)
@click.option(
    "--epochs", type=click.IntRange(min=1), default=5, show_default=True, help="Passes of the cached methods."
)
@click.option(
    "--slice",
    "part",
    type=click.IntRange(min=8),
    default=256,
    show_default=True,
    help="Sentences that are fine-tuned on.",
)
@click.option(
    "--slice-epochs", type=click.IntRange(min=1), default=3, show_default=True, help="Passes of fine-tuning over them."
)
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, help="Threads of the arithmetic.")
def demo(folder: Path, encoder: str, sentences: int, epochs: int, part: int, slice_epochs: int, threads: int) -> None:
    """Restore capitals and punctuation: one encoding pass, four small methods, and fine-tuning beside them.

    The text is Python's own manual, lower-cased and stripped of punctuation; the labels are what was taken out. It
    takes two or three minutes. A second time, everything is in the store and no sentence is encoded.
    """

    from .demonstration import Plan, demonstrate

    click.echo(demonstrate(Plan(encoder, folder, sentences, epochs, part, slice_epochs, threads)))
