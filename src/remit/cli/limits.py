"""`remit limits`: the time limits of each agent, from the settings and learned from its runs."""

from typing import Annotated, Any

from typer import Argument

from remit.cli.exits import Exit
from remit.cli.project import Project
from remit.cli.render import console, duration, say, table
from remit.core.adaptive import SAMPLES, LearnedLimits, learned_limits, percentile
from remit.core.agents import AgentSpec
from remit.core.deadline import TimeLimits
from remit.core.errors import Misused
from remit.core.ports import Store

MODES = {
    "off": "adaptive_limits is off: nothing is learned.",
    "observe": 'adaptive_limits is observe: learned limits are noted with a delegation, and not used. adaptive_limits = "on" uses them.',
    "on": "adaptive_limits is on: learned limits apply unless the caller or the agent sets one.",
}


def limits(project: Project, agent: Annotated[str | None, Argument(metavar="AGENT", help="Only this agent.")] = None) -> Exit:
    """Show the timeout and idle limit of each agent that has run, and what was learned from its runs."""
    directory, settings = project.directory, project.settings
    if agent is not None and directory.find(agent) is None:
        raise Misused(f"There is no agent named {agent!r}.", code="INVALID_TARGET", advice="`remit agents` lists all.")
    with project.history() as store:
        names = [] if store is None else [agent] if agent is not None else sorted(store.newest_by_agent(0))
        found = [one for name in names if (one := _look(store, name, directory.find(name), settings.limits_for(name))) is not None]
    documents: dict[str, Any] = {"adaptive_limits": settings.adaptive_limits, "agents": found}

    def shown() -> None:
        if found:
            _print(found)
        else:
            say("No agent has completed a run yet, so nothing was learned.")
        say(MODES[settings.adaptive_limits])

    return project.answer(documents, shown)


def _look(store: Store | None, name: str, agent: Any, limits: TimeLimits) -> dict[str, Any] | None:
    samples = [] if store is None else store.durations(name)
    spec: AgentSpec | None = None if agent is None else agent.spec
    if not samples:
        return None
    completed = [one.seconds for one in samples if one.is_completed]
    learned = learned_limits(samples, limits)
    if learned is not None and spec is not None and spec.acts_for_caller:
        learned = learned._replace(idle_seconds=None) if learned.timeout_seconds is not None else None
    return {
        "agent": name,
        "completed": len(completed),
        "stopped": len(samples) - len(completed),
        "p99": percentile(completed) if completed else None,
        "timeout": limits.default_seconds if spec is None or spec.timeout_seconds is None else spec.timeout_seconds,
        "maximum": limits.maximum_seconds,
        "idle": None if spec is None else spec.idle_seconds,
        "learned_timeout": None if learned is None else learned.timeout_seconds,
        "learned_idle": None if learned is None else learned.idle_seconds,
        "why": _why(learned, len(completed), spec),
    }


def _why(learned: LearnedLimits | None, completed: int, spec: AgentSpec | None) -> str:
    if learned is None:
        return "the settings suffice" if completed >= SAMPLES else f"{SAMPLES - completed} more completed runs are needed"
    is_declared = spec is not None and spec.timeout_seconds is not None
    return learned.reason + ("; the agent declares its timeout, which applies" if is_declared and learned.timeout_seconds else "")


def _print(found: list[dict[str, Any]]) -> None:
    shown = table("agent", "runs", "stopped", "p99", "timeout", "learned", "idle", "learned", "why", shrinking=("why",))
    for one in found:
        cells = [
            duration(one[key]) if one[key] is not None else "" for key in ("p99", "timeout", "learned_timeout", "idle", "learned_idle")
        ]
        shown.add_row(one["agent"], str(one["completed"]), str(one["stopped"] or ""), *cells, one["why"])
    console().print(shown)
