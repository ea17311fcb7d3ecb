"""What the policy is asked, and what it answers. Plain values: `remit.policy` evaluates the rules, `runtime.authorize` asks for it.

Deny beats ask, ask beats allow. Every action passes here: each delegation before it runs, and what an agent asks for while it works.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from remit.core.delegation import ROOT_CALLER


class Effect(StrEnum):
    """What an operation does to the world: declared with the agent, so that a rule can name all that write, say."""

    READ = "read"
    WRITE = "write"
    DELETE = "delete"
    NETWORK = "network"
    EXECUTE = "execute"


class Fact(StrEnum):
    """What a parameter of an agent stands for, so that rules can use it: `acts_on={"path": "path"}`."""

    PATH = "path"
    """A path in the workspace."""
    URL = "url"
    """An address: rules use its scheme, host and port."""
    COMMAND = "command"
    """A command line."""
    LANGUAGE = "language"
    """What code is written in that is to be run."""


class Verdict(StrEnum):
    ALLOW = "allow"
    ASK = "ask"
    """Allowed once a person says yes."""
    DENY = "deny"


class Mode(StrEnum):
    STRICT = "strict"
    PERMISSIVE = "permissive"
    """Everything is allowed; what strict would refuse is logged."""
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRequest:
    """One action that a caller wants to perform."""

    caller: str
    """Who wants it: the agent that delegates; `orchestrator` for whoever owns the project; `token:NAME` or `cert:NAME` for whoever came
    in through an API."""
    action: str
    """The operation: the name of the agent in the directory, e.g. `worker.read_file`, or what an agent asks for on its way."""
    depth: int
    path: tuple[str, ...]
    """From the root to the caller."""
    effects: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    """path, inside, url, scheme, host, port, address, method, command, language, …: text, whole numbers, booleans."""
    timeout_seconds: float = 0.0
    tokens_left: int | None = None
    cost_left: float | None = None
    session_id: str = ""
    root_id: str = ""
    is_delegation: bool = True
    """False: an agent that runs asks for it on its way."""
    on_behalf: str = ROOT_CALLER
    """Who asked for the whole tree."""
    has_read_files: bool = False
    """Whether an agent of the tree may have read files of the project; the next, what somebody on the network wrote."""
    has_read_untrusted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    verdict: Verdict
    """What holds, after the mode was applied."""
    rules: tuple[str, ...] = ()
    """The rules that decided, by their names."""
    because: str = ""
    """In words, for the caller that is refused or the person who is asked."""
    advice: str = ""
    strict_verdict: Verdict | None = None
    """What strict would have said, where the mode changed it."""
    question: str = ""
    """What a person is asked, with `ask`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingApproval:
    """A delegation that was let in, but may not run yet: a person must say yes first."""

    asked: PolicyRequest
    decision: Decision


class Policy(Protocol):
    def decide(self, asked: PolicyRequest) -> Decision:
        """Total and quick: never waits, never raises. Each decision is in the audit log before this returns or the action begins."""
        ...

    def filter_allowed(self, asked: Sequence[PolicyRequest]) -> list[bool]:
        """Which of many similar requests are allowed, without asking a person. One line in the log, and one for each that is refused."""
        ...

    def cached_decision(self, caller: str, target: str, depth: int, effects: tuple[str, ...], session_id: str) -> Decision | None:
        """The decision on a delegation of which rules could know nothing more than this, when it was made before; None: `decide`.

        For the way that every delegation passes: noted like any other, on disk when `write_out` returns.
        """
        ...

    def write_out(self) -> None:
        """Whatever was decided is in the audit log when this returns. Called before a delegation is put on record, so before it runs."""
        ...

    def renamed(self, session_id: str, now: str) -> None:
        """A delegation got another id, because its own was taken."""
        ...

    def settled(self, asked: PolicyRequest, decision: Decision, verdict: Verdict, by: str) -> None:
        """Log how an `ask` ended: what the person (`by`) answered, or that there was no answer."""
        ...

    def close(self) -> None: ...


class Approver(Protocol):
    """Asks a person."""

    async def approve(self, asked: PolicyRequest, decision: Decision, seconds: float) -> tuple[bool, str]:
        """Whether a person approved within so many seconds, and who answered, or why there was no answer."""
        ...


class AllowAll:
    """The policy when none is configured. Only what leads inside (an `address` that is not public) takes a rule that says so."""

    def decide(self, asked: PolicyRequest) -> Decision:
        return ALLOWED if asked.facts.get("address", "public") == "public" else _INSIDE

    def filter_allowed(self, asked: Sequence[PolicyRequest]) -> list[bool]:
        return [self.decide(one) is ALLOWED for one in asked]

    def cached_decision(self, caller: str, target: str, depth: int, effects: tuple[str, ...], session_id: str) -> Decision | None:
        return ALLOWED

    def write_out(self) -> None:
        return None

    def renamed(self, session_id: str, now: str) -> None:
        return None

    def settled(self, asked: PolicyRequest, decision: Decision, verdict: Verdict, by: str) -> None:
        return None

    def close(self) -> None:
        return None


ALLOWED = Decision(verdict=Verdict.ALLOW)
_INSIDE = Decision(verdict=Verdict.DENY, because="No policy is configured, and addresses that are not public need one that permits them.")
ALLOW_ALL: Policy = AllowAll()
