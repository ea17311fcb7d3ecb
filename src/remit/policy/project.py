"""The policy of a project: its rules, its mode and its audit log, put together as the `Policy` that the flow asks.

The rules are those of `.remit/policy.cedar`, or the default where there is none. A file that changes holds from the next look, at most
half a second later; one that cannot be read refuses everything until it is fixed."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from remit.core.clock import Clock
from remit.core.errors import RemitError
from remit.core.lineage import ROOT_CALLER
from remit.core.policy import Asked, Decision, Mode, Policy, Verdict
from remit.policy.audit import AuditLog, entry_text
from remit.policy.judging import OUTCOMES_KEPT, VOLATILE, Judge, Outcome, because_of, facts_kept, question_of
from remit.policy.rules import Faulty, Rules, Source, project_file, source_of
from remit.runtime.permit import COMPUTED

log = logging.getLogger("remit.policy")

LOOK_SECONDS = 0.5
PLAIN_FACTS = (COMPUTED - VOLATILE - {"on_behalf"}) | {"caller", "depth", "target", "operation", "delegation"}
"""What a rule may speak of and still know all about a delegation whose parameters stand for nothing: who, what and how deep."""


class _Plain:
    """One decision on plain delegations, and the delegations of this turn that it was made for."""

    __slots__ = ("decision", "entry", "sessions")

    def __init__(self, decision: Decision, entry: bytes) -> None:
        self.decision = decision
        self.entry = entry
        self.sessions: list[str] = []

    def written(self) -> bytes:
        return b'%b,"sessions":["%b"]' % (self.entry, '","'.join(self.sessions).encode())


class ProjectPolicy:
    """Used from the event loop alone."""

    def __init__(self, source: Source, mode: Mode, audit: AuditLog, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self.mode = mode
        self._audit = audit
        self._clock = clock
        self._look_at = 0.0
        self._rules: Rules
        self._judge: Judge | None = None
        self._fault: Faulty | None = None
        self._plain: dict[tuple[str, str, int, tuple[str, ...]], _Plain] = {}
        self._waiting: list[_Plain | bytes] = []
        """What was decided and is not written yet, in its order."""
        self._take(source.read())

    # ---- the port

    def glance(self, caller: str, target: str, depth: int, effects: tuple[str, ...], session_id: str) -> Decision | None:
        if not self._waiting:  # once in a turn is often enough
            self._look()
        known = self._plain.get((caller, target, depth, effects))
        if known is None:
            return None
        if not known.sessions:
            self._waiting.append(known)
        known.sessions.append(session_id)
        return known.decision

    def decide(self, asked: Asked) -> Decision:
        self._look()
        outcome, fault = self._outcome(asked)
        decision = self._in_mode(asked, outcome, fault)
        if asked.is_delegation:
            if not decision.because and self._is_plain(asked):  # the words of a refusal may speak of what is this one's alone
                if len(self._plain) >= OUTCOMES_KEPT:
                    self._plain = {}
                known = _Plain(decision, entry_text(_entry(replace(asked, facts={}), decision)))  # the others have other parameters
                self._plain[asked.caller, asked.action, asked.depth, asked.effects] = known
                self._waiting.append(known)
                known.sessions.append(asked.session_id)
            else:
                self._note(_entry(asked, decision), asked.session_id)
            return decision
        self._note(_entry(asked, decision), asked.session_id)
        try:
            self.write_out()
        except RemitError as error:
            return Decision(verdict=Verdict.DENY, because=f"The audit log cannot be written: {error.message}", advice=error.advice)
        return decision

    def sift(self, asked: Sequence[Asked]) -> list[bool]:
        self._look()
        decided = [self._in_mode(one, *self._outcome(one)) for one in asked]
        for one, decision in zip(asked, decided, strict=True):
            if decision.because:
                self._note(_entry(one, decision), one.session_id)
        plain = next(((one, decision) for one, decision in zip(asked, decided, strict=True) if not decision.because), None)
        if plain is not None:
            count = sum(not decision.because for decision in decided)
            self._note({**_entry(*plain), "alike": count}, plain[0].session_id)
        try:
            self.write_out()
        except RemitError as error:
            log.error("The audit log cannot be written: %s", error)
            return [False] * len(asked)
        return [decision.verdict is Verdict.ALLOW for decision in decided]

    def settled(self, asked: Asked, decision: Decision, verdict: Verdict, by: str) -> None:
        self._note({**_entry(asked, decision), "event": "asked", "verdict": str(verdict), "by": by}, asked.session_id)
        try:
            self.write_out()
        except RemitError as error:
            log.error("The audit log cannot be written: %s", error)

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

    def close(self) -> None:
        try:
            self.write_out()
        except RemitError as error:
            log.error("The audit log cannot be written: %s", error)
        self._audit.close()

    # ---- the rules

    def look_now(self) -> list[str]:
        """The rules as they stand; what is wrong with them."""
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
            self._judge = Judge(rules.text) if rules.fault is None else None
            self._fault = rules.fault
        except Faulty as fault:
            self._fault = fault
        if self._fault is not None:
            log.error("%s: %s", rules.name, self._fault)
        note = {"event": "rules", "mode": str(self.mode), "source": rules.name, "sha256": rules.sha256}
        self._note(note if self._fault is None else {**note, "fault": self._fault.message})

    def _note(self, entry: dict[str, Any], *sessions: str) -> None:
        self._waiting.append(entry_text({**entry, "sessions": sessions} if sessions else entry))

    def _outcome(self, asked: Asked) -> tuple[Outcome, str]:
        if self._judge is None:
            assert self._fault is not None
            return Outcome(verdict=Verdict.DENY), self._fault.message
        try:
            outcome = self._judge.judge(asked)
        except Exception as error:  # the boundary to Cedar: whatever it trips over is refused, never let through
            log.exception("The policy could not decide on %s", asked.action)
            return Outcome(verdict=Verdict.DENY), f"the rules could not be evaluated ({type(error).__name__}: {error})"
        return outcome, outcome.fault

    def _is_plain(self, asked: Asked) -> bool:
        """Whether any other delegation of this caller to this agent at this depth would be decided alike."""
        if self._judge is None:
            return False  # a file that cannot be read is looked at again each time
        if asked.on_behalf not in (ROOT_CALLER, asked.caller):
            return False  # its line in the log says on whose behalf, which is this tree's alone
        if not asked.facts.keys().isdisjoint(COMPUTED):
            return False
        mentions = self._judge.slice_of(asked.action, asked.effects, is_delegation=True).mentions
        return not mentions.everything and mentions.facts <= PLAIN_FACTS

    def _in_mode(self, asked: Asked, outcome: Outcome, fault: str) -> Decision:
        names = tuple(rule.name for rule in outcome.rules)
        if outcome.verdict is Verdict.ALLOW:
            return Decision(verdict=Verdict.ALLOW, rules=names)
        because, advice = because_of(asked, outcome, fault, self._rules.name)
        if self.mode is Mode.PERMISSIVE:
            return Decision(verdict=Verdict.ALLOW, rules=names, because=because, advice=advice, strict_verdict=outcome.verdict)
        question = question_of(asked, outcome) if outcome.verdict is Verdict.ASK else ""
        return Decision(verdict=outcome.verdict, rules=names, because=because, advice=advice, question=question)


def _entry(asked: Asked, decision: Decision) -> dict[str, Any]:
    """A decision as the log keeps it."""
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
        entry["facts"] = facts_kept(asked.facts)
    if not asked.is_delegation:
        entry["on_the_way"] = True
    if decision.because:
        entry["because"] = decision.because
    return entry


_ALLOWED = Decision(verdict=Verdict.ALLOW)


class Disabled:
    """Nothing is asked, and nothing is logged but one line that says so."""

    def __init__(self, audit: AuditLog, owner: str) -> None:
        self._audit = audit
        self._entry: bytes | None = entry_text({"event": "disabled", "mode": "disabled", "owner": owner})

    def decide(self, asked: Asked) -> Decision:
        return _ALLOWED

    def sift(self, asked: Sequence[Asked]) -> list[bool]:
        return [True] * len(asked)

    def glance(self, caller: str, target: str, depth: int, effects: tuple[str, ...], session_id: str) -> Decision | None:
        return _ALLOWED

    def settled(self, asked: Asked, decision: Decision, verdict: Verdict, by: str) -> None:
        return None

    def renamed(self, session_id: str, now: str) -> None:
        return None

    def write_out(self) -> None:
        if self._entry is not None:
            self._audit.write([self._entry])
            self._entry = None

    def close(self) -> None:
        self._audit.close()


def open_policy(folder: Path, mode: str, *, owner: str, clock: Clock, given: str | Path | None = None) -> Policy:
    """Of the project whose `.remit` is `folder`; `given`: other rules, as text or as a path."""
    audit = AuditLog(folder, clock=clock.wall)
    if mode == Mode.DISABLED:
        return Disabled(audit, owner)
    return ProjectPolicy(project_file(folder) if given is None else source_of(given), Mode(mode), audit)
