"""Commands that are imported when they are called: `remit task` must not wait for what `remit doctor` needs.

A group as typer wants it, over a table of names and places. It knows no command itself: `main` holds the table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup

from remit.cli.output import answering
from remit.cli.quick import found_at


@dataclass(frozen=True, slots=True)
class Listed:
    """One command: where its function is, and under which heading `--help` shows it."""

    place: str
    """`module:function` below `remit.cli`; a function that returns an `Exit`, or a `typer.Typer` with commands of its own."""
    panel: str


class Commands(TyperGroup):
    """`remit`: a command is loaded when its name is typed, all of them for `--help`."""

    table: ClassVar[Mapping[str, Listed]] = {}
    _is_offering = False

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = self.commands.get(cmd_name)
        if found is None and cmd_name in self.table and self._is_offering:
            return _name_alone(cmd_name, self.table[cmd_name])
        if found is None and cmd_name in self.table:
            found = self.commands[cmd_name] = loaded(cmd_name, self.table[cmd_name])
        return found

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        if self.get_command(ctx, name) is not None or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        other = self.otherwise(name, args)
        if other is None:
            close = get_close_matches(name, self.table, n=1)
            ctx.fail(f"No such command {name!r}." + (f" Did you mean {close[0]!r}?" if close else ""))
        return other

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """The names, for the shell to offer: none of the commands is loaded for that."""
        self._is_offering = True
        try:
            return super().shell_complete(ctx, incomplete)
        finally:
            self._is_offering = False

    def otherwise(self, name: str, args: list[str]) -> tuple[str, Any, list[str]] | None:
        """For a name that is in no table: what it is called, the command and its arguments; None: there is none."""
        return None


def loaded(name: str, listed: Listed) -> Any:
    """The command as typer runs it."""
    function = found_at(listed.place)
    if isinstance(function, typer.Typer):
        command = typer.main.get_command(function)
        command.name = name
        command.rich_help_panel = listed.panel  # type: ignore[attr-defined]
        return command
    return single(name, function, listed.panel)


def _name_alone(name: str, listed: Listed) -> Any:
    """For being listed, never for being called."""
    app = typer.Typer(add_completion=False)
    app.command(name, help=listed.panel)(lambda: None)
    return typer.main.get_command(app)


def single(name: str, function: Any, panel: str = "", **more: Any) -> Any:
    """One function as a command."""
    app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
    app.command(name, rich_help_panel=panel or None, **more)(answering(function))
    return typer.main.get_command(app)
