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
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from remit.testing.models.anthropic import Anthropic
from remit.testing.models.chat import ChatCompletions
from remit.testing.models.dialect import Dialect
from remit.testing.models.google import Google, asked_by
from remit.testing.models.playing import Player
from remit.testing.models.request import ModelRequest
from remit.testing.models.responses import Responses
from remit.testing.models.turns import Answer, Call, Cut, Drip, Fail, Garbled, Say, Script, Silence, Stray, Turn, answer_of
from remit.testing.models.wire import Connection, Gone, HttpRequest, slices

MOST_REQUESTS = 10_000
MOST_CONNECTIONS = 256
_EVENT_STREAM = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
_DIALECTS: dict[str, Dialect] = {"/messages": Anthropic(), "/chat/completions": ChatCompletions(), "/responses": Responses()}
_GOOGLE = Google()
_MESSAGES = {401: "invalid x-api-key", 429: "rate limit exceeded", 500: "internal server error", 529: "overloaded"}
_UNTITLED = Say("Untitled")


class ScriptedModels:
    """A script is a list of turns, played once for each conversation; a dict of such lists, by words that stand in the prompt; or a
    function from a request to a turn. `aside` answers what coding agents ask beside their work, such as a title."""

    def __init__(self, script: Script, *, port: int = 0, aside: Turn = _UNTITLED, models: Sequence[str] = ("scripted",)) -> None:
        self._player, self._port, self._aside, self._names = Player(script), port, aside, tuple(models)
        self.requests: list[ModelRequest] = []
        """What was asked, in order; without asides."""
        self.asides: list[ModelRequest] = []
        self.faults: list[str] = []
        """Where the script did not fit what was asked; the client got a 400 that says the same."""
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()
        self._news = asyncio.Condition()

    @property
    def base_url(self) -> str:
        """As Anthropic's clients want it: without a path."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def openai_url(self) -> str:
        """As OpenAI's clients want it: with the version."""
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

    async def wait_asked(self, count: int = 1, *, where: Callable[[ModelRequest], bool] = lambda _: True, timeout: float = 30.0) -> None:
        """Until so many requests have come (of those `where` says yes to). Raises `TimeoutError`, naming how many came."""
        try:
            async with asyncio.timeout(timeout), self._news:
                await self._news.wait_for(lambda: sum(map(where, self.requests)) >= count)
        except TimeoutError:
            came = sum(map(where, self.requests))
            raise TimeoutError(f"{came} of {count} requests came in {timeout:g} s, of {len(self.requests)} in all.") from None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task, connection = asyncio.current_task(), Connection(reader, writer)
        assert task is not None
        if len(self._clients) >= MOST_CONNECTIONS:
            connection.reset()
            return
        self._clients.add(task)
        try:
            while True:
                await self._answer(connection, await connection.receive())
        except (Gone, TimeoutError):
            await connection.close()
        except asyncio.CancelledError:
            connection.reset()  # the server is being closed: whoever still waits is not to wait on
        finally:
            self._clients.discard(task)

    async def _answer(self, connection: Connection, http: HttpRequest) -> None:
        if http.method == "HEAD":
            return await connection.send_head_only()
        if http.method == "GET" and http.path.endswith("/models"):
            return await connection.answer(200, self._models())
        if http.method == "POST" and http.path.endswith("/messages/count_tokens"):
            return await connection.answer(200, {"input_tokens": max(1, len(http.body) // 4)})
        in_path = asked_by(http.path)
        dialect = _GOOGLE if in_path else next((known for end, known in _DIALECTS.items() if http.path.endswith(end)), None)
        if dialect is None or http.method != "POST":
            return await connection.answer(404, {"error": {"message": f"{http.method} {http.path} is none of what a scripted model does."}})
        try:
            body = json.loads(http.body)
            if not isinstance(body, dict):
                raise ValueError("it is no object")
        except ValueError as error:
            return await connection.answer(400, dialect.error(400, f"The body is not JSON: {error}"))
        return await self._play(connection, dialect, replace(dialect.read({**body, **in_path}), headers=http.headers))

    async def _play(self, connection: Connection, dialect: Dialect, request: ModelRequest) -> None:
        if len(self.requests) + len(self.asides) >= MOST_REQUESTS:
            return await connection.answer(503, dialect.error(503, f"A scripted server answers {MOST_REQUESTS} requests."))
        try:
            request, turn = await self._taken(request)
            if isinstance(turn, Silence):
                await connection.wait_gone()
                raise Gone
            if isinstance(turn, Fail):
                return await connection.answer(turn.status, dialect.error(turn.status, _message(turn)), _headers(turn))
            if isinstance(turn, Cut) and not turn.text:
                connection.reset()
                raise Gone
            assert isinstance(turn, Say | Call | Stray | Garbled | Drip | Cut | Sequence)
            answer = answer_of(turn, request)
        except LookupError as error:
            fault = str(error.args[0] if error.args else error)
            self.faults.append(fault)
            return await connection.answer(400, dialect.error(400, fault))
        write = _stream if request.stream else _whole
        return await write(connection, dialect, request, answer, turn)

    async def _taken(self, request: ModelRequest) -> tuple[ModelRequest, Turn]:
        """On record, and what it is answered with."""
        request = replace(request, number=len(self.requests) + len(self.asides) + 1)
        if request.is_aside:
            self.asides.append(request)
            return request, self._aside
        request = replace(request, turn=self._player.place(request))
        self.requests.append(request)
        async with self._news:
            self._news.notify_all()
        return request, self._player.turn(request)

    def _models(self) -> dict[str, Any]:
        known = [{"id": name, "type": "model", "object": "model", "display_name": name, "owned_by": "remit"} for name in self._names]
        return {"object": "list", "data": known, "has_more": False}


_Write = Callable[[Connection, Dialect, ModelRequest, Answer, Turn], Awaitable[None]]


async def _stream(connection: Connection, dialect: Dialect, request: ModelRequest, answer: Answer, turn: Turn) -> None:
    events = list(dialect.events(request, answer))
    count = sum(event.is_piece for event in events)
    await connection.begin(200, _EVENT_STREAM)
    for event in events:
        await connection.send(event.encode())
        count -= event.is_piece
        if isinstance(turn, Cut) and count == 0:
            raise await _reset(connection)
        if isinstance(turn, Drip) and event.is_piece and count:
            await _pause(connection, turn.seconds / max(1, sum(event.is_piece for event in events) - 1))
    await connection.end()


async def _whole(connection: Connection, dialect: Dialect, request: ModelRequest, answer: Answer, turn: Turn) -> None:
    document = dialect.document(request, answer)
    if not isinstance(turn, Cut | Drip):
        return await connection.answer(200, document)
    body = json.dumps(document, ensure_ascii=False).encode()
    await connection.begin(200, {"content-type": "application/json", "content-length": str(len(body))})
    parts = list(slices(body, 10))
    for part in parts[:-1]:
        await connection.send(part)
        if isinstance(turn, Drip):
            await _pause(connection, turn.seconds / len(parts))
    if isinstance(turn, Cut):
        raise await _reset(connection)
    await connection.send(parts[-1])
    return await connection.end()


async def _reset(connection: Connection) -> Gone:
    await asyncio.sleep(0.05)  # what was written before is to arrive: a reset may throw away what stands in buffers
    connection.reset()
    return Gone()


async def _pause(connection: Connection, seconds: float) -> None:
    """Wait, unless the client goes meanwhile."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await connection.wait_gone()
        raise Gone


def _message(turn: Fail) -> str:
    return turn.message or _MESSAGES.get(turn.status, f"scripted error {turn.status}")


def _headers(turn: Fail) -> dict[str, str]:
    return {**({} if turn.retry_after is None else {"retry-after": f"{turn.retry_after:g}"}), **turn.headers}
