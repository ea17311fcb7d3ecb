"""`remit meta "TEXT"`: have a new agent or command of the project written (S6.9)."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from remit.cli.errands import DryRun, Timeout
from remit.cli.exits import Exit
from remit.cli.options import Json, Root

if TYPE_CHECKING:
    from remit.orchestrator.meta import MetaRequest


def meta(
    text: Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="What the agent or command is for, in your words.")] = None,
    as_agent: Annotated[bool, typer.Option("--agent", help="An agent file, .remit/agents/NAME.md (the default).")] = False,
    as_command: Annotated[bool, typer.Option("--command", help="A command file, .remit/commands/NAME.md.")] = False,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Default: made from the words.", show_default=False)] = None,
    timeout: Timeout = None,
    dry_run: DryRun = False,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Have a new agent or a new command written from a description; it is filed only if it loads."""
    import asyncio

    from remit.cli.commands import Commands
    from remit.cli.project import find_root
    from remit.cli.values import seconds
    from remit.core.errors import Misused
    from remit.orchestrator.meta import Kind, MetaRequest

    if as_agent and as_command:
        raise Misused("--agent and --command exclude one another.", advice="Name one of them; an agent is the default.")
    wish = MetaRequest(
        text=" ".join(text or ()),
        kind=Kind.COMMAND if as_command else Kind.AGENT,
        name=name,
        timeout=seconds(timeout, "--timeout"),
        built_in_commands=tuple(Commands.table),
    )
    folder = find_root(root)
    return _rehearse(folder, wish, as_json=as_json) if dry_run else asyncio.run(_meta(folder, wish, as_json=as_json))


async def _meta(folder: Path, wish: "MetaRequest", *, as_json: bool) -> Exit:
    from remit.app import Remit
    from remit.cli.approving import person_here
    from remit.cli.outcomes import Shown, answer
    from remit.orchestrator.meta import meta as build

    shown = Shown(as_json=as_json)
    async with Remit.open(folder, recover=False, approver=person_here()) as remit:
        outcome = await build(remit, wish, waiting=shown)
        return answer(outcome, as_json=as_json, was_interrupted=shown.was_interrupted)


def _rehearse(folder: Path, wish: "MetaRequest", *, as_json: bool) -> Exit:
    from remit.cli.outcomes import answer
    from remit.cli.project import open_directory, routed_settings
    from remit.orchestrator.meta import dry_run_meta

    directory = open_directory(folder)
    outcome = dry_run_meta(folder, routed_settings(folder, directory), directory.find, wish, directory.names())
    return answer(outcome, as_json=as_json)
