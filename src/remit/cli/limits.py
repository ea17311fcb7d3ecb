"""`remit limits`: the time limits of each agent, from the settings and learned from its runs."""

from typing import Annotated, Any

from typer import Argument

from remit.cli.exits import Exit
from remit.cli.project import Project
from remit.cli.render import duration, say, say_table
from remit.core.adaptive import SAMPLES, learned_limits
from remit.core.agents import AgentSpec
from remit.core.errors import Misused
from remit.core.ports import Store

USES = {
    "off": "not sought",
    "observe": 'noted with a delegation, and not used (adaptive_limits = "on" uses them)',
    "on": "used unless the caller or the agent sets one",
}


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
    document = {"adaptive_limits": mode, "agents": found}
    text = (lambda: _print(mode, found)) if found else empty
    return project.answer(document, text)


def _print(mode: str, found: list[dict[str, Any]]) -> None:
    times = ("timeout", "learned_timeout", "idle", "learned_idle")
    rows = [{**one, **{name: "" if one[name] is None else duration(one[name]) for name in times}} for one in found]
    say_table([{name.replace("_", " "): value for name, value in row.items()} for row in rows], shrinking=("why",))
    say(f"\nadaptive_limits is {mode}: learned limits are {USES[mode]}.")


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
