"""`remit cache`: list cached results, or clear them."""

import time
from typing import Annotated

from typer import Argument

from remit.cli.exits import Exit
from remit.cli.project import Project
from remit.cli.render import console, count, cut, table, when
from remit.core.cache import cache_prefix, cached_results
from remit.core.errors import Misused
from remit.core.record import Record

Agent = Annotated[str | None, Argument(metavar="AGENT", help="Only results of this agent.")]


def cache(project: Project, agent: Agent = None) -> Exit:
    """List results of agents that declare `cache`, of the delegations on record; `clear` forgets them."""
    with project.history() as store:
        found = [] if store is None else cached_results(store, _name(agent))
    text = (lambda: _print(found)) if found else "No result is cached. An agent that only reads may declare cache: see `remit agents`."
    documents = [{"session_id": one.session_id, "agent": one.agent, "parameters": one.parameters, "at": one.created_at} for one in found]
    return project.answer({"results": documents}, text)


def clear(project: Project, agent: Agent = None) -> Exit:
    """Use no result again that is cached now. The delegations stay in the history."""
    with project.history() as store:
        dropped = 0 if store is None else store.drop_keys(cache_prefix(_name(agent)))
    return project.answer({"cleared": dropped}, f"{count(dropped, 'result')} forgotten.")


def _name(agent: str | None) -> str | None:
    if agent is not None and ":" in agent:
        raise Misused(f"{agent!r} is not the name of an agent.", advice="`remit cache` lists what is cached.")
    return agent


def _print(found: list[Record]) -> None:
    shown, now = table("agent", "parameters", "session", "began", shrinking=("parameters",)), time.time()
    for one in found:
        words = ", ".join(f"{name}={value}" for name, value in one.parameters.items())
        shown.add_row(one.agent, cut(words), one.session_id, when(one.created_at, now))
    console().print(shown)
