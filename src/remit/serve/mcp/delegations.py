"""The six MCP tools: each a method that takes arguments and returns a tool's answer. Independent of the transport.

A cancelled request stops waiting; its delegation continues. Clients give up after a minute of silence: progress is sent at least every 15 s
if they asked for it, and a handle is returned in time. On stdin and stdout the caller is the owner."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from mcp_types import CallToolResult

from remit.access.visitor import OWNER, Visitor
from remit.core.agents import AgentSpec
from remit.core.errors import Misused, RemitError
from remit.core.events import STEPS, Event, EventKind
from remit.core.ids import is_session_id
from remit.core.ports import Store
from remit.core.record import Record
from remit.core.result import Return
from remit.core.tracing import parse
from remit.engine.peers import Stuck, below, living_owners, signs_with_children, stuck
from remit.flow.context import Handle
from remit.flow.plain import clean
from remit.serve.mcp import answers
from remit.serve.mcp.answers import LARGEST_BYTES, PAGE_CHARACTERS, page_of
from remit.serve.mcp.tools import MANY
from remit.serve.service import Call, Service
from remit.settings.values import Settings
from remit.system.threads import off_loop
from remit.tool.catalogue import Catalogue
from remit.tool.request import arguments_of, milliseconds
from remit.tool.schema import parameters_schema
from remit.tool.speaking import json_text

if TYPE_CHECKING:
    from remit.app import Remit

DELEGATION_EXTRAS = ("key", "accept", "budget")
"""What `delegate` takes here beside the arguments of the delegate tool."""
LONGEST_ID = 40


def whole_number(name: str, value: object, *, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Misused(f"{name} must be a whole number from {least} to {most}, not {value!r:.60}.")
    return value


def session_of(arguments: Mapping[str, Any]) -> str:
    session_id = arguments.get("session_id")
    if not isinstance(session_id, str) or len(session_id) > LONGEST_ID or not is_session_id(session_id):
        raise Misused(
            f"session_id must be the id of a delegation, not {session_id!r:.80}.",
            advice="It looks like sess_1763200000_abc123 and is in every answer of delegate.",
        )
    return session_id


LOCAL = Call(visitor=OWNER, door="mcp")
VISITOR = "remit.visitor"
"""Where the entrance of the HTTP doors (`serve.http.entering`) puts who came in."""
HOLD = "remit.hold"
"""And how a request takes its place among those that go on for long."""


def call_of(request: Any, meta: Mapping[str, Any] | None, *, asks_who: bool = False) -> Call | None:
    """`request`: the HTTP request it came with, if any; `meta`: what the client sent along, `traceparent` among it.

    None: nobody was found out, where `asks_who` says that somebody must have been."""
    scope = getattr(request, "scope", None) or {}
    traceparent = _traceparent(meta, getattr(request, "headers", None))
    visitor = scope.get(VISITOR, None if asks_who else OWNER)
    if not isinstance(visitor, Visitor):
        return None
    return LOCAL if visitor is OWNER and traceparent is None else Call(visitor=visitor, door="mcp", traceparent=traceparent)


def hold_of(request: Any) -> Callable[[], None]:
    """Takes a place among the streams that its caller has open, as `serve.http.exchange` counts them; where nobody counts, nothing."""
    held: Callable[[], None] | None = (getattr(request, "scope", None) or {}).get(HOLD)
    return held if held is not None else lambda: None


def _traceparent(meta: Mapping[str, Any] | None, headers: Mapping[str, str] | None) -> str | None:
    for said in ((meta or {}).get("traceparent"), (headers or {}).get("traceparent")):
        if isinstance(said, str) and parse(said) is not None:
            return said
    return None


HEARTBEAT_SECONDS = 10.0
BURST = 20
"""So many notifications at once; then at most one each `GAP_SECONDS`: an agent that never stops talking floods nobody."""
GAP_SECONDS = 0.1
_WORDS = 300

T = TypeVar("T")


class Reporter(Protocol):
    """Of the SDK's session: tells the client, if it asked for that."""

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None: ...


class Progress:
    """The progress of one request: rising seconds, and what was last heard."""

    def __init__(self, reporter: Reporter, meta: Mapping[str, Any] | None) -> None:
        self.is_wanted = meta is not None and "progress_token" in meta
        self._reporter = reporter
        self._began = time.monotonic()
        self._last = 0.0
        self._allowance = float(BURST)
        self._refilled = self._began

    async def say(self, message: str, *, must: bool = False) -> None:
        now = time.monotonic()
        self._allowance = min(float(BURST), self._allowance + (now - self._refilled) / GAP_SECONDS)
        self._refilled = now
        if self._allowance < 1 and not must:
            return
        self._allowance -= 1
        self._last = max(self._last + 0.001, round(now - self._began, 3))  # it must rise, also within a millisecond
        await self._reporter.report_progress(self._last, None, clean(message[:_WORDS]))

    async def tell(self, name: str, events: AsyncIterator[Event]) -> None:
        """What a delegation says, as it says it."""
        with contextlib.suppress(RemitError):  # what is told on the way may end early; the return does not come this way
            async for event in events:
                if words := _words(event):
                    await self.say(f"{name}: {words}")

    async def beat(self, doing: Callable[[], str]) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            await self.say(f"{doing()} ({time.monotonic() - self._began:.0f} s)", must=True)


def _words(event: Event) -> str:
    match event.kind:
        case EventKind.PROGRESS:
            fraction = event.body.get("fraction")
            return ("" if fraction is None else f"{fraction:.0%} ") + str(event.body.get("message", ""))
        case EventKind.NOTICE:
            return str(event.body.get("message", ""))
        case EventKind.ARTIFACT:
            return f"wrote {event.body.get('path')}"
    return ""


async def settled_within(
    seconds: float, waited: Iterable[Awaitable[T]], told: Iterable[Awaitable[None]] = ()
) -> "list[asyncio.Future[T] | None]":
    """Wait for all of `waited`, at most so long: in their order, the future of each that is done. `told` goes on meanwhile."""
    futures = [asyncio.ensure_future(one) for one in waited]
    telling = [asyncio.ensure_future(one) for one in told]
    try:
        if futures:
            await asyncio.wait(futures, timeout=seconds)
        return [future if future.done() else None for future in futures]
    finally:
        # Only our own waiting is cancelled: a delegation goes on, whoever waited for it.
        for future in (*futures, *telling):
            future.cancel()
        asyncio.gather(*telling, return_exceptions=True)  # heard out, not waited for: we may be cancelled ourselves


ROOM_BYTES = LARGEST_BYTES - 4_000
"""For agents; what is left is for problems with agent files."""


def agents_document(
    catalogue: Catalogue,
    settings: Settings,
    target: str | None,
    offset: int,
    problems: Sequence[str] = (),
) -> dict[str, Any]:
    """The agents, or those of one target, from number `offset` on; `next_offset` is absent with the last page."""
    found = [
        (name, operation, spec)
        for name, operations in catalogue.targets().items()
        for operation, spec in operations.items()
        if (target is None or target.partition(".")[0] == name)
    ]
    documents = list(_fitting(_document(*one, settings) for one in found[offset:]))
    document: dict[str, Any] = {"agents": documents, "problems": list(problems)}
    following = offset + len(documents)
    if following < len(found):
        document["next_offset"] = following
        document["message"] = f"{len(found)} agents in all; the next: list_agents with offset {following}."
    return document


def _fitting(documents: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """As many as there is room for; one in any case, which is shortened like every answer."""
    room = ROOM_BYTES
    for number, one in enumerate(documents):
        room -= len(json_text(one).encode()) + 1
        if room < 0 and number:
            return
        yield one


def _document(target: str, operation: str | None, spec: AgentSpec, settings: Settings) -> dict[str, Any]:
    limits = settings.limits_for(spec.name)
    return {
        "target": target,
        "operation": operation,
        "description": spec.description,
        "parameters": parameters_schema(spec),
        "timeout_ms": 1000 * min(spec.timeout_seconds or limits.default_seconds, limits.maximum_seconds),
        "longest_ms": 1000 * limits.maximum_seconds,
        "kind": spec.kind,
        "workspace": str(spec.workspace),
        "requires_artifacts": spec.requires_artifacts,
    }


GONE = "its process is gone; delegation_result recovers it"
LIVING = 50
"""So many are listed when all are asked for."""


def status_document(store: Store, run_folder: Path, record: Record, now: float) -> dict[str, Any]:
    """Of one delegation, with everything below it."""
    tree = below(store.tree(record.root_id), record.session_id)
    heard = _heard(store, tree)
    living = living_owners(store, run_folder)
    lines = {one.session_id: _line(store, one, heard, living, now) for one in tree}
    children = [lines[one.session_id] for one in tree if one.session_id != record.session_id]
    return {
        **lines[record.session_id],
        "parent_id": record.parent_id,
        "root_id": record.root_id,
        "path": list(record.path),
        "tokens_in_all": sum(line["tokens"] for line in lines.values()),
        "cost_in_all": sum(line["cost"] for line in lines.values()),
        "children": children,
    }


def living_document(store: Store, run_folder: Path, now: float, is_shown: Callable[[Record], bool] = lambda _: True) -> dict[str, Any]:
    """Of everything queued or running in the project that is the caller's to see."""
    records = list(filter(is_shown, store.live()))
    heard = _heard(store, records)
    living = living_owners(store, run_folder) if records else set()
    lines = [_line(store, record, heard, living, now) for record in records[:LIVING]]
    return {"active": len(records), "delegations": lines}


def _heard(store: Store, records: Sequence[Record]) -> Mapping[str, float]:
    return signs_with_children(records, store.last_sign([record.session_id for record in records]))


def _line(store: Store, record: Record, heard: Mapping[str, float], living: Collection[str], now: float) -> dict[str, Any]:
    heard_at = heard[record.session_id]
    tokens, cost, doing = _said(store, record)
    end = record.settled_at or now
    return {
        "session_id": record.session_id,
        "state": str(record.state),
        "agent": record.agent,
        "depth": record.depth,
        "step": next((str(STEPS[at]) for at in reversed(range(len(STEPS))) if record.step_times[at] is not None), ""),
        "doing": doing,
        "age_seconds": round(max(0.0, end - record.created_at), 1),
        "left_seconds": 0.0 if record.state.is_settled else round(max(0.0, record.deadline_at - now), 1),
        "heard_seconds_ago": round(max(0.0, now - heard_at), 1),
        "tokens": tokens,
        "cost": cost,
        "stuck": _stuck(record, now, heard_at, living),
    }


def _said(store: Store, record: Record) -> tuple[int, float, str]:
    """Spent so far, and the last thing it said."""
    tokens, cost, doing = record.tokens, record.cost, ""
    if record.state.is_settled:
        return tokens, cost, doing
    for event in store.events(record.session_id):
        if event.kind is EventKind.SPENT:
            tokens, cost = event.body.get("tokens", 0), event.body.get("cost", 0.0)
        elif event.kind in (EventKind.PROGRESS, EventKind.NOTICE):
            doing = str(event.body.get("message", ""))[:300]
    return tokens, cost, doing


def _stuck(record: Record, now: float, heard_at: float, living: Collection[str]) -> str | None:
    match stuck(record, now, heard_at, living):
        case Stuck.GONE:
            return GONE
        case Stuck.LATE:
            return "past its deadline"
        case Stuck.QUIET:
            return f"nothing heard for {now - heard_at:.0f} s"
    return None


Tool = Callable[[Mapping[str, Any], Progress, Call], Awaitable[CallToolResult]]
FARTHEST = 10**9


class Delegations:
    def __init__(self, remit: "Remit", answer_after_seconds: float, service: Service | None = None) -> None:
        self._remit = remit
        self._answer_after = answer_after_seconds
        self._service = service or Service(remit)
        self.catalogue = self._service.tool.catalogue
        self.tools: dict[str, Tool] = {
            "delegate": self._delegate,
            "delegate_many": self._delegate_many,
            "delegation_status": self._status,
            "delegation_result": self._result,
            "delegation_cancel": self._cancel,
            "list_agents": self._list_agents,
        }

    async def call(self, name: str, arguments: Mapping[str, Any] | None, progress: Progress, call: Call = LOCAL) -> CallToolResult:
        """Whatever goes wrong is told to the model, in words it can act on."""
        try:
            return await self.tools[name](arguments or {}, progress, call)
        except RemitError as error:
            return answers.answer(answers.error_document(error), is_error=True)
        except Exception as error:  # noqa: BLE001 - the boundary to clients: a fault of ours is told as an error, never as a traceback
            fault = RemitError(f"{name} went wrong: {type(error).__name__}: {error}"[:400], advice="Look into it with `remit history`.")
            return answers.answer(answers.error_document(fault), is_error=True)

    def catalogue_for(self, call: Call) -> Catalogue:
        """The agents that it may use."""
        return self._service.tool_for(call).catalogue

    async def finish(self) -> None:
        """Until everything that this process runs has ended."""
        await self._service.finish()

    @property
    def is_busy(self) -> bool:
        return self._service.is_busy

    @property
    def _run_folder(self) -> Path:
        return self._remit.folder / "run"

    # ---- the tools

    async def _delegate(self, given: Mapping[str, Any], progress: Progress, call: Call) -> CallToolResult:
        request = self._service.read(call, given, (*DELEGATION_EXTRAS, "wait_ms"))
        wait = self._wait(request.also)
        handle = await self._service.execute(call, request)
        told = self._told(progress, request.target, handle.stream()) if progress.is_wanted else ()
        (done,) = await settled_within(wait, [handle.result()], told)
        return await self._outcome(handle.session_id, done, wait)

    async def _delegate_many(self, given: Mapping[str, Any], progress: Progress, call: Call) -> CallToolResult:
        arguments = arguments_of(given, "delegations", "wait_ms")
        wait = self._wait(arguments)
        asked = arguments.get("delegations")
        if not isinstance(asked, list) or not 1 <= len(asked) <= MANY:
            raise Misused(f"delegations must be a list of 1 to {MANY}.", advice="Describe each as for delegate.")
        begun = await asyncio.gather(*(self._begun(one, call) for one in asked))
        handles = [one for one in begun if not isinstance(one, RemitError)]
        told: list[Awaitable[None]] = []
        if progress.is_wanted:
            told = [progress.tell(handle.session_id, handle.stream()) for handle in handles]
            told.append(progress.beat(lambda: f"{len(handles)} delegations"))
        futures = iter(await settled_within(wait, [handle.result() for handle in handles], told))
        outcomes = [one if isinstance(one, RemitError) else await self._document(one.session_id, next(futures), wait) for one in begun]
        return self._many(outcomes)

    def _many(self, outcomes: Sequence[RemitError | Return | answers.Document]) -> CallToolResult:
        documents, links, failures, running = [], [], 0, 0
        for one in outcomes:
            if isinstance(one, Return):
                documents.append(answers.return_document(one))
                links += answers.links_of(one.artifacts, self._remit.root)
                failures += answers.is_failure(one)
            elif isinstance(one, RemitError):
                documents.append(answers.error_document(one))
                failures += 1
            else:
                documents.append(one)
                running += 1
        return answers.many_answer(documents, running=running, is_error=failures == len(documents), links=links[: answers.LINKS])

    async def _status(self, given: Mapping[str, Any], progress: Progress, call: Call) -> CallToolResult:
        arguments = arguments_of(given, "session_id")
        store, run_folder, now = self._remit.store, self._run_folder, time.time()
        if "session_id" not in arguments:
            return answers.answer(await off_loop(living_document, store, run_folder, now, partial(self._service.may_see, call)))
        record = await self._service.record(call, session_of(arguments))
        return answers.answer(await off_loop(status_document, store, run_folder, record, now))

    async def _result(self, given: Mapping[str, Any], progress: Progress, call: Call) -> CallToolResult:
        arguments = arguments_of(given, "session_id", "wait_ms", "offset", "limit")
        session_id, wait = session_of(arguments), self._wait(arguments)
        offset = whole_number("offset", arguments.get("offset", 0), least=0, most=FARTHEST)
        limit = whole_number("limit", arguments.get("limit", PAGE_CHARACTERS), least=1, most=FARTHEST)
        record = await self._service.minded(await self._service.record(call, session_id))
        if record.result is None:
            told = self._told(progress, record.agent, self._remit.follow(session_id)) if progress.is_wanted else ()
            await settled_within(wait + 1.0, [self._remit.result(session_id, wait_seconds=wait)], told)
            record = await self._remit.describe(session_id)
        result = record.result
        if result is None:
            return answers.answer(answers.handle_document(record, wait, time.time()))
        if "offset" in arguments or "limit" in arguments:
            page = page_of(json_text(result.to_dict()), offset, limit)
            return answers.answer({"session_id": session_id, "state": answers.return_document(result)["state"], "page": page})
        return answers.return_answer(result, self._remit.root)

    async def _cancel(self, given: Mapping[str, Any], progress: Progress, call: Call) -> CallToolResult:
        arguments = arguments_of(given, "session_id", "reason")
        session_id, reason = session_of(arguments), arguments.get("reason", "")
        if not isinstance(reason, str):
            raise Misused(f"reason must be text, not {reason!r:.60}.")
        await self._service.minded(await self._service.record(call, session_id))
        _, nodes = await self._service.cancel(call, session_id, reason)
        state = (await self._remit.describe(session_id)).state
        return answers.answer({"session_id": session_id, "state": str(state), "nodes": nodes})

    async def _list_agents(self, given: Mapping[str, Any], progress: Progress, call: Call) -> CallToolResult:
        arguments = arguments_of(given, "target", "offset")
        target, offset = arguments.get("target"), whole_number("offset", arguments.get("offset", 0), least=0, most=FARTHEST)
        catalogue = self.catalogue_for(call)
        if target is not None and target not in catalogue.targets():
            catalogue.find(target, None)  # says what there is
        remit = self._remit
        problems = remit.directory.problems if call.visitor.is_local else ()
        return answers.answer(agents_document(catalogue, remit.settings, target, offset, problems))

    # ---- beginning and ending

    def _told(self, progress: Progress, name: str, events: AsyncIterator[Event]) -> tuple[Awaitable[None], ...]:
        return progress.tell(name, events), progress.beat(lambda: f"{name} is still running")

    def _wait(self, arguments: Mapping[str, Any]) -> float:
        """Seconds to wait: never longer than clients do."""
        if "wait_ms" not in arguments:
            return self._answer_after
        return min(milliseconds("wait_ms", arguments["wait_ms"]) / 1000, self._answer_after)

    async def _begun(self, one: object, call: Call) -> Handle | RemitError:
        try:
            if not isinstance(one, Mapping):
                raise Misused(f"A delegation is an object, not {one!r:.60}.", advice="Describe it as for delegate.")
            return await self._service.execute(call, self._service.read(call, one, DELEGATION_EXTRAS))
        except RemitError as error:
            return error

    async def _outcome(self, session_id: str, done: "asyncio.Future[Return] | None", waited_seconds: float) -> CallToolResult:
        outcome = await self._document(session_id, done, waited_seconds)
        if isinstance(outcome, RemitError):
            raise outcome
        return answers.return_answer(outcome, self._remit.root) if isinstance(outcome, Return) else answers.answer(outcome)

    async def _document(
        self, session_id: str, done: "asyncio.Future[Return] | None", waited_seconds: float
    ) -> Return | RemitError | answers.Document:
        """The return, the error in its place, or a handle."""
        try:
            if done is not None:
                return done.result()
            record = await self._remit.describe(session_id)
        except RemitError as error:
            return error
        return record.result or answers.handle_document(record, waited_seconds, time.time())
