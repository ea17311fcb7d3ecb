"""What the policy is asked, and what it answers (S5.10). Plain values: `remit.policy` evaluates the rules, `flow.permit` asks for it.

Deny beats ask, ask beats allow. Every action passes here: each delegation before it runs, and what an agent asks for while it works.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol


class Effect(StrEnum):
    """What an operation does to the world: declared with the agent, so that a rule can name all that write, say."""

    READ = "read"
    WRITE = "write"
    DELETE = "delete"
    NETWORK = "network"
    EXECUTE = "execute"


class Fact(StrEnum):
    """What a parameter of an agent stands for, so that a rule can speak of it: `acts_on={"path": "path"}`."""

    PATH = "path"
    """A path in the workspace."""
    URL = "url"
    """An address: its scheme, host and port are what rules speak of."""
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
class Asked:
    """One action that somebody wants to do."""

    caller: str
    """Who wants it: the agent that delegates, or `orchestrator` for a person or program outside."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    verdict: Verdict
    """What holds, after the mode was applied."""
    rules: tuple[str, ...] = ()
    """The rules that decided, by their names."""
    because: str = ""
    """In words, for whoever is refused or asked."""
    advice: str = ""
    strict_verdict: Verdict | None = None
    """What strict would have said, where the mode changed it."""


class Policy(Protocol):
    def decide(self, asked: Asked) -> Decision:
        """Total and quick: never waits, never raises. Each decision is in the audit log before this returns or the action begins."""
        ...

    def settled(self, asked: Asked, decision: Decision, verdict: Verdict, by: str) -> None:
        """How an `ask` ended: what the person (`by`) said, or that nobody did. Goes into the audit log."""
        ...


class Approver(Protocol):
    """Asks a person."""

    async def approve(self, asked: Asked, decision: Decision, seconds: float) -> tuple[bool, str]:
        """Whether they said yes within so many seconds, and who said it or why nobody could be asked."""
        ...


class _Everything:
    """The policy of a house that was given none."""

    def decide(self, asked: Asked) -> Decision:
        return _ALLOWED

    def settled(self, asked: Asked, decision: Decision, verdict: Verdict, by: str) -> None:
        return None


_ALLOWED = Decision(verdict=Verdict.ALLOW)
EVERYTHING: Policy = _Everything()
