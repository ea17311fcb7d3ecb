"""The requests of A2A, answered by our service: a task is the same through every API and outlives the server.

Implements the SDK's `RequestHandler`; the SDK's routes and servicers (`api`) translate JSON-RPC, REST and gRPC to it. Leaving a connection
ends nothing: only CancelTask does."""

import contextlib
import logging
import secrets
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import replace
from typing import Any

from a2a.server.context import ServerCallContext
from a2a.server.events.event_queue import Event
from a2a.server.request_handlers.request_handler import RequestHandler, validate_request_params
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils import errors as theirs
from a2a.utils.errors import InvalidParamsError, TaskNotCancelableError, UnsupportedOperationError
from a2a.utils.task import apply_history_length, decode_page_token, encode_page_token, validate_history_length, validate_page_size

from remit.core.errors import RemitError
from remit.core.ids import is_session_id
from remit.core.record import HistoryQuery, Record
from remit.core.states import State
from remit.serve.a2a.calls import call_of
from remit.serve.a2a.card import Facts, extended_card
from remit.serve.a2a.messages import arguments_of, taken_apart
from remit.serve.a2a.push import Pushing
from remit.serve.a2a.tasks import STATES, TERMINAL, answer_of, asked_of, bare_task, last_updates, states_of, task_of, update_of
from remit.serve.a2a.threads import Thread, Threads, key_of, must_fit
from remit.serve.service import Call, Service
from remit.serve.statuses import status_of
from remit.system.threads import off_loop
from remit.tool.chunks import Chunk, ChunkType
from remit.tool.faults import DelegateError

log = logging.getLogger("remit.serve.a2a")


def fault_of(error: RemitError) -> theirs.A2AError:
    kind: type[theirs.A2AError] = getattr(theirs, status_of(error).a2a)
    data: dict[str, Any] = {"code": error.code}
    if error.advice:
        data["recommendation"] = error.advice
    if isinstance(error, DelegateError) and error.details:
        data["details"] = dict(error.details)
    if (seconds := getattr(error, "retry_after_seconds", None)) is not None:
        data["retryAfterSeconds"] = seconds
    return kind(message=str(error), data=data)


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Around whatever a request does."""
    try:
        yield
    except RemitError as error:
        raise fault_of(error) from error
    except theirs.A2AError:
        raise
    except Exception as error:
        log.error("A request of A2A failed here.", exc_info=error)
        raise theirs.InternalError("Something went wrong here. The server's log has it.") from None


USUAL = 50
MOST_ROUNDS = 50
"""A filter that few tasks meet makes a page of several reads; after so many, what was found so far is the page."""


async def listed(service: Service, threads: Threads, call: Call, params: ListTasksRequest) -> ListTasksResponse:
    if params.HasField("page_size"):
        validate_page_size(params.page_size)
    size = params.page_size or USUAL
    roots_only = call.visitor.parent is None  # what is asked for with the token of a delegation is its child
    query = _query(params, size, roots_only)
    tasks: list[Task] = []
    next_page: str | None = None
    for _ in range(MOST_ROUNDS if query is not None else 0):
        assert query is not None
        page = await service.list(call, query)
        for record in page.records:
            if (task := await off_loop(_shown, service, threads, record, params)) is not None:
                tasks.append(task)
            if len(tasks) == size:
                next_page = record.session_id if record is not page.records[-1] or page.next_page else None
                break
        else:
            next_page = page.next_page
        if len(tasks) == size or next_page is None:
            break
        query = _query(params, size, roots_only, next_page)
    token = encode_page_token(next_page) if next_page else ""
    return ListTasksResponse(tasks=tasks, next_page_token=token, page_size=size, total_size=len(tasks) + bool(next_page))


def _query(params: ListTasksRequest, size: int, roots_only: bool, before: str | None = None) -> HistoryQuery | None:
    """None: there is nothing that could meet it."""
    states = states_of(params.status) if params.status != TaskState.TASK_STATE_UNSPECIFIED else ()
    if params.status != TaskState.TASK_STATE_UNSPECIFIED and not states:
        return None
    if params.status == TaskState.TASK_STATE_CANCELED:
        states = (*states, State.BLOCKED)  # what waited for an answer when it was cancelled: `_shown` knows which
    if before is None and params.page_token:
        before = decode_page_token(params.page_token)
        if not is_session_id(before):
            raise InvalidParamsError("The page token is not one that was given out here.")
    return HistoryQuery(conversation=params.context_id or None, states=states, limit=size, before_session=before, roots_only=roots_only)


def _shown(service: Service, threads: Threads, record: Record, params: ListTasksRequest) -> Task | None:
    thread = threads.whole(record)
    if thread.record.session_id != record.session_id:
        return None  # it went on: it is listed where the last of it stands
    at = record.settled_at or record.started_at or record.created_at
    if params.HasField("status_timestamp_after") and at < params.status_timestamp_after.ToMilliseconds() / 1000:
        return None
    shown = TaskState.TASK_STATE_CANCELED if thread.is_cancelled else STATES[record.state]
    if params.status not in (TaskState.TASK_STATE_UNSPECIFIED, shown):
        return None
    task = _drawn(service, thread) if params.include_artifacts else bare_task(record, is_cancelled=thread.is_cancelled)
    return apply_history_length(task, params)


def _drawn(service: Service, thread: Thread) -> Task:
    return task_of(thread.record, service.remit.root, is_cancelled=thread.is_cancelled)


WAIT_SECONDS = 3600.0
"""At a time, for one who waits for the end."""
LONGEST_ID = 500


class A2aHandler(RequestHandler):
    def __init__(self, service: Service, threads: Threads, pushing: Pushing, facts: Callable[[], Facts]) -> None:
        self._service = service
        self._threads = threads
        self._pushing = pushing
        self._facts = facts

    # ---- work

    @validate_request_params
    async def on_message_send(self, params: SendMessageRequest, context: ServerCallContext) -> Task | Message:
        validate_history_length(params.configuration)
        with told():
            call, record = await self._begun(params, context)
            if not params.configuration.return_immediately:
                while record.result is None:
                    await self._service.result(call, record.session_id, WAIT_SECONDS)
                    record = await self._service.record(call, record.session_id)
            thread = await self._threads.of(call, record.session_id)
            return apply_history_length(await self._whole(thread), params.configuration)

    @validate_request_params
    async def on_message_send_stream(self, params: SendMessageRequest, context: ServerCallContext) -> AsyncGenerator[Event]:
        validate_history_length(params.configuration)
        with told():
            call, record = await self._begun(params, context)
            thread = await self._threads.of(call, record.session_id)
            async with contextlib.aclosing(self._followed(call, thread)) as events:
                async for event in events:
                    yield apply_history_length(event, params.configuration) if isinstance(event, Task) else event

    @validate_request_params
    async def on_subscribe_to_task(self, params: SubscribeToTaskRequest, context: ServerCallContext) -> AsyncGenerator[Event]:
        with told():
            call = call_of(context)
            thread = await self._threads.of(call, params.id)
            if thread.is_cancelled or (thread.record.result is not None and not thread.waits):
                raise UnsupportedOperationError(f"Task {params.id} has ended: nothing more is to come of it. Get it instead.")
            async with contextlib.aclosing(self._followed(call, thread)) as events:
                async for event in events:
                    yield event

    async def _begun(self, params: SendMessageRequest, context: ServerCallContext) -> tuple[Call, Record]:
        """On record when this returns."""
        message, asked = params.message, taken_apart(params)
        if len(message.message_id) > LONGEST_ID or len(message.context_id) > LONGEST_ID:
            raise UnsupportedOperationError(f"Ids are at most {LONGEST_ID} characters long here.")
        call = call_of(context, session=message.context_id or f"ctx_{secrets.token_hex(8)}", told=asked.told)
        watcher = await self._pushing.wanted(params.configuration)
        if message.task_id:
            thread = await self._threads.of(call, message.task_id)
            must_fit(thread, message)
            call = replace(call, session=thread.records[0].came.session if thread.records[0].came else call.session)
            async with self._threads.turn(thread.task_id):
                thread = await self._threads.of(call, message.task_id)  # another answer may have come first
                record = await self._threads.go_on(call, thread, message, asked)
        else:
            arguments = arguments_of(asked, self._service.agents(call), has_assistant=self._service.remit.models.is_configured())
            request = self._service.read(call, arguments)
            also = {**request.also, "key": key_of(call, message.message_id)}
            handle = await self._service.execute(call, replace(request, also=also))
            record = await self._service.record(call, handle.session_id)
        await self._pushing.begun(record, watcher)
        return call, record

    async def _followed(self, call: Call, thread: Thread) -> AsyncGenerator[Event, None]:
        """How it stands, then what it says from there on, then how it ended."""
        record = thread.record
        events = await self._service.remit.events(record.session_id)
        first = await off_loop(self._drawn, thread, events)
        yield first
        if first.status.state in TERMINAL or record.result is not None:
            return
        appends = bool(first.artifacts)
        async with contextlib.aclosing(self._service.stream(call, record.session_id, events[-1].number if events else 0)) as chunks:
            async for chunk in chunks:
                if _is_last(chunk):
                    break
                yield update_of(chunk, first, appends=appends)
                appends = appends or chunk.type is ChunkType.DATA
        ended = await self._whole(await self._threads.of(call, thread.task_id))
        for update in last_updates(ended):
            yield update

    # ---- looking

    @validate_request_params
    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> Task | None:
        validate_history_length(params)
        with told():
            thread = await self._threads.of(call_of(context), params.id)
            return apply_history_length(await self._whole(thread), params)

    @validate_request_params
    async def on_list_tasks(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        validate_history_length(params)
        with told():
            return await listed(self._service, self._threads, call_of(context), params)

    async def _whole(self, thread: Thread) -> Task:
        record = thread.record
        events = await self._service.remit.events(record.session_id) if record.result is None or record.chunk_count else []
        return await off_loop(self._drawn, thread, events)

    def _drawn(self, thread: Thread, events: list[Any]) -> Task:
        task = task_of(thread.record, self._service.remit.root, events=events, is_cancelled=thread.is_cancelled)
        del task.history[:]
        task.history.extend(history_of(thread))
        return task

    # ---- ending

    @validate_request_params
    async def on_cancel_task(self, params: CancelTaskRequest, context: ServerCallContext) -> Task | None:
        """Really stopped when this answers, with everything below it."""
        with told():
            call = call_of(context)
            thread = await self._threads.of(call, params.id)
            async with self._threads.turn(thread.task_id):
                await self._stopped(call, await self._threads.of(call, params.id))
            thread = await self._threads.of(call, params.id)
            if thread.record.result is not None and not (thread.is_cancelled or str(thread.record.state) == "cancelled"):
                raise TaskNotCancelableError(f"Task {params.id} ended by itself before it could be stopped.")
            self._pushing.wake(thread.task_id)
            return await self._whole(thread)

    async def _stopped(self, call: Call, thread: Thread) -> None:
        if thread.waits and self._threads.may_change(call, thread):
            await self._threads.give_up(thread)
        elif thread.record.result is not None:
            raise TaskNotCancelableError(f"Task {thread.task_id} has ended already.")
        else:
            await self._service.cancel(call, thread.record.session_id, "by an A2A client")

    # ---- notifications: they hold their receiver's secrets, so whoever may only look at a task does not see them

    @validate_request_params
    async def on_create_task_push_notification_config(
        self, params: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        with told():
            return await self._pushing.create(await self._threads.own(call_of(context), params.task_id), params)

    @validate_request_params
    async def on_get_task_push_notification_config(
        self, params: GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        with told():
            return self._pushing.get(await self._threads.own(call_of(context), params.task_id), params.id)

    @validate_request_params
    async def on_list_task_push_notification_configs(
        self, params: ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> ListTaskPushNotificationConfigsResponse:
        with told():
            configs = self._pushing.all(await self._threads.own(call_of(context), params.task_id))
            return ListTaskPushNotificationConfigsResponse(configs=configs)

    @validate_request_params
    async def on_delete_task_push_notification_config(
        self, params: DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        with told():
            await self._pushing.delete(await self._threads.own(call_of(context), params.task_id), params.id)

    # ---- the card

    @validate_request_params
    async def on_get_extended_agent_card(self, params: GetExtendedAgentCardRequest, context: ServerCallContext) -> AgentCard:
        with told():
            return extended_card(self._facts(), self._service.agents(call_of(context)))


def history_of(thread: Thread) -> list[Message]:
    """What was asked, and where it was gone on with, what it had answered before."""
    history: list[Message] = []
    for record in thread.records[:-1]:
        history.append(asked_of(record))
        if (answer := answer_of(record)) is not None:
            history.append(answer)
    return [*history, *bare_task(thread.record).history]


def _is_last(chunk: Chunk) -> bool:
    return chunk.type in (ChunkType.COMPLETE, ChunkType.ERROR)
