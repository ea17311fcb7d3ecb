"""Who came in by a door, and what they may do there. Values; `entrance` makes them of credentials, `serve.service` holds to them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase

from remit.core.budget import Budget, Limits
from remit.core.delegation import ROOT_CALLER


class Doing(StrEnum):
    DELEGATE = "delegate"
    """Hand out work, and look at, follow and cancel one's own."""
    SEE_ALL = "see-all"
    """Look at and follow what others asked for too."""
    CANCEL_ALL = "cancel-all"
    SERVE = "serve"
    """Register as a remote agent and be given work."""
    METRICS = "metrics"
    RELAY = "relay"
    """Is a remit itself: the depth, path and deadline it sends are honoured."""


EVERYTHING = frozenset(Doing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grants:
    """None: not limited."""

    doing: frozenset[Doing] = frozenset({Doing.DELEGATE})
    agents: tuple[str, ...] | None = None
    """Patterns of agents and operations it may use (`worker`, `worker.read_file`, `code*`); for `serve`, the names it may take."""
    budget: Limits | None = None
    """Of everything it ever asks for together."""
    tree: Limits | None = None
    """Of each tree."""
    timeout_seconds: float | None = None
    """The longest it may ask for."""
    max_depth: int | None = None
    expires_at: float | None = None
    """Wall clock: from then on it lets nobody in."""
    deadline_at: float | None = None
    """Wall clock: whatever it asks for ends by then."""
    requests_per_second: float | None = None
    burst: int | None = None
    request_bytes: int | None = None
    streams: int | None = None
    """How many may be open at once."""

    def may_use(self, agent: str) -> bool:
        """`worker` covers `worker.read_file`."""
        if self.agents is None:
            return True
        return _matches(agent, self.agents) or _matches(agent.partition(".")[0], self.agents)


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    principal: str
    """`orchestrator` for who owns this project, by the socket or the token file; `token:NAME`; `cert:NAME`; `delegation:SESSION`."""
    grants: Grants = field(default_factory=Grants)
    parent: str | None = None
    """With the token of a delegation: its session. What is asked for is its child."""
    credentials: tuple[str, ...] = field(default=(), compare=False)
    """By what it came in, so that it can be asked later whether that still holds (`Entrance.is_welcome`); none: it always does."""
    budget: Budget | None = field(default=None, compare=False, repr=False)
    """The limits on everything it asks for, since when; with the token of a delegation the very scope that it draws from, as do all
    tokens that were made of it. None: no limit of its own."""

    @property
    def is_local(self) -> bool:
        return self.principal == ROOT_CALLER and self.parent is None

    def may(self, doing: Doing) -> bool:
        return doing in self.grants.doing


OWNER = Visitor(principal=ROOT_CALLER, grants=Grants(doing=EVERYTHING))
"""Whoever may write the project's files may do anything here anyway."""


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
