"""The ports that `runtime` and the engines use: stores, files and agents. The conformance suite of stores is in `remit.testing`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from remit.core.adaptive import RunSample
from remit.core.agents import AgentSpec
from remit.core.budget import Limits
from remit.core.events import Event
from remit.core.record import CancelRequest, Head, HistoryQuery, Owner, Record, Spending, Write, WriteResult

if TYPE_CHECKING:
    from remit.core.metrics import Tally


class Store(Protocol):
    """The record of delegations. Synchronous: the engine chooses the thread.

    Writing methods are called by one thread at a time; reading ones never wait for a writer. Database errors are raised as `Unavailable`
    (code STORE_UNAVAILABLE) with advice; no sqlite3 error leaks."""

    def apply(self, writes: Sequence[Write]) -> WriteResult:
        """Apply all of `writes` or none. Durable when it returns.

        The session, agent, depth and path in the metadata of a return equal those of its delegation, so they are stored once."""
        ...

    def try_apply(self, writes: Sequence[Write]) -> WriteResult | None:
        """Like `apply`, but returns None at once, with nothing written, if another process has the write lock."""
        ...

    def get(self, session_id: str) -> Record | None: ...
    def by_key(self, key: str) -> Record | None: ...
    def keys(self, prefix: str, most: int) -> dict[str, str]:
        """Idempotency keys with this prefix, greatest first, and their sessions."""
        ...

    def drop_keys(self, prefix: str) -> int:
        """Remove the idempotency keys with this prefix. Returns their number."""
        ...

    def newest_by_agent(self, after: int) -> dict[str, int]:
        """For each agent with delegations recorded after number `after`, the number of the newest. Delegations of all processes are
        numbered from 1 in recording order."""
        ...

    def tree(self, root_id: str) -> list[Record]:
        """The whole tree, in recording order."""
        ...

    def children(self, session_id: str) -> list[Record]: ...
    def live(self) -> list[Record]:
        """Queued and running ones of every owner, oldest first."""
        ...

    def history(self, query: HistoryQuery) -> list[Record]: ...
    def count(self, state: str | None = None) -> int: ...
    def events(self, session_id: str, after: int = 0, most: int | None = None) -> list[Event]:
        """Steps and output after number `after`, in order; at most `most`."""
        ...

    def heads(self, session_ids: Sequence[str]) -> dict[str, Head]:
        """Progress of each known session."""
        ...

    def last_sign(self, session_ids: Sequence[str]) -> dict[str, float]:
        """Time of the newest event of each (wall clock)."""
        ...

    def checkpoint(self, session_id: str) -> Any: ...
    def durations(self, agent: str) -> list[RunSample]:
        """The newest runs of `agent` that completed or were stopped by a time limit, newest first, at most 400. Excludes cached, failed,
        cancelled and refused ones."""
        ...

    def tally(self, since: float | None = None, until: float | None = None) -> "Tally":
        """Sums over the delegations requested in this period, or all; computed in one pass."""
        ...

    def spent(self, principal: str) -> Spending:
        """Spending of everything this principal ever requested, with all children. Live delegations count with their reported spending."""
        ...

    def spent_below(self, root_id: str, session_id: str) -> Spending:
        """Spending of a delegation of this tree with everything below it. Live delegations count with their reported spending."""
        ...

    def limits(self, principal: str) -> Limits: ...
    def set_limits(self, principal: str, limits: Limits) -> None:
        """From now on `apply` records no delegation of this principal, by any process, that its spending leaves no room for."""
        ...

    def change_stamp(self) -> int:
        """A number that changes when another process writes; cheap enough to poll every few milliseconds."""
        ...

    def watch(self, on_change: Callable[[Literal["cancel", "write"]], None]) -> Callable[[], None] | None:
        """Call `on_change`, on any thread, soon after another process writes, until the returned function is called.

        "cancel": it left a cancel request; "write": anything else. None: this store cannot notify; poll `change_stamp`."""
        ...

    def register_owner(self, owner: Owner) -> None: ...
    def remove_owner(self, owner_id: str) -> None: ...
    def owners(self) -> list[Owner]: ...
    def take_over(self, session_ids: Sequence[str], *, of: str, to: str) -> list[Record]:
        """Atomically move live delegations from a dead owner to a live one. Returns those that still belonged to `of`."""
        ...

    def claim(self, session_id: str, *, ticket: int, owner: str) -> Record | None:
        """Atomically give a live delegation of a queue to `owner` and return its previous record. None: it has ended, is in no queue, or
        was claimed with this ticket or a later one. The previous owner loses it: its outcome is refused."""
        ...

    def requeue(self, session_id: str, *, owner: str) -> None:
        """Queue a taken-over delegation again and count the attempt."""
        ...

    def request_cancel(self, request: CancelRequest) -> None: ...
    def take_cancels(self, owner_id: str) -> list[CancelRequest]:
        """Cancel requests for live delegations of this owner; each is returned once."""
        ...

    def prune(self, *, settled_before: float) -> int:
        """Delete trees settled before this time, whole trees only. Returns the number of delegations."""
        ...

    def optimize(self) -> None:
        """Maintenance off the loop: checkpoint the write-ahead log."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ShippedFile:
    """A file that is in the object store."""

    path: str
    """Relative to the root of the project."""
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of a delegation that are in the object store, for other machines."""

    files: tuple[ShippedFile, ...]
    at: float
    """Wall clock of its worker: they are as they were then."""
    attempt: int = 1
    worker: str = ""
    base: str = ""
    """The commit that its worktree began from, if it has one."""


class Blobs(Protocol):
    """Files that processes on other machines can read: content by its sha256, and a manifest for each delegation. Blocking.

    Raises `Unavailable` (STORE_UNAVAILABLE) if it cannot be used, and `Failed` for content that is missing or damaged."""

    address: str

    def check(self) -> None:
        """Raises if it cannot be read and written."""

    def put(self, descriptor: int, sha256: str | None = None) -> tuple[str, int]:
        """Hash and size of the file, which is stored whole when this returns. `sha256`: the hash that it is known to have had."""
        ...

    def has(self, sha256: str) -> bool: ...

    def get(self, sha256: str, size: int, descriptor: int) -> None:
        """Write the content to an empty file, and compare it with its hash."""

    def write_manifest(self, session_id: str, manifest: Manifest) -> None: ...

    def manifest(self, session_id: str) -> Manifest | None:
        """Of its newest attempt."""
        ...


class AgentPort(Protocol):
    """Executes delegations. Implementations are in `agents`."""

    @property
    def spec(self) -> AgentSpec: ...

    def check(self, parameters: dict[str, Any]) -> Any:
        """Validate and convert the parameters. Raises `Misused` (INVALID_PARAMETERS) with each fault."""
        ...

    async def perform(self, ctx: Any, arguments: Any) -> Any:
        """Do the work and return a raw answer. `ctx` is a `runtime.context.Context`.

        Cancelled to stop: an implementation with a process kills it with all descendants before it propagates the cancellation."""
        ...
