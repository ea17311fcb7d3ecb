"""`ctx` for sync functions: the names of `flow.context.Context` without `await`. Used by threads and by worker processes."""

import asyncio
import concurrent.futures
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from remit.core.budget import Limits
from remit.core.delegation import TaskContext
from remit.core.errors import Stopped
from remit.core.events import Event
from remit.core.request import Request
from remit.core.result import Return
from remit.runtime.context import Context, ContextFiles, Handle, Repair

T = TypeVar("T")


class BlockingContext:
    """Each call is carried out on the loop of the async context and waited for here."""

    __slots__ = ("_context", "_loop")
    is_remit_context = True

    def __init__(self, context: Context, loop: asyncio.AbstractEventLoop) -> None:
        self._context = context
        self._loop = loop

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
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

    def _do(self, name: str, *args: Any, **kwargs: Any) -> Any:
        async def on_loop() -> Any:
            return getattr(self._context, name)(*args, **kwargs)

        return self._wait(on_loop())

    def _get(self, name: str) -> Any:
        async def on_loop() -> Any:
            return getattr(self._context, name)

        return self._wait(on_loop())

    @property
    def session_id(self) -> str:
        return self._context.session_id

    @property
    def root_id(self) -> str:
        return self._context.root_id

    @property
    def depth(self) -> int:
        return self._context.depth

    @property
    def path(self) -> tuple[str, ...]:
        return self._context.path

    @property
    def parameters(self) -> Mapping[str, Any]:
        return self._context.parameters

    @property
    def caller(self) -> str:
        return self._context.caller

    @property
    def task(self) -> TaskContext | None:
        return self._context.task

    @property
    def deadline(self) -> float:
        return self._context.deadline

    @property
    def remaining(self) -> float:
        return self._context.remaining

    @property
    def budget(self) -> Limits:
        budget: Limits = self._get("budget")
        return budget

    @property
    def root(self) -> Path:
        return self._context.root

    @property
    def scratch(self) -> Path:
        path: Path = self._get("scratch")
        return path

    @property
    def workspace(self) -> Path:
        return self._context.workspace

    def environment(self) -> dict[str, str]:
        told: dict[str, str] = self._do("environment")
        return told

    @property
    def repair(self) -> Repair | None:
        return self._context.repair

    @property
    def hand_in(self) -> bool:
        return self._context.hand_in

    @property
    def saved(self) -> Any:
        return self._context.saved

    def wait_hand_in(self) -> None:
        self._wait(self._context.wait_hand_in())

    def delegate(self, agent: str, /, **asked: Any) -> Return:
        return self._wait(self._context.delegate(agent, **asked))

    def start(self, agent: str, /, **asked: Any) -> "BlockingHandle":
        return BlockingHandle(self._wait(self._context.start(agent, **asked)), self)

    def gather(self, *requests: Request, limit: int | None = None) -> list[Return]:
        return self._wait(self._context.gather(*requests, limit=limit))

    def progress(self, message: str, fraction: float | None = None) -> None:
        self._do("progress", message, fraction)

    def emit(self, chunk: Any) -> None:
        self._do("emit", chunk)

    def artifact(self, path: str | Path, type: str = "report", summary: str = "") -> None:
        self._do("artifact", path, type, summary)

    def spend(self, *, tokens: int = 0, cost: float = 0.0) -> None:
        self._do("spend", tokens=tokens, cost=cost)

    def checkpoint(self, value: Any) -> None:
        self._wait(self._context.checkpoint(value))

    def permit(self, action: str = "", /, **facts: Any) -> None:
        self._wait(self._context.permit(action, **facts))

    def permitted(self, paths: Sequence[str]) -> list[str]:
        return self._wait(self._context.permitted(paths))

    def background(self) -> ContextFiles:
        return self._context.background()

    def as_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = self._do("as_dict")
        return fields


class BlockingHandle:
    __slots__ = ("_context", "_handle")

    def __init__(self, handle: Handle, context: BlockingContext) -> None:
        self._handle = handle
        self._context = context

    @property
    def session_id(self) -> str:
        return self._handle.session_id

    def result(self) -> Return:
        return self._context._wait(self._handle.result())

    def stream(self) -> Iterator[Event]:
        events = self._handle.stream().__aiter__()

        async def following() -> Event | None:
            return await anext(events, None)

        while (event := self._context._wait(following())) is not None:
            yield event

    def cancel(self, reason: str = "") -> list[Mapping[str, Any]]:
        return self._context._wait(self._handle.cancel(reason))
