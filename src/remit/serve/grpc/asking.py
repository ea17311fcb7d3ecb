"""What a message asks for, in the words of `serve.service`: arguments of the delegate tool, and queries with their pages. Decides nothing.

Nanoseconds become milliseconds or seconds here, once (S2.1). 0 and empty are what protobuf knows as not said.
"""

import base64
import binascii
import hashlib
from collections.abc import Callable
from typing import Any

from remit.core.errors import Misused
from remit.core.ids import SESSION_ID
from remit.core.record import HistoryQuery
from remit.core.states import Priority, State
from remit.proto.times import seconds
from remit.proto.v1 import tasks_pb2 as pb
from remit.proto.values import dict_of
from remit.serve.service import MOST_ON_PAGE
from remit.tool.catalogue import parts_of

USUAL_PAGE = 50
_LONGEST_TOKEN = 200
_MARK_BYTES = 6
_PRIORITIES = frozenset({0, *map(int, Priority)})
_STATES: dict[int, tuple[State, ...]] = {
    pb.TASK_STATE_PENDING: (),
    pb.TASK_STATE_QUEUED: (State.QUEUED,),
    pb.TASK_STATE_RUNNING: (State.RUNNING,),
    pb.TASK_STATE_PAUSED: (State.RUNNING,),
    pb.TASK_STATE_COMPLETED: (State.COMPLETED,),
    pb.TASK_STATE_FAILED: (State.PARTIAL, State.FAILED, State.BLOCKED, State.REFUSED),
    pb.TASK_STATE_CANCELLED: (State.CANCELLED,),
    pb.TASK_STATE_TIMEOUT: (State.TIMEOUT,),
}
"""What the registry calls them. That one is paused is not on record: those are among the running."""


def target_of(request: pb.ExecuteTaskRequest, name_of: Callable[[str], str | None]) -> tuple[str | None, str | None]:
    """Target and operation. `name_of`: the name of a registered agent by its id. A whole name may stand in either field.

    Where no agent is named the target is None: any agent that can. What does not fit together is left to the reader to say."""
    agent, type_ = request.agent_id, request.type
    if not agent:
        if not type_:
            raise Misused("Neither agent_id nor type says what is to be done.", advice="Set type, e.g. to worker.read_file.")
        return None, type_
    agent = name_of(agent) or agent
    target, operation = parts_of(agent)
    if type_ in ("", agent):
        return target, operation
    if operation is not None and type_ != operation:
        raise Misused(f"agent_id names {agent}, and type {type_!r:.80}.", advice="Name the agent in agent_id and its operation in type.")
    return target, type_.removeprefix(f"{target}.")


def arguments_of(request: pb.ExecuteTaskRequest) -> dict[str, Any]:
    """Those beside target and operation."""
    priority = request.priority
    if priority not in _PRIORITIES:
        raise Misused(f"There is no priority {priority}.", advice="1 is low, 2 normal, 3 high, 4 critical.")
    if not request.HasField("config"):
        return {"parameters": {}, "priority": priority}
    config = request.config
    arguments: dict[str, Any] = {"parameters": dict_of(config.parameters), "priority": priority}
    if config.timeout_ns:
        arguments["timeout"] = config.timeout_ns / 1e6
    if config.key:
        arguments["key"] = config.key
    if config.accept:
        arguments["accept"] = list(config.accept)
    if config.HasField("budget"):
        arguments["budget"] = dict_of(config.budget)
    if config.resume:
        arguments["resume"] = config.resume
    if config.idle_ns:
        if config.idle_ns < 0:
            raise Misused("idle_ns must be above 0.", advice="Leave it out, or send e.g. 30000000000 for half a minute.")
        arguments["idle"] = seconds(config.idle_ns)
    return arguments


def wait_seconds_of(request: pb.ExecuteTaskRequest) -> float:
    if request.wait_ns < 0:
        raise Misused("wait_ns must not be negative.", advice="0 does not wait.")
    return seconds(request.wait_ns) or 0.0


# ---- lists


def query_of(request: pb.ListTasksRequest) -> HistoryQuery:
    """Raises `Misused`, also for a page token that is none of ours or of another question."""
    if request.page_size < 0:
        raise Misused("page_size must not be negative.", advice=f"0 gives {USUAL_PAGE}; at most {MOST_ON_PAGE} come at once.")
    return HistoryQuery(
        root_id=request.root_id or None,
        agent=request.agent_id or None,
        states=_wanted(request),
        since=seconds(request.since_ns),
        until=seconds(request.until_ns),
        conversation=request.session_id or None,
        limit=min(request.page_size or USUAL_PAGE, MOST_ON_PAGE),
        before_session=_read_token(request),
    )


def is_empty(request: pb.ListTasksRequest) -> bool:
    """Of what is never on record: a task is pending before it is."""
    return bool(request.states) and not any(_STATES.get(state) for state in request.states)


def token_of(request: pb.ListTasksRequest, next_page: str | None) -> str:
    """Opaque to clients; holds to which question it belongs, so that it goes on with no other."""
    if next_page is None:
        return ""
    return base64.urlsafe_b64encode(_mark(request) + next_page.encode()).decode().rstrip("=")


def _read_token(request: pb.ListTasksRequest) -> str | None:
    token = request.page_token
    if not token:
        return None
    data = b""
    if len(token) <= _LONGEST_TOKEN and token.isascii():
        try:
            data = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            data = b""
    before = data[_MARK_BYTES:].decode("ascii", "replace")
    if data[:_MARK_BYTES] != _mark(request) or not SESSION_ID.match(before):
        raise Misused("page_token is none of this question.", advice="Send what next_page_token held, with the same filters; or none.")
    return before


def _mark(request: pb.ListTasksRequest) -> bytes:
    asked = pb.ListTasksRequest()
    asked.CopyFrom(request)
    asked.ClearField("page_token")
    asked.ClearField("page_size")
    return hashlib.sha256(asked.SerializeToString(deterministic=True)).digest()[:_MARK_BYTES]


def _wanted(request: pb.ListTasksRequest) -> tuple[State, ...]:
    found: dict[State, None] = {}
    for state in request.states:
        if state not in _STATES:
            raise Misused(f"There is no task state {state}.", advice="1 pending, 2 queued, 3 running, … 8 timeout.")
        found.update(dict.fromkeys(_STATES[state]))
    return tuple(found)
