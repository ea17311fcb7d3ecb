"""A context backend that records operations, and a harness with a process pool: for tests of agents without an engine."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from remit import Context, Delegation, Limits, Lineage, Priority, TaskContext, new_session_id
from remit.agents.process.pool import Job, ProcessPool
from remit.agents.process.target import target_of
from remit.core.budget import effective_deadline
from remit.core.context import ContextFacts, ContextFiles, Repair
from remit.system.context_files import CONTEXT_FOLDER, context_files
from support.processes import marked


class RecordingBackend:
    repair: Repair | None = None
    hand_in = False
    saved: Any = None

    def __init__(self, root: Path, timeout: float = 60.0, parameters: Mapping[str, Any] | None = None) -> None:
        self.root = root
        self.permits: list[tuple[str, dict[str, Any]]] = []
        self.notes: list[Any] = []
        self.soft = asyncio.Event()
        self.heard = asyncio.Event()
        self.delegation = Delegation(
            lineage=Lineage.root(new_session_id(), "agent"),
            agent="agent",
            parameters=parameters or {},
            caller="orchestrator",
            priority=Priority.NORMAL,
            deadline=effective_deadline(timeout, time.monotonic()),
            created_at=time.time(),
            task=TaskContext(task_number=7, title="A title", extra={"colour": "red"}),
        )

    def limit(self, seconds: float) -> None:
        """Set the deadline."""
        self.delegation = self.delegation._replace(deadline=effective_deadline(seconds, time.monotonic()))

    def scratch(self) -> Path:
        return self.root / "scratch"

    @property
    def workspace(self) -> Path:
        return self.root

    def environment(self) -> dict[str, str]:
        return {"REMIT_SESSION": self.delegation.session_id}

    def context_files(self, level: int, language: str) -> ContextFiles:
        return context_files(self.root / CONTEXT_FOLDER, level, language)

    def facts(self) -> ContextFacts:
        return ContextFacts(self.delegation, self.root, self.workspace, self.repair, self.saved, self.environment())

    def remaining(self) -> float:
        return self.delegation.deadline.remaining(time.monotonic())

    def budget(self) -> Limits:
        return Limits(tokens=100)

    async def wait_hand_in(self) -> None:
        await self.soft.wait()

    def tell_hand_in(self) -> None:
        """The soft deadline. (A stop sets `soft` only.)"""
        self.hand_in = True
        self.soft.set()

    def progress(self, message: str, fraction: float | None) -> None:
        self.notes.append(("progress", message, fraction))

    def emit(self, chunk: Any) -> None:
        self.notes.append(("emit", chunk))
        self.heard.set()

    def artifact(self, path: str | Path, type: str, summary: str) -> None:
        self.notes.append(("artifact", str(path), type, summary))

    def spend(self, tokens: int, cost: float) -> None:
        self.notes.append(("spend", tokens, cost))

    async def permit(self, action: str, facts: Mapping[str, Any]) -> None:
        self.permits.append((action, dict(facts)))

    async def checkpoint(self, value: Any) -> None:
        self.saved = value
        self.notes.append(("checkpoint", value))

    def warn(self, message: str) -> None:
        self.notes.append(("warn", message))

    async def permitted(self, paths: Sequence[str]) -> list[str]:
        return list(paths)

    def printed(self, text: str) -> None:
        self.notes.append(("printed", text))

    def abandoned(self, what: str) -> Callable[[], None]:
        self.notes.append(("abandoned", what))
        return lambda: None

    def context(self) -> Context:
        return Context(self)


class ProcessHarness:
    """A process pool and the context of one delegation; lists its live processes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.owner = uuid.uuid4().hex[:8]
        self.pool = ProcessPool(project="test", owner_id=self.owner)
        self.backend = RecordingBackend(root)
        self.backend.scratch().mkdir(exist_ok=True)

    async def open(self) -> None: ...

    async def run(self, function: Callable[..., Any], **parameters: Any) -> Any:
        self.backend.delegation = self.backend.delegation._replace(parameters=parameters)
        return await self.pool.run(Job(target_of(function).to_wire()), self.backend.context())

    def noted(self, kind: str) -> list[Any]:
        return [note[1] for note in self.backend.notes if note[0] == kind]

    def spent(self) -> list[tuple[int, float]]:
        return [note[1:] for note in self.backend.notes if note[0] == "spend"]

    def left(self) -> list[int]:
        """Live processes of delegations, without those of the pool."""
        return marked(f"test:{self.owner}:sess")

    async def close(self) -> None:
        await self.pool.close()
        assert marked(f"test:{self.owner}:") == []


def process_harness_fixture(kind: type[ProcessHarness]) -> Any:
    """A fixture: a harness whose pool is closed at the end; then no process remains."""

    @pytest.fixture
    async def harness(tmp_path: Path) -> AsyncIterator[ProcessHarness]:
        created = kind(tmp_path)
        await created.open()
        yield created
        await created.close()

    return harness
