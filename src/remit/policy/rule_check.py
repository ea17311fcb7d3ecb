"""`remit policy check`: finds unknown actions and facts, wrong types, and rules that never match."""

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cedarpy

from remit.core.agents import AgentSpec
from remit.core.delegation import ROOT_CALLER
from remit.core.policy import ACP_EFFECTS, Effect
from remit.policy.rules import CALLER, CALLERS, DELEGATE, PolicyError, Rule, action_id, groups_of, read_rules
from remit.runtime.policy_facts import COMPUTED, is_listed

ANNOTATIONS = ("id", "because", "advice", "ask")
EXTRA_FACTS = {"method": "String", "recursive": "Bool", "network": "Bool", "tool": "String"}
APPLIES = "{ principal: [Agent, Caller], resource: [Agent, Path, Host, Command], context: Facts }"
_LINES = re.compile(r"policy\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    line: int
    what: str
    is_error: bool = True

    def __str__(self) -> str:
        return f"line {self.line}: {'' if self.is_error else 'note: '}{self.what}"


def check_rules(text: str, specs: Sequence[AgentSpec]) -> list[Problem]:
    """The faults of the rules, in line order."""
    try:
        rules = read_rules(text)
    except PolicyError as fault:
        return [Problem(line=fault.line, what=str(fault))]
    actions, facts = known_actions(specs), known_facts(specs)
    agents = {ROOT_CALLER, *(spec.name for spec in specs)}
    problems = [problem for rule in rules for problem in _names(rule, actions, facts, agents)]
    blamed = {problem.line for problem in problems if problem.is_error}
    unknown_facts = {fact for rule in rules for fact in rule.mentions - {"*"} if fact not in facts}
    unknown_actions = {action for rule in rules for action in rule.actions or () if action not in actions}
    schema = schema_text(actions | dict.fromkeys(unknown_actions, ()), facts | dict.fromkeys(unknown_facts, "String"))
    problems += [problem for problem in _types(text, schema, rules, unknown_facts) if problem.line not in blamed]
    if not any(rule.is_permit for rule in rules):
        problems.append(Problem(line=1, what="Nothing is permitted: every delegation will be refused.", is_error=False))
    return sorted(problems, key=lambda problem: problem.line)


def known_actions(specs: Sequence[AgentSpec]) -> dict[str, tuple[str, ...]]:
    """Every action by name, with the groups it is in."""
    actions: dict[str, tuple[str, ...]] = dict.fromkeys((*map(str, Effect), DELEGATE, "acp"), ())
    for kind, effect in ACP_EFFECTS.items():
        actions[f"acp.{kind}"] = ("acp", effect)
    for spec in specs:
        groups = groups_of(spec.name, tuple(map(str, spec.effects)), True)
        actions |= {group: () for group in groups if group not in actions}
        actions[action_id(spec.name)] = groups
    return actions


def known_facts(specs: Iterable[AgentSpec]) -> dict[str, str]:
    """Every fact that rules can use, with its type: computed ones, and parameters of agents."""
    facts = dict(_fact_lines())
    for spec in specs:
        for name, schema in spec.parameters_schema.get("properties", {}).items():
            kind = _type_of(schema)
            if kind is not None and name not in COMPUTED and name not in spec.acts_on:
                facts.setdefault(name, kind)
    return facts | EXTRA_FACTS


def _type_of(schema: dict[str, Any]) -> str | None:
    told = [one.get("type") for one in (schema, *schema.get("anyOf", ())) if isinstance(one, dict)]
    kinds = {kind for one in told for kind in (one if isinstance(one, list) else [one])} - {None, "null"}
    if kinds == {"boolean"}:
        return "Bool"
    if kinds == {"integer"}:
        return "Long"
    return "String" if is_listed(schema) else None


def _fact_lines() -> Iterator[tuple[str, str]]:
    for line in base_schema().splitlines():
        match = re.fullmatch(r"  ([a-z_]+)\??: ([A-Za-z<>]+),.*", line)
        if match:
            yield match[1], match[2]


def base_schema() -> str:
    return Path(__file__).with_name("schema.cedarschema").read_text("utf-8")


def schema_text(actions: dict[str, tuple[str, ...]], facts: dict[str, str]) -> str:
    """The schema of these actions and facts, as Cedar reads it."""
    ours = dict(_fact_lines())
    others = "".join(f"  {quoted(name)}?: {kind},\n" for name, kind in facts.items() if name not in ours)
    text = base_schema().replace("  // facts of this project\n", others)
    for name, groups in actions.items():
        within = f" in [{', '.join(map(quoted, groups))}]" if groups else ""
        text += f"action {quoted(name)}{within} appliesTo {APPLIES};\n"
    return text


def quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _names(rule: Rule, actions: Iterable[str], facts: Iterable[str], agents: Collection[str]) -> Iterator[Problem]:
    entities = list(_entities(rule.body))
    named: list[tuple[str, Iterable[str], Iterable[str]]] = [
        ("action", rule.actions or (), actions),
        ("fact", rule.mentions - {"*"}, facts),
        ("annotation", rule.annotations, ANNOTATIONS),
        ("agent", (name for kind, name in entities if kind == "Agent"), agents),
    ]
    if any((kind == CALLER) != name.startswith(CALLERS) for kind, name in entities if kind in (CALLER, "Agent")):
        yield Problem(
            line=rule.line, what='A caller of `remit serve` is Caller::"token:NAME" or Caller::"cert:NAME"; all others are Agents.'
        )
    if rule.body["resource"].get("op") == "in":
        yield Problem(line=rule.line, what='A resource is in nothing: write `when { context has path && context.path like "src/*" }`.')
    for what, names, known in named:
        for name in sorted(set(names).difference(known)):
            close = difflib.get_close_matches(name, known, n=2, cutoff=0.75)
            hint = f" Did you mean {' or '.join(close)}?" if close else " An agent may name it with ctx.permit."
            yield Problem(line=rule.line, what=f"There is no {what} {name!r}.{hint}", is_error=bool(close))


def _entities(node: Any) -> Iterator[tuple[str, str]]:
    """Everything that a rule names by kind and id."""
    if isinstance(node, list):
        for one in node:
            yield from _entities(one)
    elif isinstance(node, dict):
        if set(node) == {"type", "id"}:
            yield str(node["type"]), str(node["id"])
        else:
            for one in node.values():
                yield from _entities(one)


def _types(text: str, schema: str, rules: Sequence[Rule], passed_over: set[str]) -> Iterator[Problem]:
    """The first fault of each rule that Cedar finds."""
    lines = {f"policy{number}": rule.line for number, rule in enumerate(rules)}
    try:
        errors = cedarpy.validate_policies(text, schema).errors
    except ValueError as error:
        yield Problem(line=1, what=f"The rules could not be checked: {error}", is_error=False)
        return
    for found in errors:
        named = found.policy_id or next(iter(_LINES.findall(found.error)), "")
        if named not in lines or any(f"`{fact}`" in found.error for fact in passed_over):
            continue  # names are checked above
        what = re.sub(r"for policy `policy\d+`, ", "", found.error).rstrip(".")
        hint = " Write `context has NAME && …` first." if "optional attribute" in what else ""
        yield Problem(line=lines.pop(named), what=f"{what}.{hint}")
