"""`Context` (and `BlockingContext`), what an agent is given while it works: its task, context files, operations, handles of children."""

import asyncio
import concurrent.futures
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from remit.core.budget import Limits
from remit.core.delegation import Delegation, TaskContext, context_of
from remit.core.errors import Misused, Stopped, Unavailable
from remit.core.events import Event, EventKind
from remit.core.request import Request, call
from remit.core.result import Return
from remit.core.routing import language_of

LEVELS = {"simple": 1, "moderate": 2, "complex": 3}
GIVEN = ".given"
"""Folder in a scratch folder for what the agent is given there: not part of its work."""
PATHS_AT_ONCE = 2000
"""Paths in one question to the policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextFiles:
    paths: tuple[str, ...]
    """Relative to the context folder, in the order of the text."""
    text: str
    warnings: tuple[str, ...]
    """What was left out, and why."""


def level_of(complexity: str) -> int:
    try:
        return LEVELS[complexity]
    except (KeyError, TypeError):
        raise Misused(f"Unknown complexity {complexity!r}.", advice=f"Use {', '.join(LEVELS)}.") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """Why the agent is asked a second time: its first answer and each fault found in it."""

    faults: tuple[str, ...]
    original: str


class Handle(Protocol):
    """A delegation that was started and not waited for."""

    @property
    def session_id(self) -> str: ...
    async def result(self) -> Return: ...
    def stream(self) -> AsyncIterator[Event]: ...
    async def cancel(self, reason: str = "") -> list[Mapping[str, Any]]: ...


class ContextOperations(Protocol):
    """The operations of `ctx`, declared here once. `remote_context` reads this class to offer them in another process:

    an `async` method is a call whose reply is awaited, a method without a result is a notification, any other is a blocking call, which
    takes no arguments.
    To add an operation: declare it here, add the method of `Context` and `BlockingContext` below, and implement it in `LocalBackend`
    (`runtime/local_context.py`).
    """

    async def delegate(self, request: Request) -> Return: ...
    async def start(self, request: Request) -> Handle: ...
    async def gather(self, requests: Sequence[Request], limit: int | None) -> list[Return]: ...
    async def checkpoint(self, value: Any) -> None: ...
    async def permit(self, action: str, facts: Mapping[str, Any]) -> None: ...
    async def permitted(self, paths: Sequence[str]) -> list[str]: ...
    async def session_diff(self, session_id: str) -> str: ...
    def progress(self, message: str, fraction: float | None) -> None: ...
    def emit(self, chunk: Any) -> None: ...
    def artifact(self, path: str | Path, type: str, summary: str) -> None: ...
    def spend(self, tokens: int, cost: float) -> None: ...
    def warn(self, message: str) -> None: ...
    def scratch(self) -> Path: ...
    def budget(self) -> Limits: ...
    def environment(self) -> dict[str, str]: ...


class ContextFacts(NamedTuple):
    """What a context in another process knows without asking."""

    delegation: Delegation
    root: Path
    workspace: Path
    repair: Repair | None
    saved: Any
    environment: dict[str, str]


class ContextBackend(ContextOperations, Protocol):
    """What a context is backed by: the engine, or a connection to the process of the engine. One per delegation that runs.

    Beside the operations it has the facts of the delegation, and what executors (not agents) report.
    """

    @property
    def delegation(self) -> Delegation: ...
    @property
    def root(self) -> Path: ...
    @property
    def workspace(self) -> Path: ...
    @property
    def repair(self) -> Repair | None: ...
    @property
    def saved(self) -> Any: ...
    @property
    def hand_in(self) -> bool: ...
    async def wait_hand_in(self) -> None: ...
    def remaining(self) -> float: ...
    def facts(self) -> ContextFacts: ...
    def context_files(self, level: int, language: str) -> ContextFiles: ...
    def printed(self, text: str) -> None:
        """The agent wrote this to its standard output or error."""
        ...

    def abandoned(self, what: str) -> Callable[[], None]:
        """The agent could not be stopped and is left behind (a thread, a stuck process). Call the result when it has ended after all."""
        ...


class DelegationFacts:
    """What both contexts, the async and the blocking one, know of their delegation."""

    __slots__ = ("backend",)

    def __init__(self, backend: ContextBackend) -> None:
        self.backend = backend
        """For executors; agents use the methods of the context."""

    @property
    def session_id(self) -> str:
        return self.backend.delegation.lineage.session_id

    @property
    def root_id(self) -> str:
        return self.backend.delegation.lineage.root_id

    @property
    def depth(self) -> int:
        return self.backend.delegation.lineage.depth

    @property
    def path(self) -> tuple[str, ...]:
        return self.backend.delegation.lineage.path

    @property
    def parameters(self) -> Mapping[str, Any]:
        """As they were given and recorded."""
        return self.backend.delegation.parameters

    @property
    def caller(self) -> str:
        return self.backend.delegation.caller

    @property
    def task(self) -> TaskContext | None:
        return self.backend.delegation.task

    @property
    def deadline(self) -> float:
        """When it is stopped, on the wall clock."""
        return self.backend.delegation.deadline_wall

    @property
    def remaining(self) -> float:
        """Seconds until it is stopped, by a clock that does not jump."""
        return self.backend.remaining()

    @property
    def root(self) -> Path:
        """The project's root folder."""
        return self.backend.root

    @property
    def workspace(self) -> Path:
        """The folder it works in: the project's root, or the worktree or copy that was made for it."""
        return self.backend.workspace

    @property
    def repair(self) -> Repair | None:
        """Set when it is asked again because its answer broke the contract."""
        return self.backend.repair

    @property
    def hand_in(self) -> bool:
        """True from the soft deadline on: hand in what there is."""
        return self.backend.hand_in

    @property
    def saved(self) -> Any:
        """The last checkpoint, also of a run before a crash; None when there is none."""
        return self.backend.saved

    def background(self) -> ContextFiles:
        """The context files of the project (`.remit/context`) that the complexity and language of its task call for."""
        task = self.task or TaskContext()
        language, _ = language_of(self.task)
        return self.backend.context_files(level_of(task.complexity), language)


class Context(DelegationFacts):
    """What an async agent is given."""

    __slots__ = ()

    @property
    def budget(self) -> Limits:
        """What is left for this tree."""
        return self.backend.budget()

    @property
    def scratch(self) -> Path:
        """A folder of its own, made when first asked for. Its contents at the deadline are handed back."""
        return self.backend.scratch()

    def environment(self) -> dict[str, str]:
        """Variables for a command that is started for this delegation: what the command delegates is then its child."""
        return self.backend.environment()

    def as_dict(self) -> dict[str, Any]:
        """The context as data."""
        return context_of(self.backend.delegation, self.budget)

    async def wait_hand_in(self) -> None:
        """Until the soft deadline."""
        await self.backend.wait_hand_in()

    async def delegate(self, agent: str, /, **asked: Any) -> Return:
        """Hand work to a child and wait for its return: deeper, never later than this delegation."""
        return await self.backend.delegate(call(agent, **asked))

    async def start(self, agent: str, /, **asked: Any) -> Handle:
        """Hand work to a child and go on; it ends at the latest when this delegation does."""
        return await self.backend.start(call(agent, **asked))

    async def gather(self, *requests: Request, limit: int | None = None) -> list[Return]:
        """Several children at once, at most `limit` of them; returns in the order of the calls, failures among them."""
        return await self.backend.gather(requests, limit)

    def progress(self, message: str, fraction: float | None = None) -> None:
        self.backend.progress(message, fraction)

    def emit(self, chunk: Any) -> None:
        """Stream a piece of the result; kept, and handed back if the agent never finishes."""
        self.backend.emit(chunk)

    def artifact(self, path: str | Path, type: str = "report", summary: str = "") -> None:
        """Declare a file as part of the work, as soon as it is begun."""
        self.backend.artifact(path, type, summary)

    def spend(self, *, tokens: int = 0, cost: float = 0.0) -> None:
        """Draw from the tree's budget."""
        self.backend.spend(tokens, cost)

    def warn(self, message: str) -> None:
        """Add a warning to the return."""
        self.backend.warn(message)

    async def checkpoint(self, value: Any) -> None:
        """Keep `value` (any JSON); durable when this returns. A resumed run finds it in `saved`."""
        await self.backend.checkpoint(value)

    async def permit(self, action: str = "", /, **facts: Any) -> None:
        """Ask the policy for something that this agent wants to do on its way: `await ctx.permit(url="https://example.com/")`.

        Rules refer to the facts (path, url, command, method, …); without an action it is the agent's own operation. Raises `Refused`
        (POLICY_DENIED). Waits where a person must be asked.
        """
        await self.backend.permit(action, facts)

    async def permitted(self, paths: Sequence[str]) -> list[str]:
        """Those of many paths that the policy lets this agent do its operation on: for one that walks a tree and follows no link."""
        allowed: list[str] = []
        for start in range(0, len(paths), PATHS_AT_ONCE):
            allowed += await self.backend.permitted(paths[start : start + PATHS_AT_ONCE])
        return allowed

    async def session_diff(self, session_id: str) -> str:
        """Where the diff of another session is recorded, below the root. Raises `Refused` unless it has the same tree or principal."""
        return await self.backend.session_diff(session_id)


# ---- for sync functions

P = ParamSpec("P")
T = TypeVar("T")


def _awaited(method: Callable[Concatenate[Context, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate["BlockingContext", P], T]:
    @wraps(method)
    def run(self: "BlockingContext", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.wait(method(self.context, *args, **kwargs))

    return run


def _on_loop(method: Callable[Concatenate[Context, P], T]) -> Callable[Concatenate["BlockingContext", P], T]:
    @wraps(method)
    def run(self: "BlockingContext", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.wait(_now(lambda: method(self.context, *args, **kwargs)))

    return run


async def _now(get: Callable[[], T]) -> T:
    return get()


class BlockingContext(DelegationFacts):
    """`Context` without `await`, for threads and worker processes: each call runs on the loop of `context` and is waited for."""

    __slots__ = ("_loop", "context")

    def __init__(self, context: Context, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(context.backend)
        self.context = context
        """The same for async code."""
        self._loop = loop

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run on the loop of the context."""
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:
            coroutine.close()
            raise Stopped("The orchestrator of this delegation has ended.") from None
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise Stopped("The delegation was stopped.") from None
        except BaseException:
            future.cancel()
            raise

    @property
    def budget(self) -> Limits:
        return self.wait(_now(lambda: self.context.budget))

    @property
    def scratch(self) -> Path:
        return self.wait(_now(lambda: self.context.scratch))

    def start(self, agent: str, /, **asked: Any) -> "BlockingHandle":
        return BlockingHandle(self.wait(self.context.start(agent, **asked)), self)

    environment = _on_loop(Context.environment)
    as_dict = _on_loop(Context.as_dict)
    progress = _on_loop(Context.progress)
    emit = _on_loop(Context.emit)
    artifact = _on_loop(Context.artifact)
    spend = _on_loop(Context.spend)
    warn = _on_loop(Context.warn)
    wait_hand_in = _awaited(Context.wait_hand_in)
    delegate = _awaited(Context.delegate)
    gather = _awaited(Context.gather)
    checkpoint = _awaited(Context.checkpoint)
    permit = _awaited(Context.permit)
    permitted = _awaited(Context.permitted)
    session_diff = _awaited(Context.session_diff)


class BlockingHandle:
    __slots__ = ("_context", "_handle")

    def __init__(self, handle: Handle, context: BlockingContext) -> None:
        self._handle = handle
        self._context = context

    @property
    def session_id(self) -> str:
        return self._handle.session_id

    def result(self) -> Return:
        return self._context.wait(self._handle.result())

    def stream(self) -> Iterator[Event]:
        events = self._handle.stream().__aiter__()

        async def following() -> Event | None:
            return await anext(events, None)

        while (event := self._context.wait(following())) is not None:
            yield event

    def cancel(self, reason: str = "") -> list[Mapping[str, Any]]:
        return self._context.wait(self._handle.cancel(reason))


# ---- handles


def final_event(result: Return, number: int, at: float) -> Event:
    """The last event of a stream: the object that `result()` gives."""
    if result.ok:
        return Event(session_id=result.session_id, number=number, at=at, kind=EventKind.COMPLETE, body={"result": result.to_dict()})
    body = {"error": result.errors[0].to_dict() if result.errors else {}, "result": result.to_dict()}
    return Event(session_id=result.session_id, number=number, at=at, kind=EventKind.ERROR, body=body)


class SettledHandle:
    __slots__ = ("_result",)

    def __init__(self, result: Return) -> None:
        self._result = result

    @property
    def session_id(self) -> str:
        return self._result.session_id

    async def result(self) -> Return:
        return self._result

    async def stream(self) -> AsyncIterator[Event]:
        yield final_event(self._result, 1, 0.0)

    async def cancel(self, reason: str = "") -> list[Mapping[str, Any]]:
        return []


class Delegations(Protocol):
    """What delegations on record are followed through: an engine, or a `Remit`."""

    async def result(self, session_id: str, *, wait_seconds: float) -> Return | None: ...
    def follow(self, session_id: str) -> AsyncIterator[Event]: ...
    async def cancel(self, session_id: str, reason: str, *, source: str) -> list[dict[str, Any]]: ...


class RecordedHandle:
    """A delegation known by its record, whichever process runs it."""

    __slots__ = ("_delegations", "_until", "session_id")

    def __init__(self, delegations: Delegations, session_id: str, until: float | None = None) -> None:
        """`until`: how long to wait for its end, on the clock of the event loop; None waits for ever."""
        self._delegations = delegations
        self._until = until
        self.session_id = session_id

    async def result(self) -> Return:
        while True:
            wait = 60.0 if self._until is None else max(0.0, self._until - asyncio.get_running_loop().time())
            found = await self._delegations.result(self.session_id, wait_seconds=wait)
            if found is not None:
                return found
            if self._until is not None:
                advice = f"Look at it with `remit show {self.session_id}`."
                raise Unavailable(f"{self.session_id} is still run by another process.", code="TIMEOUT", advice=advice)

    async def stream(self) -> AsyncIterator[Event]:
        events = self._delegations.follow(self.session_id)
        with contextlib.suppress(TimeoutError, StopAsyncIteration):
            while True:
                async with asyncio.timeout_at(self._until):
                    event = await anext(events)
                yield event

    async def cancel(self, reason: str = "") -> list[Mapping[str, Any]]:
        return list(await self._delegations.cancel(self.session_id, reason, source="its caller"))
