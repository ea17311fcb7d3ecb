"""`remit limits`: the time limits of each agent, from the settings and learned from its runs."""

from typing import Annotated, Any

from typer import Argument

from remit.cli.exits import Exit
from remit.cli.project import Project
from remit.core.adaptive import SAMPLES, learned_limits
from remit.core.agents import AgentSpec
from remit.core.errors import Misused
from remit.core.ports import Store


def limits(project: Project, agent: Annotated[str | None, Argument(metavar="AGENT", help="Only this agent.")] = None) -> Exit:
    """Show the timeout and idle limit of each agent that has run, and what was learned from its runs."""
    directory, mode = project.directory, project.settings.adaptive_limits
    if agent is not None and directory.find(agent) is None:
        raise Misused(f"There is no agent named {agent!r}.", code="INVALID_TARGET", advice="`remit agents` lists all.")
    found: list[dict[str, Any]] = []
    with project.history() as store:
        for name in sorted(store.newest_by_agent(0)) if store is not None else ():
            known = directory.find(name)
            if agent in (None, name) and store is not None:
                found += _look(store, name, None if known is None else known.spec, project)
    empty = f"No agent has completed a run yet, so nothing was learned (adaptive_limits is {mode})."
    return project.answer({"adaptive_limits": mode, "agents": found}, None if found else empty)


def _look(store: Store, name: str, spec: AgentSpec | None, project: Project) -> list[dict[str, Any]]:
    samples, settings = store.durations(name), project.settings.limits_for(name)
    if not samples:
        return []
    completed = sum(one.is_completed for one in samples)
    learned = learned_limits(samples, settings)
    timeout, idle = (None, None) if learned is None else (learned.timeout_seconds, learned.idle_seconds)
    if spec is not None and spec.acts_for_caller:
        idle = None
    if learned is None:
        why = "the settings suffice" if completed >= SAMPLES else f"{SAMPLES - completed} more completed runs are needed"
    else:
        why = learned.reason
    return [
        {
            "agent": name,
            "completed": completed,
            "stopped": len(samples) - completed,
            "timeout": settings.default_seconds if spec is None or spec.timeout_seconds is None else spec.timeout_seconds,
            "learned_timeout": timeout,
            "idle": None if spec is None else spec.idle_seconds,
            "learned_idle": idle,
            "why": why,
        }
    ]
