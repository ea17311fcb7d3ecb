"""`remit`, the console script: the commands put together. Each noun is a file of its own beside this one.

Those files declare their options at import and import what they work with only when they run: `remit --help` and `remit validate`
must not wait for the whole engine.
"""

import sys
from typing import Annotated, Any

import typer

from remit.cli import (
    agents,
    audit,
    cancel,
    config,
    delegate,
    doctor,
    follow,
    history,
    install,
    ledger,
    mcp,
    policy,
    recover,
    show,
    status,
    tool,
    validate,
    workspaces,
)
from remit.cli.demo.command import demo
from remit.cli.exits import legend
from remit.cli.output import answering, report_usage

app = typer.Typer(
    name="remit",
    help="Hand work to any agent and always get an answer back: in time, in one checked shape, with whatever was done.",
    epilog=legend(),
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

for name, command in (
    ("demo", demo),
    ("delegate", delegate.delegate),
    ("agents", agents.agents),
    ("tool", tool.tool),
    ("status", status.status),
    ("show", show.show),
    ("follow", follow.follow),
    ("cancel", cancel.cancel),
    ("history", history.history),
    ("ledger", ledger.ledger),
    ("recover", recover.recover),
    ("workspaces", workspaces.workspaces),
    ("validate", validate.validate),
    ("policy", policy.policy),
    ("audit", audit.audit),
    ("config", config.config),
    ("doctor", doctor.doctor),
    ("mcp", mcp.mcp),
    ("install", install.install),
):
    app.command(name)(answering(command))


USAGE_ERROR: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""What typer raises for a wrong command line; it does not give the class a public name."""


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


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without our marks shows a question mark, not a traceback
    if "--json" not in sys.argv:
        app(prog_name="remit")
    try:
        code = app(prog_name="remit", standalone_mode=False)
    except USAGE_ERROR as error:  # also a command line that cannot be understood is answered in JSON, where that is asked for
        code = report_usage(error.format_message())
    sys.exit(code)


if __name__ == "__main__":
    main()
