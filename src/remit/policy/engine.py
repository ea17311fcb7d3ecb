"""The policy of a project: evaluates its rules, applies its mode, and writes every decision to the audit log.

The rules are those of `.remit/policy.cedar`, or the default. A changed file takes effect within half a second; while it is unreadable,
everything is refused."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import cedarpy
from pydantic_core import to_json

from remit.core.deadline import Clock
from remit.core.delegation import ROOT_CALLER
from remit.core.errors import RemitError
from remit.core.policy import ALLOWED, AllowAll, Decision, Mode, Policy, PolicyRequest, Verdict
from remit.core.redaction import redact_text
from remit.policy.audit import AuditLog, entry_text
from remit.policy.rules import (
    CALLER,
    CALLERS,
    PolicyError,
    Rule,
    Rules,
    Source,
    action_id,
    fill_in,
    groups_of,
    project_file,
    read_rules,
    source_of,
)
from remit.runtime.policy_facts import COMPUTED
from remit.system.trust import ProjectTrust

_MEND = "Fix the rules: `remit policy check` lists the problems."
_SHOWN = 300


def explain_decision(asked: PolicyRequest, outcome: "Outcome", fault: str, source: str) -> tuple[str, str]:
    """The reason and the advice."""
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
    reason = fill_in(own, _facts(asked)) if own else f"The policy forbids {_what(asked)}."
    return f"{reason} (rule {rule.name}, {source})", _advice(asked, outcome)


def question_of(asked: PolicyRequest, outcome: "Outcome") -> str:
    own = outcome.rules[0].annotations.get("ask", "") if outcome.rules else ""
    return fill_in(own, _facts(asked)) if own else f"{asked.caller} wants {_what(asked)}."


def _advice(asked: PolicyRequest, outcome: "Outcome") -> str:
    own = next((rule.annotations["advice"] for rule in outcome.rules if rule.annotations.get("advice")), "")
    return fill_in(own, _facts(asked))


def _what(asked: PolicyRequest) -> str:
    resource = resource_of(asked)
    on = "" if resource["type"] == "Agent" else f" on {_shown(resource['id'])}"
    return f"{asked.action}{on} to {asked.caller}"


def _facts(asked: PolicyRequest) -> Mapping[str, Any]:
    return {name: _shown(value) for name, value in {**context_of(asked), "action": asked.action}.items()}


def loggable_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """For the audit log: short, and without facts that the path implies."""
    return {name: _shown(value) for name, value in facts.items() if name not in ("parts", "name")}


def _shown(value: Any) -> Any:
    """Shortened; redacted first, because half a secret is not recognised."""
    return redact_text(value)[:_SHOWN] if isinstance(value, str) and len(value) > _SHOWN else value


VOLATILE = frozenset({"timeout_seconds", "tokens_left", "cents_left", "ancestors"})
"""Facts that differ in nearly every request."""
KINDS_KEPT = 4096
_LARGEST = 2**63 - 1


class Outcome(NamedTuple):
    """The decision of the rules, in strict mode."""

    verdict: Verdict
    rules: tuple[Rule, ...] = ()
    """The rules that decided; empty: nothing permits it."""
    fault: str = ""
    """A forbid rule could not be evaluated: it counts as a match."""


class ActionKind(NamedTuple):
    """One kind of action, prepared for Cedar."""

    uid: dict[str, str]
    entities: Any
    facts: frozenset[str] | None
    """The facts that rules about it mention; None: all."""
    names_resource: bool
    outcomes: dict[tuple[Any, ...], Outcome]
    """By everything that an outcome can depend on: the paths of a project are asked about by the thousand."""


class PolicyEvaluator:
    """The rules of one text, evaluated by Cedar. Raises `PolicyError` if they are invalid."""

    def __init__(self, text: str) -> None:
        self.rules = read_rules(text)
        self._policies = cedarpy.PolicySet.from_str("\n".join(rule.text for rule in self.rules))
        self._kinds: dict[tuple[str, tuple[str, ...], bool], ActionKind] = {}

    def judge(self, asked: PolicyRequest) -> Outcome:
        kind, resource = self.kind_of(asked.action, asked.effects, asked.is_delegation), resource_of(asked)
        context = to_json(context_of(asked, kind.facts), inf_nan_mode="null").decode()
        key = (asked.caller, context, resource["id"] if kind.names_resource else "", resource["type"])
        if key not in kind.outcomes:
            if len(kind.outcomes) >= KINDS_KEPT:
                kind.outcomes.clear()
            kind.outcomes[key] = self._evaluate(asked.caller, kind, resource, context)
        return kind.outcomes[key]

    def _evaluate(self, caller: str, kind: ActionKind, resource: dict[str, str], context: str) -> Outcome:
        request = {
            "principal": {"type": kind_of_principal(caller), "id": clean(caller)},
            "action": kind.uid,
            "resource": {"type": resource["type"], "id": clean(resource["id"])},
            "context": context,
        }
        said = cedarpy.is_authorized(request, self._policies, kind.entities).diagnostics
        satisfied = [rule for number, rule in enumerate(self.rules) if f"policy{number}" in said.reasons]
        faults = []
        for error in said.errors:
            named = [rule for number, rule in enumerate(self.rules) if f"`policy{number}`" in error]
            if not named:  # any other error denies
                return Outcome(verdict=Verdict.DENY, fault=error)
            faults += [(rule, error) for rule in named]
        return _outcome(satisfied, faults)

    def kind_of(self, action: str, effects: tuple[str, ...], is_delegation: bool) -> ActionKind:
        key = (action, effects, is_delegation)
        if key not in self._kinds:
            if len(self._kinds) >= KINDS_KEPT:
                self._kinds.clear()
            name, groups = action_id(action), groups_of(action, effects, is_delegation)
            covering = [rule for rule in self.rules if rule.covers(name, groups)]
            facts = frozenset(fact for rule in covering for fact in rule.mentions)
            uid, parents = {"type": "Action", "id": name}, [{"type": "Action", "id": group} for group in groups if group != name]
            entities = cedarpy.Entities.from_json_str(to_json([{"uid": uid, "attrs": {}, "parents": parents}]).decode())
            names_resource = any(rule.names_resource for rule in covering)
            self._kinds[key] = ActionKind(uid, entities, None if "*" in facts else facts, names_resource, {})
        return self._kinds[key]


def _outcome(satisfied: Sequence[Rule], faults: Sequence[tuple[Rule, str]]) -> Outcome:
    """Deny over ask over allow. A plain permit that cannot be evaluated permits nothing; any other such rule denies."""
    forbids = tuple(rule for rule in satisfied if not rule.is_permit)
    serious = next((f"rule {rule.name}: {fault}" for rule, fault in faults if not rule.is_permit or rule.asks), "")
    if forbids or serious:
        return Outcome(verdict=Verdict.DENY, rules=forbids, fault=serious)
    asking = tuple(rule for rule in satisfied if rule.asks)
    if asking:
        return Outcome(verdict=Verdict.ASK, rules=asking)
    return Outcome(verdict=Verdict.ALLOW if satisfied else Verdict.DENY, rules=tuple(satisfied))


def kind_of_principal(caller: str) -> str:
    """External callers are not agents; and no agent has a colon in its name."""
    return CALLER if caller.startswith(CALLERS) else "Agent"


def resource_of(asked: PolicyRequest) -> dict[str, str]:
    for fact, kind in (("path", "Path"), ("host", "Host"), ("command", "Command")):
        if fact in asked.facts:
            return {"type": kind, "id": str(asked.facts[fact])}
    return {"type": "Agent", "id": asked.action}


def context_of(asked: PolicyRequest, wanted: frozenset[str] | None = None) -> dict[str, Any]:
    """The facts that rules can use, or those they do use, in a stable order."""
    target, _, operation = asked.action.partition(".")
    ours: dict[str, Any] = {
        "caller": asked.caller,
        "depth": asked.depth,
        "target": target,
        "operation": operation,
        "delegation": asked.is_delegation,
        "on_behalf": asked.on_behalf,
        "has_read_files": asked.has_read_files,
        "has_read_untrusted": asked.has_read_untrusted,
    }
    if wanted is None or not wanted.isdisjoint(VOLATILE):
        ours["timeout_seconds"] = int(min(max(asked.timeout_seconds, 0.0), 1e15))
        ours["ancestors"] = sorted(set(asked.path))
        if asked.tokens_left is not None:
            ours["tokens_left"] = max(-_LARGEST, min(_LARGEST, asked.tokens_left))
        if asked.cost_left is not None:
            ours["cents_left"] = int(max(-1e15, min(1e15, asked.cost_left * 100)))
    facts: Mapping[str, Any] = {**asked.facts, **ours}
    return {name: clean(facts[name]) for name in sorted(facts if wanted is None else wanted & facts.keys())}


def clean(value: Any) -> Any:
    """Half a surrogate pair, as in file names, is not text for Cedar."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) and not value.isascii() else value


log = logging.getLogger("remit.policy")

LOOK_SECONDS = 0.5
OF_THE_TREE = frozenset({"on_behalf", "has_read_files", "has_read_untrusted"})
PLAIN_FACTS = (COMPUTED - VOLATILE - OF_THE_TREE) | {
    "caller",
    "depth",
    "target",
    "operation",
    "delegation",
}
"""Facts that are equal for all delegations of one caller to one agent at one depth."""


class _Plain:
    """One decision on plain delegations, and the delegations of this turn that it applies to."""

    __slots__ = ("decision", "entry", "sessions")

    def __init__(self, decision: Decision, entry: bytes) -> None:
        self.decision = decision
        self.entry = entry
        self.sessions: list[str] = []

    def written(self) -> bytes:
        return b'%b,"sessions":["%b"]' % (self.entry, '","'.join(self.sessions).encode())


class ProjectPolicy:
    """Used only on the event loop."""

    def __init__(self, source: Source, mode: Mode, audit: AuditLog, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self.mode = mode
        self._audit = audit
        self._clock = clock
        self._look_at = 0.0
        self._rules: Rules
        self._judge: PolicyEvaluator | None = None
        self._fault: PolicyError | None = None
        self._plain: dict[tuple[str, str, int, tuple[str, ...]], _Plain] = {}
        self._waiting: list[_Plain | bytes] = []
        """Unwritten decisions, in order."""
        self._take(source.read())

    # ---- the port

    @property
    def fingerprint(self) -> str:
        self._look()
        return f"{self.mode} {self._rules.sha256[:12]}"

    def cached_decision(self, caller: str, target: str, depth: int, effects: tuple[str, ...], session_id: str) -> Decision | None:
        if not self._waiting:  # once per turn is enough
            self._look()
        known = self._plain.get((caller, target, depth, effects))
        if known is None:
            return None
        if not known.sessions:
            self._waiting.append(known)
        known.sessions.append(session_id)
        return known.decision

    def decide(self, asked: PolicyRequest) -> Decision:
        self._look()
        outcome, fault = self._outcome(asked)
        decision = self._in_mode(asked, outcome, fault)
        if asked.is_delegation:
            if not decision.because and self._is_plain(asked):  # the message of a refusal may mention facts of this one only
                if len(self._plain) >= KINDS_KEPT:
                    self._plain = {}
                known = _Plain(decision, entry_text(_entry(asked._replace(facts={}), decision)))  # the others have other parameters
                self._plain[asked.caller, asked.action, asked.depth, asked.effects] = known
                self._waiting.append(known)
                known.sessions.append(asked.session_id)
            else:
                self._note(_entry(asked, decision), asked.session_id)
            return decision
        self._note(_entry(asked, decision), asked.session_id)
        error = self._write_or_log()
        if error is not None:
            return Decision(verdict=Verdict.DENY, because=f"The audit log cannot be written: {error.message}", advice=error.advice)
        return decision

    def filter_allowed(self, asked: Sequence[PolicyRequest]) -> list[bool]:
        self._look()
        decided = [self._in_mode(one, *self._outcome(one)) for one in asked]
        for one, decision in zip(asked, decided, strict=True):
            if decision.because:
                self._note(_entry(one, decision), one.session_id)
        plain = next(((one, decision) for one, decision in zip(asked, decided, strict=True) if not decision.because), None)
        if plain is not None:
            count = sum(not decision.because for decision in decided)
            self._note({**_entry(*plain), "alike": count}, plain[0].session_id)
        if self._write_or_log() is not None:
            return [False] * len(asked)
        return [decision.verdict is Verdict.ALLOW for decision in decided]

    def settled(self, asked: PolicyRequest, decision: Decision, verdict: Verdict, by: str) -> None:
        self._note({**_entry(asked, decision), "event": "asked", "verdict": str(verdict), "by": by}, asked.session_id)
        self._write_or_log()

    def renamed(self, session_id: str, now: str) -> None:
        self._note({"event": "renamed", "session": session_id}, now)

    def write_out(self) -> None:
        waiting = self._waiting
        if not waiting:
            return
        self._audit.write([one if isinstance(one, bytes) else one.written() for one in waiting])
        self._waiting = []
        for one in waiting:
            if not isinstance(one, bytes):
                one.sessions = []

    def _write_or_log(self) -> RemitError | None:
        try:
            self.write_out()
        except RemitError as error:
            log.error("The audit log cannot be written: %s", error)
            return error
        return None

    def close(self) -> None:
        self._write_or_log()
        self._audit.close()

    # ---- the rules

    def reload(self) -> list[str]:
        """Reload the rules and return their faults."""
        self._look_at = 0.0
        self._look()
        return [] if self._fault is None else [f"{self._rules.name}: {self._fault}"]

    def _look(self) -> None:
        now = self._clock()
        if now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            if self._source.has_changed():
                self._take(self._source.read())

    def _take(self, rules: Rules) -> None:
        self._rules = rules
        self._plain = {}
        self._judge, self._fault = None, None
        try:
            self._judge = PolicyEvaluator(rules.text) if rules.fault is None else None
            self._fault = rules.fault
        except PolicyError as fault:
            self._fault = fault
        if self._fault is not None:
            log.error("%s: %s", rules.name, self._fault)
        note = {"event": "rules", "mode": str(self.mode), "source": rules.name, "sha256": rules.sha256}
        self._note(note if self._fault is None else {**note, "fault": self._fault.message})

    def _note(self, entry: dict[str, Any], *sessions: str) -> None:
        self._waiting.append(entry_text({**entry, "sessions": sessions} if sessions else entry))

    def _outcome(self, asked: PolicyRequest) -> tuple[Outcome, str]:
        if self._judge is None:
            assert self._fault is not None
            return Outcome(verdict=Verdict.DENY), self._fault.message
        try:
            outcome = self._judge.judge(asked)
        except Exception as error:  # any failure of Cedar is a refusal
            log.exception("The policy could not decide on %s", asked.action)
            return Outcome(verdict=Verdict.DENY), f"the rules could not be evaluated ({type(error).__name__}: {error})"
        return outcome, outcome.fault

    def _is_plain(self, asked: PolicyRequest) -> bool:
        """Whether any other delegation of this caller to this agent at this depth would be decided alike."""
        if self._judge is None:
            return False  # an unreadable file is checked again each time
        if asked.on_behalf not in (ROOT_CALLER, asked.caller):
            return False  # its log line names the principal, which belongs to this tree only
        if not asked.facts.keys().isdisjoint(COMPUTED):
            return False
        facts = self._judge.kind_of(asked.action, asked.effects, is_delegation=True).facts
        return facts is not None and facts <= PLAIN_FACTS

    def _in_mode(self, asked: PolicyRequest, outcome: Outcome, fault: str) -> Decision:
        names = tuple(rule.name for rule in outcome.rules)
        if outcome.verdict is Verdict.ALLOW:
            return Decision(verdict=Verdict.ALLOW, rules=names)
        because, advice = explain_decision(asked, outcome, fault, self._rules.name)
        if self.mode is Mode.PERMISSIVE:
            return Decision(verdict=Verdict.ALLOW, rules=names, because=because, advice=advice, strict_verdict=outcome.verdict)
        question = question_of(asked, outcome) if outcome.verdict is Verdict.ASK else ""
        return Decision(verdict=outcome.verdict, rules=names, because=because, advice=advice, question=question)


def _entry(asked: PolicyRequest, decision: Decision) -> dict[str, Any]:
    """The log entry of a decision."""
    entry: dict[str, Any] = {
        "event": "decided",
        "verdict": str(decision.verdict),
        "caller": asked.caller,
        "action": asked.action,
        "depth": asked.depth,
        "rules": decision.rules,
    }
    if asked.on_behalf not in (ROOT_CALLER, asked.caller):
        entry["on_behalf"] = asked.on_behalf
    if decision.strict_verdict is not None:
        entry["strict"] = str(decision.strict_verdict)
    if asked.effects:
        entry["effects"] = asked.effects
    if asked.facts:
        entry["facts"] = loggable_facts(asked.facts)
    if not asked.is_delegation:
        entry["on_the_way"] = True
    if decision.because:
        entry["because"] = decision.because
    return entry


class DisabledPolicy(AllowAll):
    """Allows everything, and logs only one line about it."""

    def __init__(self, audit: AuditLog, owner: str) -> None:
        self._audit = audit
        self._entry: bytes | None = entry_text({"event": "disabled", "mode": "disabled", "owner": owner})

    def decide(self, asked: PolicyRequest) -> Decision:
        return ALLOWED

    def write_out(self) -> None:
        if self._entry is not None:
            self._audit.write([self._entry])
            self._entry = None

    def close(self) -> None:
        self._audit.close()


def open_policy(
    folder: Path, mode: str, *, owner: str, clock: Clock, given: str | Path | None = None, trust: ProjectTrust | None = None
) -> Policy:
    """The policy of the project whose `.remit` is `folder`; `given`: other rules, as text or as a path; `trust`:
    the project's approvals."""
    audit = AuditLog(folder, clock=clock.wall)
    if mode == Mode.DISABLED:
        return DisabledPolicy(audit, owner)
    return ProjectPolicy(project_file(folder, trust) if given is None else source_of(given), Mode(mode), audit)
