"""`encodeonce fewshot`: a classifier from a handful of labelled texts and, where there are some, unlabelled ones."""

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..encoders.quickstart import QUICKSTART
from .options import json_option, reader_options

if TYPE_CHECKING:
    from ..integrations.few_shot import FewShot
    from ..types import Document

__all__ = ["fewshot"]

log = logging.getLogger("encodeonce")

AT_LEAST_1 = click.IntRange(min=1)
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
@click.option(
    "--save",
    "-s",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep what was trained, for predict.",
)
@click.option(
    "--picture", type=click.Path(dir_okay=False, path_type=Path), help="Draw what a fusion's search chose (.png, .svg)."
)
@click.option("--encoder", "-e", default=QUICKSTART, show_default=True, help="A folder or a hub name.")
@click.option("--store", type=click.Path(file_okay=False, path_type=Path), help="Keep the texts' vectors here.")
@click.option("--methods", "-m", help="Names with commas between, refusion too.  [default: all but fusion]")
@click.option("--prompt", help="Ask a masked language model or T5 by this prompt too: a .toml file or a task's name.")
@click.option("--label", default="label", show_default=True, help="The column with the labels.")
@click.option(
    "--neighbours", default=64, show_default=True, type=AT_LEAST_1, help="Unlabelled texts added to each text."
)
@click.option(
    "--folds", default=4, show_default=True, type=click.IntRange(min=2), help="Parts of the cross-validation."
)
@click.option("--steps", default=40, show_default=True, type=AT_LEAST_1, help="Steps of one fine-tuning.")
@click.option("--seed", default=42, show_default=True, type=click.IntRange(min=0))
@reader_options
@json_option
def fewshot(
    labelled: Path,
    unlabelled: Path | None,
    test: Path | None,
    asked: Path | None,
    output: Path | None,
    folder: Path | None,
    picture: Path | None,
    encoder: str,
    store: Path | None,
    methods: str | None,
    prompt: str | None,
    label: str,
    neighbours: int,
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
    its search decided is shown. With a --prompt and a masked language model (or T5) as --encoder, the model is also
    asked in its own way: a template and a word a label, such as "{text} It was {mask}."

    --columns says where text, pair and label stand, in all tables; plain text has no columns.
    """
    if output is not None and asked is None:
        raise click.UsageError("--output is where answers go: say with --predict what is to be answered.")
    names = [name.strip() for name in (methods or "").split(",") if name.strip()]
    if picture is not None:
        check_picture(picture, names)
    from ..integrations._saved import refuse_other
    from ..integrations.few_shot import METHODS, FewShot
    from ..tasks import named

    def read(path: Path | None, with_labels: bool) -> list["Document"]:
        if path is None:
            return []
        same = path.suffix == labelled.suffix
        return documents_of(path, format if same else None, columns, "" if with_labels else label)

    if folder is not None:
        refuse_other(folder)
    documents, others, gold, questions = (
        read(path, path in (labelled, test)) for path in (labelled, unlabelled, test, asked)
    )
    kind = named("label", kind="classification", column=label, numbers_are_classes=True)
    task = kind.learn(documents)
    labels, of_test = ([str(one) for one in task.gold(own)] for own in (documents, gold))
    for document in questions:
        task.check(document)
    model = FewShot(
        encoder,
        methods=METHODS if methods is None else tuple(names),
        prompt=prompt,
        neighbours=neighbours,
        folds=folds,
        steps=steps,
        store=store,
        seed=seed,
    )
    model.fit(shown(documents), labels, unlabelled=shown(others))
    if folder is not None:
        model.save(folder, column=label)
    if picture is not None:
        draw(model, picture)
    result = report_of(model)
    if gold:
        result |= tested(model, gold, of_test, documents, others)
    answers = [str(one) for one in model.predict(shown(questions))] if questions else []
    if output is not None:
        output.write_text("".join(f"{answer}\n" for answer in answers), encoding="utf-8")
    elif answers:
        result["answers"] = answers
    click.echo(json.dumps(result, ensure_ascii=False) if as_json else as_text(model, result))


def check_picture(picture: Path, names: Sequence[str]) -> None:
    """UsageError where none of these methods searches, and `drawable`'s errors."""
    from ..methods.refusion import FUSINGS
    from ..report.plots import drawable

    searched = [name for name, fusing in FUSINGS.items() if fusing.searched and not fusing.leak]
    if not set(names) & set(searched):
        raise click.UsageError(
            f"--picture shows what a search chose: name one of {', '.join(searched)} with --methods."
        )
    drawable(picture)


def documents_of(
    path: Path, format: str | None, columns: Mapping[str, int | str] | None, without: str = ""
) -> list["Document"]:
    """The documents of a file, with the columns that it can have: plain text has none, and a file that is not labelled
    need not have the one called `without`."""
    from ..corpus import format_of, read

    plain = format_of(path, format).name == "text"
    kept = {} if plain else {name: place for name, place in (columns or {}).items() if name != without}
    return read(path, format=format, columns=kept or None)


def shown(documents: Sequence["Document"]) -> list[str | tuple[str, str]]:
    """Texts, or pairs of texts, as an estimator takes them."""
    texts = [document.text or " ".join(document.words) for document in documents]
    return [(text, d.pair) if d.pair else text for text, d in zip(texts, documents, strict=True)]


def tested(
    model: "FewShot",
    documents: Sequence["Document"],
    gold: Sequence[str],
    labelled: Sequence["Document"],
    unlabelled: Sequence["Document"],
) -> dict[str, Any]:
    """ "test": accuracy, macro F1 and Matthews's correlation, per cent; "leakage": how many of the documents are also
    among the labelled ones, how many have a text among the unlabelled ones (up to case and white space), and the scores
    without both, None where none is left. Labels that training did not have are said."""
    from ..integrations._material import content
    from ..methods.refusion.near import leakage, same, texts_of
    from ..metrics.classification import label_scores

    unseen = sorted(set(gold) - {str(one) for one in model.classes_})
    if unseen:
        log.warning("labels of the test that training did not have, so all wrong: %s", ", ".join(unseen))
    predicted = [str(one) for one in model.predict(shown(documents))]
    learned = {content(document) for document in labelled}
    seen = {n for n, document in enumerate(documents) if content(document) in learned}
    found = set(leakage(documents, {same(text) for document in unlabelled for text in texts_of(document)}).found)
    clean = [n for n in range(len(documents)) if n not in seen | found]
    without = label_scores([gold[n] for n in clean], [predicted[n] for n in clean]) if clean else None
    return {
        "test": label_scores(list(gold), predicted),
        "leakage": {"labelled": len(seen), "unlabelled": len(found), "without": without},
    }


def draw(model: "FewShot", picture: Path) -> None:
    """A picture of each architecture; several have their method's name in the file's. None is said."""
    from ..report.architecture import architecture_picture

    for name, decided in model.architecture_.items():
        several = len(model.architecture_) > 1
        path = picture.with_stem(f"{picture.stem}-{name}") if several else picture
        log.info("%s written", architecture_picture(decided, path, name))
    if not model.architecture_:
        log.warning("no picture: no fusion that was searched has a weight in what was chosen")


def report_of(model: "FewShot") -> dict[str, Any]:
    """What was tried and chosen."""
    from dataclasses import asdict

    ratios = {
        name: [{"block": block, "slot": slot, "ratio": ratio} for (block, slot), ratio in own.items()]
        for name, own in model.ratios_.items()
    }
    decided = {name: [asdict(one) for one in lines] for name, lines in model.architecture_.items()}
    return {
        "tried": [asdict(one) for one in model.tried_],
        "chosen": model.mixture_.weights,
        **({"architecture": decided} if decided else {}),
        **({"ratios": ratios} if ratios else {}),
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
    lines += [f"{name}: {_share(list(own.values()))}" for name, own in model.ratios_.items()]
    if "test" in result:
        lines.append(f"test: {_scores(result['test'])}")
        leaked = result["leakage"]
        if leaked["labelled"] or leaked["unlabelled"]:
            without = leaked["without"]
            lines.append(
                f"of these texts {leaked['labelled']} are among the labelled ones and {leaked['unlabelled']} among the "
                f"unlabelled ones; without them: {_scores(without) if without else 'none is left'}"
            )
    return "\n".join([*lines, *result.get("answers", [])])


def _share(ratios: Sequence[float]) -> str:
    """How much the modules of a fusion add, in a sentence."""
    if not ratios:
        return "no module adds anything"
    from ..methods.refusion.refusion import FAINT

    faint = sum(ratio < FAINT for ratio in ratios)
    least, most = (f"{100 * value:.2f}" for value in (min(ratios), max(ratios)))
    return f"{len(ratios)} modules add {least} to {most} % of their slot's output; {faint} of them add less than 1 %"


def _scores(found: Mapping[str, float | None]) -> str:
    from ..report.table import shown as value_of

    counted = {name: f"{value:,.0f}" if name == "n" and value else value_of(value) for name, value in found.items()}
    return ", ".join(f"{name} {value}" for name, value in counted.items())
