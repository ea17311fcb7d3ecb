"""Board commands that agents handle by declaration: `operations` and `languages` as rules of the routing table.

The settings take precedence, the built-in table comes last. `Routes` is the table of an open project: one object whose rules follow the
registered agents. Pure; used by `app`, `agents.directory` and the command line."""

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches

from remit.core.agents import AgentSpec
from remit.core.routing import DEFAULT_TABLE, RoutingTable, Rule

IN_PROCESS = "in_process"


class Routes:
    def __init__(self, base: RoutingTable) -> None:
        self._base = base
        self._commands = dict(base.commands)
        self.table = RoutingTable(commands=self._commands)

    def follow(self, specs: Iterable[AgentSpec]) -> None:
        """Route to these agents from now on. Called on the loop, between two decisions."""
        self._commands.update(with_agents(self._base, specs).commands)


def with_agents(table: RoutingTable, specs: Iterable[AgentSpec]) -> RoutingTable:
    """The table with the rules of these agents inserted."""
    added: dict[str, list[Rule]] = {}
    for spec in specs:
        for command in spec.operations:
            if command in open_commands(table):
                known = _parts(command, table)[1] or tuple(table.commands[command])
                added.setdefault(command, []).extend(_rules(spec, known))
    commands = dict(table.commands)
    for command, rules in added.items():
        before, behind = _parts(command, table)
        # An agent that names the task's language takes precedence over one for all languages, in any order.
        commands[command] = (*before, *sorted(rules, key=lambda rule: rule.language is None), *behind)
    return RoutingTable(commands=commands)


def open_commands(table: RoutingTable) -> list[str]:
    """Commands that delegate to a replaceable agent."""
    return [name for name, rules in table.commands.items() if any(rule.agent and rule.mode != IN_PROCESS for rule in rules)]


def operation_problems(specs: Iterable[AgentSpec], table: RoutingTable) -> Iterator[tuple[AgentSpec, str]]:
    """Operations that have no effect for the agent that declares them, as text."""
    taken: dict[tuple[str, str | None], str] = {}
    known = open_commands(table)
    for spec in specs:
        for command in spec.operations:
            if command not in known:
                close = get_close_matches(command, known, n=1)
                hint = f" (did you mean {close[0]}?)" if close else f"; there are {', '.join(known)}"
                yield spec, f"operations: there is no command {command!r:.60} that agents carry out{hint}."
                continue
            for language in spec.languages or (None,):
                other = taken.setdefault((command, language), spec.name)
                if other != spec.name:
                    what = f"/{command}" + (f" of {language} tasks" if language else "")
                    yield spec, f"operations: {what} goes to {other} already."


def routed_words(spec: AgentSpec) -> str:
    """`/implement, /review of rust tasks`"""
    commands = ", ".join(f"/{name}" for name in spec.operations)
    return f"{commands} of {' and '.join(spec.languages)} tasks" if spec.languages else commands


def _rules(spec: AgentSpec, known: tuple[Rule, ...]) -> Iterator[Rule]:
    """Copies of the table's rules with this agent; mode and following agents stay."""
    for language in spec.languages or (None,):
        alike = [rule for rule in known if rule.language == language] or [rule for rule in known if rule.language is None]
        for has_plan, mode, then in dict.fromkeys((rule.has_plan, rule.mode, rule.then) for rule in alike) or [(None, "", ())]:
            yield Rule(agent=spec.name, mode=mode, then=then, language=language, has_plan=has_plan)


def _parts(command: str, table: RoutingTable) -> tuple[tuple[Rule, ...], tuple[Rule, ...]]:
    """The rules of the settings for a command, and those of the built-in table."""
    rules: Mapping[str, tuple[Rule, ...]] = table.commands
    default = DEFAULT_TABLE.commands.get(command, ())
    said = rules[command]
    count = len(said) - len(default)
    return (said[:count], said[count:]) if default and said[count:] == default else (said, ())
