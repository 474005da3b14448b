"""The command line's front door. A command's module is imported when the command is invoked, never before.

`encodeonce --help` costs only click: the one-line descriptions stand in the table below, and no command module imports
torch, numpy or pydantic at its top, so that `encodeonce COMMAND --help` stays as cheap.
"""

import errno
import importlib
import io
import logging
import sys
from typing import Any

import click

from .. import __version__
from ..errors import EncodeOnceError
from ..resolve import nearest

__all__ = ["cli", "main"]

COMMANDS = {
    "demo": "The main job on built-in text and a packaged encoder.",
    "init": "Write a commented config to start from.",
    "plan": "Bytes, seconds and break-even, before anything is stored.",
    "encode": "Run the frozen encoder once and keep what comes out.",
    "train": "Encode what is missing, train, save a run; resumes.",
    "evaluate": "Score a saved run on a file.",
    "predict": "Fill a file's columns, or tag raw text, with a saved run.",
    "pretrain": "Documents with metadata to a domain encoder.",
    "analyse": "What training changed in an encoder; what its documents share.",
    "retrieve": "How well encoders find the section, sentence or clause asked for.",
    "compare": "Methods x tasks x seeds from one store: a table, a plot.",
    "memory": "A reader and passages encoded once: train, build, add, remove, info, gc, plan.",
    "ask": "Answer questions from a memory of passages, with sources.",
    "fewshot": "Learn from a handful of labels: tries, chooses, says by how much.",
    "inspect": "Which layers each label reads: heat map or numbers.",
    "store": "List, describe, verify or clean stores.",
    "debug-data": "What is in the files, and what is wrong with them.",
}
"""Every command with its line in `encodeonce --help`, in the order of the main job."""


FULL = "Free space (or raise the limit) and give the same command again: what was finished is whole."
CLOSED = "Get the right to write there, or name another place."
TAKEN = "A folder was to be there, and a file is: name another place, or move the file away."
NEXT_STEPS = {
    **dict.fromkeys((errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)), FULL),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), CLOSED),
    **dict.fromkeys((errno.ENOTDIR, errno.EEXIST), TAKEN),
    errno.EISDIR: "A file was to be there, and a folder is: name another place.",
    errno.ENOENT: "Look whether the name is spelled as it is there.",
    errno.ENAMETOOLONG: "Name a shorter one.",
    errno.EMFILE: "Too many files are open at once: raise the limit (ulimit -n).",
}
"""What to do about what the operating system refused, where no part of the library said it better."""


class Messages(logging.Handler):
    """Log records as lines on whatever stderr is at that moment."""

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(self.format(record), err=True)


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f".{name.replace('-', '_')}", __package__)
        command = getattr(module, module.__all__[0])
        assert isinstance(command, click.Command)
        _settable(command, f"ENCODEONCE_{name}")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            names = list(COMMANDS)
            ctx.fail(f"No command {args[0]!r}. There is: {', '.join(names)}.{nearest(args[0], names)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (EncodeOnceError, OSError) as problem:
            if ctx.params.get("debug") or isinstance(problem, BrokenPipeError):
                raise
            raise click.ClickException(explained(problem)) from None


def explained(problem: Exception) -> str:
    """An error's message; of the operating system's refusals the place, its words and the next step."""
    if not isinstance(problem, OSError) or not problem.strerror:
        return str(problem)
    place = "" if problem.filename is None else f"{problem.filename}: "
    return f"{place}{problem.strerror}. {NEXT_STEPS.get(problem.errno or 0, '')}".rstrip()


def _settable(command: click.Command, prefix: str) -> None:
    """Every option can be given as PREFIX_FLAG: by its long flag, not by the name of the command's argument."""
    for option in command.params:
        if isinstance(option, click.Option):
            flag = max(option.opts, key=len).lstrip("-")
            option.envvar = f"{prefix}_{flag}".replace("-", "_").upper()
    for name, inner in (command.commands if isinstance(command, click.Group) else {}).items():
        _settable(inner, f"{prefix}_{name}")


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "ENCODEONCE"},
    epilog="Results go to stdout, progress and messages to stderr. Exit status: 0 done, 1 failure, 2 usage.",
)
@click.version_option(__version__, prog_name="encodeonce")
@click.option("--debug", is_flag=True, help="Show the traceback of an error (also ENCODEONCE_DEBUG=1).")
@click.option("--quiet", "-q", is_flag=True, help="Show warnings and results only.")
@click.pass_context
def cli(ctx: click.Context, debug: bool, quiet: bool) -> None:
    """Run a transformer's lower part once, keep what comes out, train and serve something small on top."""
    log = logging.getLogger("encodeonce")
    messages, level = Messages(), log.level
    log.addHandler(messages)
    log.setLevel(logging.DEBUG if debug else logging.WARNING if quiet else logging.INFO)

    @ctx.call_on_close
    def restore() -> None:
        log.removeHandler(messages)
        log.setLevel(level)


def main() -> None:
    """What the `encodeonce` script calls. What stdout's encoding has no character for is escaped, as on stderr."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    cli(prog_name="encodeonce")
