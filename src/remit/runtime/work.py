"""One delegation being performed: what its agent was given, and what it has produced so far. Every engine makes one per delegation."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.core.agents import WorkspaceKind
from remit.core.context import Context, Repair
from remit.core.errors import ErrorInfo
from remit.core.events import BEFORE_RUN, Event, EventKind
from remit.core.ports import AgentPort
from remit.core.redaction import redact_bytes
from remit.core.result import Artifact, Return, Status
from remit.core.tracing import VARIABLE, traceparent_of
from remit.runtime.deps import RuntimeDeps, Submission

if TYPE_CHECKING:
    from remit.runtime.verify import AcceptanceSite
    from remit.runtime.workspace_session import WorkspaceSession
    from remit.runtime.workspaces import Workspace

FAILURES_KEPT = 50
"""Errors of children that a return carries; the children themselves are all on record."""
LEAST_EVENT_BYTES = 64


class Work(ABC):
    # Most delegations never have these: they stand here once, as defaults.
    ctx: Context = None  # type: ignore[assignment] # made when it starts
    workspace_session: "WorkspaceSession | None" = None
    """Its own folder, if it has one."""
    own_workspace: "Workspace | None" = None
    """The folder that it works in if that is not the project: its own, or its caller's."""
    saved: Any = None
    """Its last checkpoint."""
    held: Return | None = None
    """Its answer, while that is still being checked."""
    repair: Repair | None = None
    trace: str = ""
    """Where the exception came from that its code raised."""
    artifacts: dict[str, Artifact] | None = None
    """Declared, by path."""
    failures: list[ErrorInfo] | None = None
    """Errors of children that did not complete."""
    scratch_path: Path | None = None

    def __init__(self, submission: Submission) -> None:
        assert submission.agent is not None
        self.submission = submission
        self.delegation = submission.delegation
        self.agent: AgentPort = submission.agent
        self.warnings = submission.warnings
        self.started_wall = submission.delegation.created_at
        if submission.caller is not None and submission.caller.own_workspace is not None:
            self.own_workspace = submission.caller.own_workspace
        if submission.earlier is not None:
            self.saved = submission.earlier.saved

    # ---- what the engine adds

    @property
    @abstractmethod
    def deps(self) -> RuntimeDeps: ...
    @property
    @abstractmethod
    def scratch_root(self) -> Path: ...
    @property
    @abstractmethod
    def mark(self) -> str:
        """By which its processes are recognised."""

    @abstractmethod
    def elapsed(self) -> float: ...
    @abstractmethod
    def remaining(self) -> float: ...
    @abstractmethod
    def stamp(self, step: int, last: int = -1) -> None:
        """Mark a step (by its position), or those up to `last`, as reached now."""

    @abstractmethod
    def notice(self, message: str) -> None: ...
    @abstractmethod
    async def end_children(self) -> None:
        """Stop the children that still run: no child outlives its caller."""

    # ---- what it was given

    @property
    def root(self) -> Path:
        return self.deps.root

    @property
    def workspace(self) -> Path:
        """The folder it works in."""
        return self.root if self.own_workspace is None else self.own_workspace.folder

    @property
    def may_write(self) -> bool:
        return self.agent.spec.workspace is WorkspaceKind.SHARED

    # ---- children

    def child_errors(self) -> Sequence[ErrorInfo]:
        return self.failures or ()

    def add_failure(self, child: Return) -> None:
        """The errors of a child that did not complete travel up."""
        if child.status is not Status.COMPLETED:
            known = self.failures or []
            new = [error for error in child.errors if error not in known]
            self.failures = [*known, *new][:FAILURES_KEPT]

    # ---- its answer

    def declared(self) -> tuple[Artifact, ...]:
        return tuple(self.artifacts.values()) if self.artifacts else ()

    def hold(self, result: Return) -> None:
        """The answer as it stands: kept, whatever happens while it is still being checked."""
        self.held = result

    def keep_trace(self, trace: str) -> None:
        self.trace = trace

    def ask_again(self, repair: Repair) -> None:
        self.repair = repair

    def own_errors(self, errors: Sequence[ErrorInfo]) -> list[ErrorInfo]:
        """Without those of its children."""
        inherited = set(self.failures or ())
        return [error for error in errors if error not in inherited]

    # ---- its files and processes

    def scratch(self) -> Path:
        """Its scratch folder, made when first asked for."""
        if self.scratch_path is None:
            path = self.scratch_root / self.delegation.session_id
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.scratch_path = path
        return self.scratch_path

    def return_file(self) -> Path | None:
        return None if self.scratch_path is None else self.scratch_path / "return.json"

    def keep_prose(self, text: str) -> Artifact | None:
        """Keep an answer that was not a return as a file of its scratch folder."""
        from remit.system.files import write_beside

        try:
            path = write_beside(self.scratch(), "answer.txt", redact_bytes(text.encode("utf-8", "backslashreplace")))
            relative = path.relative_to(self.root)
        except (OSError, ValueError):
            return None  # a full or foreign disk: the errors of the return still say what was wrong
        return Artifact(type="report", path=str(relative), summary="The answer as it was handed in.")

    def acceptance_site(self) -> "AcceptanceSite":
        """Acceptance commands run here; they delegate nothing in its name."""
        from remit.runtime.verify import AcceptanceSite

        return AcceptanceSite(
            folder=self.workspace,
            root=self.root,
            rules=self.deps.acceptance,
            is_asked_here=self.delegation.is_asked_here,
            marks=self.marks(),
            scratch=self.scratch_path,
        )

    def marks(self) -> dict[str, str]:
        """Variables by which processes are recognised as its own."""
        session_id = self.delegation.lineage.session_id
        return {
            "REMIT_MARK": self.mark,
            "REMIT_SESSION": session_id,
            "REMIT_ROOT": str(self.root),
            VARIABLE: traceparent_of(self.delegation),
        }


class Output:
    """The numbered events of a delegation: its progress, data and notices, kept within a limit."""

    __slots__ = ("_bytes", "_limit", "count", "dropped", "events")

    def __init__(self, limit_bytes: int) -> None:
        self.events: list[Event] = []
        self.count = 0
        self.dropped = 0
        """Events beyond the limit."""
        self._bytes = 0
        self._limit = limit_bytes

    def has_room(self, size: int) -> bool:
        """Count an event of the agent; False: it is beyond the limit and not kept."""
        size = max(size, LEAST_EVENT_BYTES)
        if self._bytes + size > self._limit:
            self.dropped += 1
            return False
        self._bytes += size
        return True

    def append(self, session_id: str, kind: EventKind, body: dict[str, Any], at: float) -> Event:
        self.count += 1
        event = Event(session_id=session_id, number=BEFORE_RUN + self.count, at=at, kind=kind, body=body)
        self.events.append(event)
        return event

    def restore(self, events: list[Event], count: int) -> None:
        """Events of a run before a crash: numbers continue after them."""
        self.events = events
        self.count = count
