"""`encodeonce init`: a commented config that works at once."""

import os
from pathlib import Path

import click

from ..errors import ConfigError
from ..resolve import nearest

__all__ = ["init"]

METHODS = {
    "frozen": "the last layer as it is, and a head",
    "linear": "one trained weight a layer",
    "fusion": "one trained query meets every layer of every word",
    "agg": "every word mixes the layers by attention",
    "agg_tailor": "agg, then words attend to each other",
    "adapted": "agg + agg_tailor: the full adapter",
    "finetune": "the whole encoder is trained, nothing is stored",
    "top1": "the last block is trained on the stored layer below it",
    "top2": "the last two blocks are",
    "lora": "low-rank terms in all blocks",
    "live_mix": "two middle blocks are trained on a mix of the stored layers",
}

ROUNDED = '# compute = "bf16"   # rounds the operands of products: faster for BERT and its kin with a C compiler'
TABLES = {
    **dict.fromkeys(("agg", "agg_tailor", "adapted"), "[adapter]\nkey_width = 16\nn_heads = 2"),
    **dict.fromkeys(("frozen", "linear", "fusion"), "[adapter]\n# {method} has no size to choose"),
    **dict.fromkeys(("finetune", "top1", "top2"), f"[finetune]\n{ROUNDED}"),
    "lora": f"[finetune]\nlora = 8   # rank\nlora_alpha = 16\n{ROUNDED}",
    "live_mix": '[finetune]\nover = "agg"   # what mixes the layers: linear, agg or adapted\nlive = 2   # blocks\n'
    "# attention_only = [-1]   # the last of them without its feed-forward network: less time, about as good\n"
    + ROUNDED,
}
"""The table of a method's own options."""

TEMPLATE = """\
# encodeonce train {name} -o {run}
# Any key can be replaced on the command line: --set train.learning_rate=1e-3
# Relative paths start at this file's folder.

encoder = {encoder}   # a folder, a hub name, or "quickstart" (the packaged one); it is never trained
store = "states"   # what the encoder gives is kept here and computed once
layers = "all"   # "last", or a list such as [0, 3, 6]; 0 is the embeddings
dtype = "fp16"   # or fp32, bf16, int8 (half of fp16)
compute = "fp32"   # or bf16x3 (about 1e-5 off), bf16 (about 3e-3 off): faster where the processor has it

tasks = {tasks}   # columns (upos, deprel, feats:Number, ...), ner, chunk, parsing, classification, ...; from one read
method = "{method}"   # {methods}

[data]
train = {train}
{dev}
{test}
# format = "conllu"   # by the file's ending where it is not given: {formats}
# columns = {{ form = 0, tag = 3 }}   # where values stand: by number, or by name {{ text = "first", pair = "second" }}
# train_fraction = 0.1   # a part of the training documents, chosen by their content
# train_examples = 50   # at most so many of them
# passages = "documents.json"   # what questions name by id: docs/documents.md
# dev_fraction = 0.1   # without a dev file: a part of train is held out as dev, by label and content

# [task.{task}]
# {option}

{table}
{prenorm}
[train]
learning_rate = 2e-3   # peak of the 1cycle schedule
num_train_epochs = 10
per_device_train_batch_size = 32
seed = 42

# [methods.linear]   # what a method of a comparison has of its own: keys of [train], seeds, values to try
# grid = {{ learning_rate = [1e-3, 2e-3, 4e-3] }}
"""


PRE_NORM = "# pre_norm_layers = true   # for encoders whose layers differ in scale: GPT-2, ModernBERT, T5"

OPTIONS = {
    "parsing": "n_lstm_layers = 1   # 3 where not given; also lstm_width, arc_width, rel_width, tree: docs/parsing.md",
    "relations": "head_words = true   # entities are their last words and have no type, as in the paper's WebNLG",
    **dict.fromkeys(
        ("classification", "regression", "multilabel"),
        'column = "label"   # where the gold stands\n'
        '# piece = "document-apart"   # reads the two texts of a pair one by one: for encoders of single sentences',
    ),
}


@click.command()
@click.argument("method")
@click.option(
    "--task",
    "-t",
    "tasks",
    multiple=True,
    required=True,
    help="A column, ner, chunk, feats:NAME, parsing, relations, classification, regression, multilabel, cola, ...; "
    "repeatable.",
)
@click.option("--train", required=True, type=click.Path(exists=True), help="Training file.")
@click.option("--dev", type=click.Path(exists=True), help="Development file.")
@click.option("--test", type=click.Path(exists=True), help="Test file.")
@click.option("--encoder", "-e", default="quickstart", show_default=True, help="A folder or a hub name.")
@click.option("--output", "-o", default="config.toml", show_default=True, type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def init(
    method: str,
    tasks: tuple[str, ...],
    train: str,
    dev: str | None,
    test: str | None,
    encoder: str,
    output: Path,
    force: bool,
) -> None:
    """Write a commented config for METHOD.

    METHOD is frozen, linear, fusion, agg, agg_tailor or adapted, which read stored layers, or finetune, top1, top2,
    lora or live_mix, which train blocks of the encoder.
    """
    if method not in METHODS:
        raise ConfigError(f"No method {method!r}. There is: {', '.join(METHODS)}.{nearest(method, list(METHODS))}")
    if output.exists() and not force:
        raise ConfigError(f"{output} is there already. Choose another name with -o, or --force to replace it.")
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(
        written(method, tasks, {"train": train, "dev": dev, "test": test}, encoder, output), encoding="utf-8"
    )
    click.echo(f"{output} written. Next: encodeonce train {output} -o {output.parent / 'run'}", err=True)


def _option(task: str) -> str:
    """The setting of a task that is changed first."""
    from ..tasks._presets import PRESETS

    kind = str(PRESETS.get(task, {}).get("kind", task))
    return OPTIONS.get(kind, 'piece = "last"   # which piece stands for a word: first, last or mean')


def written(method: str, tasks: tuple[str, ...], files: dict[str, str | None], encoder: str, output: Path) -> str:
    """The config's text, with relative file names made relative to the config's folder."""
    from .config import toml_value

    def line(split: str) -> str:
        name = files[split]
        return f'# {split} = "{split}.conllu"' if name is None else f"{split} = {toml_value(_relative(name, output))}"

    mixes = method not in ("finetune", "top1", "top2", "lora")
    return TEMPLATE.format(
        name=output.name,
        run="run",
        encoder=toml_value(_relative(encoder, output) if Path(encoder).is_dir() else encoder),
        tasks=toml_value(list(tasks)),
        task=tasks[0] if ":" not in tasks[0] else toml_value(tasks[0]),
        option=_option(tasks[0]),
        method=method,
        methods=METHODS[method] + "; or " + ", ".join(name for name in METHODS if name != method),
        train=toml_value(_relative(files["train"] or "", output)),
        dev=line("dev"),
        test=line("test"),
        formats="conllu, columns, jsonl, csv, tsv, text",
        table=TABLES[method].format(method=method),
        prenorm=f"{PRE_NORM}\n" if mixes else "",
    )


def _relative(name: str, output: Path) -> str:
    """As the config writes a file name: what was given in full stays so."""
    if os.path.isabs(name):
        return name
    try:
        return os.path.relpath(name, output.parent)
    except ValueError:  # another drive on Windows
        return str(Path(name).resolve())
