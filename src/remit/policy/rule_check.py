"""`remit policy check`: finds unknown actions and facts, wrong types, and rules that never match."""

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
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
    problems = [problem for rule in rules for problem in _names(rule, actions, facts, specs)]
    blamed = {problem.line for problem in problems if problem.is_error}
    unknown_facts = {fact for rule in rules for fact in rule.mentions.facts if fact not in facts}
    unknown_actions = {action for rule in rules for action in rule.actions or () if action not in actions}
    schema = schema_text(actions | dict.fromkeys(unknown_actions, ()), facts | dict.fromkeys(unknown_facts, "String"))
    problems += [problem for problem in _types(text, schema, rules, unknown_facts) if problem.line not in blamed]
    problems += _plain_faults(rules)
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


def _names(rule: Rule, actions: dict[str, tuple[str, ...]], facts: dict[str, str], specs: Sequence[AgentSpec]) -> Iterator[Problem]:
    for action in sorted(rule.actions or ()):
        if action not in actions:
            yield _unknown(
                rule, f"There is no action {action!r}", action, actions, "It can only be one that an agent asks for by ctx.permit."
            )
    for fact in sorted(rule.mentions.facts):
        if fact not in facts:
            yield _unknown(
                rule, f"Nothing is known as context.{fact}", fact, facts, "Only an agent that says it by ctx.permit can have it."
            )
    for name in rule.annotations:
        if name not in ANNOTATIONS:
            yield _unknown(rule, f"@{name} means nothing here", name, ANNOTATIONS, "")
    yield from _wrong_entities(rule, {ROOT_CALLER, *(spec.name for spec in specs)})
    if rule.body["resource"].get("op") == "in":
        yield Problem(
            line=rule.line, what='A resource is in nothing: write `when { context has path && context.path like "src/*" }` instead.'
        )


def _wrong_entities(rule: Rule, agents: set[str]) -> Iterator[Problem]:
    for kind, name in _entities(rule.body):
        if (kind == CALLER) != name.startswith(CALLERS) and kind in (CALLER, "Agent"):
            right = f"Agent::{quoted(name)}" if name == ROOT_CALLER else f"{CALLER}::{quoted('token:' + name.removeprefix('token:'))}"
            yield Problem(line=rule.line, what=f"{kind}::{quoted(name)} does not exist: write {right}.")
        elif kind == "Agent" and name not in agents:
            own = sorted(agent for agent in agents if agent.startswith(f"{name}."))
            if own:
                what = f"There is no agent {name!r}: its operations are agents of their own. Write Agent::{quoted(own[0])}"
                yield Problem(line=rule.line, what=f'{what}, or `when {{ context.caller like "{name}.*" }}` for all of them.')
                continue
            yield _unknown(rule, f"There is no agent {name!r}", name, agents, "")
        elif kind not in ("Agent", CALLER, "Path", "Host", "Command", "Action"):
            yield Problem(line=rule.line, what=f"There is no kind {kind!r}: a resource is an Agent, Path, Host or Command.")


def _unknown(rule: Rule, what: str, name: str, known: Iterable[str], otherwise: str) -> Problem:
    close = difflib.get_close_matches(name, list(known), n=2, cutoff=0.75)
    if close:
        return Problem(line=rule.line, what=f"{what}. Did you mean {' or '.join(close)}?")
    return Problem(line=rule.line, what=f"{what}. {otherwise}".strip(), is_error=False)


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
    lines = {rule.number: rule.line for rule in rules}
    try:
        result = cedarpy.validate_policies(text, schema)
    except ValueError as error:
        yield Problem(line=1, what=f"The rules could not be checked: {error}", is_error=False)
        return
    for found in result.errors:
        named = found.policy_id or next(iter(_LINES.findall(found.error)), "")
        what = re.sub(r"for policy `policy\d+`, ", "", found.error)
        if "unrecognized" in what or any(f"`{fact}`" in what for fact in passed_over):
            continue  # names are checked above
        hint = " Write `context has NAME && …` first." if "unable to guarantee safety" in what or "optional attribute" in what else ""
        yield Problem(line=lines.get(named, 1), what=f"{what.rstrip('.')}.{hint}")


def _plain_faults(rules: Sequence[Rule]) -> Iterator[Problem]:
    if not any(rule.is_permit for rule in rules):
        yield Problem(line=1, what="Nothing is permitted: every delegation will be refused.", is_error=False)
    for rule in rules:
        is_bare = not rule.body.get("conditions") and rule.actions is None and not rule.mentions.principal and not rule.mentions.resource
        if is_bare and rule.is_permit and not any("protected" in one.mentions.facts or one.mentions.everything for one in rules):
            what = "permits agents to change the board and files by which tools start programs: no rule mentions context.protected"
            yield Problem(line=rule.line, what=f"{rule.name} {what}. The default rules do.", is_error=False)
