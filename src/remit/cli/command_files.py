"""`remit NAME …` for command files of the project, and `remit commands`, which lists them."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument

from remit.board.command_files import OWN, CommandFile, every, find, places
from remit.cli.arguments import Timeout, seconds
from remit.cli.command_table import COMMANDS
from remit.cli.exits import Exit, exit_of_return
from remit.cli.live import LiveWait
from remit.cli.project import Project, find_root
from remit.cli.results import answer_outcome, print_return
from remit.core.errors import Misused, RemitError

PANEL = "Commands of this project"


def register(app: typer.Typer, words: Sequence[str], answering: Callable[[Callable[..., Exit]], Callable[..., None]]) -> None:
    """Add the commands defined in project files, of the working directory or of `--root`."""
    for name in sorted(_names(words) - COMMANDS.keys()):
        app.command(
            name,
            help="A command file; `remit commands` describes it.",
            rich_help_panel=PANEL,
            context_settings={"ignore_unknown_options": True},
        )(answering(_command(name)))


def is_defined(words: Sequence[str]) -> bool:
    """Whether a project file defines the command that these words call."""
    return words[0] in _names(words)


def _names(words: Sequence[str]) -> set[str]:
    try:
        return set(places(_root_in(words) or find_root(None)))
    except (RemitError, OSError):  # help is available everywhere
        return set()


def _root_in(args: Sequence[str]) -> Path | None:
    """The folder given with `--root`; options are not parsed yet."""
    words = " ".join(args).replace("--root=", "--root ").split(" ")
    folder = Path(words[words.index("--root") + 1]) if "--root" in words[:-1] else None
    return folder.resolve() if folder is not None and folder.is_dir() else None


def _command(name: str) -> Callable[..., Exit]:
    """The typer command. Unknown options become arguments: `remit fix --all` passes on `--all`."""

    def command(
        project: Project,
        arguments: Annotated[list[str] | None, Argument(metavar="ARGUMENTS", help="Passed on literally.")] = None,
        timeout: Timeout = None,
    ) -> Exit:
        return run(project, name, arguments or [], seconds(timeout, "--timeout"))

    return command


def run(project: Project, name: str, arguments: list[str], timeout: float | None) -> Exit:
    """Run a command file."""
    from remit.board.project_commands import bind_command

    command = find(project.root, name, project.trust)
    if command is None:
        raise Misused(f"There is no command {name!r} in {project.root}.", advice="`remit commands` lists all.")
    found = bind_command(project.root, command, project.trust)
    return asyncio.run(_run(project, command, arguments, found, timeout))


async def _run(project: Project, command: "CommandFile", arguments: list[str], found: Any, timeout: float | None) -> Exit:
    from remit.board.project_commands import command_outcome, run

    shown = LiveWait(as_json=project.as_json)
    async with project.open(settings=found.settings) as remit:
        result = await shown.watch(remit, run(remit, command, arguments, found, timeout=timeout, waiting=shown))
        if project.as_json:
            return answer_outcome(project, command_outcome(command, result), was_interrupted=shown.was_interrupted)
        print_return(result, remit.root)
        return Exit.INTERRUPTED if shown.was_interrupted else exit_of_return(result)


def commands(project: Project) -> Exit:
    """List the commands that files of the project add, and faults of files that were not accepted: exit 0 or 1."""
    found, problems = every(project.root, COMMANDS, project.trust)
    empty = f'No file of this project adds a command. Write {OWN}/NAME.md, or run: remit meta --command "…".'
    document = {"commands": [one.to_dict() for one in found], "problems": problems}
    return project.answer(document, None if found or problems else empty, Exit.FAILED if problems else Exit.OK)
