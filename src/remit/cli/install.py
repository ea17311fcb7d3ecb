"""`remit install`: write remit's MCP entry into the project's configuration of a coding agent; `--undo` takes it out.

Shows the change and asks. What is written, and how it is undone, is `installing.change`'s.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from remit.cli.exits import Exit
from remit.cli.options import Json, Root

if TYPE_CHECKING:
    from remit.cli.installing.change import Change

DONE = {
    "make": "{file} is made, with remit in it.",
    "add": "remit is in {file} now. As it was before it stands in {backup}.",
    "change": "The entry of remit in {file} is changed. As it was before it stands in {backup}.",
    "remove": "remit is out of {file}; everything else stays as it is.",
    "restore": "{file} is as it was before.",
    "delete": "{file} held nothing else and is gone.",
}


def install(
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="claude, codex or opencode.", show_default=False)],
    undo: Annotated[bool, typer.Option("--undo", help="Take it out again: the file is then as it was.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Let a coding agent delegate: write remit as an MCP server into its configuration of this project. Shows the change and asks."""
    from remit.cli.installing.change import Does, installing, undoing
    from remit.cli.installing.tools import command_here, tool_named
    from remit.cli.output import say_json
    from remit.cli.project import find_root

    folder = find_root(root)
    asked = tool_named(tool)
    change = undoing(asked, folder) if undo else installing(asked, folder, command_here())
    notes = [*change.notes, *([] if undo else _notes(change))]
    if not as_json:
        _show(change, folder, notes, undo=undo)
    code = Exit.OK if change.does is Does.NOTHING or yes else _ask(as_json=as_json)
    is_made = code is Exit.OK and change.does is not Does.NOTHING
    if is_made:
        change.make()
    if as_json:
        say_json(_document(change, folder, notes, is_made=is_made))
    else:
        _tell(change, folder, is_made=is_made, undo=undo)
    return code


def _notes(change: "Change") -> list[str]:
    """What keeps an entry that is rightly written from working."""
    from remit.cli.extras import NO_MCP, has_mcp
    from remit.cli.installing.change import Does
    from remit.cli.installing.tools import command_here, is_found_here_only

    notes = [] if has_mcp() else [NO_MCP]
    if change.does is not Does.NOTHING and command_here() == ("remit",) and is_found_here_only():
        notes.append("`remit` is found in the virtual environment that is active here: another terminal may not find it.")
    return notes


def _ask(*, as_json: bool) -> Exit:
    from remit.cli.output import say_aside

    if as_json or not sys.stdin.isatty():
        say_aside("Nothing was changed: there is nobody to ask here. Look at the change, then run it again with --yes.")
        return Exit.BLOCKED
    try:
        return Exit.OK if typer.confirm("Make this change?", default=False) else Exit.CANCELLED
    except typer.Abort:  # Ctrl-C, or the end of the input, in place of an answer
        say_aside("\nNothing was changed.")
        return Exit.INTERRUPTED


def _show(change: "Change", folder: Path, notes: list[str], *, undo: bool) -> None:
    from remit.cli.output import say, say_aside

    if diff := change.diff(folder):
        if folder != Path.cwd():
            say_aside(f"The project is {folder}.")
        print(diff, flush=True)  # as it is: a line of a diff must not be wrapped
    else:
        say(f"Nothing to do: {_name(change, folder)} {'holds no entry of remit' if undo else 'has the entry of remit'}.")
    for note in notes:
        say_aside(f"Note: {note}")


def _tell(change: "Change", folder: Path, *, is_made: bool, undo: bool) -> None:
    from remit.cli.output import say

    if is_made:
        backup = change.backup.relative_to(folder).as_posix() if change.backup else ""
        say(DONE[change.does].format(file=_name(change, folder), backup=backup))
        if not undo:
            say(change.tool.then)


def _document(change: "Change", folder: Path, notes: list[str], *, is_made: bool) -> dict[str, object]:
    return {
        "tool": change.tool.name,
        "file": _name(change, folder),
        "does": str(change.does),
        "is_made": is_made,
        "diff": change.diff(folder),
        "backup": change.backup.relative_to(folder).as_posix() if change.backup else None,
        "notes": notes,
    }


def _name(change: "Change", folder: Path) -> str:
    return change.file.relative_to(folder).as_posix()
