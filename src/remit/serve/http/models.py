"""What goes over the wire in the REST API, as pydantic models: requests are judged by them, and the OpenAPI document is made of them.

What a request *means* (which agent, which parameters) is judged by the service, as at every door; here is its shape alone. Names are
camelCase, times in milliseconds, as at the delegate tool (S5.2, S2.1).
"""

import re
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Json, RootModel

from remit.tool.result import TaskState

_RFC3339 = re.compile(r"\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})", re.ASCII)
_WHOLE = re.compile(r"\d{1,18}", re.ASCII)
_NUMBER = re.compile(r"\d{1,18}(\.\d{1,20})?([eE][+-]?\d{1,3})?", re.ASCII)
LONGEST_WAIT_SECONDS = 300


def _moment(value: object) -> object:
    if not isinstance(value, str) or not _RFC3339.fullmatch(value):
        raise ValueError("must be a moment such as 2026-11-16T09:30:00Z")
    return value


def _number(value: object) -> object:
    """As text of an address: what pydantic would take besides (` 1`, `1_000`) other programs would read otherwise."""
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        raise ValueError("must be a number")
    return value


def _whole(value: object) -> object:
    if isinstance(value, str) and not _WHOLE.fullmatch(value):
        raise ValueError("must be a whole number")
    return value


Moment = Annotated[datetime, BeforeValidator(_moment)]
Seconds = Annotated[float, BeforeValidator(_number)]
Whole = Annotated[int, BeforeValidator(_whole)]
Word = Annotated[str, Field(min_length=1, max_length=200)]


class Asked(BaseModel):
    """What comes in: nothing that is not named."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Budget(Asked):
    """What the task and everything below it may draw at most."""

    delegations: int | None = Field(None, ge=0, lt=10**15)
    alive: int | None = Field(None, ge=0, lt=10**15)
    tokens: int | None = Field(None, ge=0, lt=10**15)
    cost: float | None = Field(None, ge=0, lt=1e15, allow_inf_nan=False)
    seconds: float | None = Field(None, ge=0, lt=1e15, allow_inf_nan=False)


class TaskRequest(Asked):
    """The request of the delegate tool, and what goes beyond it."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"target": "worker", "operation": "read_file", "parameters": {"path": "README.md"}}]}
    )

    target: Word | None = Field(None, description="Whose work it is, e.g. `worker`. Without it: any agent that has the operation.")
    operation: Word | None = Field(None, description="What is to be done, e.g. `read_file`; none for an agent without operations.")
    parameters: dict[str, Any] = Field(default_factory=dict, description="What the operation takes: see `GET /v1/agents/{name}`.")
    timeout: float | None = Field(None, gt=0, lt=1e12, allow_inf_nan=False, description="Milliseconds; without it the target's default.")
    priority: Literal["low", "normal", "high", "critical"] | None = None
    key: Word | None = Field(None, description="Idempotency: the same key gives the same task. The header `Idempotency-Key` says the same.")
    accept: list[str] | None = Field(None, max_length=100, description="Commands that must succeed for it to be completed.")
    budget: Budget | None = None
    resume: Word | None = Field(None, description="The id of an earlier task, to go on from what it had done.")
    idle: float | None = Field(
        None, gt=0, lt=1e12, allow_inf_nan=False, description="Milliseconds without a sign of life after which it is stopped."
    )
    session: Word | None = Field(None, description="Your own word for the conversation it belongs to; `GET /v1/tasks?session=` finds it.")


class CancelRequest(Asked):
    reason: str = Field("", max_length=1000)
    force: bool = Field(False, description="Without the grace in which its processes may hand in what they have.")


class InQuery(Asked):
    """Everything there is text."""

    model_config = ConfigDict(strict=False)


class WaitQuery(InQuery):
    wait: Seconds = Field(
        0.0, ge=0, le=LONGEST_WAIT_SECONDS, description="Seconds to wait for its end; what it is after that is answered all the same."
    )


class ListQuery(InQuery):
    state: list[Literal["QUEUED", "RUNNING", "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"]] = Field(
        default_factory=list, max_length=6, description="Any of these. What waits for a person is RUNNING here too."
    )
    agent: Word | None = None
    session: Word | None = None
    root: Word | None = Field(None, description="All of one tree, by the id of its root.")
    since: Moment | None = Field(None, description="Asked for then or later.")
    until: Moment | None = Field(None, description="Asked for before then.")
    limit: Whole = Field(50, ge=1, le=500)
    cursor: Word | None = Field(None, description="From `next` of the page before.")


class EventsQuery(InQuery):
    after: Whole = Field(0, ge=0, le=10**15, description="The number of the last event that is known already.")


class MetricsQuery(InQuery):
    since: Annotated[Seconds, Field(gt=0, le=1e9)] | None = Field(
        None, description="Of the last so many seconds; without it, of all on record."
    )


class NoQuery(InQuery):
    pass


# ---- what goes out


class TaskFault(BaseModel):
    code: str
    message: str
    recommendation: str
    details: dict[str, Any] = Field(default_factory=dict)


class TaskMetadata(BaseModel):
    target: str
    operation: str | None
    createdAt: datetime
    completedAt: datetime | None
    duration: float | None = Field(description="Milliseconds.")
    agentId: str
    status: str | None = Field(description="Of the return: completed, partial, failed or blocked.")
    stopReason: str | None


class Lineage(BaseModel):
    rootId: str
    parentId: str | None
    depth: int
    path: list[str]
    priority: str
    deadline: datetime
    principal: str = Field(description="Who asked, for the tree it belongs to.")
    session: str | None


class Task(BaseModel):
    """A task as it stands: the result of the delegate tool (S5.4), and where it belongs."""

    success: bool
    taskId: str
    taskState: TaskState
    data: Any
    output: str
    artifacts: list[dict[str, Any]]
    error: TaskFault | None
    metadata: TaskMetadata
    lineage: Lineage


class TaskPage(BaseModel):
    tasks: list[Task]
    next: str | None = Field(description="The cursor of the next page; null: this was the last.")


class Told(BaseModel):
    """One event of a stream: a chunk of S5.7, under its number."""

    type: Literal["progress", "data", "status", "complete", "error"]
    taskId: str | None
    data: dict[str, Any] = Field(description="`message`, `chunk`, `state`, `result` or `error`, as its type says.")


class TaskEvent(BaseModel):
    """A server-sent event, as its fields are."""

    event: Literal["progress", "data", "status", "complete", "error"]
    id: str = Field("", pattern="^[0-9]*$", description="Its number, by which the stream is taken up again.")
    data: Json[Told]
    retry: int = Field(1000, description="Milliseconds after which to come again.")


class CancelledNode(BaseModel):
    taskId: str
    agentId: str
    state: str


class Cancelled(BaseModel):
    cancelled: bool = Field(description="Whether it was this that ended it.")
    nodes: list[CancelledNode] = Field(description="How each task of the tree below it ended.")
    task: Task


class AgentView(BaseModel):
    name: str
    target: str
    operation: str | None
    description: str
    parameters: dict[str, Any] = Field(description="JSON schema.")
    timeout: float = Field(description="Milliseconds, when none is asked for.")
    maxTimeout: float


class AgentList(BaseModel):
    agents: list[AgentView]


class MetricsView(RootModel[dict[str, Any]]):
    """The metrics of S5.9 by their names (`delegation.total`, …), with their alerts."""


class Health(BaseModel):
    status: Literal["ok", "stopping"]


class Problem(BaseModel):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    advice: str
    details: dict[str, Any]
    instance: str | None = None
