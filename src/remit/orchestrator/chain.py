"""Agents in a row, as a route names them (`then`): each with what the one before it returned, to the first that does not complete (S7).

Knows no command; `errors` uses it. Under the name of a run, a step that had completed before a crash is not run again.
"""

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from remit.app import Remit
from remit.core.record import Record
from remit.core.result import Return, Status
from remit.flow.route import GENERAL, Route, route
from remit.orchestrator.outcome import Waiting, plainly
from remit.system.threads import off_loop

Asking = Callable[[str, Return | None], Awaitable[Mapping[str, Any]]]
"""What the next agent is asked, by its name and the return before it; called when its turn comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """One run of a chain."""

    command: str
    context: Mapping[str, Any] = field(default_factory=dict)
    """The task as the flow takes it."""
    run: str = ""
    """Names the steps, so that they are found again."""
    timeout: float | None = None
    """Seconds for all of them together."""
    begun: Callable[[str], Awaitable[None]] | None = None
    """Told each session as soon as it is recorded."""
    waiting: Waiting = plainly


def route_of(remit: Remit, command: str, context: Mapping[str, Any]) -> Route:
    return route(command, str(context.get("language") or GENERAL), bool(context.get("has_plan")), remit.settings.routing)


def recorded(remit: Remit, links: Links) -> list[Record | None]:
    """What is on record of each step of a run that may have ended before its time, in order. Blocking."""
    chosen = route_of(remit, links.command, links.context)
    return [remit.store.by_key(_key(links.run, *step)) if links.run else None for step in enumerate((chosen.agent or "", *chosen.then))]


async def chained(remit: Remit, links: Links, ask: Asking) -> list[Return]:
    """The returns, in order. The last one is the first that did not complete, or that of the last agent."""
    chosen = route_of(remit, links.command, links.context)
    limit = links.timeout if links.timeout is not None else remit.settings.limits_for(links.command).default_seconds
    ends_at = remit.clock.monotonic() + limit
    returns: list[Return] = []
    for place, agent in enumerate((chosen.agent or "", *chosen.then)):
        before = returns[-1] if returns else None
        if before is not None and before.status is not Status.COMPLETED:
            break
        key = _key(links.run, place, agent) if links.run else None
        found = await _completed_before(remit, key)
        if found is None:
            parameters = dict(await ask(agent, before))
            target = f"/{links.command}" if place == 0 else agent
            # The first is held to the limits of the command; whoever follows has what is left of them.
            seconds = links.timeout if place == 0 else max(1.0, min(ends_at - remit.clock.monotonic(), _most(remit, agent)))
            found = await _run(remit, target, links, parameters, seconds, key)
        returns.append(found)
    return returns


def _key(run: str, place: int, agent: str) -> str:
    return f"{run}-{place}-{agent}"


async def _run(remit: Remit, target: str, links: Links, parameters: dict[str, Any], seconds: float | None, key: str | None) -> Return:
    if key is not None and await off_loop(remit.store.by_key, key) is not None:
        key = f"{key}-{secrets.token_hex(4)}"  # that one was begun and came to nothing
    handle = await remit.start(target, task=dict(links.context), parameters=parameters, timeout=seconds, key=key)
    if links.begun is not None:
        await links.begun(handle.session_id)
    return await links.waiting(remit, handle)


async def _completed_before(remit: Remit, key: str | None) -> Return | None:
    record = await off_loop(remit.store.by_key, key) if key is not None else None
    is_done = record is not None and record.result is not None and record.result.status is Status.COMPLETED
    return record.result if record is not None and is_done else None


def _most(remit: Remit, agent: str) -> float:
    return remit.settings.limits_for(agent).maximum_seconds
