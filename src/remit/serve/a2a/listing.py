"""Tasks listed, by context, state and time, a page at a time, the newest first. Used by `handler`.

A task that was gone on with is several delegations: it is listed once, where the last of them stands.
"""

from a2a.types import ListTasksRequest, ListTasksResponse, Task, TaskState
from a2a.utils.errors import InvalidParamsError
from a2a.utils.task import apply_history_length, decode_page_token, encode_page_token, validate_page_size

from remit.core.ids import is_session_id
from remit.core.record import HistoryQuery, Record
from remit.core.states import State
from remit.serve.a2a.continuing import Thread, Threads
from remit.serve.a2a.states import STATES, states_of
from remit.serve.a2a.tasks import bare_task, task_of
from remit.serve.service import Call, Service
from remit.system.threads import off_loop

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
