"""`remit board` as typer reads it: the tasks as they stand, one task in full, boards of others imported. What they do is `board`'s."""

from typing import Any, ClassVar

import typer

from remit.cli.board import Every, Html, Language, Priority, Status, Svg, draw
from remit.cli.commands import Commands, Listed
from remit.cli.declaring import for_typer
from remit.cli.options import Json, Root
from remit.cli.output import answering


class BoardCommands(Commands):
    """`remit board` alone draws it; a number behind it shows that task."""

    table: ClassVar = {
        "show": Listed("board:show", ""),
        "import": Listed("board_import:board_import", ""),
    }

    def otherwise(self, name: str, args: list[str]) -> tuple[str, Any, list[str]] | None:
        return ("show", self.get_command(None, "show"), args) if name.lstrip("#").isdigit() else None


app = typer.Typer(
    cls=BoardCommands, invoke_without_command=True, add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False
)


@app.callback()
@for_typer
def board(
    context: typer.Context,
    status: Status = "",
    priority: Priority = "",
    language: Language = "",
    every: Every = False,
    svg: Svg = None,
    html: Html = None,
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Show the tasks: what runs, what is ready, what waits for what. `remit board N` shows one in full, `--svg` and `--html` draw them."""
    if context.invoked_subcommand is None:
        given = {"status": status, "priority": priority, "language": language, "every": every, "svg": svg, "html": html}
        answering(draw)(**given, root=root, as_json=as_json)
