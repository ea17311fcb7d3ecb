"""The ports that `runtime` and the engines use: stores and agents. The conformance suites are in `remit.testing`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from remit.core.agents import AgentSpec
from remit.core.events import Event
from remit.core.record import CancelRequest, Head, HistoryQuery, Owner, Record, Spending, Write, WriteResult

if TYPE_CHECKING:
    from remit.core.metrics import Tally


class Store(Protocol):
    """What is known about delegations. Synchronous: the engine decides on which thread to call it.

    Writing methods are called by one thread at a time; reading ones never wait for a writer.
    Errors of the database below come out as `Unavailable` (code STORE_UNAVAILABLE) with advice; no sqlite3 error leaks.
    """

    def apply(self, writes: Sequence[Write]) -> WriteResult:
        """All of `writes`, or none. Durable when it returns.

        The session, agent, depth and path in the metadata of a return are those of its delegation: they are not kept twice.
        """
        ...

    def try_apply(self, writes: Sequence[Write]) -> WriteResult | None:
        """Like `apply`, but gives None at once, nothing written, when another process holds the write lock."""
        ...

    def get(self, session_id: str) -> Record | None: ...
    def by_key(self, key: str) -> Record | None: ...
    def tree(self, root_id: str) -> list[Record]:
        """The whole tree, in the order it was recorded."""
        ...

    def children(self, session_id: str) -> list[Record]: ...
    def live(self) -> list[Record]:
        """Queued and running, oldest first, of every owner."""
        ...

    def history(self, query: HistoryQuery) -> list[Record]: ...
    def count(self, state: str | None = None) -> int: ...
    def events(self, session_id: str, after: int = 0, most: int | None = None) -> list[Event]:
        """Steps and everything said, by number, those above `after`; the first `most` of them."""
        ...

    def heads(self, session_ids: Sequence[str]) -> dict[str, Head]:
        """How far each is, of those that are known."""
        ...

    def last_sign(self, session_ids: Sequence[str]) -> dict[str, float]:
        """When each was last heard of (wall clock): its newest event."""
        ...

    def checkpoint(self, session_id: str) -> Any: ...
    def durations(self, agent: str) -> list[float]:
        """Seconds of the newest settled runs of `agent`, at most 1,000."""
        ...

    def tally(self, since: float | None = None, until: float | None = None) -> "Tally":
        """Those asked for since then and before `until`, or all, summed up; read in one pass, none of them kept."""
        ...

    def drawn(self, principal: str) -> Spending:
        """By all that this principal ever asked for, with everything below it. What still lives counts with what it has told."""
        ...

    def change_stamp(self) -> int:
        """A number that changes when another process has written: cheap enough to ask every few milliseconds."""
        ...

    def enrol(self, owner: Owner) -> None: ...
    def dismiss(self, owner_id: str) -> None: ...
    def owners(self) -> list[Owner]: ...
    def take_over(self, session_ids: Sequence[str], *, of: str, to: str) -> list[Record]:
        """Atomically move live delegations from a dead owner to a living one; those that were still `of`'s."""
        ...

    def requeue(self, session_id: str, *, owner: str) -> None:
        """A taken-over delegation will be run again: its attempt is counted and it is queued."""
        ...

    def request_cancel(self, request: CancelRequest) -> None: ...
    def take_cancels(self, owner_id: str) -> list[CancelRequest]:
        """Cancel requests for live delegations of this owner; each is given out once."""
        ...

    def prune(self, *, settled_before: float) -> int:
        """Forget delegations settled before then, whole trees only; how many."""
        ...

    def optimize(self) -> None:
        """Housekeeping off the loop: move the write-ahead log into the database."""
        ...

    def close(self) -> None: ...


class AgentPort(Protocol):
    """Anything that can carry out a delegation. Implementations live in `agents`."""

    @property
    def spec(self) -> AgentSpec: ...

    def check(self, parameters: dict[str, Any]) -> Any:
        """The parameters as the agent will get them. Raises `Misused` (INVALID_PARAMETERS) naming each fault."""
        ...

    async def perform(self, ctx: Any, arguments: Any) -> Any:
        """Do the work and hand back a raw answer. `ctx` is a `runtime.context.Context`.

        Cancelled when it must stop: an implementation with a process kills it, whole, before it lets the cancellation go on.
        """
        ...
