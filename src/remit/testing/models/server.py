"""`ScriptedModels`: a model server on loopback that does what a script says, and remembers what it was asked.

    async with ScriptedModels([Call("Bash", command="ls"), Say("Done.")]) as models:
        # ANTHROPIC_BASE_URL=models.base_url, or OPENAI_BASE_URL=models.openai_url, and run the agent
        ...
    assert models.requests[1].results == ("a.txt",)

It speaks Anthropic Messages, OpenAI Chat Completions, OpenAI Responses and Google's Gemini, streaming and not, and takes any key. It is
no model and checks no request beyond reading it. Needs `pip install 'remit[testing]'`.
"""

import asyncio
import json
import socket
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

import h11

from remit.testing.models.dialects import Anthropic, ChatCompletions, Dialect, Google, Responses, asked_by
from remit.testing.models.request import ModelRequest
from remit.testing.models.turns import Answer, Call, Cut, Drip, Fail, Garbled, Player, Say, Script, Silence, Turn, answer_of

# ---- HTTP/1.1 on an asyncio stream

MOST_HEAD_BYTES = 2**18
_CHUNK = 2**16


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    method: str
    path: str
    """Without the query."""
    headers: Mapping[str, str]
    body: bytes


class Gone(Exception):
    """The client left, or does not speak HTTP."""


class Connection:
    """One client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEAD_BYTES)

    async def receive(self) -> HttpRequest:
        """The next request. Raises `Gone` when there is none."""
        head = await self._event()
        if not isinstance(head, h11.Request):
            raise Gone
        body = bytearray()
        while isinstance(event := await self._event(), h11.Data):
            body += event.data
        return HttpRequest(
            method=head.method.decode("ascii"),
            path=head.target.decode("ascii", "replace").partition("?")[0],
            headers={name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers},
            body=bytes(body),
        )

    async def answer(self, status: int, document: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        """A whole answer, as JSON."""
        body = json.dumps(document, ensure_ascii=False).encode()
        await self.begin(status, {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})})
        await self.send(body)
        await self.end()

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        await self._write(h11.Response(status_code=status, headers=list(headers.items())))

    async def send(self, data: bytes) -> None:
        await self._write(h11.Data(data=data))

    async def end(self) -> None:
        """After this the next request can be received, if the client keeps the connection."""
        await self._write(h11.EndOfMessage())
        if self._http.our_state is h11.MUST_CLOSE:
            raise Gone
        self._http.start_next_cycle()

    def reset(self) -> None:
        """Reset the connection instead of closing it."""
        with suppress(OSError):  # a linger time of zero makes the kernel send a reset
            self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def wait_gone(self) -> None:
        """Wait until the client leaves."""
        with suppress(OSError):
            while data := await self._reader.read(_CHUNK):
                self._http.receive_data(data)

    async def close(self) -> None:
        self._writer.close()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(1):
                await self._writer.wait_closed()

    async def _event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        while True:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as error:
                raise Gone(str(error)) from None
            if event is not h11.NEED_DATA:
                return event
            if self._http.they_are_waiting_for_100_continue:
                await self._write(h11.InformationalResponse(status_code=100, headers=[]))
            try:
                data = await self._reader.read(_CHUNK)
            except OSError as error:
                raise Gone(str(error)) from None
            self._http.receive_data(data)

    async def _write(self, event: h11.InformationalResponse | h11.Response | h11.Data | h11.EndOfMessage) -> None:
        try:
            data = self._http.send(event)
            if data:
                self._writer.write(data)
                await self._writer.drain()
        except (OSError, h11.LocalProtocolError) as error:
            raise Gone(str(error)) from None


# ---- `ScriptedModels`

_EVENT_STREAM = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
_DIALECTS: dict[str, Dialect] = {"/messages": Anthropic(), "/chat/completions": ChatCompletions(), "/responses": Responses()}
_GOOGLE = Google()
_MESSAGES = {401: "invalid x-api-key", 429: "rate limit exceeded", 500: "internal server error", 529: "overloaded"}


class ScriptedModels:
    """A script is a list of turns, played once per conversation; a dict of such lists, by words in the prompt; or a function from a request
    to a turn."""

    def __init__(self, script: Script, *, port: int = 0, models: Sequence[str] = ("scripted",)) -> None:
        self._player, self._port, self._names = Player(script), port, tuple(models)
        self.requests: list[ModelRequest] = []
        """Requests in order; without those for a title or a quota, which coding agents make beside the work."""
        self.faults: list[str] = []
        """Mismatches between script and requests; the client got a 400 with the same text."""
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()
        self._news = asyncio.Condition()

    @property
    def base_url(self) -> str:
        """For Anthropic's clients: without a path."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def openai_url(self) -> str:
        """For OpenAI's clients: with the version."""
        return f"{self.base_url}/v1"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._server is not None
        self._server.close()
        for client in self._clients:
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    async def wait_asked(self, count: int = 1, *, timeout: float = 30.0) -> None:
        """Wait for this many requests. Raises `TimeoutError` with the number received."""
        try:
            async with asyncio.timeout(timeout), self._news:
                await self._news.wait_for(lambda: len(self.requests) >= count)
        except TimeoutError:
            raise TimeoutError(f"{len(self.requests)} of {count} requests came in {timeout:g} s.") from None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task, connection = asyncio.current_task(), Connection(reader, writer)
        assert task is not None
        self._clients.add(task)
        try:
            while True:
                await self._answer(connection, await connection.receive())
        except Gone:
            await connection.close()
        except asyncio.CancelledError:
            connection.reset()  # the server is being closed: waiters must stop
        finally:
            self._clients.discard(task)

    async def _answer(self, connection: Connection, http: HttpRequest) -> None:
        if http.method == "HEAD":
            await connection.begin(200, {"content-length": "0"})
            return await connection.end()
        if http.method == "GET" and http.path.endswith("/models"):
            return await connection.answer(200, self._models())
        if http.method == "POST" and http.path.endswith("/messages/count_tokens"):
            return await connection.answer(200, {"input_tokens": max(1, len(http.body) // 4)})
        in_path = asked_by(http.path)
        dialect = _GOOGLE if in_path else next((known for end, known in _DIALECTS.items() if http.path.endswith(end)), None)
        if dialect is None or http.method != "POST":
            return await connection.answer(404, {"error": {"message": f"{http.method} {http.path} is not an action of a scripted model."}})
        try:
            body = json.loads(http.body)
            if not isinstance(body, dict):
                raise ValueError("it is not an object")
        except ValueError as error:
            return await connection.answer(400, dialect.error(400, f"The body is not JSON: {error}"))
        return await self._play(connection, dialect, replace(dialect.read({**body, **in_path}), headers=http.headers))

    async def _play(self, connection: Connection, dialect: Dialect, request: ModelRequest) -> None:
        try:
            request, turn = await self._taken(request)
            if isinstance(turn, Silence):
                await connection.wait_gone()
                raise Gone
            if isinstance(turn, Fail):
                message = turn.message or _MESSAGES.get(turn.status, f"scripted error {turn.status}")
                wait = {} if turn.retry_after is None else {"retry-after": f"{turn.retry_after:g}"}
                return await connection.answer(turn.status, dialect.error(turn.status, message), {**wait, **turn.headers})
            if isinstance(turn, Cut) and not turn.text:
                connection.reset()
                raise Gone
            assert isinstance(turn, Say | Call | Garbled | Drip | Cut | Sequence)
            answer = answer_of(turn, request)
        except LookupError as error:
            fault = str(error.args[0] if error.args else error)
            self.faults.append(fault)
            return await connection.answer(400, dialect.error(400, fault))
        parts = _parts(dialect, request, answer)
        length = {"content-type": "application/json", "content-length": str(sum(len(data) for data, _ in parts))}
        return await _write_answer(connection, parts, turn, _EVENT_STREAM if request.stream else length)

    async def _taken(self, request: ModelRequest) -> tuple[ModelRequest, Turn]:
        """The recorded request, and its answer."""
        request = replace(request, number=len(self.requests) + 1)
        if request.is_aside:
            return request, Say("Untitled")
        request = replace(request, turn=self._player.place(request))
        self.requests.append(request)
        async with self._news:
            self._news.notify_all()
        return request, self._player.turn(request)

    def _models(self) -> dict[str, Any]:
        known = [{"id": name, "type": "model", "object": "model", "display_name": name, "owned_by": "remit"} for name in self._names]
        return {"object": "list", "data": known, "has_more": False}


def _parts(dialect: Dialect, request: ModelRequest, answer: Answer) -> list[tuple[bytes, bool]]:
    """The parts to send, and whether each carries a piece of the answer that a drip or a cut counts."""
    if request.stream:
        return [(event.encode(), event.is_piece) for event in dialect.events(request, answer)]
    body = json.dumps(dialect.document(request, answer), ensure_ascii=False).encode()
    size = max(1, -(-len(body) // 10))
    return [(body[start : start + size], start + size < len(body)) for start in range(0, len(body), size)]


async def _write_answer(connection: Connection, parts: list[tuple[bytes, bool]], turn: Turn, headers: Mapping[str, str]) -> None:
    count = left = sum(is_piece for _, is_piece in parts)
    await connection.begin(200, headers)
    for data, is_piece in parts:
        await connection.send(data)
        left -= is_piece
        if isinstance(turn, Cut) and left == 0:
            await asyncio.sleep(0.05)  # earlier data must arrive: a reset may discard buffers
            connection.reset()
            raise Gone
        if isinstance(turn, Drip) and is_piece and left:
            await _pause(connection, turn.seconds / max(1, count - 1))
    await connection.end()


async def _pause(connection: Connection, seconds: float) -> None:
    """Wait, unless the client leaves."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await connection.wait_gone()
        raise Gone
