"""Figures of past runs: `metrics`, the error `ledger`, learned `limits`, `routes` of groups, and the result `cache`."""

import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from typer import Argument, Option

from remit.agents.definition import Definition, definition_of
from remit.agents.group import read_experience
from remit.cli.arguments import parse_time
from remit.cli.exits import Exit
from remit.cli.project import NOTHING_YET, Project
from remit.cli.render import at_the_prompt, count, duration, one_line, put, say, say_aside, spent
from remit.cli.results import say_document
from remit.core.adaptive import SAMPLES, RunSample, learned_limits
from remit.core.cache import cache_prefix, cached_results
from remit.core.choice import Experience, rank
from remit.core.errors import Misused
from remit.core.metrics import (
    AVAILABILITY,
    ERRORS_BY_OPERATION,
    ERRORS_BY_TARGET,
    FAILED_STARTS,
    SUCCESS_RATE,
    TIMEOUT_RATE,
    TOTAL,
    Metrics,
    Share,
    Tally,
    metrics_of,
)
from remit.runtime.error_ledger import ErrorLedger

FULL = 20
"""Number of targets and operations listed, those with most errors first."""


def metrics(
    project: Project,
    since: Annotated[str | None, Option(help="30m, 2h, 1d ago, or an ISO time. Default: everything on record.")] = None,
) -> Exit:
    """Show totals, rates and latency of delegations, errors by target and operation, and alerts.

    Exits 0 also when there are alerts."""
    now = time.time()
    begin = parse_time(since, "--since", now)
    with project.history() as store:
        found = metrics_of(Tally() if store is None else store.tally(begin, None), since=begin, until=now)
    empty = NOTHING_YET if store is None else "Nothing was delegated in that time."
    return project.answer(found.to_dict, (lambda: _print_metrics(found)) if found.total else empty)


def _print_metrics(found: Metrics) -> None:
    """Each figure, then the limits that are passed."""
    rows = {TOTAL.name: f"{found.total:,}", SUCCESS_RATE.name: _share(found.success), TIMEOUT_RATE.name: _share(found.timeout)}
    rows |= {f"delegation.latency.{name}": "-" if value is None else duration(value) for name, value in found.latency.items()}
    rows["delegation.tokens"] = spent(found.tokens, found.cost)
    for metric, shares in ((ERRORS_BY_TARGET, found.errors_by_target), (ERRORS_BY_OPERATION, found.errors_by_operation)):
        worst = sorted(shares.items(), key=lambda item: (-(item[1].rate or 0.0), -item[1].total, item[0]))
        rows |= {f"{metric.name} {name}": _share(share) for name, share in worst[:FULL]}
    for name, times in _most(found.failed_starts):
        rows |= {f"{FAILED_STARTS.name} {name}": f"{times:,}", f"{AVAILABILITY.name} {name}": _share(found.availability[name])}
    rows |= {f"delegation.tokens.by_operation {name}": f"{tokens:,}" for name, tokens in _most(found.tokens_by_operation)}
    width = max(map(len, rows))
    for name, value in rows.items():
        if value:
            put(value, f"{name:<{width}}  ")
    alerts = [one.to_dict() for one in found.alerts()]
    if alerts:
        say_document({"alerts": alerts})
    say(f"\n! {count(len(alerts), 'alert')}." if alerts else "\nNo alert.")


def _most(numbers: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(numbers.items(), key=lambda item: (-item[1], item[0]))[:FULL]


def _share(share: Share) -> str:
    return "-" if share.rate is None else f"{100 * share.rate:.1f} % ({share.count:,} of {share.total:,})"


def ledger(
    project: Project,
    type_: Annotated[str | None, Option("--type", metavar="TYPE", help="Only errors of this type (or with this code).")] = None,
) -> Exit:
    """List recorded errors, the latest first, with how often each occurred and what to do."""
    errors = ErrorLedger(project.folder / "errors.json")
    entries = [entry for entry in errors.entries() if type_ is None or type_ in (entry.type, entry.code)]
    if errors.set_aside_path is not None:
        say_aside(f"The ledger was damaged: it is kept as {errors.set_aside_path.name} beside the new one.")
    rows = [
        {
            "code": entry.code or entry.type,
            "agent": entry.origin,
            "times": entry.recurrence_count,
            "last": entry.last_seen,
            "status": entry.fix_status,
            "message": one_line(entry.message, 300),
            "advice": one_line(at_the_prompt(str(entry.context.get("recommendation", ""))), 200),
        }
        for entry in entries
    ]
    empty = "The error ledger has no such error."
    return project.answer({"errors": [entry.to_dict() for entry in entries]}, (lambda: say_document({"errors": rows})) if rows else empty)


# ---- limits, groups and the cache: what is learned from runs and used again


ADAPTIVE = {
    "off": "not sought",
    "observe": 'noted with a delegation, and not used (adaptive_limits = "on" uses them)',
    "on": "used unless the caller or the agent sets one",
}


def limits(project: Project, agent: Annotated[str | None, Argument(metavar="AGENT", help="Only this agent.")] = None) -> Exit:
    """Show the timeout and idle limit of each agent that has run, and what was learned from its runs."""
    directory, mode = project.directory, project.settings.adaptive_limits
    if agent is not None and directory.find(agent) is None:
        raise Misused(f"There is no agent named {agent!r}.", code="INVALID_TARGET", advice="`remit agents` lists all.")
    with project.history() as store:
        names = sorted(store.newest_by_agent(0)) if store is not None else []
        runs = {name: store.durations(name) for name in names if agent in (None, name)} if store is not None else {}
    found = [_learned(project, name, samples) for name, samples in runs.items() if samples]
    times = ("timeout", "learned_timeout", "idle", "learned_idle")
    rows = [{f"{name}_seconds" if name in times else name: value for name, value in one.items()} for one in found]

    def shown() -> None:
        say_document({"agents": rows})
        say(f"\nadaptive_limits is {mode}: learned limits are {ADAPTIVE[mode]}.")

    empty = f"No agent has completed a run yet, so nothing was learned (adaptive_limits is {mode})."
    return project.answer({"adaptive_limits": mode, "agents": found}, shown if found else empty)


def _learned(project: Project, name: str, samples: Sequence[RunSample]) -> dict[str, Any]:
    known, settings = project.directory.find(name), project.settings.limits_for(name)
    spec = None if known is None else known.spec
    completed = sum(one.is_completed for one in samples)
    learned = learned_limits(samples, settings)
    enough = "the settings suffice" if completed >= SAMPLES else f"{SAMPLES - completed} more completed runs are needed"
    return {
        "agent": name,
        "completed": completed,
        "stopped": len(samples) - completed,
        "timeout": settings.default_seconds if spec is None or spec.timeout_seconds is None else spec.timeout_seconds,
        "learned_timeout": None if learned is None else learned.timeout_seconds,
        "idle": None if spec is None else spec.idle_seconds,
        "learned_idle": None if learned is None or (spec is not None and spec.acts_for_caller) else learned.idle_seconds,
        "why": enough if learned is None else learned.reason,
    }


CHANCES = 1_000
"""Number of draws used to estimate the share of each member."""


def routes(project: Project, group: Annotated[str | None, Argument(metavar="GROUP", help="Explain this one.")] = None) -> Exit:
    """List the groups of agents, or explain one: what is known of each member, and how often it would be chosen now."""
    tables = {name: table for name, table in project.settings.agents.items() if "group" in table}
    found = {name: definition_of(name, table, source=f"[agents.{name}]") for name, table in tables.items()}
    if group is None:
        listed = [{"group": name, "members": list(one.group), "by": str(one.by)} for name, one in found.items()]
        empty = 'There is no group. Declare one in remit.toml: [agents.coders] group = ["claude", "codex"]'
        return project.answer({"groups": listed}, None if listed else empty)
    if group not in found:
        raise Misused(f"There is no group named {group!r}.", code="INVALID_TARGET", advice="`remit routes` lists the groups.")
    return project.answer(_explained(project, found[group]))


def _explained(project: Project, group: Definition) -> dict[str, Any]:
    with project.history() as store:
        experience = Experience() if store is None else read_experience(store, group.spec.name)
        loads = Counter() if store is None else Counter(record.agent for record in store.live())
    rows = []
    for context in experience.contexts() or ["general"]:
        chance = random.Random(0)
        ranks = [rank(group.by, group.group, context, experience, loads, chance) for _ in range(CHANCES)]
        first = Counter(ranking[0].member for ranking in ranks)
        words = {score.member: score.words for score in ranks[0]}
        rows += [
            {"context": context, "member": member, "known": words[member], "load": loads[member], "chosen": first[member] / CHANCES}
            for member in group.group
        ]
    return {"group": group.spec.name, "by": str(group.by), "outcomes": experience.count, "members": rows}


Cached = Annotated[str | None, Argument(metavar="AGENT", help="Only results of this agent.")]


def cache(project: Project, agent: Cached = None) -> Exit:
    """List results of agents that declare `cache`, of the delegations on record; `clear` forgets them."""
    with project.history() as store:
        found = [] if store is None else cached_results(store, agent)
    documents = [{"session_id": one.session_id, "agent": one.agent, "parameters": one.parameters, "at": one.created_at} for one in found]
    empty = "No result is cached. An agent that only reads may declare cache: see `remit agents`."
    return project.answer({"results": documents}, None if found else empty)


def clear_cache(project: Project, agent: Cached = None) -> Exit:
    """Use no result again that is cached now. The delegations stay in the history."""
    with project.history() as store:
        dropped = 0 if store is None else store.drop_keys(cache_prefix(agent))
    return project.answer({"cleared": dropped}, f"{count(dropped, 'result')} forgotten.")
