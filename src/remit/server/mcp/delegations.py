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
from pydantic import Field

from remit.core.agents import AgentSpec
from remit.core.context import Handle
from remit.core.delegate_requests import Catalogue, arguments_of, json_text, milliseconds
from remit.core.errors import Misused, RemitError
from remit.core.events import STEPS, Event, EventKind
from remit.core.ids import parse_traceparent
from remit.core.jsonable import clean_text
from remit.core.ports import Store
from remit.core.record import Record
from remit.core.result import Return
from remit.core.text import list_some
from remit.server.http.models import Input, validated
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
    async def sent(self, streams: Mapping[str, AsyncIterator[Event]]) -> AsyncIterator[None]:
        """While the delegations are awaited, if the client requested it: their events, by name, and that they still run."""
        tasks = [self._tell(name, events) for name, events in streams.items()] if self.is_wanted else []
        running = [asyncio.ensure_future(one) for one in (*tasks, *([self._beat(", ".join(streams)[:200])] if tasks else []))]
        try:
            yield
        finally:
            for one in running:
                one.cancel()
            asyncio.gather(*running, return_exceptions=True)

    async def _tell(self, name: str, events: AsyncIterator[Event]) -> None:
        with contextlib.suppress(RemitError):  # the events may end early; the return does not come this way
            async for event in events:
                words = str(event.body.get("message", "")) if event.kind in (EventKind.PROGRESS, EventKind.NOTICE) else ""
                if words:
                    fraction = event.body.get("fraction")
                    await self.say(f"{name}: {'' if fraction is None else f'{fraction:.0%} '}{words}")

    async def _beat(self, names: str) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            await self.say(f"{names} is still running ({time.monotonic() - self._began:.0f} s)", must=True)


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
        (outcome,) = await self._outcomes({request.target: handle}, wait, progress)
        if isinstance(outcome, RemitError):
            raise outcome
        return answers.return_answer(outcome, self._remit.root) if isinstance(outcome, Return) else answers.answer(outcome)

    async def _delegate_many(self, given: Mapping[str, Any], progress: Progress, call: Call) -> CallToolResult:
        arguments = arguments_of(given, "delegations", "wait_ms")
        wait, asked = self._wait(arguments), arguments.get("delegations")
        if not isinstance(asked, list) or not 1 <= len(asked) <= MANY:
            raise Misused(f"delegations must be a list of 1 to {MANY}.", advice="Describe each as for delegate.")
        begun = await asyncio.gather(*(self._begin(one, call) for one in asked))
        handles = {one.session_id: one for one in begun if not isinstance(one, RemitError)}
        outcomes = dict(zip(handles, await self._outcomes(handles, wait, progress), strict=True))
        return answers.many_answer([one if isinstance(one, RemitError) else outcomes[one.session_id] for one in begun], self._remit.root)

    async def _begin(self, one: object, call: Call) -> Handle | RemitError:
        try:
            if not isinstance(one, Mapping):
                raise Misused(f"A delegation is an object, not {one!r:.60}.", advice="Describe it as for delegate.")
            return await self._service.execute(call, self._service.read(call, one, EXTRAS))
        except RemitError as error:
            return error

    async def _outcomes(self, handles: Mapping[str, Handle], wait: float, progress: Progress) -> list[answers.Outcome]:
        """For each its return, its error, or a handle if it takes longer than `wait`. By name, for progress notifications."""
        async with progress.sent({name: handle.stream() for name, handle in handles.items()} if progress.is_wanted else {}):
            return list(await asyncio.gather(*(self._outcome(handle, wait) for handle in handles.values())))

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
        store, run_folder = self._remit.store, self._remit.folder / "run"
        if "session_id" not in arguments:
            return answers.answer(await off_loop(_living_document, store, run_folder, partial(self._service.may_see, call)))
        record = await self._service.record(call, _text(arguments, "session_id"))
        document = await off_loop(_status_document, store, run_folder, record)
        trace = self._service.traceback(call, record)
        return answers.answer(document | ({"traceback": trace} if trace else {}))

    async def _result(self, given: Mapping[str, Any], progress: Progress, call: Call) -> CallToolResult:
        arguments = arguments_of(given, "session_id", "wait_ms", "offset", "limit")
        session_id, wait = _text(arguments, "session_id"), self._wait(arguments)
        page = validated(_Page, {name: arguments[name] for name in ("offset", "limit") if name in arguments})
        record = await self._service.recovered(await self._service.record(call, session_id))
        if record.result is None:
            async with progress.sent({record.agent: self._remit.follow(session_id)} if progress.is_wanted else {}):
                await self._remit.result(session_id, wait_seconds=wait)
            record = await self._remit.describe(session_id)
        result = record.result
        if result is None:
            return answers.answer(answers.handle_document(record, wait, time.time()))
        if page.model_fields_set:
            document = {"session_id": session_id, "state": answers.return_document(result)["state"]}
            return answers.answer({**document, "page": page_of(json_text(result.to_dict()), page.offset, page.limit)})
        return answers.return_answer(result, self._remit.root)

    async def _cancel(self, given: Mapping[str, Any], progress: Progress, call: Call) -> CallToolResult:
        arguments = arguments_of(given, "session_id", "reason")
        session_id, reason = _text(arguments, "session_id"), _text(arguments, "reason")
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


class _Page(Input):
    offset: int = Field(0, ge=0, le=10**9)
    limit: int = Field(PAGE_CHARACTERS, ge=1, le=10**9)


def _agent_of(arguments: Mapping[str, Any] | None) -> str:
    """The agent that a call names, as far as it can be read."""
    given = arguments or {}
    return ".".join(part for name in ("target", "operation") if isinstance(part := given.get(name), str) and part)[:200]


def _text(arguments: Mapping[str, Any], name: str) -> str:
    value = arguments.get(name, "")
    if not isinstance(value, str):
        raise Misused(f"{name} must be text, not {value!r:.80}.")
    return value


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


def _status_document(store: Store, run_folder: Path, record: Record) -> dict[str, Any]:
    """Of one delegation, with everything below it."""
    tree = below(store.tree(record.root_id), record.session_id)
    lines = {one["session_id"]: one for one in _lines(store, run_folder, tree)}
    own = lines.pop(record.session_id)
    return {
        **own,
        "parent_id": record.parent_id,
        "root_id": record.root_id,
        "path": list(record.path),
        "tokens_in_all": own["tokens"] + sum(line["tokens"] for line in lines.values()),
        "cost_in_all": own["cost"] + sum(line["cost"] for line in lines.values()),
        "children": list(lines.values()),
    }


def _living_document(store: Store, run_folder: Path, is_shown: Callable[[Record], bool]) -> dict[str, Any]:
    """Everything queued or running that the caller may see."""
    records = list(filter(is_shown, store.live()))
    return {"active": len(records), "delegations": _lines(store, run_folder, records[:LIVING])}


def _lines(store: Store, run_folder: Path, records: Sequence[Record]) -> list[dict[str, Any]]:
    heard = signs_with_children(records, store.last_sign([one.session_id for one in records]))
    living, now = living_owners(store, run_folder) if records else set(), time.time()
    return [_line(store, one, heard[one.session_id], living, now) for one in records]


_STUCK = {
    Stuck.GONE: "its process is gone; delegation_result recovers it",
    Stuck.LATE: "past its deadline",
    Stuck.QUIET: "nothing was heard of it for long",
}


def _line(store: Store, record: Record, heard_at: float, living: Collection[str], now: float) -> dict[str, Any]:
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
        "stuck": _STUCK.get(found) if (found := stuck(record, now, heard_at, living)) else None,
    }
