"""Requests and answers of the REST API as pydantic models: they validate requests, and the OpenAPI document is made from them.

They describe the shape only: the service decides which agent and parameters are valid. Names are camelCase, times in milliseconds, as in
the delegate tool."""

import re
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema

from remit.core.delegate_requests import DelegateError
from remit.core.delegate_results import TaskState

_RFC3339 = (
    "^[0-9]{3}[1-9]-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[Tt]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
    "([.][0-9]{1,9})?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$"
)
LONGEST_WAIT_SECONDS = 300


def _text(pattern: str, words: str) -> BeforeValidator:
    """In an address pydantic would accept ` 1` and `1_000` too, which other programs read differently."""
    compiled = re.compile(pattern, re.ASCII)

    def check(value: object) -> object:
        if isinstance(value, str) and not compiled.fullmatch(value):
            raise ValueError(f"must be {words}")
        return value

    return BeforeValidator(check)


Moment = Annotated[
    datetime,
    _text(_RFC3339, "a moment such as 2026-11-16T09:30:00Z"),
    WithJsonSchema({"type": "string", "format": "date-time", "pattern": _RFC3339}),
]
Seconds = Annotated[float, _text(r"\d{1,18}(\.\d{1,20})?([eE][+-]?\d{1,3})?", "a number")]
Whole = Annotated[int, _text(r"\d{1,18}", "a whole number")]
Model = TypeVar("Model", bound=BaseModel)
Word = Annotated[str, Field(min_length=1, max_length=200)]
SessionId = Annotated[str, Field(pattern="^sess_[0-9]{8,20}_[a-z0-9]{6}$")]


def validated(model: type[Model], given: Any) -> Model:
    try:
        return model.model_validate(given)
    except ValidationError as error:
        faults = [
            {"parameter": ".".join(str(part) for part in one["loc"])[:200], "fault": one["msg"][:400]}
            for one in error.errors(include_url=False, include_context=False, include_input=False)[:20]
        ]
        where = faults[0]["parameter"] or "The body"
        advice = f"Allowed: {', '.join(model.model_fields)}." if model.model_fields else "It takes none."
        raise DelegateError(f"{where}: {faults[0]['fault']}.", advice=advice, details={"faults": faults}) from None


class Input(BaseModel):
    """A request: unknown names are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Budget(Input):
    """Limits of the task and everything below it."""

    delegations: int | None = Field(None, ge=0, lt=10**15)
    alive: int | None = Field(None, ge=0, lt=10**15)
    tokens: int | None = Field(None, ge=0, lt=10**15)
    cost: float | None = Field(None, ge=0, lt=1e15, allow_inf_nan=False)
    seconds: float | None = Field(None, ge=0, lt=1e15, allow_inf_nan=False)


class TaskRequest(Input):
    """The request of the delegate tool, with some more options."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [{"required": [name], "properties": {name: {"type": "string"}}} for name in ("target", "operation")],
            "examples": [{"target": "worker", "operation": "read_file", "parameters": {"path": "README.md"}}],
        }
    )

    target: Word | None = Field(None, description="The agent, e.g. `worker`. Without it: any agent that has the operation.")
    operation: Word | None = Field(None, description="The operation, e.g. `read_file`; none for an agent without operations.")
    parameters: dict[str, Any] = Field(default_factory=dict, description="Parameters of the operation: see `GET /v1/agents`.")
    timeout: float | None = Field(None, gt=0, lt=1e12, allow_inf_nan=False, description="Milliseconds; without it the target's default.")
    priority: Literal["low", "normal", "high", "critical"] | None = None
    key: Word | None = Field(None, description="Idempotency: the same key gives the same task.")
    accept: list[str] | None = Field(None, max_length=100, description="Commands that must succeed for the task to count as completed.")
    budget: Budget | None = None
    resume: Word | None = Field(None, description="The id of an earlier task to continue from.")
    idle: float | None = Field(
        None, gt=0, lt=1e12, allow_inf_nan=False, description="Milliseconds without activity after which it is stopped."
    )
    session: Word | None = Field(None, description="Your own name for the conversation; `GET /v1/tasks?session=` finds it.")


class CancelRequest(Input):
    reason: str = Field("", max_length=1000)


class Query(Input):
    """Values arrive as text."""

    model_config = ConfigDict(strict=False)


class WaitQuery(Query):
    wait: Seconds = Field(
        0.0, ge=0, le=LONGEST_WAIT_SECONDS, description="Seconds to wait for its end. After that the answer has the current state."
    )


class ListQuery(Query):
    state: list[Literal["QUEUED", "RUNNING", "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"]] = Field(
        default_factory=list, max_length=6, description="Any of these. A task that waits for approval is RUNNING here."
    )
    agent: Word | None = None
    session: Word | None = None
    root: Word | None = Field(None, description="All of one tree, by the id of its root.")
    since: Moment | None = Field(None, description="Created then or later.")
    until: Moment | None = Field(None, description="Created before then.")
    limit: Whole = Field(50, ge=1, le=500)
    cursor: SessionId | None = Field(None, description="`next` of the page before.")


class EventsQuery(Query):
    after: Whole = Field(0, ge=0, le=10**15, description="The number of the last event received.")


class NoQuery(Query):
    pass


# ---- answers


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
    principal: str = Field(description="Who asked for the tree it belongs to.")
    session: str | None


class Task(BaseModel):
    """A task in its current state: the result of the delegate tool, and its lineage. In lists `data` is null and `artifacts` empty."""

    success: bool
    taskId: str
    taskState: TaskState
    data: Any
    output: str
    artifacts: list[dict[str, Any]]
    error: TaskFault | None
    continueWith: dict[str, Any] | None = Field(
        default=None, description="The fields of a request that continues the task, besides `parameters`. Absent where it would begin anew."
    )
    metadata: TaskMetadata
    lineage: Lineage
    traceback: str | None = Field(
        default=None, description="Of the exception that its agent raised. For the owner, and for callers with the permission `see-all`."
    )


class TaskPage(BaseModel):
    tasks: list[Task]
    next: str | None = Field(description="The cursor of the next page; null: this was the last.")


class CancelledNode(BaseModel):
    taskId: str
    agentId: str
    state: str


class Cancelled(BaseModel):
    cancelled: bool = Field(description="Whether this request ended it.")
    nodes: list[CancelledNode] = Field(description="How each task of the tree below it ended.")
    task: Task


class AgentView(BaseModel):
    name: str
    target: str
    operation: str | None
    description: str
    parameters: dict[str, Any] = Field(description="JSON schema.")
    timeout: float = Field(description="Milliseconds, if the request has none.")
    maxTimeout: float


class AgentList(BaseModel):
    agents: list[AgentView]


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
