"""`encodeonce memory train|export|build|add|remove|info|gc|plan`: a reader, and passages encoded once for it."""

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import (
    Decorator,
    budget_option,
    encoder_option,
    json_option,
    k_option,
    max_gb_option,
    run_argument,
    set_option,
    together,
    vectors_option,
)

if TYPE_CHECKING:
    from ..memory import Added, Memory
    from ..types import Passage
    from .reader_training import ReaderPlan, ReaderReport

    Passages = Callable[[], list[Passage]]

__all__ = ["memory"]

memory_argument: Decorator = click.argument(
    "path", metavar="MEMORY", type=click.Path(exists=True, file_okay=False, path_type=Path)
)
files_options: Decorator = together(
    click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path)),
    click.option("--encoder", "-e", help="Where the encoder is now."),
    click.option(
        "--words",
        type=click.IntRange(min=1),
        default=100,
        show_default=True,
        help="Words of a window; longer texts are cut.",
    ),
    click.option(
        "--overlap", type=click.IntRange(min=0), default=0, show_default=True, help="Words that two windows share."
    ),
    click.option(
        "--format", "-f", help="Format of passages: tsv, jsonl, beir or folder; by the file's ending where not given."
    ),
    json_option,
)


def passage_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """FILES of passages with all that says how they are read; the command gets `passages`, which reads them."""

    @wraps(command)
    def with_passages(files: tuple[Path, ...], format: str | None, words: int, overlap: int, **others: Any) -> Any:
        return command(passages=partial(_passages, files, format, words, overlap), **others)

    return files_options(with_passages)


@click.group()
def memory() -> None:
    """A reader, and passages encoded once for it to answer from.

    Files are tables (id, text, title), JSON lines, BEIR's and FlashRAG's corpora, and folders of plain text.
    """


@memory.command()
@click.argument("config", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--output", "-o", "run", type=click.Path(file_okay=False, path_type=Path), help="RUN.")
@click.option("--dry-run", is_flag=True, help="Check config and data, say what would be done, and do nothing.")
@click.option("--whole", is_flag=True, help="Copy the encoder into RUN, which can then be moved alone.")
@set_option
@json_option
def train(config: Path, run: Path | None, dry_run: bool, whole: bool, changes: tuple[str, ...], as_json: bool) -> None:
    """Train a reader on questions and passages, and save it as RUN, for `build` and `ask`.

    CONFIG names encoder, questions, passages, design and settings. A training that was interrupted goes on where it was
    when the same command is given again.
    """
    if run is None and not dry_run:
        raise click.UsageError("Missing option '--output' / '-o'.")
    from .config import load
    from .reader_config import ReaderConfig

    chosen = load(config, changes, model=ReaderConfig)
    from .reader_training import plan_reader, train_reader

    if run is None or dry_run:
        planned = plan_reader(chosen)
        click.echo(json.dumps(planned.to_json()) if as_json else _planned_text(planned))
        return
    from ..serve.folder import refuse_other

    refuse_other(run)
    done = train_reader(chosen, run, whole=whole)
    click.echo(json.dumps(done.to_json()) if as_json else _trained_text(done, run))


@memory.command()
@run_argument
@click.option(
    "--output", "-o", required=True, type=click.Path(file_okay=False, path_type=Path), help="A folder for it."
)
@encoder_option
def export(run: Path, output: Path, encoder: str | None) -> None:
    """Write the encoder that RUN trained (design.memory = "finetuned", or everything live) as a checkpoint.

    A reader of another task can then have its memory made by it: name it as `encoder`, and RUN as `start`.
    """
    from ..errors import ConfigError
    from ..methods.lumen import export as write
    from ..serve.reader_run import load_reader

    if output.is_dir() and any(output.iterdir()):
        raise ConfigError(f"{output} is not empty. Choose a new folder.")
    held = load_reader(run, encoder)
    write(held.method, held.encoder, output)
    click.echo(f'encoder    {output}; next: a config with encoder = "{output}" and start = "{run}"')


@memory.command()
@run_argument
@click.option("--output", "-o", type=click.Path(file_okay=False, path_type=Path), help="[default: RUN/memory]")
@click.option("--vectors", metavar="ENCODER", help="Store a vector a passage too, for dense retrieval ('same': RUN's).")
@max_gb_option("Refuse before writing if the states would become larger")
@passage_options
def build(
    run: Path,
    output: Path | None,
    vectors: str | None,
    max_bytes: int | None,
    encoder: str | None,
    passages: "Passages",
    as_json: bool,
) -> None:
    """Encode the passages in FILES as RUN needs them. What is there already is not encoded again."""
    from ..encoders.pooled import Pooled
    from ..encoders.pretrained import Pretrained
    from ..memory import Memory
    from ..methods.lumen import cut_whole, passage_document
    from ..serve.folder import encoder_of
    from ..serve.reader_run import memory_of

    spec, made, form = memory_of(run)
    model = encoder_of(run, made, encoder)
    wanted = None if spec is None else model.spec(list(spec.layers), spec.dtype)
    _refuse_other(run, made, model.spec(list(made.layers), made.dtype))
    pooled = None
    if vectors is not None:
        pooled = Pooled(Pretrained(model.name if vectors == "same" else vectors), "text", normalize=True)
    path, given = output or run / "memory", passages()
    if wanted is None:
        cut_whole([passage_document(one, form) for one in given], model)
    opened = Memory.create(path, wanted, None if pooled is None else pooled.spec(), form=form)
    if opened.states is not None:  # of another run, where this one stores nothing
        own = opened.states.spec
        _refuse_other(path, own, model.spec(list(own.layers), own.dtype))
    done = opened.add(given, model, pooled, max_bytes=max_bytes)
    _say(path, done, as_json)


@memory.command()
@memory_argument
@click.option("--replace", is_flag=True, help="Passages take the place of those with their ids or of their texts.")
@vectors_option
@passage_options
def add(
    path: Path, replace: bool, vectors: str | None, encoder: str | None, passages: "Passages", as_json: bool
) -> None:
    """Add the passages in FILES. No other is encoded again, and no other file of MEMORY is touched."""
    from ..errors import ConfigError
    from ..memory import Memory
    from ..serve.answerer import pooled_for
    from ..serve.folder import encoder_of

    opened = Memory.open(path)
    opened.refuse_lost("states", "vectors")
    if vectors is not None and opened.vectors is None:
        raise ConfigError(
            f"--vectors {vectors}: {path} has no vectors, and adding gives it none. Leave the option out, or build "
            "another memory with `encodeonce memory build --vectors`."
        )
    model = pooled = None
    if opened.states is not None:
        own = opened.states.spec
        model = encoder_of(_home(path), own, encoder)
        _refuse_other(path, own, model.spec(list(own.layers), own.dtype))
    if opened.vectors is not None:
        own = opened.vectors.spec
        pooled = pooled_for(own, vectors, model)
        _refuse_other(path, own, pooled.spec(list(own.layers), own.dtype))
    given = passages()
    _refuse_long(opened, given, encoder)
    done = opened.add(given, model, pooled, replacing=replace)
    _say(path, done, as_json)


@memory.command()
@memory_argument
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@json_option
def remove(path: Path, ids: tuple[str, ...], as_json: bool) -> None:
    """Take passages out, by id or by the id of the text they were cut from. `gc` then frees their room."""
    from ..memory import Memory

    opened = Memory.open(path)
    gone = opened.remove(ids)
    click.echo(json.dumps({"removed": gone}) if as_json else f"{gone:,} passages removed, {len(opened):,} are left")


@memory.command()
@memory_argument
@click.option(
    "--slack",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    help="Leave a shard alone while at most this share of its rows is unused.",
)
@click.option("--dry-run", is_flag=True, help="Print what would go, and remove nothing.")
@json_option
def gc(path: Path, slack: float, dry_run: bool, as_json: bool) -> None:
    """Free the room of passages that were removed or replaced. Nothing is encoded again."""
    from ..memory import Memory

    done = [asdict(one) for one in Memory.open(path).gc(slack, dry_run)]
    if as_json:
        click.echo(json.dumps(done))
        return
    if not done:
        click.echo("this memory stores texts alone: there is nothing to be freed")
    would = "would be " if dry_run else ""
    for one in done:
        click.echo(
            f"{one['items']:,} items, {one['bytes']:,} bytes {would}freed; {one['removed']} shards {would}removed, "
            f"{one['rewritten']} rewritten; {one['waiting']:,} unused items are left (--slack {slack:g})"
        )


@memory.command()
@memory_argument
@json_option
def info(path: Path, as_json: bool) -> None:
    """What MEMORY holds, what it takes, and which passages were found and answered from."""
    from ..memory import Memory

    opened = Memory.open(path)
    found = opened.info()
    if as_json:
        click.echo(json.dumps(found))
        return
    each = found["bytes_per_passage"]
    lines = [
        f"passages   {found['passages']:,} of {found['sources']:,} texts, {found['words']:,} words",
        f"size       {found['bytes']:,} bytes" + ("" if each is None else f", {each:,.0f} a passage"),
    ]
    for name in ("states", "vectors"):
        if (own := found[name]) is not None:
            layers = ", ".join(map(str, own["layers"]))
            lines.append(
                f"{name:<10} {own['items']:,} items, {own['rows']:,} rows, layer {layers} of {own['encoder']}, "
                f"{own['dtype']}, {own['shards']} shards; {found['unused_items'][name]:,} items unused"
            )
            if lost := found["lost_items"][name]:
                lines.append(f"           {lost:,} are lost: `build` or `add` the same passages again to encode them")
    lines += [f"{name:<10} lost; {opened.restoring()} makes them again" for name in found["lost"]]
    lines.append(f"asked      {found['asked']:,} questions; {found['never_found']:,} passages were never found")
    for name in ("most_found", "most_answered"):
        lines += [f"{name.replace('_', ' '):<14} {count:>6,}  {one}" for one, count in found[name]]
    click.echo("\n".join(lines))


@memory.command()
@run_argument
@click.option("--questions", type=click.Path(exists=True, path_type=Path), help="A file of questions to measure with.")
@k_option
@budget_option
@passage_options
def plan(
    run: Path,
    questions: Path | None,
    k: int,
    budget: float,
    encoder: str | None,
    passages: "Passages",
    as_json: bool,
) -> None:
    """Encode the passages in FILES once, or each time they are read? Measured on a sample; nothing is written."""
    from ..corpus.questions import read_questions
    from ..serve.reader_run import load_reader
    from .memory_planning import forecast

    held = load_reader(run, encoder)
    asked = [] if questions is None else read_questions(questions, bare=True)
    found = forecast(held, passages(), asked, k, budget)
    click.echo(json.dumps(found.to_json()) if as_json else found.text())


def _planned_text(found: "ReaderPlan") -> str:
    questions = ", ".join(f"{split} {count:,}" for split, count in found.questions.items())
    live = f"{len(found.live)} live, copies of {', '.join(map(str, found.live))}" if found.live else "none live"
    lines = [
        f"encoder    {found.encoder}: {found.blocks} blocks, cut after {found.cut}, {live}; {found.reader} reader",
        f"questions  {questions}; {found.per_question:.1f} passages each, {found.passages:,} different ones",
        f"to store   {found.store.rows:,} rows of {found.store.missing:,} passages, {found.store.bytes:,} bytes",
        f"training   {found.steps:,} steps",
    ]
    if found.searched:
        lines.insert(1, f"search     {found.searched} designs, of which this is the first, by dev before the training")
    if found.store.lacks:
        lines.append(f"lacking    the encoder has no {' and no '.join(found.store.lacks)}: nothing can be encoded yet")
    return "\n".join([*lines, "Nothing was written."])


def _trained_text(done: "ReaderReport", run: Path) -> str:
    from ..report.table import shown

    lines = [
        f"{split:<10} {', '.join(f'{name} {shown(value)}' for name, value in own.items())}"
        for split, own in done.scores.items()
    ]
    if done.encoded is not None:
        report = done.encoded.report
        lines.append(
            f"store      {report.hits:,} passages were there, {report.written:,} encoded ({report.bytes:,} bytes)"
        )
    for trial in done.trials:
        mark = "*" if trial.design == done.design.chosen() else " "
        settings = ", ".join(f"{name} {value}" for name, value in trial.design.items())
        lines.append(f"search   {mark} {settings}: exact_match {shown(trial.scores['exact_match'])}")
    fit, best = done.fit, done.fit.best["answer"]["epoch"]
    lines.append(
        f"train      {fit.batches:,} batches, {1000 * fit.seconds_per_batch:.0f} ms each, {fit.seconds:.1f} s; epoch "
        f"{best} is kept"
    )
    return "\n".join([*lines, f"saved      {run}; next: encodeonce memory build {run} FILES..."])


def _passages(files: tuple[Path, ...], format: str | None, words: int, overlap: int) -> list["Passage"]:
    """The passages of all files, cut into windows; ids must differ over all of them."""
    from ..corpus.passages import read_passages
    from ..corpus.windows import windows

    return windows([one for file in files for one in read_passages(file, format=format)], words, overlap)


def _home(memory: Path) -> Path:
    """The run that a memory lies in, which may hold the encoder; else the memory itself."""
    run = memory.resolve().parent
    return run if (run / "model.safetensors").is_file() else memory


def _refuse_long(memory: "Memory", given: "list[Passage]", encoder: str | None) -> None:
    """DataError for a passage that is not read whole by the reader whose folder the memory lies in, where that stores
    nothing."""
    from ..errors import RunError
    from ..methods.lumen import cut_whole
    from ..serve.folder import encoder_of
    from ..serve.reader_run import memory_of

    run = memory.path.resolve().parent
    try:
        spec, made, _ = memory_of(run)
    except RunError:  # it lies in no reader's
        return
    if spec is None:
        cut_whole(memory.documents(given), encoder_of(run, made, encoder))


def _refuse_other(path: Path, own: Any, there: Any) -> None:
    """SpecMismatch where the encoder that is found under its name is another one now."""
    from ..errors import SpecMismatch

    differences = own.differences(there)
    if differences:
        raise SpecMismatch(
            f"{there.encoder} is not the encoder that {path} was made by, {own.encoder} (here: {path}, there: the "
            f"encoder): {'; '.join(differences)}."
        )


def _say(path: Path, done: "Added", as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"memory": str(path), **asdict(done)}))
        return
    rest = f", {done.replaced:,} replaced, {done.removed:,} removed" if done.replaced or done.removed else ""
    lines = [f"memory     {path}", f"passages   {done.new:,} new, {done.same:,} there already{rest}"]
    for name, report in (("states", done.states), ("vectors", done.vectors)):
        if report is not None:
            lines.append(
                f"{name:<10} {report.written:,} encoded, {report.hits:,} stored before; {report.rows:,} rows, "
                f"{report.bytes:,} bytes in {report.shards} shards"
            )
            if report.windowed:
                lines.append(f"           {report.windowed:,} are longer than the encoder's window: give less --words")
    click.echo("\n".join(lines))
