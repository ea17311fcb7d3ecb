"""The A2A API: the SDK's `RequestHandler` on remit's service, behind the SDK's JSON-RPC and REST bindings.

A task is the same through every API and outlives the server. Closing a connection ends nothing: only CancelTask does.

A task that waits for input continues under its id: the answer is another delegation with `resume=`, whose idempotency key begins with the
id of the first, so that the record tells which they are."""

import asyncio
import contextlib
import hashlib
import logging
import secrets
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

from a2a.server.context import ServerCallContext
from a2a.server.events.event_queue import Event
from a2a.server.request_handlers.request_handler import RequestHandler, validate_request_params
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    GetExtendedAgentCardRequest,
    GetTaskRequest,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from a2a.utils.constants import AGENT_CARD_WELL_KNOWN_PATH
from a2a.utils.errors import (
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    UnsupportedOperationError,
)
from a2a.utils.task import apply_history_length, decode_page_token, encode_page_token, validate_history_length, validate_page_size
from starlette.routing import BaseRoute, Route

from remit.core.delegate_requests import parts_of
from remit.core.delegate_results import ChunkType
from remit.core.ids import is_session_id
from remit.core.record import HistoryQuery, Record
from remit.core.redaction import is_redacted
from remit.core.states import State
from remit.server.a2a.card import WAIT, HttpCalls, agent_card, call_of, sdk_error
from remit.server.a2a.messages import (
    CONTINUES,
    STATES,
    IncomingMessage,
    arguments_of,
    bare_task,
    context_of,
    last_updates,
    read_message,
    task_id_of,
    task_of,
    update_of,
)
from remit.server.service import HOLD, LONGEST_SESSION, Call, Page, Service
from remit.system.threads import off_loop

JSON_RPC_PATH = "/a2a"
REST_PATH = "/a2a/v1"
OPEN_PATHS = frozenset({AGENT_CARD_WELL_KNOWN_PATH})
"""Answered without authentication."""
CARD_SECONDS = 60
"""Clients may cache the card for this time."""
WAIT_SECONDS = 3600.0
"""Maximum wait per poll, for a client that waits for the end."""
USUAL_PAGE = 50
NO_PUSH = "Push notifications are not supported. Subscribe to the task instead."
UNSPECIFIED = TaskState.TASK_STATE_UNSPECIFIED
MOST_TURNS = 100
POLL_SECONDS = 1.0
"""Between two looks at a task that waits for input, whichever server continues it."""


class A2aApi(RequestHandler):
    def __init__(self, service: Service, base_url: str, *, is_public: bool = False) -> None:
        """`base_url`: the address for clients; `is_public`: other machines reach it, so anonymous callers do not see the agents."""
        self._service = service
        self._interfaces = [("JSONRPC", f"{base_url.rstrip('/')}{JSON_RPC_PATH}"), ("HTTP+JSON", f"{base_url.rstrip('/')}{REST_PATH}")]
        self._is_public = is_public
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Locked to continue or cancel a task: one of two answers is used, and a cancelled task does not continue."""
        sdk = logging.getLogger("a2a")  # it writes a traceback for every unreadable request: any client could fill the log
        if sdk.level == logging.NOTSET:
            sdk.setLevel(logging.CRITICAL)

    @property
    def routes(self) -> list[BaseRoute]:
        calls = HttpCalls()
        # Without the SDK's mount for tenants, which would answer for all other APIs of this application.
        rest = [route for route in create_rest_routes(self, calls, path_prefix=REST_PATH) if isinstance(route, Route)]
        card = create_agent_card_routes(AgentCard(), card_modifier=self._card, cache_control=f"max-age={CARD_SECONDS}")
        return [*card, *create_jsonrpc_routes(self, JSON_RPC_PATH, calls), *rest]

    async def _card(self, _blank: AgentCard) -> AgentCard:
        return agent_card(self._interfaces, () if self._is_public else self._service.tool.catalogue.specs)

    # ---- work

    @validate_request_params
    async def on_message_send(self, params: SendMessageRequest, context: ServerCallContext) -> Task | Message:
        validate_history_length(params.configuration)
        with sdk_error():
            if waits := not params.configuration.return_immediately:
                context.state[HOLD]()
            call, record = await self._begin(params, context)
            while waits and record.result is None:
                await context.state[WAIT](self._service.result(call, record.session_id, WAIT_SECONDS))
                record = await self._service.record(call, record.session_id)
            return apply_history_length(await self._task(record), params.configuration)

    @validate_request_params
    async def on_message_send_stream(self, params: SendMessageRequest, context: ServerCallContext) -> AsyncGenerator[Event]:
        validate_history_length(params.configuration)
        with sdk_error():
            call, record = await self._begin(params, context)
            async with contextlib.aclosing(self._follow(call, record)) as events:
                async for event in events:
                    yield apply_history_length(event, params.configuration) if isinstance(event, Task) else event

    @validate_request_params
    async def on_subscribe_to_task(self, params: SubscribeToTaskRequest, context: ServerCallContext) -> AsyncGenerator[Event]:
        """Until the task has ended: also while it waits for input, and when it continues."""
        with sdk_error():
            call = call_of(context)
            record = await self._current(call, params.id)
            if record.result is not None and record.state is not State.BLOCKED:
                raise UnsupportedOperationError(f"Task {params.id} has ended. Get it instead.")
            while True:
                async with contextlib.aclosing(self._follow(call, record)) as events:
                    async for event in events:
                        yield event
                now = await self._current(call, params.id)
                while now.state is State.BLOCKED:
                    await asyncio.sleep(POLL_SECONDS)
                    now = await self._current(call, params.id)
                if now.session_id == record.session_id:
                    return
                record = now

    async def _begin(self, params: SendMessageRequest, context: ServerCallContext) -> tuple[Call, Record]:
        """It is recorded when this returns."""
        message, asked = params.message, read_message(params)
        if len(message.message_id) > LONGEST_SESSION or len(message.context_id) > LONGEST_SESSION:
            raise UnsupportedOperationError(f"Ids have at most {LONGEST_SESSION} characters.")
        call = call_of(context, session=message.context_id or f"ctx_{secrets.token_hex(8)}", position=asked.position)
        if params.configuration.HasField("task_push_notification_config"):
            raise PushNotificationNotSupportedError(NO_PUSH)
        digest = _digest(call, message.message_id)
        if not message.task_id:
            arguments = arguments_of(asked, self._service.agents(call), has_assistant=self._service.remit.models.is_configured())
            return call, await self._execute(call, arguments, f"a2a:{digest}")
        async with self._turns.setdefault(message.task_id, asyncio.Lock()):
            before = await self._current(call, message.task_id)
            key = f"{CONTINUES}{task_id_of(before)}:{digest}"
            if before.key == key:
                return call, before  # sent a second time
            _must_wait(before, message)
            call = replace(call, session=context_of(before))
            return call, await self._execute(call, _answered(before, asked), key)

    async def _execute(self, call: Call, arguments: Mapping[str, Any], key: str) -> Record:
        request = self._service.read(call, arguments)
        handle = await self._service.execute(call, replace(request, also={**request.also, "key": key}))
        return await self._service.record(call, handle.session_id)

    async def _current(self, call: Call, task_id: str) -> Record:
        """The delegation that has the current state of a task. Raises `Misused` (TASK_NOT_FOUND), also for tasks of others."""
        first = await self._service.record(call, task_id)
        return await off_loop(self._latest, first)

    def _latest(self, first: Record) -> Record:
        store = self._service.remit.store
        found = (store.get(session_id) for session_id in store.keys(f"{CONTINUES}{first.session_id}:", MOST_TURNS).values())
        later = [record for record in found if record is not None and record.agent == first.agent]
        return max((first, *later), key=lambda record: record.created_at)

    async def _follow(self, call: Call, record: Record) -> AsyncGenerator[Event, None]:
        """The current task, its later events, and how it ended or that it waits for input."""
        events = await self._service.remit.events(record.session_id)
        first = await off_loop(task_of, record, self._service.artifact_content, events)
        yield first
        if record.result is not None:
            return
        appends = bool(first.artifacts)
        async with contextlib.aclosing(self._service.stream(call, record.session_id, events[-1].number if events else 0)) as chunks:
            async for chunk in chunks:
                if chunk.type in (ChunkType.COMPLETE, ChunkType.ERROR):
                    break
                yield update_of(chunk, first, appends=appends)
                appends = appends or chunk.type is ChunkType.DATA
        for update in last_updates(await self._task(await self._service.record(call, record.session_id))):
            yield update

    async def _task(self, record: Record) -> Task:
        events = await self._service.remit.events(record.session_id) if record.result is None or record.chunk_count else []
        return await off_loop(task_of, record, self._service.artifact_content, events)

    # ---- looking

    @validate_request_params
    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> Task | None:
        validate_history_length(params)
        with sdk_error():
            return apply_history_length(await self._task(await self._current(call_of(context), params.id)), params)

    @validate_request_params
    async def on_list_tasks(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """Newest first. A task of several delegations is listed once, where the last of them is. Filters may leave less than a page."""
        validate_history_length(params)
        if params.HasField("page_size"):
            validate_page_size(params.page_size)
        with sdk_error():
            call, size = call_of(context), params.page_size or USUAL_PAGE
            query = _query(params, size, roots_only=call.principal.parent is None)  # requests with a delegation's token are its children
            page = Page((), None) if query is None else await self._service.list(call, query)
            tasks = [task for record in page.records if (task := await off_loop(self._listed, record, params)) is not None]
            token = encode_page_token(page.next_page) if page.next_page else ""
            return ListTasksResponse(tasks=tasks, next_page_token=token, page_size=size, total_size=len(tasks) + bool(token))

    def _listed(self, record: Record, params: ListTasksRequest) -> Task | None:
        first = self._service.remit.store.get(task_id_of(record)) or record
        if self._latest(first).session_id != record.session_id:
            return None  # it continued
        at = record.settled_at or record.started_at or record.created_at
        if params.HasField("status_timestamp_after") and at < params.status_timestamp_after.ToMilliseconds() / 1000:
            return None
        task = task_of(record, self._service.artifact_content) if params.include_artifacts else bare_task(record)
        return apply_history_length(task, params)

    # ---- ending

    @validate_request_params
    async def on_cancel_task(self, params: CancelTaskRequest, context: ServerCallContext) -> Task | None:
        """The task, and everything below it, has stopped when this answers."""
        with sdk_error():
            call = call_of(context)
            async with self._turns.setdefault(params.id, asyncio.Lock()):
                record = await self._current(call, params.id)
                if record.result is None:
                    await self._service.cancel(call, record.session_id, "by an A2A client")
                    record = await self._service.record(call, record.session_id)
                    if record.result is None or record.state is State.CANCELLED:
                        return await self._task(record)
            raise TaskNotCancelableError(f"Task {params.id} {'waits for input' if record.state is State.BLOCKED else 'has ended already'}.")

    async def _no_push(self, _params: object, _context: ServerCallContext) -> Any:
        """Push notifications are an optional capability that the card does not declare."""
        raise PushNotificationNotSupportedError(NO_PUSH)

    on_create_task_push_notification_config = on_get_task_push_notification_config = _no_push  # type: ignore[assignment]
    on_list_task_push_notification_configs = on_delete_task_push_notification_config = _no_push  # type: ignore[assignment]

    @validate_request_params
    async def on_get_extended_agent_card(self, params: GetExtendedAgentCardRequest, context: ServerCallContext) -> AgentCard:
        with sdk_error():
            return agent_card(self._interfaces, self._service.agents(call_of(context)))


def _query(params: ListTasksRequest, size: int, *, roots_only: bool) -> HistoryQuery | None:
    """None: nothing can match it."""
    states = tuple(state for state, shown in STATES.items() if shown == params.status)
    if params.status != UNSPECIFIED and not states:
        return None
    before = decode_page_token(params.page_token) if params.page_token else None
    if before is not None and not is_session_id(before):
        raise InvalidParamsError("Invalid page token.")
    return HistoryQuery(conversation=params.context_id or None, states=states, limit=size, before_session=before, roots_only=roots_only)


def _digest(call: Call, message_id: str) -> str:
    """The sender and id of a message are its key, so that a repeated message does not run twice."""
    parts = (call.principal.name, call.principal.parent or "", message_id)
    return hashlib.sha256(chr(0).join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


# ---- answers to tasks that wait for input


def _must_wait(before: Record, message: Message) -> None:
    if message.context_id and message.context_id != context_of(before):
        raise InvalidParamsError(f"Task {task_id_of(before)} does not belong to context {message.context_id[:80]}.")
    if before.state is not State.BLOCKED:
        words = "does not wait for input. Send the message without a task id, in its context, to begin another."
        raise UnsupportedOperationError(f"Task {task_id_of(before)} {words}")


def _answered(before: Record, asked: IncomingMessage) -> Mapping[str, Any]:
    """The earlier request, changed by the answer."""
    target, operation = parts_of(before.agent)
    given = dict(asked.data or {})
    inner = given.pop("parameters", None)
    options: dict[str, Any] = {name: given.pop(name) for name in ("timeout", "priority", "budget", "idle") if name in given}
    named = {name: value for name, value in given.items() if name not in ("target", "operation")}
    parameters = {**before.parameters, **(inner if isinstance(inner, Mapping) else {}), **named}
    if is_redacted(parameters):
        raise InvalidParamsError("Secret parameters are not stored: send them again with the answer.")
    if asked.text:
        spoken = next((name for name in ("task", "message") if name in parameters), None)
        if spoken is None:
            raise InvalidParamsError(f"{before.agent} takes parameters, not text: send a data part with the changes.")
        parameters[spoken] = asked.text
    return {**options, "target": target, "operation": operation, "parameters": parameters, "resume": before.session_id}
