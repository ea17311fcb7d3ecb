"""The steps CheckLanguage and PrepareRouting: choose the agent for a command.

Pure: the table comes from `settings`, the task from the caller. Whether the agent exists is checked by `runtime.accept`."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import NamedTuple

from remit.core.delegation import TaskContext
from remit.core.errors import Misused, Refused

GENERAL = "general"


class Rule(NamedTuple):
    """One line of the table. A condition of None always matches; the first matching rule decides."""

    agent: str | None
    """None: the command delegates nothing."""
    mode: str = ""
    """How the agent works: phased, simple, direct, revision, in_process."""
    then: tuple[str, ...] = ()
    """Agents that follow, each with the return of the previous one."""
    language: str | None = None
    has_plan: bool | None = None

    def holds(self, language: str, has_plan: bool) -> bool:
        return self.language in (None, language) and self.has_plan in (None, has_plan)


class RoutingTable(NamedTuple):
    """Rules by command; the first that fits decides."""

    commands: Mapping[str, tuple[Rule, ...]]

    def extended(self, rules: Mapping[str, Iterable[Rule]]) -> "RoutingTable":
        """This table with `rules` before its own: they add languages, agents and commands and override built-in routes."""
        merged = dict(self.commands)
        for command, added in rules.items():
            merged[command] = (*added, *merged.get(command, ()))
        return RoutingTable(commands=merged)


class Route(NamedTuple):
    command: str
    agent: str | None
    """None: nothing is delegated."""
    mode: str
    then: tuple[str, ...]
    log_line: str


DEFAULT_TABLE = RoutingTable(
    commands={
        "research": (Rule(language="lean", agent="lean-research-agent"), Rule(agent="researcher")),
        "plan": (Rule(agent="planner"),),
        "revise": (Rule(agent="planner", mode="revision"),),
        "implement": (
            Rule(language="lean", has_plan=True, agent="lean-implementation-agent", mode="phased"),
            Rule(language="lean", has_plan=False, agent="lean-implementation-agent", mode="simple"),
            Rule(has_plan=True, agent="task-executor", mode="phased"),
            Rule(has_plan=False, agent="implementer", mode="direct"),
        ),
        "review": (Rule(agent="reviewer"),),
        "errors": (Rule(agent="error-diagnostics-agent", then=("planner",)),),
        "meta": (Rule(agent="meta-builder"),),
        "task": (Rule(agent="atomic-task-numberer", mode="in_process"),),
        "todo": (Rule(agent=None),),
    }
)
"""The default routing table."""


def language_of(task: TaskContext | None) -> tuple[str, str | None]:
    """The task's own language and, if it has none, a warning. Never guessed from text."""
    if task is None or not task.language:
        which = f"Task {task.task_number}" if task is not None and task.task_number is not None else "The task"
        return GENERAL, f"{which} names no language: {GENERAL!r} is used."
    return task.language, None


def check_language(language: str, languages: Iterable[str], table: RoutingTable) -> None:
    """Raise `Misused` unless the project has it: in the setting `languages`, or in a rule of the table, which agents extend."""
    rules = (rule for rules in table.commands.values() for rule in rules)
    known = sorted({*languages, *(rule.language for rule in rules if rule.language is not None)})
    if language not in known:
        close = get_close_matches(language, known, n=1)
        meant = f"Did you mean {close[0]}? " if close else ""
        advice = f"{meant}There are {', '.join(known)}; the setting `languages` in remit.toml adds others."
        raise Misused(f"This project has no language {language!r:.60}.", advice=advice)


def route(command: str, language: str, has_plan: bool, table: RoutingTable, *, task_number: int | None = None) -> Route:
    """The agent for `command` (with or without its slash), and the log line of the decision."""
    name = command.removeprefix("/")
    rules = table.commands.get(name)
    if rules is None:
        raise _unknown(name, table)
    rule = next((one for one in rules if one.holds(language, has_plan)), None)
    if rule is None:
        raise Misused(
            f"No route for /{name} with language={language}, has_plan={str(has_plan).lower()}.",
            code="INVALID_TARGET",
            advice=f"Add a rule without conditions to [[routing.{name}]] in remit.toml.",
        )
    return Route(
        command=name,
        agent=rule.agent,
        mode=rule.mode,
        then=rule.then,
        log_line=_log_line(name, rules, rule, language, has_plan, task_number),
    )


def check_route(chosen: Route, language: str, has_plan: bool, table: RoutingTable) -> None:
    """Check again before dispatch that the table still names this agent."""
    facts = f"language={language}, has_plan={str(has_plan).lower()}, agent={chosen.agent}"
    expected = route(chosen.command, language, has_plan, table)
    if (chosen.agent, chosen.mode, chosen.then) != (expected.agent, expected.mode, expected.then):
        mode = f" ({expected.mode})" if expected.mode else ""
        raise Refused(
            f"Routing validation failed for /{chosen.command}: {facts}; the table says {expected.agent}{mode}.",
            code="VALIDATION_FAILED",
            advice="Route again: the task or the routing table changed since the decision.",
        )


def _log_line(name: str, rules: tuple[Rule, ...], rule: Rule, language: str, has_plan: bool, task_number: int | None) -> str:
    """`Routing /research (task 195, Language: lean) to lean-research-agent`: with only the facts that this command's rules use."""
    facts = [f"task {task_number}"] if task_number is not None else []
    if any(r.language is not None for r in rules):
        facts.append(f"Language: {language}")
    if any(r.has_plan is not None for r in rules):
        facts.append(f"has_plan: {str(has_plan).lower()}")
    subject = f"Routing /{name}" + (f" ({', '.join(facts)})" if facts else "")
    if rule.agent is None:
        return f"{subject} to no agent: nothing is delegated"
    shown_mode = f" ({rule.mode})" if rule.mode else ""
    return f"{subject} to {' → '.join((rule.agent, *rule.then))}{shown_mode}"


def _unknown(name: str, table: RoutingTable) -> Misused:
    close = get_close_matches(name, table.commands, n=1)
    hint = f"Did you mean /{close[0]}? " if close else ""
    known = ", ".join(f"/{c}" for c in table.commands)
    return Misused(f"Unknown command /{name}.", code="INVALID_TARGET", advice=f"{hint}Known: {known}.")
