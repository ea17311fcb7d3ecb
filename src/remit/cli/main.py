"""`remit`, the console script: the commands put together. Each noun is a file of its own beside this one.

Those files are imported when they are called (see `commands`), declare their options at import, and import what they work with only
when they run: `remit task` must not wait for the whole engine.
"""

import os
import sys
from typing import Annotated, Any

import typer

from remit.cli.command_file import ProjectCommands
from remit.cli.commands import Commands, Listed
from remit.cli.exits import legend
from remit.cli.output import report_usage
from remit.cli.quick import leave, run, steady_streams

TALKING = "Talking"
DELEGATING = "Delegating"
BOARD = "The board"
LOOKING = "Looking"
SETTING_UP = "Setting up"

Commands.table = {
    "ask": Listed("ask:ask", TALKING),
    "chat": Listed("chat:chat", TALKING),
    "conversations": Listed("conversations:conversations", TALKING),
    "delegate": Listed("delegate:delegate", DELEGATING),
    "tool": Listed("tool:tool", DELEGATING),
    "cancel": Listed("cancel:cancel", DELEGATING),
    "recover": Listed("recover:recover", DELEGATING),
    "workspaces": Listed("workspaces:workspaces", DELEGATING),
    "validate": Listed("validate:validate", DELEGATING),
    "task": Listed("task:task", BOARD),
    "research": Listed("research:research", BOARD),
    "plan": Listed("plan:plan", BOARD),
    "revise": Listed("revise:revise", BOARD),
    "implement": Listed("implement:implement", BOARD),
    "review": Listed("review:review", BOARD),
    "errors": Listed("errors:errors", BOARD),
    "meta": Listed("meta:meta", BOARD),
    "board": Listed("board_group:app", BOARD),
    "todo": Listed("todo:todo", BOARD),
    "status": Listed("status:status", LOOKING),
    "show": Listed("show:show", LOOKING),
    "follow": Listed("follow:follow", LOOKING),
    "history": Listed("history:history", LOOKING),
    "ledger": Listed("ledger:ledger", LOOKING),
    "metrics": Listed("metrics:metrics", LOOKING),
    "audit": Listed("audit:audit", LOOKING),
    "agents": Listed("agents:app", LOOKING),
    "roles": Listed("roles:roles", LOOKING),
    "commands": Listed("command_file:commands", LOOKING),
    "demo": Listed("demo.command:demo", SETTING_UP),
    "install": Listed("install:install", SETTING_UP),
    "doctor": Listed("doctor:doctor", SETTING_UP),
    "config": Listed("config:config", SETTING_UP),
    "models": Listed("models:models", SETTING_UP),
    "policy": Listed("policy:policy", SETTING_UP),
    "token": Listed("token:token", SETTING_UP),
    "mcp": Listed("mcp:mcp", SETTING_UP),
    "serve": Listed("serve:serve", SETTING_UP),
}
"""A line for each command: its module and function below `remit.cli`, and its heading in `remit --help`, in that order."""

app = typer.Typer(
    name="remit",
    cls=ProjectCommands,
    help="Hand work to any agent and always get an answer back: in time, in one checked shape, with whatever was done.",
    epilog=legend(),
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


USAGE_ERROR: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""What typer raises for a wrong command line; it does not give the class a public name."""


def every_command() -> dict[str, Any]:
    """All of them, loaded: for what looks at the whole command line."""
    group: Any = typer.main.get_command(app)
    return {name: group.get_command(None, name) for name in Commands.table}


@app.callback(invoke_without_command=True)
def remit(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as version_of

        print(f"remit {version_of('remit')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit


class _Quick(SystemExit):
    """The end of a command that has started nothing (see `quick.leave`)."""


def console() -> None:
    """`main`, for whoever types it."""
    try:
        main()
    except _Quick as ended:
        leave(int(ended.code or 0))


def main() -> None:
    steady_streams()
    code: Any = run(sys.argv[1:])
    if code is not None:
        raise _Quick(int(code))
    _go_on_in_trace()
    if "--json" not in sys.argv:
        app(prog_name="remit")
    try:
        code = app(prog_name="remit", standalone_mode=False)
    except USAGE_ERROR as error:  # also a command line that cannot be understood is answered in JSON, where that is asked for
        code = report_usage(error.format_message())
    sys.exit(code)


def _go_on_in_trace() -> None:
    """Started by a program that told its span: what is delegated here hangs below that."""
    if os.environ.get("TRACEPARENT"):
        from remit.core.origin import ORIGIN
        from remit.core.tracing import origin_in

        ORIGIN.set(origin_in(os.environ))


if __name__ == "__main__":
    console()
