"""`encodeonce fewshot`: a classifier from a handful of labelled texts and, where there are some, unlabelled ones."""

import json
from pathlib import Path
from typing import Any

import click

from ..encoders.quickstart import QUICKSTART
from .options import Decorator, drawable_picture, json_option, listed, read_option, reader_options, together

__all__ = ["fewshot"]

AT_LEAST_1 = click.IntRange(min=1)
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
NEW_FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)

input_options: Decorator = together(
    click.option(
        "--unlabelled", "-u", type=FILE, help="Texts without labels, of the same kind; a text a line, or a table."
    ),
    click.option("--test", type=FILE, help="Labelled texts to be scored at the end."),
    click.option("--predict", "-p", "asked", type=FILE, help="Texts to be answered; shown, or written to --output."),
    click.option("--label", "column", default="label", show_default=True, help="The column with the labels."),
    reader_options,
    read_option,
)
output_options: Decorator = together(
    click.option("--output", "-o", type=NEW_FILE, help="The file of --predict with its answers in it."),
    click.option("--save", "-s", "folder", type=FOLDER, help="Keep what was trained, for predict."),
    click.option(
        "--picture",
        type=NEW_FILE,
        callback=drawable_picture,
        help="Draw what a fusion's search chose, where it has a weight (.png, .svg).",
    ),
    json_option,
)
estimator_options: Decorator = together(
    click.option("--encoder", "-e", default=QUICKSTART, show_default=True, help="A folder or a hub name."),
    click.option("--store", type=FOLDER, help="Keep the texts' vectors here."),
    click.option(
        "--methods",
        "-m",
        callback=listed,
        help="Names with commas between, refusion too.  [default: all but fusion]",
    ),
    click.option(
        "--prompt", help="Ask a masked language model or T5 by this prompt too: a .toml file or a task's name."
    ),
    click.option(
        "--neighbours", default=64, show_default=True, type=AT_LEAST_1, help="Unlabelled texts added to each text."
    ),
    click.option(
        "--folds", default=4, show_default=True, type=click.IntRange(min=2), help="Parts of the cross-validation."
    ),
    click.option("--steps", default=40, show_default=True, type=AT_LEAST_1, help="Steps of one fine-tuning."),
    click.option("--seed", default=42, show_default=True, type=click.IntRange(min=0)),
)
"""By the names of `integrations.few_shot.FewShot`'s arguments."""


@click.command()
@click.argument("labelled", type=FILE)
@input_options
@output_options
@estimator_options
def fewshot(
    labelled: Path,
    unlabelled: Path | None,
    test: Path | None,
    asked: Path | None,
    column: str,
    format: str | None,
    columns: dict[str, int | str] | None,
    reading: dict[str, Any],
    output: Path | None,
    folder: Path | None,
    picture: Path | None,
    as_json: bool,
    **settings: Any,
) -> None:
    """Learn from LABELLED, a table or JSON Lines of texts (or pairs) with labels.

    Probes on stored vectors, late fusion with the neighbours among the unlabelled texts, self-training and fine-tuning
    are tried by cross-validation on the labels; those that help answer together, trained on all labels. The table says
    what each was worth. With `--methods probe,late,finetune,refusion` fusion inside the encoder is tried too, and what
    its search decided is shown. With a --prompt and a masked language model (or T5) as --encoder, the model is also
    asked in its own way: a template and a word a label, such as "{text} It was {mask}." Fusions then go inside it.

    What --predict names comes out at --output as `encodeonce predict` writes it: in its own format, with the labels'
    column filled; of plain text a line is the label, a tab and the text. --columns says where text, pair and label
    stand, in all tables; plain text has no columns.
    """
    from .few_shot_material import check_outputs, read_all, shown, write_asked

    learned_from = (labelled, unlabelled, test, Path(settings["prompt"] or ""))
    files = [path for path in learned_from if path is not None and path.is_file()]
    check_outputs(asked, output, folder, picture, settings["methods"], files)
    given = read_all(labelled, unlabelled, test, asked, column, format, columns, output, reading)
    from ..integrations.few_shot import FewShot
    from .few_shot_report import as_text, draw, report_of, tested

    model = FewShot(**{name: value for name, value in settings.items() if value is not None})
    model.fit(shown(given.labelled), given.labels, unlabelled=shown(given.unlabelled))
    if folder is not None:
        model.save(folder, column=column, classes=[given.task.as_json(str(one)) for one in model.classes_])
    if picture is not None:
        draw(model, picture)
    result = {**report_of(model), **(tested(model, given) if given.test else {})}
    answers = [str(one) for one in model.predict(shown(given.asked))] if given.asked else []
    if answers and output is None:
        result["answers"] = answers
    click.echo(json.dumps(result, ensure_ascii=False) if as_json else as_text(model, result))
    if output is not None and asked is not None:
        write_asked(output, asked, given, answers, columns)
