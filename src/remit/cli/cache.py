"""`remit cache`: list cached results, or clear them."""

from typing import Annotated

from typer import Argument

from remit.cli.exits import Exit
from remit.cli.project import Project
from remit.cli.render import count
from remit.core.cache import cache_prefix, cached_results

Agent = Annotated[str | None, Argument(metavar="AGENT", help="Only results of this agent.")]


def cache(project: Project, agent: Agent = None) -> Exit:
    """List results of agents that declare `cache`, of the delegations on record; `clear` forgets them."""
    with project.history() as store:
        found = [] if store is None else cached_results(store, agent)
    documents = [{"session_id": one.session_id, "agent": one.agent, "parameters": one.parameters, "at": one.created_at} for one in found]
    empty = "No result is cached. An agent that only reads may declare cache: see `remit agents`."
    return project.answer({"results": documents}, None if found else empty)


def clear(project: Project, agent: Agent = None) -> Exit:
    """Use no result again that is cached now. The delegations stay in the history."""
    with project.history() as store:
        dropped = 0 if store is None else store.drop_keys(cache_prefix(agent))
    return project.answer({"cleared": dropped}, f"{count(dropped, 'result')} forgotten.")
