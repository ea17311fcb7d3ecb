"""Cedar asked: the decision on one action, and the words for it."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import cedarpy
from pydantic_core import to_json

from remit.core.policy import Asked, Effect, Verdict
from remit.core.secrets import redacted_text
from remit.policy.rules import Mentions, Rule, in_words, read_rules

USUAL = object()
"""Stands for every value that fits nothing."""
_CONTEXT = {"Var": "context"}


class Comparisons:
    """What a fact is compared with."""

    def __init__(self) -> None:
        self.texts: set[str] = set()
        self.patterns: set[str] = set()
        self.members: set[str] = set()
        self.is_only_compared = True
        self._any: re.Pattern[str] | None = None
        self._each: list[re.Pattern[str]] = []

    def kind_of(self, value: Any) -> Any:
        """`USUAL`, what it fits, or the value itself, to be a part of a key."""
        if value.__class__ is str:
            if self.is_only_compared and not self.members and value not in self.texts:
                return self._fitting(value)
        elif value.__class__ is list:
            is_plain = self.is_only_compared and not self.texts and not self.patterns
            return (frozenset(self.members.intersection(value)) or USUAL) if is_plain else tuple(value)
        return value

    def _fitting(self, value: str) -> Any:
        """The patterns it fits; most values fit none, and one look tells that."""
        if self._any is None:
            self._any = re.compile("|".join(sorted(self.patterns)) or r"(?!)", re.DOTALL)
            self._each = [re.compile(pattern, re.DOTALL) for pattern in sorted(self.patterns)]
        if self._any.fullmatch(value) is None:
            return USUAL
        return tuple([number for number, pattern in enumerate(self._each) if pattern.fullmatch(value) is not None])


def comparisons(conditions: Iterable[Any]) -> dict[str, Comparisons]:
    """By fact, of all these conditions in Cedar's JSON: each an operator over its operands, which are such themselves."""
    found: dict[str, Comparisons] = {}
    stack = list(conditions)
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            stack += [one for operator, inside in node.items() for one in _rest(operator, inside, found)]
    return found


def _rest(operator: str, inside: Any, found: dict[str, Comparisons]) -> Iterator[Any]:
    """Notes a comparison of a fact; what else is in it has still to be looked at."""
    if operator == "Value" or not isinstance(inside, dict | list):
        return
    if isinstance(inside, list):
        yield from inside
        return
    if operator == "has" and inside.get("left") == _CONTEXT:
        return  # whether it is there at all is part of the key by itself
    fact = _fact(inside.get("left"))
    if fact is not None and _note(operator, inside, found.setdefault(fact, Comparisons())):
        return
    if operator == "." and inside.get("left") == _CONTEXT:
        found.setdefault(str(inside["attr"]), Comparisons()).is_only_compared = False
        return
    yield from inside.values()


def _note(operator: str, inside: dict[str, Any], fact: Comparisons) -> bool:
    """Whether it is a comparison with texts, and noted."""
    right = _literal(inside.get("right"))
    if operator == "like":
        fact.patterns.add("".join(".*" if part == "Wildcard" else re.escape(part["Literal"]) for part in inside["pattern"]))
        return True
    if operator in ("==", "!=") and isinstance(right, str):
        fact.texts.add(right)
        return True
    if operator == "contains" and isinstance(right, str):
        fact.members.add(right)
        return True
    if operator == "containsAny" and isinstance(right, list) and all(isinstance(one, str) for one in right):
        fact.members.update(right)
        return True
    return False


def _fact(node: Any) -> str | None:
    """The name of `context.name`."""
    inside = node.get(".") if isinstance(node, dict) else None
    return str(inside["attr"]) if isinstance(inside, dict) and inside.get("left") == _CONTEXT else None


def _literal(node: Any) -> Any:
    if isinstance(node, dict) and "Value" in node:
        return node["Value"]
    if isinstance(node, dict) and isinstance(node.get("Set"), list):
        return [_literal(one) for one in node["Set"]]
    return None


_MEND = "Mend the rules: `remit policy check` says what is wrong."
_SHOWN = 300


def because_of(asked: Asked, outcome: "Outcome", fault: str, source: str) -> tuple[str, str]:
    """Why, and what to do."""
    if fault:
        return f"The policy ({source}) refuses {_what(asked)} because it cannot be relied on: {fault.rstrip('.')}.", _MEND
    if outcome.verdict is Verdict.ASK:
        return question_of(asked, outcome), _advice(asked, outcome)
    if not outcome.rules:
        return f"No rule of the policy ({source}) permits {_what(asked)}.", (
            f'Add one to .remit/policy.cedar, such as: permit (principal == {kind_of_principal(asked.caller)}::"{asked.caller}", '
            f'action == Action::"{action_id(asked.action)}", resource);'
        )
    rule = outcome.rules[0]
    own = rule.annotations.get("because", "")
    reason = in_words(own, _facts(asked)) if own else f"The policy forbids {_what(asked)}."
    return f"{reason} (rule {rule.name}, {source})", _advice(asked, outcome)


def question_of(asked: Asked, outcome: "Outcome") -> str:
    own = outcome.rules[0].annotations.get("ask", "") if outcome.rules else ""
    return in_words(own, _facts(asked)) if own else f"{asked.caller} wants {_what(asked)}."


def _advice(asked: Asked, outcome: "Outcome") -> str:
    own = next((rule.annotations["advice"] for rule in outcome.rules if rule.annotations.get("advice")), "")
    return in_words(own, _facts(asked))


def _what(asked: Asked) -> str:
    resource = resource_of(asked)
    on = "" if resource["type"] == "Agent" else f" on {_shown(resource['id'])}"
    return f"{asked.action}{on} to {asked.caller}"


def _facts(asked: Asked) -> Mapping[str, Any]:
    return {name: _shown(value) for name, value in {**context_of(asked), "action": asked.action}.items()}


def facts_kept(facts: Mapping[str, Any]) -> dict[str, Any]:
    """For the audit log: short, and without what the path says already."""
    return {name: _shown(value) for name, value in facts.items() if name not in ("parts", "name")}


def _shown(value: Any) -> Any:
    """Not too long; and secrets are struck out before it is cut, because half of one is not recognised."""
    return redacted_text(value)[:_SHOWN] if isinstance(value, str) and len(value) > _SHOWN else value


EFFECTS = frozenset(map(str, Effect))
DELEGATE = "delegate"
"""The group of all actions that are delegations."""
VOLATILE = frozenset({"timeout_seconds", "tokens_left", "cents_left", "ancestors"})
"""Facts that nearly every request has its own value of."""
CALLER = "Caller"
CALLERS = ("token:", "cert:")
"""How the names of callers begin that came in by a door (`access.visitor`)."""
OUTCOMES_KEPT = 4096
_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the rules say, in strict."""

    verdict: Verdict
    rules: tuple[Rule, ...] = ()
    """Those that decided; none: nothing permits it."""
    fault: str = ""
    """A rule that forbids could not be evaluated: then it counts as if it did."""


@dataclass(slots=True, kw_only=True)
class Slice:
    """The rules that can have a say about one kind of action."""

    rules: dict[str, Rule]
    """By the names that Cedar gives them in this slice."""
    mentions: Mentions
    policies: Any
    entities: Any
    action: dict[str, str]
    comparisons: dict[str, Comparisons]
    outcomes: dict[Any, Outcome] = field(default_factory=dict)

    def kind_of(self, name: str, value: Any) -> Any:
        """What of a fact makes a difference here; itself where that is not known."""
        compared = self.comparisons.get(name)
        if compared is None:
            return tuple(value) if value.__class__ is list else value
        return compared.kind_of(value)


class Judge:
    """The rules of one text. Raises `Faulty` when they cannot be read."""

    def __init__(self, text: str) -> None:
        self.rules = read_rules(text)
        self._slices: dict[tuple[str, tuple[str, ...], bool], Slice] = {}

    def judge(self, asked: Asked) -> Outcome:
        piece = self.slice_of(asked.action, asked.effects, asked.is_delegation)
        if not piece.rules:
            return Outcome(verdict=Verdict.DENY)
        mentions = piece.mentions
        context = context_of(asked, None if mentions.everything else mentions.facts)
        resource = resource_of(asked)
        key = (
            asked.caller if mentions.principal else None,
            (resource["type"], resource["id"]) if mentions.resource else None,
            tuple([(name, piece.kind_of(name, value), value.__class__) for name, value in context.items()]),
        )
        known = piece.outcomes.get(key)
        if known is None:
            if len(piece.outcomes) >= OUTCOMES_KEPT:
                piece.outcomes.clear()
            known = piece.outcomes[key] = _evaluated(piece, asked.caller, resource, to_json(context, inf_nan_mode="null").decode())
        return known

    def slice_of(self, action: str, effects: tuple[str, ...], is_delegation: bool) -> Slice:
        key = (action, effects, is_delegation)
        known = self._slices.get(key)
        if known is None:
            if len(self._slices) >= OUTCOMES_KEPT:
                self._slices.clear()
            known = self._slices[key] = self._sliced(*key)
        return known

    def _sliced(self, action: str, effects: tuple[str, ...], is_delegation: bool) -> Slice:
        name, groups = action_id(action), groups_of(action, effects, is_delegation)
        names = frozenset((name, *groups))
        chosen = [rule for rule in self.rules if rule.covers(names)]
        rules = {f"policy{number}": rule for number, rule in enumerate(chosen)}  # as Cedar counts them in what it is given here
        mentions = Mentions()
        for rule in rules.values():
            mentions |= rule.mentions
        uid = {"type": "Action", "id": name}
        entity = {"uid": uid, "attrs": {}, "parents": [{"type": "Action", "id": group} for group in groups if group != name]}
        return Slice(
            rules=rules,
            mentions=mentions,
            policies=cedarpy.PolicySet.from_str("\n".join(rule.text for rule in chosen)),
            entities=cedarpy.Entities.from_json_str(to_json([entity]).decode()),
            action=uid,
            comparisons={}
            if mentions.everything
            else comparisons(one["body"] for rule in chosen for one in rule.body.get("conditions", ())),
        )


def kind_of_principal(caller: str) -> str:
    """Whoever came in by a door is no agent; and no agent has a colon in its name."""
    return CALLER if caller.startswith(CALLERS) else "Agent"


def action_id(name: str) -> str:
    """An agent that is called like an effect is not that effect."""
    return f"agent.{name}" if name in EFFECTS or name == DELEGATE else name


def groups_of(action: str, effects: tuple[str, ...], is_delegation: bool) -> tuple[str, ...]:
    """What a rule can call it by, besides its own name: its target, its effects, and that it is a delegation."""
    target = action.partition(".")[0]
    groups = (target, *effects, *((DELEGATE,) if is_delegation else ()))
    return tuple(dict.fromkeys(group for group in groups if group != target or "." in action))


def resource_of(asked: Asked) -> dict[str, str]:
    for fact, kind in (("path", "Path"), ("host", "Host"), ("command", "Command")):
        if fact in asked.facts:
            return {"type": kind, "id": str(asked.facts[fact])}
    return {"type": "Agent", "id": asked.action}


def context_of(asked: Asked, wanted: frozenset[str] | None = None) -> dict[str, Any]:
    """Everything that rules may speak of, or as much of it as they do, in a steady order."""
    target, _, operation = asked.action.partition(".")
    ours: dict[str, Any] = {
        "caller": asked.caller,
        "depth": asked.depth,
        "target": target,
        "operation": operation,
        "delegation": asked.is_delegation,
        "on_behalf": asked.on_behalf,
    }
    if wanted is None or not wanted.isdisjoint(VOLATILE):
        ours["timeout_seconds"] = int(min(max(asked.timeout_seconds, 0.0), 1e15))
        ours["ancestors"] = sorted(set(asked.path))
        if asked.tokens_left is not None:
            ours["tokens_left"] = max(-_LARGEST, min(_LARGEST, asked.tokens_left))
        if asked.cost_left is not None:
            ours["cents_left"] = int(max(-1e15, min(1e15, asked.cost_left * 100)))
    facts: Mapping[str, Any] = {**asked.facts, **ours}
    return {name: _clean(facts[name]) for name in sorted(facts if wanted is None else wanted & facts.keys())}


def _clean(value: Any) -> Any:
    """Half of a surrogate pair, as file names may hold, is no text to Cedar."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) and not value.isascii() else value


def _evaluated(piece: Slice, caller: str, resource: dict[str, str], context: str) -> Outcome:
    request = {
        "principal": {"type": kind_of_principal(caller), "id": _clean(caller)},
        "action": piece.action,
        "resource": {"type": resource["type"], "id": _clean(resource["id"])},
        "context": context,
    }
    answer = cedarpy.is_authorized(request, piece.policies, piece.entities)
    diagnostics = answer.diagnostics
    decided = tuple(rule for number, rule in piece.rules.items() if number in diagnostics.reasons)  # in the order they stand
    faults = [error for error in diagnostics.errors if not _is_about_permits(error, piece)]
    if faults:
        return Outcome(verdict=Verdict.DENY, rules=decided if not answer.allowed else (), fault=faults[0])
    if not answer.allowed:
        return Outcome(verdict=Verdict.DENY, rules=decided)
    asking = tuple(rule for rule in decided if rule.asks)
    return Outcome(verdict=Verdict.ASK, rules=asking) if asking else Outcome(verdict=Verdict.ALLOW, rules=decided)


def _is_about_permits(error: str, piece: Slice) -> bool:
    """A permit that cannot be evaluated permits nothing, which is safe. Whatever else went wrong counts as a no."""
    named = [rule for number, rule in piece.rules.items() if f"`{number}`" in error]
    return bool(named) and all(rule.is_permit and not rule.asks for rule in named)
