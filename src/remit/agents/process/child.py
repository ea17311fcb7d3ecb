"""One worker as the Remit process sees it: its channel, the questions it has open, and how it ended.

Nothing that comes over the pipes can raise in the event loop: what is no frame is noted as the worker's end.
"""

import asyncio
import contextlib
import socket
from typing import Any

from remit.agents.process import frames
from remit.agents.process.errors import error_from_wire, error_to_wire
from remit.agents.process.link import Link, Pipe
from remit.agents.process.service import Service
from remit.core.errors import AgentCrashed, Failed, Misused, RemitError

CALLS_AT_ONCE = 1024
"""Open questions of one worker, after which it is not read any more until some are answered."""
STDERR_TAIL_CHARACTERS = 2000
PRINTED_CHARACTERS = 2000
_OUTCOMES = frozenset({"answer", "raised", "broken"})
_MEANT = frozenset({"POLICY_DENIED", "TOOL_UNAVAILABLE"})
"""Of a refusal or unavailability that the agent itself speaks of: they mean the same in its process as in ours."""


class Child:
    def __init__(self, service: Service) -> None:
        loop = asyncio.get_running_loop()
        self._service = service
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._keepsakes: set[int] = set()
        self._outcome: dict[str, Any] | None = None
        self._garble: str | None = None
        self._spoken = loop.create_future()
        self._stopping = False
        self._channel = Pipe(self._take, self._take_garble)
        self.link = Link(self._take_garble)

    async def connect(self, channel: socket.socket, link: socket.socket) -> None:
        await self._channel.connect(channel)
        await self.link.connect(link)
        self.link.when_lost(self._speak)

    def send(self, message: dict[str, Any]) -> None:
        self._channel.write(frames.pack(message))

    async def wait_spoken(self) -> None:
        """Until there is an outcome, or there will be none."""
        await asyncio.shield(self._spoken)

    async def wait_ended(self, limit: float) -> None:
        """After the outcome: until the worker is gone and all it sent is read. At once where that cannot be expected."""
        is_well = self._outcome is not None or self.link.report is not None
        if not is_well or self._garble is not None or not await self.link.wait_gone(limit):
            return
        if self._channel.transport is not None and not self._channel.transport.is_closing():
            self._channel.transport.resume_reading()
        await asyncio.wait([self._channel.lost], timeout=limit)

    def order_stop(self, grace_seconds: float) -> None:
        """The worker is asked to end; meanwhile it may save what it has, and ask for nothing more."""
        self._stopping = True
        for number, task in self._calls.items():
            if number not in self._keepsakes:
                task.cancel()
        self.link.order_stop(grace_seconds)

    async def close(self, limit: float) -> None:
        self._channel.close()
        self.link.close()
        tasks = list(self._calls.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=limit)

    def printed(self) -> str:
        """The end of what it wrote to its standard output and error."""
        report = self.link.report or {}
        parts = []
        for name in ("stdout", "stderr"):
            tail, count = str(report.get(f"{name}_tail", "")).strip(), report.get(f"{name}_bytes", 0)
            if tail:
                cut = f" (the end of {count} bytes)" if isinstance(count, int) and count > PRINTED_CHARACTERS else ""
                parts.append(f"{name}{cut}: {tail[-PRINTED_CHARACTERS:]}")
        return "\n".join(parts)

    def outcome(self) -> Any:
        """The answer, or how it failed, raised."""
        outcome, report = self._outcome or {}, self.link.report or {}
        tail = str(report.get("stderr_tail", ""))[-STDERR_TAIL_CHARACTERS:]
        code = report.get("exit")
        match outcome:
            case {"k": "answer"}:
                return outcome.get("value")
            case {"k": "raised"}:
                error = error_from_wire(outcome.get("error"))
                raise error if isinstance(error, Failed | Misused) or error.code in _MEANT else _as_failed(error)
            case {"k": "broken"}:
                error = error_from_wire(outcome.get("error"))
                fields = outcome.get("error")
                trace = str(fields.get("traceback", "")) if isinstance(fields, dict) else ""
                raise AgentCrashed(
                    f"The agent could not be loaded: {error.message}",
                    exit_code=code,
                    stderr_tail=(tail + trace)[-STDERR_TAIL_CHARACTERS:],
                    advice="See that its module can be imported.",
                )
        if self._garble is not None:
            what = f"sent what is no message ({self._garble})"
        elif self.link.report is None:
            what = "killed its supervisor or was killed with it"
        else:
            what = f"ended without an answer, {_exit_words(code)}"
        raise AgentCrashed(f"The agent's process {what}.", exit_code=code, stderr_tail=tail, advice="See the end of its stderr.")

    # ---- what comes over the pipes

    def _take(self, message: dict[str, Any]) -> None:
        if self._outcome is not None:
            return
        kind = message.get("k")
        if not isinstance(kind, str) or not isinstance(message.get("id", 0), int):
            raise frames.Garbled("a message without a kind, or with a number that is none")
        if kind in _OUTCOMES:
            self._outcome = message
            self._speak()
        elif kind == "call":
            self._take_call(message)
        elif kind == "tell":
            self._take_tell(message)
        elif kind == "cancel":
            task = self._calls.get(message.get("id", 0))
            if task is not None:
                task.cancel()
        else:
            raise frames.Garbled(f"a message of unknown kind {kind!r}"[:200])

    def _take_tell(self, message: dict[str, Any]) -> None:
        try:
            self._service.tell(message.get("name"), message.get("body"))
        except Exception as error:  # noqa: BLE001 - what a worker says is not trusted; whatever it breaks is its own to hear
            self._reply({"k": "refused", "error": error_to_wire(_ours(error))})

    def _take_call(self, message: dict[str, Any]) -> None:
        number = message.get("id")
        if not isinstance(number, int) or number in self._calls:
            raise frames.Garbled("a question without a number of its own")
        is_keepsake = message.get("name") in ("checkpoint", "scratch", "budget")
        if self._stopping and not is_keepsake:
            self._reply({"k": "reply", "id": number, "error": {"branch": "Stopped", "message": "The delegation is being stopped."}})
            return
        if is_keepsake:
            self._keepsakes.add(number)
        self._calls[number] = asyncio.create_task(self._answer(number, message))
        if len(self._calls) >= CALLS_AT_ONCE and self._channel.transport is not None:
            self._channel.transport.pause_reading()

    async def _answer(self, number: int, message: dict[str, Any]) -> None:
        try:
            value = await self._service.call(message.get("name"), message.get("body"))
            self._reply({"k": "reply", "id": number, "value": value})
        except Exception as error:  # noqa: BLE001 - as for `tell`
            self._reply({"k": "reply", "id": number, "error": error_to_wire(_ours(error))})
        finally:
            del self._calls[number]
            self._keepsakes.discard(number)
            transport = self._channel.transport
            if transport is not None and not transport.is_closing() and not transport.is_reading():
                transport.resume_reading()

    def _reply(self, message: dict[str, Any]) -> None:
        try:
            self.send(message)
        except ValueError as error:  # a return that does not fit into a frame
            with contextlib.suppress(ValueError):
                self.send({"k": "reply", "id": message.get("id"), "error": error_to_wire(Failed(str(error)))})

    def _take_garble(self, why: str) -> None:
        self._garble = why
        self._speak()

    def _speak(self) -> None:
        if not self._spoken.done():
            self._spoken.set_result(None)


def _ours(error: Exception) -> RemitError:
    if isinstance(error, RemitError):
        return error
    if isinstance(error, TypeError):  # arguments that the question does not have
        return Misused(f"The context was misused: {error}")
    return Failed(f"{type(error).__name__}: {error}")


def _as_failed(error: RemitError) -> Failed:
    """A refusal or unavailability the agent met and let through is how the *agent* failed."""
    return Failed(error.message, code=error.code, advice=error.advice)


def _exit_words(code: object) -> str:
    if isinstance(code, int) and code < 0:
        return f"killed by signal {-code}"
    return f"exit code {code}"
