"""The transport-neutral handler behind every door: hand out work, look at it, follow it, cancel it, list it. Knows no protocol.

A door reads its request, says who asks and what came along (`Call`), and translates what it gets: a `DelegateResult` (S5.4), numbered
chunks (S5.7), records. Whoever asks sees and ends its own work only, unless it was granted more; somebody else's is as if it did not exist.
Errors are `RemitError`s, turned into each protocol's own by `statuses`.
"""

import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from remit.access.visitor import Doing, Visitor
from remit.core.errors import Misused, Refused
from remit.core.events import EventKind
from remit.core.lineage import ROOT_CALLER
from remit.core.origin import ORIGIN, Came, Origin
from remit.core.record import HistoryQuery, Record
from remit.flow.context import Handle
from remit.system.threads import off_loop
from remit.tool.chunks import Chunk, chunk_of, ended
from remit.tool.request import DelegateRequest
from remit.tool.result import DelegateResult, result_of_record
from remit.tool.tool import DelegateTool

if TYPE_CHECKING:
    from remit.app import Remit

EXTRAS = ("key", "accept", "budget", "resume", "idle")
"""What a request takes here beside the arguments of the delegate tool (S5.1)."""
MOST_ON_PAGE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request: who makes it and what came along with it."""

    visitor: Visitor
    door: str
    session: str | None = None
    """The caller's own word for the conversation."""
    traceparent: str | None = None
    deadline_at: float | None = None
    """Wall clock: when the caller itself gives up; its delegation does not run longer."""
    depth: int = 0
    path: tuple[str, ...] = ()
    """Of the caller, when it is a remit; honoured from those that were granted `relay` only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    records: Sequence[Record]
    next_page: str | None
    """Where the next one begins; None: this was the last."""


class Service:
    def __init__(self, remit: "Remit") -> None:
        self.remit = remit
        self.tool = DelegateTool(remit)
        self.is_stopping = False
        """Nothing new is begun any more."""

    # ---- work

    def read(self, call: Call, arguments: Mapping[str, Any]) -> DelegateRequest:
        """The request, judged, and allowed to this caller; nothing runs. Raises `DelegateError`, `Refused`."""
        self._must(call, Doing.DELEGATE)
        return self.allowed(call, self.tool.read(arguments, *EXTRAS))

    def allowed(self, call: Call, request: DelegateRequest) -> DelegateRequest:
        """For a door that reads requests in its own way. Raises `Refused`."""
        self._must(call, Doing.DELEGATE)
        grants = call.visitor.grants
        if not grants.may_use(request.agent):
            raise Refused(
                f"{call.visitor.principal} may not use {request.agent}.",
                code="FORBIDDEN",
                advice=f"It was granted {', '.join(grants.agents or ())}; `remit token new --agent` makes one that may do more.",
            )
        longest = grants.timeout_seconds
        if longest is not None and request.timeout_seconds is not None and request.timeout_seconds > longest:
            raise Misused(f"timeout must be at most {longest:g} s for {call.visitor.principal}.", advice="Ask for less, or leave it out.")
        return request

    async def execute(self, call: Call, request: DelegateRequest) -> Handle:
        """Begun and on record when this returns; it goes on whatever becomes of the connection."""
        if self.is_stopping:
            raise Refused("This server is stopping and takes nothing new.", code="STOPPING", advice="Try again in a moment.")
        extras = {name: request.also[name] for name in EXTRAS if name in request.also}
        asked = request.asked()
        longest = call.visitor.grants.timeout_seconds
        if longest is not None and asked["timeout"] is None:
            asked["timeout"] = min(longest, self._default_seconds(request))
        with coming_from(call):
            return await self.remit.start(request.agent, **asked, **extras)

    async def look(self, call: Call, task_id: str) -> DelegateResult:
        await self.record(call, task_id)
        return await self.tool.look(task_id)

    async def record(self, call: Call, task_id: str) -> Record:
        """Raises `Misused` (TASK_NOT_FOUND), also for what is not the caller's to see."""
        record = await off_loop(self.remit.store.get, task_id)
        if record is None or not self._is_theirs(call, record, Doing.SEE_ALL):
            raise _unknown(task_id)
        return record

    async def stream(self, call: Call, task_id: str, after: int = 0) -> AsyncIterator[Chunk]:
        """What it says, from the chunk after number `after`; the last one has the result. Leaving it does not end the delegation."""
        await self.record(call, task_id)
        async for event in self.remit.follow(task_id, after):
            if event.kind in (EventKind.COMPLETE, EventKind.ERROR):
                yield ended(result_of_record(await self.remit.describe(task_id)), event.number)
                return
            if (chunk := chunk_of(event)) is not None:
                yield chunk

    async def result(self, call: Call, task_id: str, wait_seconds: float) -> DelegateResult:
        """As it stands when it has ended, or when so long was waited."""
        await self.record(call, task_id)
        await self.remit.result(task_id, wait_seconds=wait_seconds)
        return await self.tool.look(task_id)

    async def cancel(self, call: Call, task_id: str, reason: str = "") -> tuple[DelegateResult, list[dict[str, Any]]]:
        """Really stopped, with everything below it; how it stands then, and how each node ended. Of one that has ended: nothing is done."""
        record = await self.record(call, task_id)
        if not self._is_theirs(call, record, Doing.CANCEL_ALL):
            raise Refused(f"{task_id} is not {call.visitor.principal}'s to cancel.", code="FORBIDDEN")
        nodes = await self.remit.cancel(task_id, reason[:1000], source=f"{call.visitor.principal} by {call.door}")
        return await self.tool.look(task_id), nodes

    async def list(self, call: Call, query: HistoryQuery) -> Page:
        """Newest first; `query.before_session` begins a later page."""
        ...  # TODO(piece 1): filter by principal in the store
        raise NotImplementedError

    # ---- who may

    def may_see(self, call: Call, record: Record) -> bool:
        return self._is_theirs(call, record, Doing.SEE_ALL)

    def _must(self, call: Call, doing: Doing) -> None:
        if not call.visitor.may(doing):
            raise Refused(f"{call.visitor.principal} may not {doing}.", code="FORBIDDEN", advice="`remit token new` grants it.")

    def _is_theirs(self, call: Call, record: Record, beyond: Doing) -> bool:
        visitor = call.visitor
        if visitor.parent is not None:
            return record.session_id == visitor.parent or record.parent_id == visitor.parent  # TODO(piece 1): anything below it
        principal = record.came.principal if record.came is not None else ROOT_CALLER
        return visitor.may(beyond) or principal == visitor.principal

    def _default_seconds(self, request: DelegateRequest) -> float:
        limits = self.remit.settings.limits_for(request.agent)
        return min(request.spec.timeout_seconds or limits.default_seconds, limits.maximum_seconds)


@contextlib.contextmanager
def coming_from(call: Call) -> Iterator[None]:
    """Whatever is begun inside is this caller's. The owner's own, with nothing that came along, is as if asked at the command line."""
    is_plain = call.visitor.is_local and not (call.session or call.traceparent or call.deadline_at)
    token = ORIGIN.set(None if is_plain else origin_of(call))
    try:
        yield
    finally:
        ORIGIN.reset(token)


def origin_of(call: Call) -> Origin:
    visitor, grants = call.visitor, call.visitor.grants
    is_relay = visitor.may(Doing.RELAY) and bool(call.path)
    return Origin(
        came=Came(visitor.principal, call.door, call.session, call.traceparent),
        depth=call.depth if is_relay else 0,
        path=call.path if is_relay else (visitor.principal,),
        max_depth=grants.max_depth,
        deadline_at=min((at for at in (call.deadline_at, grants.deadline_at) if at is not None), default=None),
        limits=grants.tree,
        budget=visitor.budget,
        parent=visitor.parent,
    )


def _unknown(task_id: str) -> Misused:
    return Misused(
        f"There is no task {task_id[:80]}.", code="TASK_NOT_FOUND", advice="Its id is in the answer that began it; list the tasks."
    )
