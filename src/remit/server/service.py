"""The service behind every API: start, query, follow, cancel and list work. Independent of protocols.

An API parses its request, passes the caller and its context (`Call`), and translates the answer: a `DelegateResult`, numbered chunks,
records. Callers see and end only their own work, unless they were granted more. Errors are `RemitError`s, which `status_of` maps to each
protocol."""

import asyncio
import contextlib
import os
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from remit.core.agents import AgentSpec, rank
from remit.core.budget import Budget
from remit.core.context import Handle, SettledHandle
from remit.core.delegate_requests import DelegateError, DelegateRequest, parameters_schema, parts_of
from remit.core.delegate_results import (
    ANSWERED,
    WAITING,
    Chunk,
    ChunkType,
    DelegateResult,
    TaskState,
    chunk_of,
    final_chunk,
    result_of,
    result_of_record,
)
from remit.core.delegation import ORIGIN, ROOT_CALLER, CallerInfo, Origin, on_behalf_of
from remit.core.errors import Misused, Refused, RemitError, Unavailable
from remit.core.events import Event, EventKind, Step
from remit.core.ids import is_session_id, parse_traceparent
from remit.core.parameters import snake
from remit.core.ports import Store
from remit.core.protected_paths import is_private, session_of
from remit.core.record import HistoryQuery, Record
from remit.core.request_metadata import CallerPosition
from remit.core.result import Return
from remit.core.states import State
from remit.runtime.engine import LiveHandle
from remit.runtime.tool.delegate_tool import DelegateTool
from remit.server.tokens import Grants, Permission, Principal
from remit.system.artifact_files import read_bounded
from remit.system.beneath import path_inside
from remit.system.liveness import below, is_gone, living_owners
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.app import Remit


PRINCIPAL = "remit.principal"
"""Key of the ASGI scope: the authenticated `Principal`."""
HOLD = "remit.hold"
"""Key of the ASGI scope: from now on the request ends when the caller's token is revoked."""
EXTRAS = ("key", "accept", "budget")
"""Arguments of a request besides those of the delegate tool."""
MOST_ON_PAGE = 500
MOST_TREE = 100_000
"""Delegations of one tree that a list reads."""
SUMMARY = 500
"""Characters of a text in a list."""
LONGEST_SESSION = 200
"""Characters of a caller's name for its conversation."""
RECORDED: Mapping[TaskState, tuple[State, ...]] = {
    TaskState.PENDING: (),
    TaskState.QUEUED: (State.QUEUED,),
    TaskState.RUNNING: (State.RUNNING,),
    TaskState.PAUSED: (State.RUNNING,),
    TaskState.COMPLETED: (State.COMPLETED,),
    TaskState.FAILED: (State.PARTIAL, State.FAILED, State.BLOCKED, State.REFUSED),
    TaskState.CANCELLED: (State.CANCELLED,),
    TaskState.TIMEOUT: (State.TIMEOUT,),
}
"""States of records, to filter lists by the state of a task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The caller of one request, and its context."""

    principal: Principal
    api: str
    session: str | None = None
    """The caller's own name for the conversation."""
    traceparent: str | None = None
    deadline_at: float | None = None
    """Wall clock: the caller's own deadline, which bounds the delegation."""
    depth: int = 0
    path: tuple[str, ...] = ()
    """Of a caller that is a remit; honoured only with the grant `relay`."""

    @classmethod
    def of(
        cls, principal: Principal, api: str, traceparent: object, session: str | None = None, position: CallerPosition | None = None
    ) -> Self:
        """`traceparent`: the header value."""
        position = position or CallerPosition()
        trace, left = parse_traceparent(traceparent), position.seconds_left
        return cls(
            principal=principal,
            api=api,
            session=session,
            traceparent=None if trace is None else str(trace),
            deadline_at=None if left is None else time.time() + left,
            depth=position.depth,
            path=position.path,
        )


class Page(NamedTuple):
    records: Sequence[Record]
    next_page: str | None
    """None: this was the last."""


class AgentInfo(NamedTuple):
    spec: AgentSpec
    parameters: dict[str, Any]
    """JSON schema."""
    timeout_seconds: float
    """Of a request without one."""
    max_timeout_seconds: float


def summary_of(record: Record) -> DelegateResult:
    """The entry of a list: without data, artifacts and long texts, so that a page stays small."""
    result = result_of_record(record)
    error = result.error
    if error is not None:
        details = {name: error.details[name] for name in ("code", "type") if name in error.details}
        error = replace(error, message=error.message[:SUMMARY], recommendation=error.recommendation[:SUMMARY], details=details)
    return replace(result, data=None, artifacts=(), output=result.output[:SUMMARY], error=error)


class Service:
    def __init__(self, remit: "Remit") -> None:
        self.remit = remit
        self.tool = DelegateTool(remit)
        self.is_stopping = False
        """New work is refused."""
        self._starting: set[asyncio.Task[Handle]] = set()

    # ---- starting

    def read(self, call: Call, arguments: Mapping[str, Any], extras: Sequence[str] = EXTRAS) -> DelegateRequest:
        """The request, checked and allowed for this caller. Nothing runs. Raises `DelegateError`, `Refused`, `Misused`."""
        principal, grants = call.principal, call.principal.grants
        self._require(call, Permission.DELEGATE)
        try:
            request = self.tool.read(arguments, *extras)
        except DelegateError:
            request = self.tool_for(call).read(arguments, *extras)  # names only agents that the caller may use
        if forbidden := [name for name in request.agents if not self._may_use(grants, name)]:
            raise Refused(
                f"{principal.name} may not use {forbidden[0]}.",
                code="FORBIDDEN",
                advice=f"It was granted {', '.join(grants.agents or ())}; `remit token new --agent` makes another.",
            )
        longest = grants.timeout_seconds
        if longest is not None and request.timeout_seconds is not None and request.timeout_seconds > longest:
            raise Misused(f"timeout must be at most {longest:g} s for {principal.name}.", advice="Ask for less, or leave it out.")
        if request.also.get("accept") and not principal.is_local:
            raise Refused(
                f"{principal.name} may not have commands run here to accept its work.",
                code="FORBIDDEN",
                advice="Leave out accept, and judge the work by its result.",
            )
        return request

    def tool_for(self, call: Call) -> DelegateTool:
        """The delegate tool with the agents that the caller may use."""
        grants = call.principal.grants
        return self.tool if grants.agents is None else DelegateTool(self.remit, among=lambda spec: self._may_use(grants, spec.name))

    def _may_use(self, grants: Grants, name: str) -> bool:
        return grants.agents is None or grants.may_use(name, is_operation=self.remit.directory.includes(parts_of(name)[0], name))

    async def begin(self, call: Call, arguments: Mapping[str, Any]) -> Handle:
        """`read` and `execute`."""
        return await self.execute(call, self.read(call, arguments))

    async def execute(self, call: Call, request: DelegateRequest) -> Handle:
        """Started and recorded when this returns. If the caller is cancelled here, it was started completely or not at all. Errors that
        only the runtime finds are raised like those of `read`."""
        if self.is_stopping:
            raise Refused("This server is stopping and accepts no new work.", code="STOPPING", advice="Try again in a moment.")
        task = asyncio.ensure_future(self._start(call, request))  # a caller that leaves must not interrupt the store or another process
        self._starting.add(task)
        task.add_done_callback(self._has_started)
        handle = await asyncio.shield(task)
        if isinstance(handle, SettledHandle):
            returned = await handle.result()
            self.tool.must_be_faultless(request, returned)
            if self.remit.has_record and await off_loop(self.remit.store.get, handle.session_id) is None:
                raise Unavailable(returned.summary, code="STORE_UNAVAILABLE", advice="Nothing was begun; try again later.")
        return handle

    def _has_started(self, task: "asyncio.Task[Handle]") -> None:
        self._starting.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, in case the caller has left

    async def _start(self, call: Call, request: DelegateRequest) -> Handle:
        extras = {name: request.also[name] for name in EXTRAS if name in request.also}
        key = extras.get("key")
        if isinstance(key, str) and key and call.api != "a2a" and not call.principal.is_local:  # A2A makes its own
            extras["key"] = own_key(call.principal.name, key)
        if request.resume is not None:
            await self.changeable(call, request.resume, "continue")  # it takes over the workspace
        asked = request.asked()
        longest = call.principal.grants.timeout_seconds
        if longest is not None and asked["timeout"] is None:
            asked["timeout"] = min(longest, self.agent_info(request.spec).timeout_seconds)
        with coming_from(call, await self._budget(call.principal), has_commands="accept" in extras):
            return await self.remit.start(request.agent, **asked, **extras)

    async def _budget(self, principal: Principal) -> Budget | None:
        """A delegation token has its own budget; otherwise the one that all processes of the project share."""
        given = principal.budget
        if given is None or principal.parent is not None:
            return given
        budget = await self.remit.engine.principal_budget(principal.name, given.limits)
        budget.opened_at = given.opened_at
        return budget

    async def finish(self) -> None:
        """Wait until everything in this process has ended. Cancelling the wait ends nothing."""
        while self._starting:
            await asyncio.wait(self._starting)
        if not self.remit.is_attached:
            await self.remit.engine.wait_idle()

    # ---- reading

    async def look(self, call: Call, task_id: str) -> DelegateResult:
        return (await self.looked(call, task_id))[1]

    async def looked(self, call: Call, task_id: str) -> tuple[Record, DelegateResult]:
        """The record and the result so far."""
        record = await self.record(call, task_id)
        return record, await self.tool.look_at(record)

    async def record(self, call: Call, task_id: str) -> Record:
        """Raises `Misused` (TASK_NOT_FOUND), also for a task that the caller may not see."""
        record = await off_loop(self._visible, call, task_id) if is_session_id(task_id) else None
        if record is None:
            advice = "Its id is in the answer that began it; list the tasks."
            raise Misused(f"There is no task {task_id[:80]}.", code="TASK_NOT_FOUND", advice=advice)
        return record

    def _visible(self, call: Call, task_id: str) -> Record | None:
        """Both reads on one thread: each hop costs more than the read."""
        record = self.remit.store.get(task_id)
        return record if record is not None and self.may_see(call, record) else None

    def traceback(self, call: Call, record: Record) -> str:
        """Of the exception that its agent raised. It shows code and paths: empty for callers that see only their own work."""
        may_see = call.principal.is_local or call.principal.may(Permission.SEE_ALL)
        return record.result.traceback if may_see and record.result is not None else ""

    async def stream(self, call: Call, task_id: str, after: int = 0) -> AsyncGenerator[Chunk, None]:
        """State changes and output from the chunk after number `after`; the last one has the result. Nothing is buffered for slow
        readers."""
        await self.recovered(await self.record(call, task_id))
        async with contextlib.aclosing(self.remit.follow(task_id, after)) as events:
            async for event in events:
                if event.kind in (EventKind.COMPLETE, EventKind.ERROR):
                    record = await self.remit.describe(task_id)
                    result = record.result or Return.from_dict(event.body["result"])  # it may not be recorded yet
                    yield final_chunk(result_of(result, record.created_at), event.number)
                    return
                if (chunk := _chunk(event)) is not None:
                    yield chunk

    async def result(self, call: Call, task_id: str, wait_seconds: float) -> DelegateResult:
        """The result when it has ended, or after this long."""
        record = await self.recovered(await self.record(call, task_id))
        if not record.state.is_settled:
            await self.remit.result(task_id, wait_seconds=wait_seconds)
        return await self.tool.look(task_id)

    async def wait(self, handle: Handle, seconds: float) -> Return | None:
        """The return of a delegation just started, if it ends in time. Reads nothing from the store for local ones."""
        if seconds <= 0:
            return None
        if not isinstance(handle, LiveHandle | SettledHandle):
            await self.recovered(await self.remit.describe(handle.session_id))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return await handle.result()
        return None

    async def recovered(self, record: Record) -> Record:
        """Recovers a delegation whose process is gone, so that waiting for it ends."""
        if record.state.is_settled or record.session_id in self._running:
            return record
        living = await off_loop(living_owners, self.remit.store, self.remit.folder / "run")
        if not is_gone(record, living):
            return record
        await self.remit.recover()
        return await self.remit.describe(record.session_id)

    async def list(self, call: Call, query: HistoryQuery) -> Page:
        """Newest first, only tasks that the caller may see; `query.before_session` begins a later page."""
        principal, store = call.principal, self.remit.store
        if query.before_session is not None:
            try:
                await self.record(call, query.before_session)  # also unknown if it belongs to another caller
            except Misused:
                raise Misused(
                    "The page does not exist or has expired.", code="INVALID_PARAMETERS", advice="Begin with the first."
                ) from None
        if not principal.may(Permission.SEE_ALL):
            if query.principal not in (None, principal.name):
                return Page(records=(), next_page=None)
            query = replace(query, principal=None if principal.parent is not None else principal.name)
        return await off_loop(_page, store, query, principal.parent)

    # ---- ending

    async def cancel(self, call: Call, task_id: str, reason: str = "") -> tuple[DelegateResult, Sequence[dict[str, Any]]]:
        """Stop it with everything below it. Returns the result, and how each node ended. Does nothing if it has ended."""
        await self.recovered(await self.changeable(call, task_id, "cancel"))
        nodes = await self.remit.cancel(task_id, reason[:1000], source=f"{call.principal.name} by {call.api}")
        return await self.tool.look(task_id), nodes

    async def changeable(self, call: Call, task_id: str, deed: str) -> Record:
        """Raises `Refused` for a task that the caller may only see, and for the delegation that it acts for."""
        record = await self.record(call, task_id)
        if not await off_loop(self._belongs_to, call, record, Permission.CANCEL_ALL) or task_id == call.principal.parent:
            raise Refused(f"{task_id} is not {call.principal.name}'s to {deed}.", code="FORBIDDEN")
        return record

    # ---- agents

    def agents(self, call: Call) -> Sequence[AgentSpec]:
        """Those the caller may use, the project's own first."""
        self._require(call, Permission.DELEGATE)
        return [spec for spec in self.tool.catalogue.specs if self._may_use(call.principal.grants, spec.name)]

    def agent_info(self, spec: AgentSpec) -> AgentInfo:
        limits = self.remit.settings.limits_for(spec.name)
        timeout = min(spec.timeout_seconds or limits.default_seconds, limits.maximum_seconds)
        return AgentInfo(spec, parameters_schema(spec), timeout, limits.maximum_seconds)

    def choose(self, call: Call, operation: str) -> str:
        """The least loaded agent with that name or operation; the project's own first among equals. Raises `DelegateError`."""
        allowed = self.agents(call)
        names = (operation, snake(operation))
        able = [spec for spec in allowed if spec.name in names] or [spec for spec in allowed if parts_of(spec.name)[1] in names]
        if not able or not operation:
            known = sorted({parts_of(spec.name)[1] or spec.name for spec in allowed})
            more = " and more" if len(known) > 30 else ""
            raise DelegateError(
                f"No agent has the operation {operation!r:.80}." if operation else "The request names neither an agent nor an operation.",
                code="INVALID_OPERATION",
                advice=f"Operations: {', '.join(known[:30])}{more}." if known else "You may use no agent here.",
                details={"operations": known},
            )
        loads = Counter(parts_of(running.delegation.agent)[0] for running in self._running.values())
        return min(able, key=lambda spec: (loads[parts_of(spec.name)[0]], rank(spec))).name

    # ---- permissions

    def may_see(self, call: Call, record: Record) -> bool:
        return self._belongs_to(call, record, Permission.SEE_ALL)

    def _belongs_to(self, call: Call, record: Record, others: Permission) -> bool:
        """Reads the store. `others`: the permission for the work of others."""
        principal = call.principal
        if principal.parent is not None:
            return _is_below(self.remit.store, record, principal.parent)
        owner = record.caller_info.principal if record.caller_info is not None else ROOT_CALLER
        return principal.may(others) or owner == principal.name

    def artifact_content(self, record: Record, path: str, limit_bytes: int) -> bytes | None:
        """The file that an agent named in its return; None if it must not be read. Blocking.

        An agent can name any file: secrets and files of git and remit are refused, and scratch files of other principals."""
        root, owner = os.path.realpath(self.remit.root), on_behalf_of(record.caller_info)
        real = path_inside(root, path)
        if real is None or is_private(real):
            return None
        if owner != ROOT_CALLER and (session_id := session_of(real)):
            there = self.remit.store.get(session_id)
            if there is None or on_behalf_of(there.caller_info) != owner:
                return None
        return read_bounded(Path(root, real), limit_bytes)

    def _require(self, call: Call, permission: Permission) -> None:
        if not call.principal.may(permission):
            raise Refused(f"{call.principal.name} may not {permission}.", code="FORBIDDEN", advice="`remit token new` grants it.")

    @property
    def _running(self) -> Mapping[str, Any]:
        """Delegations of this process; none if it is attached to the tree of another one."""
        return {} if self.remit.is_attached else self.remit.engine.live()


@contextlib.contextmanager
def coming_from(call: Call, budget: Budget | None = None, *, has_commands: bool = False) -> Iterator[None]:
    """Work started in this block belongs to this caller. A plain request of the owner equals one from the command line, unless it has
    acceptance commands: a model may have written them."""
    is_plain = call.principal.is_local and not (call.session or call.traceparent or call.deadline_at or call.path or has_commands)
    token = ORIGIN.set(None if is_plain else _origin(call, budget))
    try:
        yield
    finally:
        ORIGIN.reset(token)


def _origin(call: Call, budget: Budget | None) -> Origin:
    principal, grants = call.principal, call.principal.grants
    is_relay = principal.may(Permission.RELAY) and bool(call.path)
    return Origin(
        caller_info=CallerInfo(principal.name, call.api, call.session or None, call.traceparent),
        depth=max(0, call.depth) if is_relay else 0,
        path=call.path if is_relay else (principal.name,),
        max_depth=grants.max_depth,
        deadline_at=min((at for at in (call.deadline_at, grants.deadline_at) if at is not None), default=None),
        limits=grants.tree,
        budget=budget,
        parent=principal.parent,
    )


def own_key(principal: str, key: str) -> str:
    """A key of one caller. Slashes in names (`spiffe://…`) are escaped, so that no name is a prefix of another key."""
    return f"{principal.replace('%', '%25').replace('/', '%2F')}/{key}"


# ---- chunks


_STATES = {
    Step.REGISTER_DELEGATION: (TaskState.QUEUED, "It is on record."),
    Step.ROUTE_TO_AGENT: (TaskState.RUNNING, "It is running."),
}


def _chunk(event: Event) -> Chunk | None:
    """The chunk of an event; the same whenever a stream is continued. None if it says nothing to a caller."""
    state: tuple[TaskState, str] | None = None
    if event.kind is EventKind.STEP:
        state = _STATES.get(event.body["step"])
        if state is None:
            return None
    elif event.kind is EventKind.NOTICE:
        words = str(event.body.get("message", ""))
        if words.startswith(WAITING):
            state = (TaskState.PAUSED, words)
        elif words.startswith(ANSWERED):
            state = (TaskState.RUNNING, words)
    if state is None:
        return chunk_of(event)
    data = {"state": str(state[0]), "message": state[1]}
    return Chunk(type=ChunkType.STATUS, task_id=event.session_id, data=data, number=event.number)


# ---- lists, off the event loop


def _is_below(store: Store, record: Record, session_id: str) -> bool:
    """Whether the record is that delegation or anything below it."""
    node: Record | None = record
    while node is not None:
        if session_id in (node.session_id, node.parent_id):
            return True
        node = store.get(node.parent_id) if node.parent_id is not None else None
    return False


def _page(store: Store, query: HistoryQuery, parent: str | None) -> Page:
    """With `parent`: only tasks below that one, of its small tree."""
    size = min(max(1, query.limit), MOST_ON_PAGE)
    query = replace(query, limit=size + 1)
    root = store.get(parent) if parent is not None else None
    if parent is None:
        found = store.history(query)
    elif root is None or query.root_id not in (None, root.root_id):
        found = []
    else:
        inside = {record.session_id for record in below(store.tree(root.root_id), parent)} - {parent}
        whole = replace(query, root_id=root.root_id, principal=None, roots_only=False, limit=MOST_TREE)
        found = [record for record in store.history(whole) if record.session_id in inside]
    return Page(records=found[:size], next_page=found[size - 1].session_id if len(found) > size else None)


# ---- errors: one table from remit's codes to the statuses of every protocol; the code is sent along


class Status(NamedTuple):
    grpc: str
    """Name of a `grpc.StatusCode`."""
    http: int
    a2a: str
    """Name of an error of the a2a-sdk (`a2a.utils.errors`)."""


TABLE: dict[str, Status] = {
    "INVALID_PARAMETERS": Status("INVALID_ARGUMENT", 400, "InvalidParamsError"),
    "INVALID_TARGET": Status("NOT_FOUND", 404, "InvalidParamsError"),
    "INVALID_OPERATION": Status("INVALID_ARGUMENT", 400, "InvalidParamsError"),
    "TASK_NOT_FOUND": Status("NOT_FOUND", 404, "TaskNotFoundError"),
    "NOT_CANCELABLE": Status("FAILED_PRECONDITION", 409, "TaskNotCancelableError"),
    "UNAUTHENTICATED": Status("UNAUTHENTICATED", 401, "InvalidRequestError"),
    "CALLER_REFUSED": Status("PERMISSION_DENIED", 403, "InvalidRequestError"),
    "POLICY_DENIED": Status("PERMISSION_DENIED", 403, "InvalidRequestError"),
    "NOT_TRUSTED": Status("FAILED_PRECONDITION", 409, "InvalidRequestError"),
    "FORBIDDEN": Status("PERMISSION_DENIED", 403, "InvalidRequestError"),
    "TOO_LARGE": Status("RESOURCE_EXHAUSTED", 413, "InvalidRequestError"),
    "QUEUE_FULL": Status("RESOURCE_EXHAUSTED", 503, "InternalError"),
    "STOPPING": Status("UNAVAILABLE", 503, "InternalError"),
    "AGENT_UNAVAILABLE": Status("UNAVAILABLE", 503, "InternalError"),
    "TOOL_UNAVAILABLE": Status("UNAVAILABLE", 503, "InternalError"),
    "STORE_UNAVAILABLE": Status("UNAVAILABLE", 503, "InternalError"),
    "TIMEOUT": Status("DEADLINE_EXCEEDED", 504, "InternalError"),
}
_REFUSED = Status("FAILED_PRECONDITION", 409, "InvalidRequestError")
_UNKNOWN = Status("INTERNAL", 500, "InternalError")


def status_of(error: RemitError) -> Status:
    known = TABLE.get(error.code)
    if known is not None:
        return known
    if isinstance(error, Unavailable):
        return TABLE["AGENT_UNAVAILABLE"]
    if isinstance(error, Misused):
        return TABLE["INVALID_PARAMETERS"]
    return _REFUSED if isinstance(error, Refused) else _UNKNOWN
