"""Requests to the policy and its decisions. Plain values: `remit.policy` evaluates the rules, `runtime.authorize` calls it.

Deny overrides ask, ask overrides allow. Every action is checked: each delegation before it runs, and requests of an agent while it works.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from remit.core.delegation import ROOT_CALLER


class Effect(StrEnum):
    """Effects of an operation, declared with the agent, so that a rule can name all that write."""

    READ = "read"
    WRITE = "write"
    DELETE = "delete"
    NETWORK = "network"
    EXECUTE = "execute"


ACP_EFFECTS = {
    "read": "read",
    "search": "read",
    "edit": "write",
    "move": "write",
    "delete": "delete",
    "execute": "execute",
    "fetch": "network",
}
"""Effect of each kind of tool of the Agent Client Protocol; `acp.KIND` is its action in rules."""


class Fact(StrEnum):
    """The meaning of an agent's parameter for rules: `acts_on={"path": "path"}`."""

    PATH = "path"
    """A path in the workspace."""
    URL = "url"
    """An address: rules use its scheme, host and port."""
    COMMAND = "command"
    """A command line."""
    LANGUAGE = "language"
    """The language of code to execute."""


class Verdict(StrEnum):
    ALLOW = "allow"
    ASK = "ask"
    """Allowed after a person approves."""
    DENY = "deny"


class Mode(StrEnum):
    STRICT = "strict"
    PERMISSIVE = "permissive"
    """Everything is allowed; what strict would refuse is logged."""
    DISABLED = "disabled"


class PolicyRequest(NamedTuple):
    """One action that a caller wants to perform."""

    caller: str
    """The delegating agent; `orchestrator` for the owner of the project; `token:NAME` for an API caller."""
    action: str
    """The operation: the agent's name in the directory, e.g. `worker.read_file`, or an action that an agent requests."""
    depth: int
    path: tuple[str, ...]
    """From the root to the caller."""
    effects: tuple[str, ...] = ()
    facts: Mapping[str, Any] = {}
    """path, inside, url, scheme, host, port, address, method, command, language, …: text, whole numbers, booleans."""
    timeout_seconds: float = 0.0
    tokens_left: int | None = None
    cost_left: float | None = None
    session_id: str = ""
    root_id: str = ""
    is_delegation: bool = True
    """False: a running agent requests it."""
    on_behalf: str = ROOT_CALLER
    """The caller of the whole tree."""
    has_read_files: bool = False
    """Whether an agent of the tree may have read project files; the next field: content from the network."""
    has_read_untrusted: bool = False


class Decision(NamedTuple):
    verdict: Verdict
    """The verdict after the mode was applied."""
    rules: tuple[str, ...] = ()
    """The rules that decided, by their names."""
    because: str = ""
    """The reason, for the refused caller or the person who is asked."""
    advice: str = ""
    strict_verdict: Verdict | None = None
    """The verdict of strict mode, if the mode changed it."""
    question: str = ""
    """The question to the person, with `ask`."""


class PendingApproval(NamedTuple):
    """An accepted delegation that may not run before a person approves."""

    asked: PolicyRequest
    decision: Decision


class Policy(Protocol):
    @property
    def fingerprint(self) -> str:
        """Identifies its current rules and mode: two processes with the same fingerprint decide alike."""
        ...

    def decide(self, asked: PolicyRequest) -> Decision:
        """Decide a request. Never waits and never raises. The decision is in the audit log before this returns or the action begins."""
        ...

    def filter_allowed(self, asked: Sequence[PolicyRequest]) -> list[bool]:
        """Which of many similar requests are allowed, without asking a person. Writes one log line, and one for each refusal."""
        ...

    def cached_decision(self, caller: str, target: str, depth: int, effects: tuple[str, ...], session_id: str) -> Decision | None:
        """An earlier decision on a delegation about which rules know only these facts; None: call `decide`.

        Fast path for every delegation: logged like any other, and on disk when `write_out` returns."""
        ...

    def write_out(self) -> None:
        """Write all decisions to the audit log. Called before a delegation is recorded, so before it runs."""
        ...

    def renamed(self, session_id: str, now: str) -> None:
        """Note that a delegation got another id, because its own was taken."""
        ...

    def settled(self, asked: PolicyRequest, decision: Decision, verdict: Verdict, by: str) -> None:
        """Log the outcome of an `ask`: the answer of the person (`by`), or that there was none."""
        ...

    def close(self) -> None: ...


class Approver(Protocol):
    """Asks a person."""

    async def approve(self, asked: PolicyRequest, decision: Decision, seconds: float) -> tuple[bool, str]:
        """Whether a person approved in time, and who answered or why there was no answer."""
        ...


class AllowAll:
    """The policy if none is configured. It only refuses addresses that are not public, which require a rule."""

    fingerprint = "none"

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
_INSIDE = Decision(
    verdict=Verdict.DENY, because="No policy is configured, and addresses that are not public require a rule that permits them."
)
ALLOW_ALL: Policy = AllowAll()
