"""`remit board import`: an existing TODO.md and state.json made into a board. Only asks for it and tells; `board.importer` does it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from remit.cli.exits import Exit
from remit.cli.options import Json, Root

if TYPE_CHECKING:
    from collections.abc import Iterator

    from remit.board.importer import Imported

_SHOWN = 20


def board_import(
    folder: Annotated[
        Path | None,
        typer.Argument(help="Where TODO.md and state.json are. Default: .opencode/specs, .claude/specs or specs.", show_default=False),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would come of it, and change nothing.")] = False,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Make a board of an existing TODO.md and state.json, also where they differ."""
    from remit.board.board import Board
    from remit.board.importer import import_board
    from remit.board.pending_commits import pay
    from remit.cli.outcomes import say_labelled
    from remit.cli.output import say, say_json
    from remit.cli.project import find_root

    board = Board(find_root(root))
    found = import_board(board, folder, is_rehearsal=dry_run)
    made = pay(board, found.debt)
    if as_json:
        say_json({**found.to_dict(), "warnings": [made.warning] if made.warning else [], "commit": made.short})
        return Exit.OK
    say("\n".join(_lines(found)))
    for label, style, words in (("warning", "yellow", made.warning), ("commit", "green", made.short)):
        if words:
            say_labelled(label, style, words)
    if found.is_done:
        say_labelled("next", "cyan", "remit board")
    return Exit.OK


def _lines(found: "Imported") -> "Iterator[str]":
    if found.was_done:
        yield from found.told
        return
    verb = "Imported" if found.is_done else "Would import"
    archived = f", and {found.archived} into the archive" if found.archived else ""
    yield f"{verb} {_count(found.tasks, 'task')} from {found.folder}{archived}."
    for where, numbers in (("state.json", found.only_in_state), ("TODO.md", found.only_in_todo)):
        if numbers:
            yield f"Only in {where}: {_some(list(map(str, numbers)))}."
    if found.merged:
        yield f"TODO.md differed from state.json in {_count(len(found.merged), 'place')} and was merged:"
        yield from (f"  {line}" for line in found.merged[:_SHOWN])
        if len(found.merged) > _SHOWN:
            yield f"  and {len(found.merged) - _SHOWN} more: --json lists all."
    yield from found.told[:_SHOWN]
    if len(found.told) > _SHOWN:
        yield f"and {len(found.told) - _SHOWN} more things to know: --json lists all."
    if found.kept_in:
        yield f"The old files are kept in {found.kept_in}. Replaced values are in each task's entry under `imported`."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _some(words: list[str]) -> str:
    return ", ".join(words[:_SHOWN]) + (f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else "")
