"""`remit NAME …` for command files of the project, and `remit commands`, which lists them. `board.project_commands` runs them."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from remit.cli.approval import person_here
from remit.cli.arguments import DryRun, Json, Root, Timeout, seconds
from remit.cli.exits import Exit, exit_of_return
from remit.cli.live import Shown
from remit.cli.main import COMMANDS, answering
from remit.cli.project import find_root
from remit.cli.render import one_line, printable, say, say_json
from remit.cli.results import answer, print_return
from remit.core.errors import Misused, RemitError

if TYPE_CHECKING:
    from remit.board.command_files import CommandFile


PANEL = "Commands of this project"
SHOWN = 300
"""Characters of a description in the help."""


def register(app: typer.Typer, words: Sequence[str]) -> None:
    """Add the commands that files of the project define: of the folder one stands in, or of the one that `--root` names."""
    from remit.board.command_files import places

    try:
        root = _root_in(words) or find_root(None)
        files = places(root)
    except (RemitError, OSError):  # help is shown wherever one stands
        return
    for name in sorted(files.keys() - COMMANDS.keys()):
        called = words[:1] == [name]
        app.command(
            name,
            help="" if called else _described(files[name], root),
            rich_help_panel=PANEL,
            context_settings={"ignore_unknown_options": True},
        )(answering(_command(name)))


def _described(file: Path, root: Path) -> str:
    """For the help. Other people's words: no markup is taken from them, and nothing that a terminal would obey."""
    from rich.markup import escape

    from remit.board.command_files import read

    try:
        found = read(file, root)
    except (RemitError, OSError) as error:
        return escape(one_line(f"Cannot be used: {error}", SHOWN))
    parts = (found.description.rstrip("."), found.hint and f"Arguments: {found.hint}")
    return escape(one_line(". ".join(part for part in parts if part), SHOWN))


def _root_in(args: Sequence[str]) -> Path | None:
    """The folder that `--root` names, which is read only later; None: none is named."""
    for place, word in enumerate(args):
        given = word.removeprefix("--root=") if word.startswith("--root=") else args[place + 1 : place + 2] if word == "--root" else None
        if given:
            folder = Path(given if isinstance(given, str) else given[0])
            return folder.resolve() if folder.is_dir() else None
    return None


def _command(name: str) -> Callable[..., Exit]:
    """The function that typer calls. Options that it does not know are arguments: `remit fix --all` hands on `--all`."""

    def command(
        arguments: Annotated[
            list[str] | None, typer.Argument(metavar="[ARGUMENTS]...", help="Handed over literally.", show_default=False)
        ] = None,
        timeout: Timeout = None,
        dry_run: DryRun = False,
        root: Root = None,
        as_json: Json = False,
    ) -> Exit:
        return run(name, arguments or [], timeout, root, dry_run=dry_run, as_json=as_json)

    return command


def run(name: str, arguments: list[str], timeout: str | None, root: Path | None, *, dry_run: bool, as_json: bool) -> Exit:
    """Have a command file carried out."""

    from remit.board.command_files import find
    from remit.board.project_commands import bound, dry_run_command, nobody

    folder, limit = find_root(root), seconds(timeout, "--timeout")
    command = find(folder, name)
    if command is None:
        raise Misused(f"There is no command {name!r} in {folder}.", advice="`remit commands` lists those there are.")
    found = bound(folder, command)
    if found.agent is None:
        return answer(nobody(command, found), as_json=as_json)
    if dry_run:
        outcome = dry_run_command(command, arguments, found)
        if not as_json:
            _print_text(outcome.data)
        return answer(outcome, as_json=as_json)
    return asyncio.run(_run(command, arguments, found, limit, folder, as_json=as_json))


async def _run(command: "CommandFile", arguments: list[str], found: Any, limit: float | None, folder: Path, *, as_json: bool) -> Exit:
    from remit.app import Remit
    from remit.board.project_commands import run

    shown = Shown(as_json=as_json)
    async with Remit.open(folder, recover=False, settings=found.settings, approver=person_here()) as remit:
        carried = await run(remit, command, arguments, found, timeout=limit, waiting=shown)
        if as_json or carried.result is None:
            return answer(carried.outcome, as_json=as_json, was_interrupted=shown.was_interrupted)
        print_return(carried.result, remit.root)
        return Exit.INTERRUPTED if shown.was_interrupted else exit_of_return(carried.result)


def _print_text(data: dict[str, Any]) -> None:
    say(printable(str(data["text"])))
    say("")


def commands(root: Root = None, as_json: Json = False) -> Exit:
    """List the commands that files of the project add, and what is wrong with files that add none."""
    from remit.board.command_files import OWN, every

    found, problems = every(find_root(root), COMMANDS)
    if as_json:
        say_json({"commands": [one.to_dict() for one in found], "problems": problems})
        return Exit.FAILED if problems else Exit.OK
    if not found and not problems:
        say(f'No file of this project adds a command. Write one: {OWN}/NAME.md, or have one written: remit meta --command "…".')
    for one in found:
        say(one_line(f"remit {one.name} {one.hint}".rstrip(), 200))
        say(f"  {one_line(one.description, 300)}")
        who = f", by {one.agent}" if one.agent else ""
        say(f"  {one.path}{who}")
        for warning in one.warnings:
            say(f"  ! {one_line(warning, 300)}")
    for problem in problems:
        say(f"! {one_line(problem, 300)}")
    return Exit.FAILED if problems else Exit.OK
