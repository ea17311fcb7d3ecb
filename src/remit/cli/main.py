"""The console script `remit`. Each command is a function of a sibling module, imported only when it is called.

`COMMANDS` lists every command with its help line, so that `remit --help` and completion import none of them."""

import contextlib
import functools
import importlib
import inspect
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # otherwise pydantic reads the entry points of every installed package

import typer
from typer import Option

from remit.cli.arguments import Json, Root, Trust
from remit.cli.command_table import ALIASES, ASKING, COMMANDS, SUBCOMMANDS
from remit.cli.exits import Exit, legend
from remit.cli.project import Project
from remit.cli.render import claim_stdout, report
from remit.core.errors import Misused, RemitError, Unavailable

_COMMON = (
    Parameter("root", Parameter.KEYWORD_ONLY, default=None, annotation=Root),
    Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=Json),
    Parameter("trust", Parameter.KEYWORD_ONLY, default=False, annotation=Trust),
)


def build(loaded: Iterable[str], listed: Iterable[str] = ()) -> typer.Typer:
    """The command line with some commands imported and others only listed."""
    loaded = set(loaded)
    app = typer.Typer(
        name="remit",
        help="Hand work to any agent and always get an answer back: in time, in one checked shape, with whatever was done.",
        epilog=legend(),
        pretty_exceptions_enable=False,
        add_completion=not loaded or "_REMIT_COMPLETE" in os.environ,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_remit)
    for name, entry in COMMANDS.items():
        if name in loaded:
            app.command(name, rich_help_panel=entry.panel)(_command(entry.place, asks=entry.panel in ASKING or name == "serve"))
        elif name in listed:
            app.command(name, help=entry.help, rich_help_panel=entry.panel)(lambda: None)
    for name in loaded & SUBCOMMANDS.keys():
        app.command(name)(_command(SUBCOMMANDS[name]))
    return app


def _command(place: str, *, asks: bool = False) -> Callable[..., None]:
    module, _, attribute = place.partition(":")
    return answering(getattr(importlib.import_module(f"remit.cli.{module}"), attribute), asks=asks)


def _remit(context: typer.Context, version: Annotated[bool, Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        from importlib.metadata import version as version_of

        print(f"remit {version_of('remit')}")
    elif context.invoked_subcommand is None:
        from remit.cli.start import print_start

        print_start()


def app_for(arguments: Sequence[str]) -> typer.Typer:
    """The command line for these arguments: the named command, or the list of all for help and unknown names."""
    name = arguments[0] if arguments else ""
    if "_REMIT_COMPLETE" in os.environ:
        words = " ".join(os.environ.get(one, "") for one in ("_TYPER_COMPLETE_ARGS", "COMP_WORDS")).split()
        return build(words, COMMANDS)
    if not name or name in COMMANDS or name in SUBCOMMANDS:
        return build([name])
    from remit.cli.command_files import register

    app = build((), COMMANDS)
    register(app, arguments, functools.partial(answering, asks=True))
    return app


def answering(command: Callable[..., Exit], *, asks: bool = False) -> Callable[..., None]:
    """Adapt a command to typer: adds `--root`, `--json` and `--trust` and passes the command a `Project`. A remit error becomes one line;
    REMIT_DEBUG=1 shows the traceback. `asks`: the command runs agents, so a person at the terminal is asked to approve the project."""

    def called(*, root: Path | None, as_json: bool, trust: bool, **given: Any) -> None:
        if as_json:
            claim_stdout()
        try:
            code = command(Project(root, as_json=as_json, trust=trust, asks=asks), **given)
        except RemitError as error:
            if os.environ.get("REMIT_DEBUG"):
                raise
            code = report(error, as_json=as_json)
        raise typer.Exit(int(code))

    own = list(inspect.signature(command).parameters.values())[1:]
    called.__signature__ = inspect.Signature([*own, *_COMMON])  # type: ignore[attr-defined]
    called.__annotations__ = {}
    called.__doc__, called.__name__ = command.__doc__, command.__name__
    return called


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command line and exit with its code."""
    arguments = _without_aliases(sys.argv[1:] if arguments is None else list(arguments))
    if (name := " ".join(arguments[:2])) in SUBCOMMANDS:
        arguments = [name, *arguments[2:]]
    sys.exit(_exit_code(arguments))


def _without_aliases(arguments: list[str]) -> list[str]:
    """`help COMMAND` becomes `COMMAND --help`."""
    if not arguments or arguments[0] not in ALIASES:
        return arguments
    from remit.cli.command_files import is_defined

    name, *rest = arguments
    if is_defined(arguments):
        return arguments
    return [*_without_aliases(rest), ALIASES[name]] if name == "help" else [ALIASES[name], *rest]


def _exit_code(arguments: Sequence[str]) -> int:
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # for the rest of the process
    if sys.stdout is None:
        print("Error: standard output is closed. Send it to a file or to /dev/null.", file=sys.stderr)
        return Exit.UNAVAILABLE
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # characters that the terminal lacks become question marks
    try:
        _continue_trace()
        return _run(arguments)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except OSError as error:
        if os.environ.get("REMIT_DEBUG"):
            raise
        return _unwritten(error)


def _run(arguments: Sequence[str]) -> int:
    app = app_for(arguments)
    try:
        code = app(list(arguments), prog_name="remit", standalone_mode="--json" not in arguments)
    except typer.TyperException as error:  # with --json a usage error is answered in JSON too
        claim_stdout()
        return report(Misused(error.format_message(), advice="See `remit --help`."), as_json=True)
    except SystemExit as ended:
        code = ended.code
    sys.stdout.flush()
    return int(code or 0)


def _unwritten(error: OSError) -> Exit:
    """Report that stdout (a full disk, a closed pipe) or a file failed: one line, and no output at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return Exit.FAILED
    return report(Unavailable(f"Cannot write the output: {error.strerror or error}." if not error.filename else f"{error}."), as_json=False)


def _continue_trace() -> None:
    """Continue the caller's trace if the environment names one."""
    if os.environ.get("TRACEPARENT"):
        from remit.core.delegation import ORIGIN
        from remit.core.ids import origin_in

        ORIGIN.set(origin_in(os.environ))


def console() -> None:
    """`main` for the console script. Once the command is done, Ctrl-C ends the process without a traceback."""
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)
    finally:
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    console()
