"""`encodeonce fewshot`: a classifier from a handful of labelled texts and, where there are some, unlabelled ones."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..encoders.quickstart import QUICKSTART
from .options import json_option, reader_options

if TYPE_CHECKING:
    from ..integrations.few_shot import FewShot
    from ..types import Document

__all__ = ["fewshot"]

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("labelled", type=FILE)
@click.option(
    "--unlabelled", "-u", type=FILE, help="Texts without labels, of the same kind; a text a line, or a table."
)
@click.option("--test", type=FILE, help="Labelled texts to be scored at the end.")
@click.option("--predict", "-p", "asked", type=FILE, help="Texts to be answered; to stdout, or to --output.")
@click.option(
    "--output", "-o", type=click.Path(dir_okay=False, path_type=Path), help="Where answers go, a line a text."
)
@click.option("--save", "-s", "folder", type=click.Path(file_okay=False, path_type=Path), help="Keep what was trained.")
@click.option("--encoder", "-e", default=QUICKSTART, show_default=True, help="A folder or a hub name.")
@click.option("--store", type=click.Path(file_okay=False, path_type=Path), help="Keep the texts' vectors here.")
@click.option("--methods", "-m", help="Names with commas between, refusion too.  [default: all but fusion]")
@click.option("--label", default="label", show_default=True, help="The column with the labels.")
@click.option("--folds", default=4, show_default=True, help="Parts of the cross-validation.")
@click.option("--steps", default=40, show_default=True, help="Steps of one fine-tuning.")
@click.option("--seed", default=42, show_default=True)
@reader_options
@json_option
def fewshot(
    labelled: Path,
    unlabelled: Path | None,
    test: Path | None,
    asked: Path | None,
    output: Path | None,
    folder: Path | None,
    encoder: str,
    store: Path | None,
    methods: str | None,
    label: str,
    folds: int,
    steps: int,
    seed: int,
    format: str | None,
    columns: dict[str, int | str] | None,
    as_json: bool,
) -> None:
    """Learn from LABELLED, a table or JSON Lines of texts (or pairs) with labels.

    Probes on stored vectors, late fusion with the neighbours among the unlabelled texts, self-training and fine-tuning
    are tried by cross-validation on the labels; those that help answer together, trained on all labels. The table says
    what each was worth. With `--methods probe,late,finetune,refusion` fusion inside the encoder is tried too, and what
    its search decided is shown.
    """
    from ..corpus import read
    from ..integrations.few_shot import METHODS, FewShot

    def texts_of(path: Path) -> list["Document"]:
        return read(path, format=format if path.suffix == labelled.suffix else None, columns=columns)

    documents = texts_of(labelled)
    model = FewShot(
        encoder,
        methods=tuple(methods.split(",")) if methods else METHODS,
        folds=folds,
        steps=steps,
        store=store,
        seed=seed,
    )
    others = texts_of(unlabelled) if unlabelled else []
    model.fit(shown(documents), labels_of(documents, label), unlabelled=shown(others))
    if folder is not None:
        model.save(folder)
    result = report_of(model)
    if test is not None:
        gold = texts_of(test)
        result["test"] = scores_of(model, gold, labels_of(gold, label))
    answers = [] if asked is None else [str(one) for one in model.predict(shown(texts_of(asked)))]
    if output is not None:
        output.write_text("".join(f"{answer}\n" for answer in answers), encoding="utf-8")
    elif answers:
        result["answers"] = answers
    click.echo(json.dumps(result, ensure_ascii=False) if as_json else as_text(model, result))


def shown(documents: Sequence["Document"]) -> list[str | tuple[str, str]]:
    """Texts, or pairs of texts, as an estimator takes them."""
    texts = [document.text or " ".join(document.words) for document in documents]
    return [(text, d.pair) if d.pair else text for text, d in zip(texts, documents, strict=True)]


def labels_of(documents: Sequence["Document"], column: str) -> list[str]:
    """The label of each document, as the task `classification` reads it."""
    from ..tasks import named

    return [str(label) for label in named("label", kind="classification", column=column).gold(documents)]


def scores_of(model: "FewShot", documents: Sequence["Document"], gold: Sequence[str]) -> dict[str, float | None]:
    """Accuracy, macro F1 and Matthews's correlation, per cent."""
    from ..metrics.classification import label_scores

    return label_scores(list(gold), [str(one) for one in model.predict(shown(documents))])


def report_of(model: "FewShot") -> dict[str, Any]:
    """What was tried and chosen."""
    from dataclasses import asdict

    decided = {name: [asdict(one) for one in lines] for name, lines in model.architecture_.items()}
    return {
        "tried": [asdict(one) for one in model.tried_],
        "chosen": model.mixture_.weights,
        **({"architecture": decided} if decided else {}),
    }


def as_text(model: "FewShot", result: dict[str, Any]) -> str:
    """A table of what was tried, the choice in a sentence, scores, answers."""
    from ..report.architecture import architecture_table
    from ..report.table import aligned

    header = ["method", "held out, % right", "log-likelihood", "weight", "seconds"]
    rows = [
        [one.name, f"{one.accuracy:.1f}", f"{one.log_likelihood:.3f}", f"{one.weight:.2f}", f"{one.seconds:.1f}"]
        for one in model.tried_
    ]
    lines = [aligned(header, rows), "", model.summary()]
    for name, decided in model.architecture_.items():
        lines += ["", f"{name}: what the search weighed and chose, per cent", architecture_table(decided)]
    if "test" in result:
        found = ", ".join(f"{name} {value:.2f}" for name, value in result["test"].items() if value is not None)
        lines.append(f"test: {found}")
    return "\n".join([*lines, *result.get("answers", [])])
