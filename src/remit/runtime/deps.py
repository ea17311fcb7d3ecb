"""What the runtime is given by `app`: the directory, the rules, the clock, the policy; and a submission, which an engine runs."""

import contextvars
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from remit.core.budget import Budget, Limits
from remit.core.deadline import SYSTEM_CLOCK, Clock, TimeLimits
from remit.core.delegation import ROOT_CALLER, Delegation, Lineage
from remit.core.errors import ErrorInfo
from remit.core.policy import ALLOW_ALL, Approver, PendingApproval, Policy
from remit.core.ports import AgentPort
from remit.core.redaction import SecretValues
from remit.core.result import Return
from remit.core.routing import RoutingTable
from remit.runtime.tree_facts import TreeFacts

if TYPE_CHECKING:
    from remit.core.settings import Settings
    from remit.runtime.engine import LiveDelegation
    from remit.runtime.workspaces import Workspace


class Agents(Protocol):
    """The directory, as the runtime sees it."""

    def find(self, name: str) -> AgentPort | None: ...
    def names(self) -> Sequence[str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The settings that decide what may run, as plain values."""

    limits_for: Callable[[str], TimeLimits]
    routing: RoutingTable
    max_depth: int = 3
    cycles_by_task: bool = False
    budget: Limits = field(default_factory=lambda: Limits(delegations=1000, alive=256))


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceRules:
    """The settings of acceptance commands, as plain values."""

    is_on_host: bool = False
    """Whether commands that a person or a program of the project wrote run outside of the sandbox."""
    variables: tuple[str, ...] = ()
    """Names of variables beside the usual ones."""
    read: tuple[str, ...] = ()
    """Paths beside the toolchain, to be read in the sandbox."""
    memory_mb: int | None = None
    """In the sandbox; None: half of the machine's."""
    processes: int = 4096

    @classmethod
    def from_settings(cls, settings: "Settings") -> "AcceptanceRules":
        return cls(
            is_on_host=settings.accept_in == "host",
            variables=settings.accept_env,
            read=settings.accept_read,
            memory_mb=settings.accept_memory_mb,
            processes=settings.accept_processes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeDeps:
    root: Path
    agents: Agents
    rules: Rules
    clock: Clock = SYSTEM_CLOCK
    note_errors: Callable[[Delegation, Sequence[ErrorInfo], str], None] = lambda _delegation, _errors, _trace: None
    """Where errors go to be remembered: the error ledger."""
    policy: Policy = ALLOW_ALL
    """What every action passes."""
    approver: Approver | None = None
    """Who asks a person; None: nobody can be asked here, so the answer is no."""
    approval_seconds: float = 120.0
    """How long a person is waited for."""
    acceptance: AcceptanceRules = field(default_factory=AcceptanceRules)
    """Where acceptance commands run and what they see."""
    principal_of: Callable[[str], str | None] = lambda _session_id: None
    """Who asked for the tree of a delegation; None: it is not on record."""
    named_addresses: Callable[[], Collection[str]] = tuple
    """Addresses that the settings name."""


class Caller(Protocol):
    """Whoever delegates from inside the tree: a running delegation."""

    @property
    def delegation(self) -> Delegation: ...
    @property
    def tree(self) -> TreeFacts: ...
    @property
    def budget(self) -> Budget: ...
    @property
    def closing(self) -> str | None: ...
    @property
    def workspace(self) -> Path:
        """The folder it works in."""
        ...

    @property
    def own_workspace(self) -> "Workspace | None":
        """That folder, if it is not the project."""
        ...

    def ancestors(self) -> list[Delegation]:
        """Itself and its callers, nearest first."""
        ...


@dataclass(slots=True)
class Submission:
    """A delegation on its way: what was asked, made precise, and what it needs to run. Handed from `delegate` to the engine."""

    delegation: Delegation
    agent: AgentPort | None
    """None only when it was refused."""
    arguments: Any
    tree: TreeFacts
    budget: Budget
    """The scope it draws from: its own, when it asked for limits."""
    caller: Caller | None
    step_times: list[float | None]
    warnings: tuple[str, ...] = ()
    refusal: Return | None = None
    earlier: Any = None
    """What an earlier run left to go on from (`EarlierRun`), when the request names one."""
    pending: PendingApproval | None = None
    """What a person must say yes to before its agent runs."""
    secrets: SecretValues | None = None
    """Those of its parameters: struck out of whatever is kept, as long as this lives."""


CURRENT: "contextvars.ContextVar[LiveDelegation | None]" = contextvars.ContextVar("remit_current", default=None)
"""The delegation whose agent runs in this context. An engine sets it around each agent: what that delegates is its child."""
ROOT_LINEAGE = Lineage(session_id="", root_id="", parent_id=None, depth=0, path=(ROOT_CALLER,))
