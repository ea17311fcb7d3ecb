"""The A2A API: the SDK's `RequestHandler` on remit's service, behind the SDK's JSON-RPC, REST and gRPC bindings.

A task is the same through every API and outlives the server. Closing a connection ends nothing: only CancelTask does."""

import contextlib
import logging
import secrets
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import grpc.aio
from a2a.server.context import ServerCallContext
from a2a.server.events.event_queue import Event
from a2a.server.request_handlers.grpc_handler import GrpcHandler
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
from a2a.types.a2a_pb2 import DESCRIPTOR
from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server
from a2a.utils.constants import AGENT_CARD_WELL_KNOWN_PATH
from a2a.utils.errors import (
    A2AError,
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    UnsupportedOperationError,
)
from a2a.utils.task import apply_history_length, decode_page_token, encode_page_token, validate_history_length, validate_page_size
from starlette.routing import BaseRoute, Route

from remit.core import events as ours
from remit.core.delegate_results import ChunkType
from remit.core.ids import is_session_id
from remit.core.record import HistoryQuery, Record
from remit.core.settings import ServeSettings
from remit.core.states import State
from remit.server.a2a.card import WAIT, GrpcCalls, HttpCalls, agent_card, call_of, sdk_error
from remit.server.a2a.messages import (
    STATES,
    arguments_of,
    bare_task,
    last_updates,
    read_message,
    task_of,
    update_of,
)
from remit.server.a2a.threads import Thread, Threads, key_of, must_fit
from remit.server.grpc.auth_interceptor import basic_trailers, short
from remit.server.service import HOLD, LONGEST_SESSION, Call, Page, Service
from remit.system.threads import off_loop

JSON_RPC_PATH = "/a2a"
REST_PATH = "/a2a/v1"
OPEN_PATHS = frozenset({AGENT_CARD_WELL_KNOWN_PATH})
"""Answered without authentication."""
CARD_SECONDS = 60
"""Clients may cache the card for this time."""
SERVICE = DESCRIPTOR.services_by_name["A2AService"].full_name
WAIT_SECONDS = 3600.0
"""Maximum wait per poll, for a client that waits for the end."""
USUAL_PAGE = 50
NO_PUSH = "Push notifications are not supported. Subscribe to the task instead."
UNSPECIFIED = TaskState.TASK_STATE_UNSPECIFIED


class A2aApi(RequestHandler):
    def __init__(
        self,
        service: Service,
        settings: ServeSettings,
        *,
        base_url: Callable[[], str],
        grpc_url: Callable[[], str | None] = lambda: None,
        is_public: bool = False,
    ) -> None:
        """`base_url` and `grpc_url`: addresses for clients, known once the server listens (None: no gRPC); `is_public`: other machines
        reach it, so anonymous callers do not see the agents."""
        self._service = service
        self._settings = settings
        self._base_url = base_url
        self._grpc_url = grpc_url
        self._is_public = is_public
        self._threads = Threads(service)
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

    def add_to(self, server: "grpc.aio.Server") -> str:
        """Add the gRPC binding and return the name of its service."""
        add_A2AServiceServicer_to_server(_GrpcBinding(self, GrpcCalls()), server)  # type: ignore[no-untyped-call]
        return SERVICE

    async def _card(self, _blank: AgentCard) -> AgentCard:
        return agent_card(self._interfaces(), () if self._is_public else self._service.tool.catalogue.specs)

    def _interfaces(self) -> list[tuple[str, str]]:
        """Bindings and their addresses, in order of preference."""
        base = (self._settings.public_url or self._base_url()).rstrip("/")
        interfaces = [("JSONRPC", f"{base}{JSON_RPC_PATH}"), ("HTTP+JSON", f"{base}{REST_PATH}")]
        grpc_url = self._grpc_url()
        if grpc_url is not None and not grpc_url.startswith("unix:"):  # sockets are not announced
            host, _, port = grpc_url.rpartition(":")  # a wildcard address is announced by the name of the HTTP address
            interfaces.append(("GRPC", f"{urlsplit(base).hostname}:{port}" if host in ("0.0.0.0", "[::]") else grpc_url))
        return interfaces

    # ---- work

    @validate_request_params
    async def on_message_send(self, params: SendMessageRequest, context: ServerCallContext) -> Task | Message:
        validate_history_length(params.configuration)
        with sdk_error():
            if waits := not params.configuration.return_immediately:
                context.state[HOLD]()  # counts as an open stream, and ends when the caller's token is revoked
            call, record = await self._begin(params, context)
            while waits and record.result is None:
                await context.state[WAIT](self._service.result(call, record.session_id, WAIT_SECONDS))
                record = await self._service.record(call, record.session_id)
            thread = await self._threads.of(call, record.session_id)
            return apply_history_length(await self._task(thread), params.configuration)

    @validate_request_params
    async def on_message_send_stream(self, params: SendMessageRequest, context: ServerCallContext) -> AsyncGenerator[Event]:
        validate_history_length(params.configuration)
        with sdk_error():
            call, record = await self._begin(params, context)
            thread = await self._threads.of(call, record.session_id)
            async with contextlib.aclosing(self._follow(call, thread)) as events:
                async for event in events:
                    yield apply_history_length(event, params.configuration) if isinstance(event, Task) else event

    @validate_request_params
    async def on_subscribe_to_task(self, params: SubscribeToTaskRequest, context: ServerCallContext) -> AsyncGenerator[Event]:
        """Until the task has ended: also while it waits for input, and when it continues."""
        with sdk_error():
            call = call_of(context)
            thread = await self._threads.of(call, params.id)
            if thread.is_ended:
                raise UnsupportedOperationError(f"Task {params.id} has ended. Get it instead.")
            while True:
                async with contextlib.aclosing(self._follow(call, thread)) as events:
                    async for event in events:
                        yield event
                thread = await self._threads.of(call, thread.task_id)
                if thread.is_ended:
                    return
                thread = await self._threads.changed(call, thread)

    async def _begin(self, params: SendMessageRequest, context: ServerCallContext) -> tuple[Call, Record]:
        """It is recorded when this returns."""
        message, asked = params.message, read_message(params)
        if len(message.message_id) > LONGEST_SESSION or len(message.context_id) > LONGEST_SESSION:
            raise UnsupportedOperationError(f"Ids have at most {LONGEST_SESSION} characters.")
        call = call_of(context, session=message.context_id or f"ctx_{secrets.token_hex(8)}", position=asked.position)
        if params.configuration.HasField("task_push_notification_config"):
            raise PushNotificationNotSupportedError(NO_PUSH)
        if message.task_id:
            thread = await self._threads.of(call, message.task_id)
            must_fit(thread, message)
            call = replace(call, session=thread.records[0].caller_info.session if thread.records[0].caller_info else call.session)
            async with self._threads.turn(thread.task_id):
                thread = await self._threads.of(call, message.task_id)  # another answer may have come first
                record = await self._threads.resume(call, thread, message, asked)
        else:
            arguments = arguments_of(asked, self._service.agents(call), has_assistant=self._service.remit.models.is_configured())
            request = self._service.read(call, arguments)
            also = {**request.also, "key": key_of(call, message.message_id)}
            handle = await self._service.execute(call, replace(request, also=also))
            record = await self._service.record(call, handle.session_id)
        return call, record

    async def _follow(self, call: Call, thread: Thread) -> AsyncGenerator[Event, None]:
        """The current task, its later events, and how it ended or that it waits for input."""
        record = thread.record
        events = await self._service.remit.events(record.session_id)
        first = await off_loop(self._draw, thread, events)
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
        for update in last_updates(await self._task(await self._threads.of(call, thread.task_id))):
            yield update

    async def _task(self, thread: Thread) -> Task:
        record = thread.record
        events = await self._service.remit.events(record.session_id) if record.result is None or record.chunk_count else []
        return await off_loop(self._draw, thread, events)

    def _draw(self, thread: Thread, events: Sequence[ours.Event]) -> Task:
        task = task_of(thread.record, self._service.artifact_content, events=events)
        del task.history[:]
        task.history.extend(thread.history())
        return task

    # ---- looking

    @validate_request_params
    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> Task | None:
        validate_history_length(params)
        with sdk_error():
            thread = await self._threads.of(call_of(context), params.id)
            return apply_history_length(await self._task(thread), params)

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
        if self._threads.whole(record).record.session_id != record.session_id:
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
            thread = await self._threads.of(call, params.id)
            async with self._threads.turn(thread.task_id):
                thread = await self._threads.of(call, params.id)
                if thread.record.result is not None:
                    raise TaskNotCancelableError(f"Task {thread.task_id} {'waits for input' if thread.waits else 'has ended already'}.")
                await self._service.cancel(call, thread.record.session_id, "by an A2A client")
            thread = await self._threads.of(call, params.id)
            if thread.record.result is not None and thread.record.state is not State.CANCELLED:
                raise TaskNotCancelableError(f"Task {params.id} ended by itself before it could be stopped.")
            return await self._task(thread)

    async def _no_push(self, _params: object, _context: ServerCallContext) -> Any:
        """Push notifications are an optional capability that the card does not declare."""
        raise PushNotificationNotSupportedError(NO_PUSH)

    on_create_task_push_notification_config = on_get_task_push_notification_config = _no_push  # type: ignore[assignment]
    on_list_task_push_notification_configs = on_delete_task_push_notification_config = _no_push  # type: ignore[assignment]

    @validate_request_params
    async def on_get_extended_agent_card(self, params: GetExtendedAgentCardRequest, context: ServerCallContext) -> AgentCard:
        with sdk_error():
            return agent_card(self._interfaces(), self._service.agents(call_of(context)))


def _query(params: ListTasksRequest, size: int, *, roots_only: bool) -> HistoryQuery | None:
    """None: nothing can match it."""
    states = tuple(state for state, shown in STATES.items() if shown == params.status)
    if params.status != UNSPECIFIED and not states:
        return None
    before = decode_page_token(params.page_token) if params.page_token else None
    if before is not None and not is_session_id(before):
        raise InvalidParamsError("Invalid page token.")
    return HistoryQuery(conversation=params.context_id or None, states=states, limit=size, before_session=before, roots_only=roots_only)


class _GrpcBinding(GrpcHandler):
    """The SDK's binding, with remit's code and advice in the trailers, as in the gRPC API."""

    async def abort_context(self, error: A2AError, context: "grpc.aio.ServicerContext[Any, Any]") -> None:
        data = error.data if isinstance(error.data, dict) else {}
        code, advice, wait = data.get("code"), data.get("recommendation"), data.get("retryAfterSeconds")
        trailers = basic_trailers(code, advice if isinstance(advice, str) else "", wait) if isinstance(code, str) else ()
        context.set_trailing_metadata((*(context.trailing_metadata() or ()), *trailers))
        error.message = short(error.message)  # metadata too, which clients limit to 8 KiB
        await super().abort_context(error, context)
