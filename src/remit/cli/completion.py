"""Shell completion of agents, parameters, sessions and tasks. Runs no project code and shows no errors."""

import contextlib
import io
from collections.abc import Callable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from remit.cli.project import Project

Values = list[tuple[str, str]]
SESSIONS = 50
"""Number of newest sessions offered."""


def _quietly(list_values: Callable[["Project", dict[str, Any]], Iterator[tuple[str, str]]]) -> Callable[[typer.Context, str], Values]:
    """Adapt a completion function to typer, which passes the words typed so far and the current prefix."""

    @wraps(list_values)
    def complete(ctx: typer.Context, incomplete: str) -> Values:
        from remit.cli.project import Project

        found: Values = []
        with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(Exception):  # a shell must not show a traceback
            found += [
                (value, help_) for value, help_ in list_values(Project(ctx.params.get("root")), ctx.params) if value.startswith(incomplete)
            ]
        return found

    complete.__annotations__ = {"ctx": typer.Context, "incomplete": str}
    del complete.__wrapped__  # typer reads the signature
    return complete


@_quietly
def agents(project: "Project", _typed: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for spec in project.directory.specs():
        yield spec.name, spec.description.partition("\n")[0][:80]


@_quietly
def parameters(project: "Project", typed: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """`name=` for each parameter of the agent that is not given yet."""
    given = {one.partition("=")[0] for one in typed.get("parameters") or ()}
    agent = project.directory.find(str(typed.get("agent")))
    schema = agent.spec.parameters_schema if agent is not None else {}
    for name, described in schema.get("properties", {}).items():
        if name not in given:
            yield f"{name}=", str(described.get("description", ""))[:80]


@_quietly
def sessions(project: "Project", _typed: dict[str, Any]) -> Iterator[tuple[str, str]]:
    from remit.core.record import HistoryQuery

    yield "last", "the newest"
    with project.history() as store:
        for record in store.history(HistoryQuery(limit=SESSIONS)) if store is not None else ():
            yield record.session_id, f"{record.agent}: {record.state}"


@_quietly
def tasks(project: "Project", _typed: dict[str, Any]) -> Iterator[tuple[str, str]]:
    from remit.board.board import Board

    for task in Board(project.root).look().state.tasks:
        yield str(task.number), task.title[:80]
