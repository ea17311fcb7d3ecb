"""`Context` and `BlockingContext`, the interface of a running agent: its task, context files, operations, handles of children."""

import asyncio
import concurrent.futures
import contextlib
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from functools import wraps
from inspect import CORO_CREATED, currentframe, getcoroutinestate
from itertools import islice
from operator import attrgetter
from pathlib import Path
from types import CodeType
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from remit.core.budget import Limits
from remit.core.delegation import Delegation, TaskContext, context_of
from remit.core.errors import Failed, Misused, Stopped, Unavailable
from remit.core.events import Event, EventKind
from remit.core.request import Composition, Request, call
from remit.core.result import Return
from remit.core.routing import language_of
from remit.core.text import list_some

LEVELS = {"simple": 1, "moderate": 2, "complex": 3}
GIVEN = ".given"
"""Folder for input files inside a scratch folder; not part of the agent's work."""
PATHS_AT_ONCE = 2000
"""Maximum paths in one policy request."""


class ContextFiles(NamedTuple):
    paths: tuple[str, ...]
    """Relative to the context folder, in the order of the text."""
    text: str
    warnings: tuple[str, ...]
    """Omitted files and the reasons."""


def level_of(complexity: str) -> int:
    try:
        return LEVELS[complexity]
    except (KeyError, TypeError):
        raise Misused(f"Unknown complexity {complexity!r}.", advice=f"Use {', '.join(LEVELS)}.") from None


class Repair(NamedTuple):
    """Why the agent is called a second time: its first answer and the faults in it."""

    faults: tuple[str, ...]
    original: str


class Handle(Protocol):
    """A started delegation."""

    @property
    def session_id(self) -> str: ...
    async def result(self) -> Return: ...
    def stream(self) -> AsyncIterator[Event]: ...
    async def cancel(self, reason: str = "") -> list[Mapping[str, Any]]: ...


class ContextOperations(Protocol):
    """The operations of `ctx`, declared once. `remote_context` reads this class to offer them in another process:

    an `async` method is a call whose reply is awaited, a method without a result is a notification, and any other method is a blocking call
    without arguments, answered once for attached processes. Use JSON, dataclasses or named tuples as parameters and results. To add an
    operation: declare it here, add the method to `Context` and `BlockingContext` below, and implement it in `LocalBackend`
    (`runtime/local_context.py`)."""

    async def delegate(self, request: Request) -> Return: ...
    async def start(self, request: Request) -> Handle: ...
    async def gather(self, requests: Sequence[Request], limit: int | None) -> list[Return]: ...
    async def checkpoint(self, value: Any) -> None: ...
    async def permit(self, action: str, facts: Mapping[str, Any]) -> None: ...
    async def permitted(self, paths: Sequence[str]) -> list[str]: ...
    async def session_diff(self, session_id: str) -> str: ...
    async def session_data(self, session_id: str) -> Any: ...
    def progress(self, message: str, fraction: float | None) -> None: ...
    def emit(self, chunk: Any) -> None: ...
    def artifact(self, path: str | Path, type: str, summary: str) -> None: ...
    def spend(self, tokens: int, cost: float) -> None: ...
    def warn(self, message: str) -> None: ...
    def scratch(self) -> Path: ...
    def budget(self) -> Limits: ...
    def environment(self) -> dict[str, str]: ...


class ContextFacts(NamedTuple):
    """Facts that a context in another process knows without a request."""

    delegation: Delegation
    root: Path
    workspace: Path
    repair: Repair | None
    saved: Any
    environment: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Without the external caller, whom agents do not see."""
        return {**self._asdict(), "delegation": self.delegation._replace(caller_info=None)._asdict()}


class ContextBackend(ContextOperations, Protocol):
    """Backs a context: the engine, or a connection to the engine's process. One per running delegation.

    Beside the operations it provides the facts of the delegation and receives reports from executors (not agents)."""

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
        """Record text that the agent wrote to its standard output or error."""
        ...

    def abandoned(self, what: str) -> Callable[[], None]:
        """Record that the agent could not be stopped and was abandoned (a thread, a stuck process). Call the result once it has ended."""
        ...


def _fact(place: str) -> Any:
    """A read-only attribute of a context: this attribute of its backend."""
    return property(attrgetter(f"backend.{place}"))


class DelegationFacts:
    """Facts of the delegation, shared by the async and the blocking context."""

    __slots__ = ("backend",)

    def __init__(self, backend: ContextBackend) -> None:
        self.backend = backend
        """For executors; agents use the methods of the context."""

    session_id: str = _fact("delegation.lineage.session_id")
    root_id: str = _fact("delegation.lineage.root_id")
    depth: int = _fact("delegation.lineage.depth")
    path: tuple[str, ...] = _fact("delegation.lineage.path")
    parameters: Mapping[str, Any] = _fact("delegation.parameters")
    """The parameters as given and recorded."""
    caller: str = _fact("delegation.caller")
    task: TaskContext | None = _fact("delegation.task")
    deadline: float = _fact("delegation.deadline_wall")
    """When the delegation is stopped (wall clock)."""
    root: Path = _fact("root")
    """The project's root folder."""
    workspace: Path = _fact("workspace")
    """The working folder: the project root, or the delegation's worktree or copy."""
    repair: Repair | None = _fact("repair")
    """Set if the agent is called again because its answer broke the contract."""
    hand_in: bool = _fact("hand_in")
    """True from the soft deadline on: return the result so far."""
    saved: Any = _fact("saved")
    """The last checkpoint, also from a run before a crash; None without one."""

    @property
    def remaining(self) -> float:
        """Seconds until the delegation is stopped (monotonic)."""
        return self.backend.remaining()

    def background(self) -> ContextFiles:
        """The context files of the project (`.remit/context`) for the complexity and language of the task."""
        task = self.task or TaskContext()
        language, _ = language_of(self.task)
        return self.backend.context_files(level_of(task.complexity), language)


# ---- calls that must be awaited

P = ParamSpec("P")
T = TypeVar("T")
CALLS_KEPT = 256
"""Calls of a context that are kept before those that have begun are forgotten."""


class PendingCall(NamedTuple):
    """A call of `ctx` and its place in the code of the agent."""

    name: str
    coroutine: Coroutine[Any, Any, Any]
    code: CodeType
    instruction: int
    """Finding the line now would cost more than everything else here."""

    @property
    def line(self) -> int:
        position = next(islice(self.code.co_positions(), self.instruction // 2, None))
        return position[0] or self.code.co_firstlineno


def _must_be_awaited(
    method: Callable[Concatenate["Context", P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["Context", P], Coroutine[Any, Any, T]]:
    @wraps(method)
    def begin(self: "Context", /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        return self._note_call(method.__name__, method(self, *args, **kwargs), currentframe())

    return begin


def forgotten_await(context: "Context", agent: str) -> Failed:
    """The error of an agent that ended with calls it did not await. Those calls had no effect."""
    calls = sorted(context.unawaited, key=lambda call: (call.code.co_filename, call.line))
    for one in calls:
        one.coroutine.close()
    where = list_some([f"ctx.{one.name}() at {Path(one.code.co_filename).name}:{one.line}" for one in calls], 3)
    advice = f"Write `await ctx.{calls[0].name}(…)` there."
    error = Failed(f"{agent} did not await {where}: the call did nothing.", code="AGENT_RAISED", advice=advice)
    frames = [traceback.FrameSummary(one.code.co_filename, one.line, one.code.co_name) for one in calls]
    error.traceback_text = "Calls that were not awaited:\n" + "".join(traceback.format_list(frames))
    return error


class Context(DelegationFacts):
    """The context of an async agent."""

    __slots__ = ("_calls",)

    def __init__(self, backend: ContextBackend) -> None:
        self.backend = backend
        self._calls: list[PendingCall] | None = None

    @property
    def unawaited(self) -> list[PendingCall]:
        """For executors: calls that were made and have not begun, because the agent did not await them yet."""
        return [one for one in self._calls or () if getcoroutinestate(one.coroutine) == CORO_CREATED]

    def _note_call(self, name: str, coroutine: Coroutine[Any, Any, T], frame: Any) -> Coroutine[Any, Any, T]:
        """`frame`: that of the method which the agent called."""
        caller = frame.f_back
        call = tuple.__new__(PendingCall, (name, coroutine, caller.f_code, caller.f_lasti))
        if self._calls is None:
            self._calls = []
        elif not len(self._calls) % CALLS_KEPT:
            self._calls = self.unawaited
        self._calls.append(call)
        return coroutine

    @property
    def budget(self) -> Limits:
        """The remaining budget of this tree."""
        return self.backend.budget()

    @property
    def scratch(self) -> Path:
        """The delegation's own folder, created on first use. Its content at the deadline is returned."""
        return self.backend.scratch()

    def environment(self) -> dict[str, str]:
        """Environment variables for a command started for this delegation. Delegations of the command become its children."""
        return self.backend.environment()

    def as_dict(self) -> dict[str, Any]:
        """The context as data."""
        return context_of(self.backend.delegation, self.budget)

    async def wait_hand_in(self) -> None:
        """Wait until the soft deadline."""
        await self.backend.wait_hand_in()

    def delegate(self, agent: str | Composition, /, **asked: Any) -> Coroutine[Any, Any, Return]:
        """Hand work to a child and wait for its return. A child never runs longer than this delegation. Accepts compositions such as
        `sequence(…)`."""
        # Like the methods below, without its own coroutine: most trees call this for every node.
        return self._note_call("delegate", self.backend.delegate(call(agent, **asked)), currentframe())

    @_must_be_awaited
    async def start(self, agent: str | Composition, /, **asked: Any) -> Handle:
        """Hand work to a child without waiting. It ends at the latest when this delegation does."""
        return await self.backend.start(call(agent, **asked))

    @_must_be_awaited
    async def gather(self, *requests: Request | Composition, limit: int | None = None) -> list[Return]:
        """Run several children at once, at most `limit` at a time. Returns results in call order, failures included."""
        return await self.backend.gather([call(one) if isinstance(one, Composition) else one for one in requests], limit)

    def progress(self, message: str, fraction: float | None = None) -> None:
        self.backend.progress(message, fraction)

    def emit(self, chunk: Any) -> None:
        """Stream a piece of the result. It is kept, and returned if the agent never finishes."""
        self.backend.emit(chunk)

    def artifact(self, path: str | Path, type: str = "report", summary: str = "") -> None:
        """Declare a file as part of the work, as soon as it is started."""
        self.backend.artifact(path, type, summary)

    def spend(self, *, tokens: int = 0, cost: float = 0.0) -> None:
        """Draw from the tree's budget."""
        self.backend.spend(tokens, cost)

    def warn(self, message: str) -> None:
        """Add a warning to the return."""
        self.backend.warn(message)

    @_must_be_awaited
    async def checkpoint(self, value: Any) -> None:
        """Store `value` (any JSON); durable when this returns. A resumed run finds it in `saved`."""
        await self.backend.checkpoint(value)

    @_must_be_awaited
    async def permit(self, action: str = "", /, **facts: Any) -> None:
        """Ask the policy for permission of an action during the work: `await ctx.permit(url="https://example.com/")`.

        Rules refer to the facts (path, url, command, method, …); without an action it is the agent's own operation. Raises `Refused`
        (POLICY_DENIED). Waits if a person must approve."""
        await self.backend.permit(action, facts)

    @_must_be_awaited
    async def permitted(self, paths: Sequence[str]) -> list[str]:
        """Filter many paths by whether the policy permits the agent's operation on them. For agents that walk a
        tree and follow no links."""
        allowed: list[str] = []
        for start in range(0, len(paths), PATHS_AT_ONCE):
            allowed += await self.backend.permitted(paths[start : start + PATHS_AT_ONCE])
        return allowed

    @_must_be_awaited
    async def session_diff(self, session_id: str) -> str:
        """The path of another session's recorded diff, below the root. Raises `Refused` unless it has the same tree or principal."""
        return await self.backend.session_diff(session_id)

    @_must_be_awaited
    async def session_data(self, session_id: str) -> Any:
        """The data of another completed session. Raises `Refused` unless it has the same tree or principal."""
        return await self.backend.session_data(session_id)


# ---- for sync functions


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
    """`Context` without `await`, for threads and worker processes: each call runs on the loop of `context` and blocks."""

    __slots__ = ("_loop", "context")

    def __init__(self, context: Context, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(context.backend)
        self.context = context
        """The async context."""
        self._loop = loop

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop of the context."""
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

    def start(self, agent: str | Composition, /, **asked: Any) -> "BlockingHandle":
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
    session_data = _awaited(Context.session_data)


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
    """The last event of a stream: the same object as `result()`."""
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
    """Source of recorded delegations: an engine or a `Remit`."""

    async def result(self, session_id: str, *, wait_seconds: float) -> Return | None: ...
    def follow(self, session_id: str) -> AsyncIterator[Event]: ...
    async def cancel(self, session_id: str, reason: str, *, source: str) -> list[dict[str, Any]]: ...


class RecordedHandle:
    """A handle for a recorded delegation in any process."""

    __slots__ = ("_delegations", "_until", "session_id")

    def __init__(self, delegations: Delegations, session_id: str, until: float | None = None) -> None:
        """`until`: when to stop waiting for its end, on the clock of the event loop; None waits for ever."""
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
