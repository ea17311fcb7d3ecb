"""The backend of an agent in its own process: what `ctx` stands on there. Every question goes over the channel to the real one.

A reader thread takes replies, so a question can be waited for on a loop (`ask`) or plainly (`ask_now`), from any thread.
What the agent merely says (`tell`) is not answered; if it was refused, the next question or saying raises that refusal.
"""

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol

from remit.agents.process import frames
from remit.agents.process.wire import asked_from_wire, delegation_from_wire, error_from_wire, event_from_wire, repair_from_wire
from remit.core.budget import Limits
from remit.core.delegation import Delegation
from remit.core.errors import RemitError, Stopped
from remit.core.events import Event
from remit.core.jsonable import to_jsonable
from remit.core.request import Request
from remit.core.result import Return
from remit.models.messages import Answer, SpendSink
from remit.models.questions import TextModel
from remit.runtime.context import Context, Handle, Repair

_PATHS_AT_ONCE = 2000


class Asks(Protocol):
    """Whatever carries the questions of a backend to the real one."""

    hand_in: "Future[None]"

    def tell(self, name: str, **body: Any) -> None: ...
    def ask_now(self, name: str, **body: Any) -> Any: ...
    async def ask(self, name: str, **body: Any) -> Any: ...


class Channel:
    """The worker's end of the pipe to the Remit process."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sending = threading.Lock()
        self._waiting: dict[int, Future[Any]] = {}
        self._number = 0
        self._refusal: RemitError | None = None
        self._main_is_sending = False
        self._stop_after_sending = False
        self.hand_in: Future[None] = Future()

    def listen(self) -> None:
        threading.Thread(target=self._read, name="remit-channel", daemon=True).start()

    def stop_would_break_a_frame(self) -> bool:
        """Asked by the SIGTERM handler, on the main thread: a frame cut in two would spoil all that follow."""
        self._stop_after_sending = self._main_is_sending
        return self._main_is_sending

    def send(self, message: dict[str, Any]) -> None:
        data = frames.pack(message)
        on_main = threading.current_thread() is threading.main_thread()
        self._main_is_sending = on_main or self._main_is_sending
        try:
            with self._sending:
                self._sock.sendall(data)
        except OSError as error:
            raise Stopped("The delegation is over: nobody listens any more.") from error
        finally:
            if on_main:
                self._main_is_sending = False
        if on_main and self._stop_after_sending:
            self._stop_after_sending = False
            raise Stopped("The delegation is being stopped.")

    def tell(self, name: str, **body: Any) -> None:
        self._raise_refusal()
        self.send({"k": "tell", "name": name, "body": body})

    def ask_now(self, name: str, **body: Any) -> Any:
        return self._question(name, body)[1].result()

    async def ask(self, name: str, **body: Any) -> Any:
        number, future = self._question(name, body)
        try:
            return await asyncio.shield(asyncio.wrap_future(future))
        except asyncio.CancelledError:
            self.send({"k": "cancel", "id": number})
            raise

    def _question(self, name: str, body: dict[str, Any]) -> tuple[int, "Future[Any]"]:
        self._raise_refusal()
        future: Future[Any] = Future()
        with self._sending:
            self._number += 1
            number = self._number
        self._waiting[number] = future
        self.send({"k": "call", "id": number, "name": name, "body": body})
        return number, future

    def _raise_refusal(self) -> None:
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise refusal

    def _read(self) -> None:
        try:
            while (message := frames.receive(self._sock)) is not None:
                self._take(message)
        except OSError:
            pass  # the same as its end
        for future in list(self._waiting.values()):
            if not future.done():
                future.set_exception(Stopped("The delegation is over: nobody listens any more."))

    def _take(self, message: dict[str, Any]) -> None:
        match message["k"]:
            case "reply":
                future = self._waiting.pop(message["id"], None)
                if future is None or future.done():
                    return
                if "error" in message:
                    future.set_exception(error_from_wire(message["error"]))
                else:
                    future.set_result(message["value"])
            case "refused":
                self._refusal = error_from_wire(message["error"])
            case "hand_in":
                if not self.hand_in.done():
                    self.hand_in.set_result(None)


class RemoteHandle:
    """A child that was started and not waited for."""

    def __init__(self, channel: Asks, session_id: str) -> None:
        self._channel = channel
        self._session_id = session_id

    @property
    def session_id(self) -> str:
        return self._session_id

    async def result(self) -> Return:
        return Return.from_dict(await self._channel.ask("result", session_id=self._session_id))

    async def stream(self) -> AsyncIterator[Event]:
        stream = await self._channel.ask("stream", session_id=self._session_id)
        while (event := await self._channel.ask("next", stream=stream)) is not None:
            yield event_from_wire(event)

    async def cancel(self, reason: str = "") -> list[Mapping[str, Any]]:
        acknowledged: list[Mapping[str, Any]] = await self._channel.ask("stop", session_id=self._session_id, reason=reason)
        return acknowledged


class RemoteModels:
    """`models.optional.Writes` over a channel. What an answer costs is drawn there, so the purse stays shut here."""

    def __init__(self, channel: Asks, is_configured: bool) -> None:
        self._channel = channel
        self._is_configured = is_configured

    def is_configured(self) -> bool:
        return self._is_configured

    async def write(self, purse: SpendSink, prompt: str, *, instructions: str = "", schema: Mapping[str, Any] | None = None) -> Answer:
        asked = await self._channel.ask("write", prompt=prompt, instructions=instructions, schema=to_jsonable(schema))
        return asked_from_wire(asked)


class RemoteBackend:
    """`flow.context.ContextBackend` over a channel."""

    def __init__(self, channel: Asks, facts: Mapping[str, Any]) -> None:
        self._channel = channel
        self._facts = facts
        self._delegation = delegation_from_wire(facts["delegation"])
        self._root = Path(facts["root"])
        self._repair = repair_from_wire(facts["repair"])
        self._saved = facts["saved"]
        self._scratch: Path | None = None

    @property
    def delegation(self) -> Delegation:
        return self._delegation

    @property
    def root(self) -> Path:
        return self._root

    @property
    def models(self) -> "RemoteModels":
        return RemoteModels(self._channel, bool(self._facts.get("has_model")))

    @property
    def repair(self) -> Repair | None:
        return self._repair

    @property
    def hand_in(self) -> bool:
        return self._channel.hand_in.done()

    @property
    def scratch(self) -> Path:
        if self._scratch is None:
            self._scratch = Path(self._channel.ask_now("scratch"))
        return self._scratch

    @property
    def workspace(self) -> Path:
        return Path(self._facts["workspace"])

    def environment(self) -> dict[str, str]:
        told: dict[str, str] = self._channel.ask_now("environment")
        return told

    @property
    def saved(self) -> Any:
        return self._saved

    def remaining(self) -> float:
        return self._delegation.deadline.remaining(time.monotonic())

    def budget_left(self) -> Limits:
        return Limits(**self._channel.ask_now("budget"))

    async def wait_hand_in(self) -> None:
        await asyncio.shield(asyncio.wrap_future(self._channel.hand_in))

    async def delegate(self, request: Request) -> Return:
        return Return.from_dict(await self._channel.ask("delegate", request=to_jsonable(request.to_dict())))

    async def start(self, request: Request) -> Handle:
        return RemoteHandle(self._channel, await self._channel.ask("start", request=to_jsonable(request.to_dict())))

    async def gather(self, requests: Sequence[Request], limit: int | None) -> list[Return]:
        returns = await self._channel.ask("gather", requests=[to_jsonable(request.to_dict()) for request in requests], limit=limit)
        return [Return.from_dict(fields) for fields in returns]

    def progress(self, message: str, fraction: float | None) -> None:
        self._channel.tell("progress", message=message, fraction=fraction)

    def emit(self, chunk: Any) -> None:
        self._channel.tell("emit", chunk=to_jsonable(chunk))

    def artifact(self, path: str | Path, type_: str, summary: str) -> None:
        self._channel.tell("artifact", path=str(path), type=type_, summary=summary)

    def spend(self, tokens: int, cost: float) -> None:
        self._channel.tell("spend", tokens=tokens, cost=cost)

    async def checkpoint(self, value: Any) -> None:
        kept = to_jsonable(value)
        await self._channel.ask("checkpoint", value=kept)
        self._saved = kept

    async def permit(self, action: str, facts: Mapping[str, Any]) -> None:
        await self._channel.ask("permit", action=action, facts=to_jsonable(facts))

    async def permitted(self, paths: Sequence[str]) -> list[str]:
        allowed: list[str] = []
        for start in range(0, len(paths), _PATHS_AT_ONCE):
            allowed += await self._channel.ask("permitted", paths=list(paths[start : start + _PATHS_AT_ONCE]))
        return allowed

    async def session_diff(self, session_id: str) -> str:
        recorded: str = await self._channel.ask("session_diff", session_id=session_id)
        return recorded

    def printed(self, text: str) -> None:
        """Nothing to tell: what this process prints is read outside of it."""

    def abandoned(self, what: str) -> Callable[[], None]:
        """Nothing to tell: whatever is left behind in this process dies with it."""
        return lambda: None


async def session_diff_of(ctx: Context, session_id: str) -> str:
    """Where the diff of a session is recorded, below the root. Raises `Refused` unless it is of the same tree or principal."""
    return await ctx.backend.session_diff(session_id)


def models_of(ctx: Context) -> TextModel | None:
    """The models of the Remit process, for a function that runs in a process of its own. None where none is configured."""
    backend = ctx.backend
    return backend.models if isinstance(backend, RemoteBackend) and backend.models.is_configured() else None
