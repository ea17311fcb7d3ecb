"""Sample delegations and outcomes for checks of stores: small, complete, distinguished by a number.

Used by `store_suite` and the tests."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any, Protocol

from remit.core.deadline import Deadline
from remit.core.delegation import CallerInfo, Delegation, Lineage
from remit.core.errors import ErrorInfo
from remit.core.events import BEFORE_RUN, Event, EventKind
from remit.core.ports import Store
from remit.core.record import AppendEvent, BeginDelegation, Owner, Record, SettleDelegation
from remit.core.result import Artifact, Evidence, Metadata, Return, Status, StopReason
from remit.core.states import Priority, State


class OwnedStore(Store, Protocol):
    """A store with a settable owner: outcomes of delegations that another owner has taken over are not written."""

    owner_id: str | None


OpenStore = Callable[[], OwnedStore]
Check = Callable[[OpenStore], None]


def session(number: int) -> str:
    return f"sess_1700000000_{number:06}"


def record(number: int, **changed: Any) -> Record:
    """A running root delegation; `parent=` makes it a child of that number's."""
    parent = changed.pop("parent", None)
    agent = changed.get("agent", "digest")
    root = changed.pop("root", parent if parent is not None else number)
    at = changed.get("created_at", 1000.0 + number)
    plain: dict[str, Any] = {
        "session_id": session(number),
        "root_id": session(root),
        "parent_id": None if parent is None else session(parent),
        "depth": 1 if parent is None else 2,
        "path": ("orchestrator", agent),
        "agent": agent,
        "parameters": {"path": "README.md"},
        "caller": "orchestrator",
        "priority": Priority.NORMAL,
        "state": State.RUNNING,
        "created_at": at,
        "timeout_seconds": 60.0,
        "deadline_at": at + 60.0,
        "owner": "one",
        "started_at": at,
        "step_times": (*(at,) * BEFORE_RUN, *(None,) * 6),
    }
    return Record(**{**plain, **changed})


def begun(number: int, principal: str | None = None) -> BeginDelegation:
    """The same, as the engine records it; `principal`: the external caller."""
    at = 1000.0 + number
    lineage = Lineage.root(session(number), "digest")
    caller_info = None if principal is None else CallerInfo(principal, "grpc")
    delegation = Delegation(lineage, "digest", {}, "orchestrator", Priority.NORMAL, Deadline(60.0, 50.0, 60.0), at, caller_info=caller_info)
    return BeginDelegation(delegation, State.RUNNING, "one", at, [*(at,) * BEFORE_RUN, *(None,) * 6])


def outcome(number: int, state: State = State.COMPLETED, *, at: float = 2000.0, data: Any = None, chunks: int = 0) -> SettleDelegation:
    status = {State.COMPLETED: Status.COMPLETED, State.FAILED: Status.FAILED, State.BLOCKED: Status.BLOCKED}.get(state, Status.PARTIAL)
    fault = ErrorInfo(type="execution", message="It broke.", code="UNKNOWN_ERROR", recoverable=True, recommendation="Try again.")
    result = Return(
        status=status,
        summary="Read the file. Counted it.",
        artifacts=(Artifact(type="report", path="a.md", evidence=Evidence.CHECKED, size=1, sha256="00", mtime=1.5),),
        metadata=Metadata(
            session_id=session(number),
            agent_type="digest",
            delegation_depth=1,
            delegation_path=("orchestrator", "digest"),
            duration_seconds=0.25,
            extra={"findings_count": 3},
        ),
        errors=() if status is Status.COMPLETED else (fault,),
        data=data,
        stop_reason=StopReason.FINISHED,
        warnings=("long",),
        extra={"task_number": 7},
    )
    return SettleDelegation(session(number), state, at, result, (at,) * 13, 12, 0.5, chunks)


def said(number: int, event_number: int, at: float = 1500.0, **body: Any) -> AppendEvent:
    return AppendEvent(Event(session_id=session(number), number=event_number, at=at, kind=EventKind.DATA, body=body))


def owner(owner_id: str, opened_at: float = 1.0) -> Owner:
    return Owner(owner_id=owner_id, pid=1, pid_started="boot:1", pid_space="pid:1", host="here", opened_at=opened_at)


@contextmanager
def opened(open_store: OpenStore, handles: int = 1) -> Iterator[tuple[OwnedStore, ...]]:
    with ExitStack() as stack:
        yield tuple(stack.enter_context(closing(open_store())) for _ in range(handles))


def numbers_of(records: list[Record]) -> list[int]:
    return [int(found.session_id[-6:]) for found in records]
