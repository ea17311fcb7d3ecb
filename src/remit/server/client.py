"""`Client`: delegate to any agent of a running `remit serve`, over HTTP. Needs `pip install "remit[http]"` and no project of its own.

    async with Client("http://127.0.0.1:7411", token=token) as client:
        result = await client.delegate("worker", "read_file", {"path": "README.md"})

A request is one of the delegate tool. The server checks it: a faulty one raises `DelegateError`, an unauthenticated one `Refused`.
Everything else is a `DelegateResult`, also when the server cannot be reached.
"""

import asyncio
import contextlib
import random
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from pydantic_core import from_json

from remit.core.delegate_requests import DelegateError, encodable, json_bytes
from remit.core.delegate_results import (
    Chunk,
    ChunkType,
    DelegateResult,
    TaskError,
    TaskMetadata,
    TaskState,
    final_chunk,
    result_of_error,
    started_chunk,
)
from remit.core.errors import Failed, Misused, Refused, RemitError, Unavailable
from remit.core.redaction import redact_text, register_secrets
from remit.core.result import Artifact, Evidence
from remit.server.addresses import announced
from remit.server.tokens import local_token
from remit.system.http import PLAIN, BodyError, bound_by, parse_target, tls_context
from remit.system.ip_addresses import is_loopback
from remit.system.ownership import owner_fault

ANSWER_SECONDS = 20.0
"""Time limit of one answer; a slower server counts as lost."""
QUIET_SECONDS = 30.0
"""A stream that is silent for this long is reopened: the server sends a comment every 15 s."""
CANCEL_SECONDS = 2.0
"""How long a cancelled call waits until its task is cancelled, too."""
MAX_WAIT_SECONDS = 14_400.0
"""How long to wait for a request without a timeout; the server applies its own default long before."""
FAILING_STREAMS = 3
"""After this many failures in a row, although the task is known, it is polled instead."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_FAULTY = frozenset({"INVALID_TARGET", "INVALID_OPERATION", "INVALID_PARAMETERS"})
_WORDS = 2000
_START = "Check that it is running: `remit serve` starts one."


class ServerAddress(NamedTuple):
    address: str
    """`http://host:port`."""
    token: str
    """The owner's token."""


def discover(root: str | Path = ".") -> ServerAddress:
    """The running server of the project at `root` or above it. Raises `Unavailable` if there is none with HTTP."""
    here = Path(root).resolve()
    for folder in (here, *here.parents):
        found = None if owner_fault(folder) else announced(folder / ".remit" / "run")  # others may create such a folder, as in /tmp
        if found is not None and found.http is not None:
            return ServerAddress(found.http, local_token(folder / ".remit"))
    raise Unavailable(f"No server of a project at or above {here} takes HTTP.", advice="Start one there: remit serve")


class Client:
    def __init__(
        self,
        address: str | None = None,
        *,
        token: str | None = None,
        ca_file: str | Path | None = None,
        streaming: bool = True,
        poll_seconds: float = 0.5,
        connect_seconds: float = 5.0,
        grace_seconds: float = 5.0,
    ) -> None:
        """`address`: `http://host:port`, `https://…`, or None for the server of the project here (`discover`).

        `token`: made by `remit token new`; `ca_file`: the authority of the server's certificate. Without `streaming` the state is polled;
        the result is the same. A server that cannot be reached is tried for `connect_seconds`; a task that does not end within its timeout
        and `grace_seconds` is TASK_TIMEOUT, whatever the server does.
        """
        try:
            import httpx
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(f"{error.name} is not installed: pip install 'remit[http]'", name=error.name) from None
        if address is None:
            found = discover()
            address, token = found.address, token or found.token
        target = parse_target(address)
        if token and (not token.isascii() or not token.isprintable() or " " in token):
            raise Misused("Invalid token: it contains characters that tokens never use.", advice="Copy it again, without line breaks.")
        if token and target.scheme == "http" and not is_loopback(target.host):
            raise Misused(f"No token is sent to {target.shown} in the clear.", advice="Write https://…, with TLS on the other side.")
        for name, seconds in (("poll_seconds", poll_seconds), ("connect_seconds", connect_seconds), ("grace_seconds", grace_seconds)):
            if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < MAX_WAIT_SECONDS:
                raise Misused(f"{name} must be a positive number of seconds, not {seconds!r:.60}.")
        shown = {"authorization": f"Bearer {token}"} if token else {}
        self._held = register_secrets(shown)
        """Keeps the token redacted while it is in use."""
        self._address = target.shown.rstrip("/")
        self._http = httpx.AsyncClient(
            base_url=target.url,
            headers={**PLAIN, "content-type": "application/json", **shown},
            verify=tls_context(None if ca_file is None else Path(ca_file), "ca_file") if target.scheme == "https" else True,
            timeout=ANSWER_SECONDS,
            trust_env=False,
            event_hooks={"response": [bound_by(httpx.AsyncByteStream, None)]},
        )
        self._streaming, self._poll_seconds = streaming, poll_seconds
        self._connect_seconds, self._grace_seconds = connect_seconds, grace_seconds
        self._cancelling: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection. Running tasks go on and are found again by their ids."""
        if self._cancelling:
            await asyncio.wait(self._cancelling, timeout=CANCEL_SECONDS)
        await self._http.aclose()

    async def delegate(
        self, target: str, operation: str | None = None, parameters: Mapping[str, Any] | None = None, **more: Any
    ) -> DelegateResult:
        """Run a task and return its result. Cancelling the call cancels the task.

        `more`: `timeout` in milliseconds, `priority`, `session_id` (a conversation of the caller's), `key`, `accept`, `budget`, `resume`,
        `idle` in milliseconds.
        """
        async with contextlib.aclosing(self._chunks(target, operation, parameters, more, cancels=True)) as chunks:
            async for chunk in chunks:
                if chunk.result is not None:
                    return chunk.result
        raise AssertionError("a stream of chunks ends with a result or raises")

    def stream(
        self, target: str, operation: str | None = None, parameters: Mapping[str, Any] | None = None, **more: Any
    ) -> AsyncGenerator[Chunk]:
        """Run a task and yield its chunks; the last has the result. Closing the stream does not stop the task."""
        return self._chunks(target, operation, parameters, more, cancels=False)

    async def get(self, task_id: str) -> DelegateResult:
        """The state of a task."""
        return _result_from(await self._answer("GET", f"v1/tasks/{task_id}"))

    async def cancel(self, task_id: str, reason: str = "") -> DelegateResult:
        """Stop a task and everything below it; its state then."""
        answer = await self._answer("POST", f"v1/tasks/{task_id}/cancel", {"reason": reason[:1000]})
        return _result_from(answer.get("task"))

    # ---- one task, begun once and followed to its end

    async def _chunks(
        self, target: str, operation: str | None, parameters: Mapping[str, Any] | None, more: Mapping[str, Any], *, cancels: bool
    ) -> AsyncGenerator[Chunk]:
        given = {"session" if name == "session_id" else name: value for name, value in more.items()}
        # Use a generated key if none is given: a request whose answer was lost is sent again and must not run twice.
        asked = {"key": f"client-{uuid.uuid4().hex}", **given, "target": target, "operation": operation, "parameters": parameters or {}}
        timeout = given.get("timeout")
        seconds = timeout / 1000 if isinstance(timeout, int | float) else MAX_WAIT_SECONDS
        following = _Following(self._streaming, time.monotonic() + seconds + self._grace_seconds, self._connect_seconds)
        started_at = time.time()
        try:
            while not following.is_over:
                following.tried_at = time.monotonic()
                try:
                    async with contextlib.aclosing(self._source(asked, following)) as source:
                        while not following.is_over:
                            # Each wait is bounded separately: the reader may take any time between chunks.
                            async with asyncio.timeout(max(0.0, following.until - time.monotonic())):
                                chunk = await anext(source, None)
                            if chunk is None:
                                raise _ConnectionLost(f"{self._address} ended the stream too early.")
                            if following.is_new(chunk):
                                yield chunk
                except TimeoutError:
                    raise _NoAnswer(f"{self._address} has not reported the outcome in time.", advice=_START) from None
                except _ConnectionLost as error:
                    await following.wait(error)
        except asyncio.CancelledError:
            if cancels and following.tried_at:
                await self._give_back(asked, following.task_id)
            raise
        except (Misused, Refused):
            raise
        except RemitError as error:
            yield final_chunk(_result_of(error, f"{target}.{operation}" if operation else target, started_at, following.task_id))

    async def _source(self, asked: Mapping[str, Any], following: "_Following") -> AsyncGenerator[Chunk]:
        if following.task_id is None:
            result = await self._begin(asked)
            if result.task_state.is_terminal:
                yield final_chunk(result)
            yield started_chunk(result.task_id or "", result.metadata.agent_id)
        if following.is_streamed:
            async for chunk in self._events(f"v1/tasks/{following.task_id}/events?after={following.after}"):
                yield chunk
        while not following.is_streamed:
            result = await self.get(following.task_id or "")
            yield final_chunk(result) if result.task_state.is_terminal else started_chunk(result.task_id or "", result.metadata.agent_id)
            await asyncio.sleep(self._poll_seconds)

    async def _begin(self, asked: Mapping[str, Any]) -> DelegateResult:
        return _result_from(await self._answer("POST", "v1/tasks", {name: one for name, one in asked.items() if one is not None}))

    async def _events(self, path: str) -> AsyncIterator[Chunk]:
        with self._converted_errors():
            async with self._http.stream("GET", path, timeout=QUIET_SECONDS) as answer:
                if answer.is_error:
                    raise _error_of(answer.status_code, await answer.aread(), self._address)
                number = 0
                async for line in answer.aiter_lines():
                    name, _, value = line.partition(": ")
                    if name == "id" and value.isdigit():
                        number = int(value[:15])
                    elif name == "data":
                        yield _chunk_from(from_json(value), number)
                        number = 0

    async def _answer(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        content = None if body is None else json_bytes(encodable(body))
        with self._converted_errors():
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await self._http.request(method, path, content=content)
                if answer.is_error:
                    raise _error_of(answer.status_code, answer.content, self._address)
                document = from_json(answer.content)
        return document if isinstance(document, dict) else {}

    @contextlib.contextmanager
    def _converted_errors(self) -> Iterator[None]:
        import httpx

        try:
            yield
        except (httpx.TransportError, TimeoutError) as error:
            raise _ConnectionLost(f"{self._address}: {error or type(error).__name__}."[:_WORDS], advice=_START) from None
        except BodyError as error:
            raise Failed(f"{self._address}: {error}.", code="TOO_LARGE") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Failed(f"{self._address} answered with something else than a task: {type(error).__name__}: {error}"[:_WORDS]) from None

    async def _give_back(self, asked: Mapping[str, Any], task_id: str | None) -> None:
        """Stop it there. If its first answer is missing, it is looked up by its key, which starts nothing twice."""

        async def cancel() -> None:
            await self.cancel(task_id or (await self._begin(asked)).task_id or "", "its caller was cancelled")

        cancelling = asyncio.ensure_future(cancel())
        self._cancelling.add(cancelling)
        cancelling.add_done_callback(self._cancelling.discard)
        cancelling.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait((cancelling,), timeout=CANCEL_SECONDS)


class _ConnectionLost(Unavailable):
    """Unreachable, disconnected or overloaded: a retry with the request's key is safe."""


class _NoAnswer(Unavailable):
    """Not ended, or not reached, in the available time."""


@dataclass(slots=True)
class _Following:
    """How far a task was followed."""

    is_streamed: bool
    until: float
    """Monotonic end of the wait."""
    reach_seconds: float
    """How long an unreachable server is retried before the task is known to have started."""
    task_id: str | None = None
    after: int = 0
    has_started: bool = False
    failures: int = 0
    """In a row."""
    failing_since: float | None = None
    tried_at: float = 0.0
    is_over: bool = False

    def is_new(self, chunk: Chunk) -> bool:
        self.task_id = chunk.task_id or self.task_id
        self.failures, self.failing_since, self.is_over = 0, None, chunk.result is not None
        is_repeated = chunk.number <= self.after if chunk.number else self.has_started
        self.after, self.has_started = max(self.after, chunk.number), True
        return self.is_over or not is_repeated

    async def wait(self, error: _ConnectionLost) -> None:
        """Before the next attempt. Raises if a retry is useless."""
        now = time.monotonic()
        self.failures += 1
        # Since the call, not since the failure: a server that accepts connections without answering is not available either.
        self.failing_since = self.tried_at if self.failing_since is None else self.failing_since
        if self.task_id is None and now - self.failing_since >= self.reach_seconds:
            raise error
        if self.task_id is not None and self.failures >= FAILING_STREAMS:
            self.is_streamed = False
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(self.failures - 1, 10)) * random.uniform(0.7, 1.3)
        if now + pause >= self.until:
            raise _NoAnswer(f"The outcome was not reported in time. The last message: {error.message}", advice=_START)
        await asyncio.sleep(pause)


# ---- answers of a server, which are untrusted


def _error_of(status: int, content: bytes, address: str) -> RemitError:
    problem: Any = {}
    with contextlib.suppress(ValueError):
        problem = from_json(content)
    given = problem if isinstance(problem, dict) else {}
    words = redact_text(str(given.get("detail") or f"{address} answered {status}.")[:_WORDS])
    advice, code = redact_text(str(given.get("advice") or "")[:_WORDS]), str(given.get("code") or "UNKNOWN_ERROR")[:100]
    if code in _FAULTY:
        details = given.get("details")
        return DelegateError(words, code=code, advice=advice, details=details if isinstance(details, dict) else {})
    if status in (429, 502, 503, 504):
        return _ConnectionLost(words, code=code if code != "UNKNOWN_ERROR" else None, advice=advice or _START)
    kinds: dict[str, type[RemitError]] = {"TASK_NOT_FOUND": Misused, "TOO_LARGE": Failed, "UNKNOWN_ERROR": Failed}
    return kinds.get(code, Refused)(words, code=code, advice=advice)


def _chunk_from(given: Any, number: int) -> Chunk:
    kind, data = ChunkType(given["type"]), given["data"]
    if kind in (ChunkType.COMPLETE, ChunkType.ERROR):
        if "result" not in data:  # the server stops
            raise _ConnectionLost(str(data["error"]["detail"])[:_WORDS])
        result = _result_from(data["result"])
        if not result.task_state.is_terminal:
            raise _ConnectionLost(f"The stream ended with a state that is not final: {result.task_state}.")
        return final_chunk(result, number)
    return Chunk(type=kind, task_id=str(given["taskId"]), data=dict(data), number=number)


def _result_from(given: Any) -> DelegateResult:
    """Raises `Failed`."""
    try:
        meta, error = given["metadata"], given["error"]
        completed_at = meta["completedAt"]
        return DelegateResult(
            success=given["success"] is True,
            task_id=given["taskId"],
            task_state=TaskState(given["taskState"]),
            data=given["data"],
            output=str(given["output"]),
            artifacts=tuple(Artifact(**{**one, "evidence": Evidence(one["evidence"])}) for one in given["artifacts"]),
            error=None if error is None else TaskError(**error),
            continue_with=given.get("continueWith"),
            metadata=TaskMetadata(
                agent_id=str(meta["agentId"]),
                created_at=_moment(meta["createdAt"]),
                completed_at=None if completed_at is None else _moment(completed_at),
                duration_ms=meta["duration"],
                status=meta["status"],
                stop_reason=meta["stopReason"],
            ),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Failed(f"The server answered with something else than a task: {type(error).__name__}: {error}"[:_WORDS]) from None


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _result_of(error: RemitError, agent: str, started_at: float, task_id: str | None) -> DelegateResult:
    result = result_of_error(error, agent, started_at, time.time(), task_id)
    if isinstance(error, _NoAnswer) and task_id is not None and result.error is not None:
        return replace(result, task_state=TaskState.TIMEOUT, error=replace(result.error, code="TASK_TIMEOUT"))
    return result
