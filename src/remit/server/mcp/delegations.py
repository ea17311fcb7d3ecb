"""The six MCP tools: each a method that takes arguments and returns a tool's answer. Independent of the transport.

Cancelling a request stops the wait; its delegation continues. Clients give up after a minute of silence: progress is sent at least every 15
s if requested, and a handle is returned in time. On stdin and stdout the caller is the owner."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from mcp_types import CallToolResult

from remit.core.agents import AgentSpec
from remit.core.context import Handle
from remit.core.delegate_requests import Catalogue, arguments_of, json_text, milliseconds
from remit.core.errors import Misused, RemitError
from remit.core.events import STEPS, Event, EventKind
from remit.core.ids import is_session_id, parse_traceparent
from remit.core.jsonable import clean_text
from remit.core.ports import Store
from remit.core.record import Record
from remit.core.result import Return
from remit.core.text import list_some
from remit.server.mcp import answers
from remit.server.mcp.answers import LARGEST_BYTES, PAGE_CHARACTERS, page_of
from remit.server.mcp.tools import MANY
from remit.server.service import EXTRAS, PRINCIPAL, AgentInfo, Call, Service
from remit.server.tokens import OWNER, Principal
from remit.system.liveness import Stuck, below, living_owners, signs_with_children, stuck
from remit.system.threads import off_loop
from remit.system.trust import summary_of

log = logging.getLogger("remit.server.mcp")
LOCAL = Call(principal=OWNER, api="mcp")
FARTHEST = 10**9
HEARTBEAT_SECONDS = 10.0
PAUSE_SECONDS = 0.05
"""At least, between two notifications of one request."""
LIVING = 50
"""Delegations listed when all are asked for."""
AGENTS_BYTES = LARGEST_BYTES - 4_000
"""Space for agents in a list; the rest is for problems with agent files."""


# ---- callers


def call_of(request: Any, meta: Mapping[str, Any] | None) -> Call | None:
    """`request`: the HTTP request; None on stdin, where the caller is the owner. `meta`: metadata of the client. None if the request is not
    authenticated."""
    principal = OWNER if request is None else request.scope.get(PRINCIPAL)
    if not isinstance(principal, Principal):
        return None
    given = ((meta or {}).get("traceparent"), None if request is None else request.headers.get("traceparent"))
    traceparent = next((one for one in given if isinstance(one, str) and parse_traceparent(one) is not None), None)
    return LOCAL if principal is OWNER and traceparent is None else Call(principal=principal, api="mcp", traceparent=traceparent)


# ---- progress


class Progress:
    """Progress notifications of one request: rising seconds, and the last message. `reporter`: the SDK's session."""

    def __init__(self, reporter: Any, meta: Mapping[str, Any] | None) -> None:
        self.is_wanted = meta is not None and "progress_token" in meta
        self._reporter = reporter
        self._began = time.monotonic()
        self._last = -PAUSE_SECONDS

    async def say(self, message: str, *, must: bool = False) -> None:
        now = time.monotonic() - self._began
        if now - self._last < PAUSE_SECONDS and not must:
            return
        self._last = max(self._last + 0.001, round(now, 3))  # it must rise, also within a millisecond
        await self._reporter.report_progress(self._last, None, clean_text(message[:300]))

    @contextlib.asynccontextmanager
    async def sent(self, names: Sequence[str], streams: Sequence[AsyncIterator[Event]]) -> AsyncIterator[None]:
        """While the delegations are awaited, if the client requested it: their events, and that they still run."""
        running: list[asyncio.Future[None]] = []
        if self.is_wanted:
            running = [asyncio.ensure_future(self.tell(name, events)) for name, events in zip(names, streams, strict=True)]
            who = f"{names[0]} is still running" if len(names) == 1 else f"{len(names)} delegations"
            running.append(asyncio.ensure_future(self.beat(who)))
        try:
            yield
        finally:
            for one in running:
                one.cancel()
            asyncio.gather(*running, return_exceptions=True)

    async def tell(self, name: str, events: AsyncIterator[Event]) -> None:
        with contextlib.suppress(RemitError):  # the events may end early; the return does not come this way
            async for event in events:
                if words := _words(event):
                    await self.say(f"{name}: {words}")

    async def beat(self, words: str) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            await self.say(f"{words} ({time.monotonic() - self._began:.0f} s)", must=True)


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


# ---- the tools


Tool = Callable[[Mapping[str, Any], Progress, Call], Awaitable[CallToolResult]]


_TO_THE_END_SECONDS = 7 * 24 * 3600.0
"""Used if a result cannot be queried later."""


class Delegations:
    def __init__(self, service: Service, answer_after_seconds: float) -> None:
        self._remit = service.remit
        self._answer_after = answer_after_seconds if service.remit.has_record else _TO_THE_END_SECONDS
        self._service = service
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
        """Errors are answers that the model can act on."""
        try:
            database = None if name == "list_agents" or self._remit.is_attached else self._remit.trust.foreign_database
            if database is not None:
                raise database.refused()
            return await self.tools[name](arguments or {}, progress, call)
        except RemitError as error:
            return answers.answer(answers.error_document(error, _agent_of(arguments)), is_error=True)
        except Exception as error:
            log.error("The MCP tool %s failed because of a bug in remit.", name, exc_info=error)
            if call.principal.is_local:
                fault = RemitError(f"{name} failed: {type(error).__name__}: {error}"[:400], advice="See `remit history`.")
            else:  # the text may name paths, addresses and values of this machine
                fault = RemitError("Internal server error.", advice="The server's log has the details.")
            return answers.answer(answers.error_document(fault), is_error=True)

    def catalogue_for(self, call: Call) -> Catalogue:
        """The agents that the caller may use."""
        return self._service.tool_for(call).catalogue

    async def _delegate(self, given: Mapping[str, Any], progress: Progress, call: Call) -> CallToolResult:
        request = self._service.read(call, given, (*EXTRAS, "wait_ms"))
        wait = self._wait(request.also)
        handle = await self._service.execute(call, request)
        (outcome,) = await self._outcomes([handle], wait, progress, [request.target])
        if isinstance(outcome, RemitError):
            raise outcome
        return answers.return_answer(outcome, self._remit.root) if isinstance(outcome, Return) else answers.answer(outcome)

    async def _delegate_many(self, given: Mapping[str, Any], progress: Progress, call: Call) -> CallToolResult:
        arguments = arguments_of(given, "delegations", "wait_ms")
        wait, asked = self._wait(arguments), arguments.get("delegations")
        if not isinstance(asked, list) or not 1 <= len(asked) <= MANY:
            raise Misused(f"delegations must be a list of 1 to {MANY}.", advice="Describe each as for delegate.")
        begun = await asyncio.gather(*(self._begin(one, call) for one in asked))
        handles = [one for one in begun if not isinstance(one, RemitError)]
        outcomes = iter(await self._outcomes(handles, wait, progress, [handle.session_id for handle in handles]))
        return answers.many_answer([one if isinstance(one, RemitError) else next(outcomes) for one in begun], self._remit.root)

    async def _begin(self, one: object, call: Call) -> Handle | RemitError:
        try:
            if not isinstance(one, Mapping):
                raise Misused(f"A delegation is an object, not {one!r:.60}.", advice="Describe it as for delegate.")
            return await self._service.execute(call, self._service.read(call, one, EXTRAS))
        except RemitError as error:
            return error

    async def _outcomes(self, handles: Sequence[Handle], wait: float, progress: Progress, names: Sequence[str]) -> list[answers.Outcome]:
        """For each its return, its error, or a handle if it takes longer than `wait`. `names`: for progress notifications."""
        events = [handle.stream() for handle in handles] if progress.is_wanted else []
        async with progress.sent(names, events):
            return list(await asyncio.gather(*(self._outcome(handle, wait) for handle in handles)))

    async def _outcome(self, handle: Handle, wait: float) -> answers.Outcome:
        """If the request is cancelled only the waiting ends, not the delegation."""
        try:
            if (returned := await self._service.wait(handle, wait)) is not None:
                return returned
            record = await self._remit.describe(handle.session_id)
        except RemitError as error:
            return error
        return record.result or answers.handle_document(record, wait, time.time())

    async def _status(self, given: Mapping[str, Any], progress: Progress, call: Call) -> CallToolResult:
        arguments = arguments_of(given, "session_id")
        store, run_folder, now = self._remit.store, self._remit.folder / "run", time.time()
        if "session_id" not in arguments:
            return answers.answer(await off_loop(_living_document, store, run_folder, now, partial(self._service.may_see, call)))
        record = await self._service.record(call, _session(arguments))
        document = await off_loop(_status_document, store, run_folder, record, now)
        trace = self._service.traceback(call, record)
        return answers.answer(document | ({"traceback": trace} if trace else {}))

    async def _result(self, given: Mapping[str, Any], progress: Progress, call: Call) -> CallToolResult:
        arguments = arguments_of(given, "session_id", "wait_ms", "offset", "limit")
        session_id, wait = _session(arguments), self._wait(arguments)
        offset = _whole("offset", arguments.get("offset", 0), least=0)
        limit = _whole("limit", arguments.get("limit", PAGE_CHARACTERS), least=1)
        record = await self._service.recovered(await self._service.record(call, session_id))
        if record.result is None:
            async with progress.sent([record.agent], [self._remit.follow(session_id)] if progress.is_wanted else []):
                await self._remit.result(session_id, wait_seconds=wait)
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
        session_id, reason = _session(arguments), arguments.get("reason", "")
        if not isinstance(reason, str):
            raise Misused(f"reason must be text, not {reason!r:.60}.")
        _, nodes = await self._service.cancel(call, session_id, reason)
        state = (await self._remit.describe(session_id)).state
        return answers.answer({"session_id": session_id, "state": str(state), "nodes": nodes})

    async def _list_agents(self, given: Mapping[str, Any], progress: Progress, call: Call) -> CallToolResult:
        target = arguments_of(given, "target").get("target")
        catalogue = self.catalogue_for(call)
        if target is not None and target not in catalogue.targets():
            catalogue.find(target, None)  # raises with the existing targets
        document = _agents_document(catalogue, self._service.agent_info, target)
        document["problems"] = list(self._remit.directory.problems) if call.principal.is_local else []
        if call.principal.is_local and (left_out := self._remit.trust.left_out):
            error = self._remit.trust.refused(f"Part of this project ({summary_of(left_out)})")
            document["errors"] = [{"code": error.code, "message": error.message, "recommendation": error.advice}]
        return answers.answer(document)

    def _wait(self, arguments: Mapping[str, Any]) -> float:
        """Seconds to wait: never longer than clients do."""
        if "wait_ms" not in arguments:
            return self._answer_after
        return min(milliseconds("wait_ms", arguments["wait_ms"]) / 1000, self._answer_after)


def _whole(name: str, value: object, *, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= FARTHEST:
        raise Misused(f"{name} must be a whole number from {least} to {FARTHEST}, not {value!r:.60}.")
    return value


def _agent_of(arguments: Mapping[str, Any] | None) -> str:
    """The agent that a call names, as far as it can be read."""
    given = arguments or {}
    return ".".join(part for name in ("target", "operation") if isinstance(part := given.get(name), str) and part)[:200]


def _session(arguments: Mapping[str, Any]) -> str:
    session_id = arguments.get("session_id")
    if not isinstance(session_id, str) or len(session_id) > 40 or not is_session_id(session_id):
        advice = "It looks like sess_1763200000_abc123 and is in every answer of delegate."
        raise Misused(f"session_id must be the id of a delegation, not {session_id!r:.80}.", advice=advice)
    return session_id


# ---- agents as a document


def _agents_document(catalogue: Catalogue, info_of: Callable[[AgentSpec], AgentInfo], target: str | None) -> dict[str, Any]:
    """As many agents as fit, at least one."""
    found = [
        (name, operation, spec)
        for name, operations in catalogue.targets().items()
        for operation, spec in operations.items()
        if (target is None or target.partition(".")[0] == name)
    ]
    documents: list[dict[str, Any]] = []
    room = AGENTS_BYTES
    for name, operation, spec in found:
        info = info_of(spec)
        one = {
            "target": name,
            "operation": operation,
            "description": spec.description,
            "parameters": info.parameters,
            "timeout_ms": 1000 * info.timeout_seconds,
            "longest_ms": 1000 * info.max_timeout_seconds,
            "kind": spec.kind,
            "workspace": str(spec.workspace),
            "requires_artifacts": spec.requires_artifacts,
        }
        room -= len(json_text(one).encode()) + 1
        if room < 0 and documents:
            break
        documents.append(one)
    left = sorted({name for name, _, _ in found[len(documents) :]})
    message = {"message": f"{len(found)} agents in all. Name a target for the others: {list_some(left, 100)}."} if left else {}
    return {"agents": documents, **message}


# ---- the state of delegations as documents, from the store alone: the same whichever process runs them


def _status_document(store: Store, run_folder: Path, record: Record, now: float) -> dict[str, Any]:
    """Of one delegation, with everything below it."""
    tree = below(store.tree(record.root_id), record.session_id)
    heard = signs_with_children(tree, store.last_sign([one.session_id for one in tree]))
    living = living_owners(store, run_folder)
    lines = {one.session_id: _line(store, one, heard, living, now) for one in tree}
    return {
        **lines[record.session_id],
        "parent_id": record.parent_id,
        "root_id": record.root_id,
        "path": list(record.path),
        "tokens_in_all": sum(line["tokens"] for line in lines.values()),
        "cost_in_all": sum(line["cost"] for line in lines.values()),
        "children": [lines[one.session_id] for one in tree if one.session_id != record.session_id],
    }


def _living_document(store: Store, run_folder: Path, now: float, is_shown: Callable[[Record], bool]) -> dict[str, Any]:
    """Everything queued or running that the caller may see."""
    records = list(filter(is_shown, store.live()))
    heard = signs_with_children(records, store.last_sign([one.session_id for one in records]))
    living = living_owners(store, run_folder) if records else set()
    return {"active": len(records), "delegations": [_line(store, record, heard, living, now) for record in records[:LIVING]]}


_STUCK: Mapping[Stuck | None, str | None] = {
    None: None,
    Stuck.GONE: "its process is gone; delegation_result recovers it",
    Stuck.LATE: "past its deadline",
    Stuck.QUIET: "nothing was heard of it for long",
}


def _line(store: Store, record: Record, heard: Mapping[str, float], living: Collection[str], now: float) -> dict[str, Any]:
    heard_at = heard[record.session_id]
    tokens, cost, doing = record.tokens, record.cost, ""
    for event in () if record.state.is_settled else store.events(record.session_id):
        if event.kind is EventKind.SPENT:
            tokens, cost = event.body.get("tokens", 0), event.body.get("cost", 0.0)
        elif event.kind in (EventKind.PROGRESS, EventKind.NOTICE):
            doing = str(event.body.get("message", ""))[:300]
    return {
        "session_id": record.session_id,
        "state": str(record.state),
        "agent": record.agent,
        "depth": record.depth,
        "step": next((str(STEPS[at]) for at in reversed(range(len(STEPS))) if record.step_times[at] is not None), ""),
        "doing": doing,
        "age_seconds": round(max(0.0, (record.settled_at or now) - record.created_at), 1),
        "left_seconds": 0.0 if record.state.is_settled else round(max(0.0, record.deadline_at - now), 1),
        "heard_seconds_ago": round(max(0.0, now - heard_at), 1),
        "tokens": tokens,
        "cost": cost,
        "stuck": _STUCK[stuck(record, now, heard_at, living)],
    }
