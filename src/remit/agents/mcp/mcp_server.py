"""One external MCP server of a runtime: started on its first call, shared by all delegations, restarted with back-off, killed with the
runtime.

The process pool starts it, so its whole process tree dies with it, and it can be contained like any command. A call is sent once: a server
that dies during the call may have done the work, so only its caller can decide to repeat it. One task enters and leaves the contexts of the
protocol library; calls run in their own tasks, which a stopped delegation leaves behind."""

import asyncio
import contextlib
import os
import re
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    Implementation,
    ToolListChangedNotification,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from remit.agents.command import StarterDeps, approved_files, exit_words, programs_of
from remit.agents.definition import Definition, ServerTool
from remit.agents.process.command_process import CommandProcess, Program
from remit.agents.remote import must_be_private, token_for
from remit.core.errors import AgentCrashed, Failed, Misused, Refused, RemitError, Stopped, Unavailable
from remit.core.text import one_line
from remit.system.files import cache_folder, private_folder
from remit.system.http import EVENT_BYTES, PLAIN, bound_by, parse_target, tls_context
from remit.system.interpreter import BASIC, listed_environment
from remit.system.mcp_servers import LARGEST_LIST, MOST_TOOLS, SeenTools, note_tools, seen_tools, tool_digest, tool_list_text
from remit.system.threads import off_loop
from remit.system.trust import ADVICE, CODE, references_of

if TYPE_CHECKING:
    from remit.core.context import Context
    from remit.system.trust import ProjectTrust

START_SECONDS = 60.0
"""Time limit from its start to its tool list."""
LIST_SECONDS = 60.0
"""An older tool list is refreshed before a call."""
PROBE_SECONDS = 2.0
"""Time limit for a sign of life after an abandoned call."""
CANCEL_SECONDS = 0.15
"""Time limit to send the cancellation of a call before a stopped delegation continues."""
LAST_WORDS_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
_FIRST_PAUSE_SECONDS = 0.2
FLOOD_LINES, FLOOD_SECONDS = 20_000, 20.0
"""More lines in this time than any tool needs."""
PROGRESS_SECONDS = 0.1
PAGES = 50
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def expand(text: str, whose: str) -> str:
    """Expand environment variables: `${NAME}`, `${NAME:-default}`. Raises `Unavailable`."""

    def value(found: re.Match[str]) -> str:
        set_to = os.environ.get(found[1], found[2])
        if set_to is None:
            raise Unavailable(f"The MCP server {whose} needs the variable {found[1]}, which is not set.", advice=f"export {found[1]}=…")
        return set_to

    return _VARIABLE.sub(value, text)


# ---- one connection


@dataclass(slots=True)
class Connection:
    """A connected server."""

    ended: asyncio.Event
    client: Client = field(init=False)
    tools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    listed_at: float = 0.0
    is_suspect: bool = False
    """A call was abandoned: it may hang."""

    async def hear(self, message: object) -> None:
        """Notifications of the server."""
        if isinstance(message, ToolListChangedNotification):
            self.listed_at = float("-inf")
        await asyncio.sleep(0)

    async def list_tools(self, key: str) -> None:
        """Request its tools. New ones are stored for a person's approval."""
        found: list[Mapping[str, Any]] = []
        cursor: str | None = None
        for _ in range(PAGES):
            page = await self.client.list_tools(cursor=cursor, cache_mode="bypass")
            found += [tool.model_dump(by_alias=True, mode="json", exclude_none=True) for tool in page.tools]
            cursor = page.next_cursor
            if cursor is None:
                break
        if cursor is not None or len(found) > MOST_TOOLS:
            raise Failed(f"it offers more than {MOST_TOOLS} tools")
        text = tool_list_text(found)
        if len(text) > LARGEST_LIST:
            raise Failed(f"its list of tools is larger than {LARGEST_LIST // 1024} KiB")
        self.tools, self.listed_at = {str(tool["name"]): tool for tool in found}, time.monotonic()
        if await off_loop(seen_tools, key) != SeenTools(text=text):
            await off_loop(note_tools, key, SeenTools(text=text))


class ServerProcessContext:
    """Owner of a server's process for the process pool and the container: not a delegation, because it outlives each."""

    def __init__(self, name: str, root: Path, calls: "Mapping[asyncio.Task[Any], Context]") -> None:
        self._calls = calls
        self.session_id = f"mcp.{name}"
        self.depth = 0
        self.workspace = root
        self.backend = self

    @property
    def scratch(self) -> Path:
        return private_folder(cache_folder() / "mcp" / self.session_id)

    def abandoned(self, _why: str) -> Callable[[], None]:
        return lambda: None

    def progress(self, message: str, fraction: float | None = None) -> None:
        for ctx in self._calls.values():
            with contextlib.suppress(Stopped):
                ctx.progress(message, fraction)

    async def permit(self, action: str = "", /, **facts: Any) -> None:
        """Ask the policy on behalf of a delegation that waits for this server; between calls only the list of hosts applies."""
        if self._calls:
            await list(self._calls.values())[-1].permit(action, **facts)


# ---- the server


class ServerDeps(StarterDeps, Protocol):
    """What a server needs of its project."""

    @property
    def trust(self) -> "ProjectTrust | None": ...


class McpServer:
    def __init__(self, definition: Definition, deps: ServerDeps, files: Mapping[str, str] | None = None) -> None:
        assert definition.mcp is not None
        self.name = definition.mcp.server
        self._definition = definition
        self._key = definition.mcp.key
        self._deps = deps
        self._calls: dict[asyncio.Task[Any], Context] = {}
        """Calls in progress."""
        self._context = ServerProcessContext(self.name, deps.root, self._calls)
        self._files = approved_files(definition, deps.root, deps.trust) if files is None else files
        """Approved project files that its command names."""
        self._connection: Connection | None = None
        self._starting: asyncio.Task[Connection] | None = None
        self._probing: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failures = 0
        """Failures since the last answered call."""
        self._not_before = 0.0
        self._fault: RemitError | None = None
        """Why it last ended or did not start."""
        self._is_closed = False
        self._advice = "Check its address." if definition.address else "Run its command by hand, and see its log."

    async def describe(self) -> None:
        """Start it and store its tool list. Raises its fault."""
        await self._connect(START_SECONDS)

    async def call(self, tool: ServerTool, arguments: Mapping[str, Any], ctx: "Context") -> CallToolResult:
        """The tool's answer. Raises `AgentCrashed`, `Unavailable`, `Refused`, `Failed`."""
        connection = await self._connect(ctx.remaining)
        try:
            await self._check_offered(connection, tool)
        except asyncio.CancelledError:  # it did not answer within the time of the call
            self._suspect(connection)
            raise
        request = CallToolRequest(params=CallToolRequestParams(name=tool.tool, arguments=dict(arguments)))
        task = self._start_task(connection.client.session.send_request(request, CallToolResult, progress_callback=_progress_of(ctx)))
        self._calls[task] = ctx
        try:
            await asyncio.wait({task})
        finally:
            if is_left := not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=CANCEL_SECONDS)
            del self._calls[task]
            if is_left or connection.is_suspect:
                self._suspect(connection)
        return await self._answer(connection, task, tool)

    async def close(self) -> None:
        """It and all its descendants are dead when this returns."""
        self._is_closed = True
        if self._connection is not None:
            self._connection.ended.set()
        while waiting := {task for task in self._tasks if not task.done()}:
            done, _ = await asyncio.wait(waiting, timeout=LAST_WORDS_SECONDS)
            if not done:
                for task in waiting:
                    task.cancel()

    def _start_task(self, coroutine: Awaitable[Any]) -> "asyncio.Task[Any]":
        task: asyncio.Task[Any] = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    # ---- calls

    async def _check_offered(self, connection: Connection, tool: ServerTool) -> None:
        if time.monotonic() - connection.listed_at > LIST_SECONDS:
            with contextlib.suppress(MCPError, ValidationError):  # the call reports the fault
                await connection.list_tools(self._key)
        offered = connection.tools.get(tool.tool)
        if offered is None:
            raise Unavailable(
                f"The MCP server {self.name} does not offer the tool {tool.tool} any more.", advice="`remit agents` lists what it offers."
            )
        if tool.digest and tool_digest(offered) != tool.digest:
            raise Refused(f"The tool {tool.tool} of the MCP server {self.name} changed since it was approved.", code=CODE, advice=ADVICE)

    async def _answer(self, connection: Connection, task: "asyncio.Task[CallToolResult]", tool: ServerTool) -> CallToolResult:
        try:
            result = task.result()
        except MCPError as error:
            if error.code != CONNECTION_CLOSED and not connection.ended.is_set():
                self._failures = 0
                raise Failed(f"{self.name} refused the call of {tool.tool}: {one_line(error.message, 700)}") from None
            raise await self._ended_words(connection) from None
        except (ValidationError, ValueError) as error:
            raise Failed(f"{self.name} answered the call of {tool.tool} against the protocol: {str(error)[:500]}") from None
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, asyncio.CancelledError, RuntimeError):
            raise await self._ended_words(connection) from None
        self._failures = 0
        return result

    async def _ended_words(self, connection: Connection) -> RemitError:
        """Why a connection ended during a call. The work may have been done."""
        connection.ended.set()
        if self._connection is connection:
            self._connection = None
        if running := {task for task in self._tasks if task.get_name() == self._context.session_id and not task.done()}:
            await asyncio.wait(running, timeout=LAST_WORDS_SECONDS)
        fault = self._fault
        stderr = fault.stderr_tail if isinstance(fault, AgentCrashed) else ""
        return AgentCrashed(
            f"The MCP server {self.name} ended during the call{f': {fault.message}' if fault else '.'}",
            stderr_tail=stderr,
            advice="The call is not repeated, because it may have been carried out. Look at what it did, then delegate it again.",
        )

    def _suspect(self, connection: Connection) -> None:
        """After an abandoned call, check for a sign of life once no other call is running."""
        connection.is_suspect = True
        if not self._calls:
            self._probing = self._start_task(self._probe(connection))

    async def _probe(self, connection: Connection) -> None:
        """After an abandoned call: kill a server that does not answer; the next call restarts it. Calls wait for this."""
        connection.is_suspect = False
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await connection.list_tools(self._key)
        except (TimeoutError, MCPError, RemitError, ValidationError, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._fault = Unavailable(f"The MCP server {self.name} stopped answering and was killed.")
            connection.ended.set()

    # ---- starting

    async def _connect(self, seconds: float) -> Connection:
        """The server, started if necessary. `seconds`: the caller's remaining time."""
        while not self._is_closed:
            if self._probing is not None and not self._probing.done():
                await asyncio.wait({self._probing})
            connection = self._connection
            if connection is not None and not connection.ended.is_set():
                return connection
            if self._starting is None or self._starting.done():
                pause = self._not_before - time.monotonic()
                if pause > seconds:
                    raise self._fault or Unavailable(f"The MCP server {self.name} is started again in {pause:.0f} s.")
                if pause > 0:
                    await asyncio.sleep(pause)
                    continue
                self._starting = self._start_task(self._start())
            await asyncio.wait({self._starting})
            if self._starting.cancelled():
                break
            self._connection = self._starting.result()
            if self._connection.ended.is_set():  # it died at once: the back-off decides when it is retried
                self._connection = None
        raise Unavailable(f"The MCP server {self.name} is closed.")

    async def _start(self) -> Connection:
        opened: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        running = self._start_task(self._run(opened))
        running.set_name(self._context.session_id)
        await asyncio.wait({running, opened}, return_when=asyncio.FIRST_COMPLETED)
        if opened.done():
            return opened.result()
        raise self._fault or Unavailable(f"The MCP server {self.name} ended at once.")

    async def _run(self, opened: "asyncio.Future[Connection]") -> None:
        """The whole life of a connection: this task enters and leaves every context of the library."""
        ended = asyncio.Event()
        fault: RemitError | None = None
        self._fault = None
        try:
            async with contextlib.AsyncExitStack() as stack:
                transport = await self._transport(stack, ended)
                connection = Connection(ended)
                client = Client(
                    transport, cache=None, message_handler=connection.hear, client_info=Implementation(name="remit", version="1")
                )
                async with asyncio.timeout(START_SECONDS):
                    connection.client = await stack.enter_async_context(client)
                    await connection.list_tools(self._key)
                opened.set_result(connection)
                await ended.wait()
        except TimeoutError:
            fault = Unavailable(f"The MCP server {self.name} did not start within {START_SECONDS:g} s.", advice="Run its command by hand.")
        except RemitError as error:
            fault = error
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError):
                raise
            fault = Unavailable(f"The MCP server {self.name} cannot be used: {_words_of(error)}", advice=self._advice)
        finally:
            ended.set()
            if not self._is_closed:
                self._note_end(fault)

    def _note_end(self, fault: RemitError | None) -> None:
        """`fault`: as seen by the library; why its process ended says more."""
        if isinstance(fault, Unavailable) and isinstance(ended := self._fault, AgentCrashed):
            words = " ".join(filter(None, (ended.message, one_line(ended.stderr_tail, 500))))
            fault = Unavailable(f"The MCP server {self.name} cannot be used: {words}", advice=ended.advice)
        self._fault = fault or self._fault
        self._failures += 1
        pause = min(_FIRST_PAUSE_SECONDS * 2 ** min(self._failures - 2, 10), LONGEST_PAUSE_SECONDS) if self._failures > 1 else 0.0
        self._not_before = time.monotonic() + pause

    # ---- transports

    async def _transport(self, stack: contextlib.AsyncExitStack, ended: asyncio.Event) -> Any:
        if self._definition.address:
            http = await stack.enter_async_context(self._http_client())
            return streamable_http_client(expand(self._definition.address, self.name), http_client=http, max_sse_event_size=EVENT_BYTES)
        if self._files and await off_loop(references_of, self._files, self._deps.root) != self._files:
            fault = f"A file that the MCP server {self.name} runs changed since the project was opened: {', '.join(self._files)}."
            raise Refused(fault, code=CODE, advice=f"{ADVICE}; then open the project again.")
        spawned = await stack.enter_async_context(programs_of(self._definition, self._deps).spawn(self._program(), self._context))
        stack.push_async_callback(self._note_exit, spawned)
        return _stdio(spawned, ended, self._note_flood)

    def _program(self) -> Program:
        definition, name = self._definition, self.name
        folder = self._deps.root / definition.folder
        if not folder.resolve().is_relative_to(self._deps.root.resolve()):
            raise Misused(f"The folder of {name}, {definition.folder}, is not inside the project.", advice="Name a folder below its root.")
        environment = {key: expand(value, name) for key, value in definition.environment.items()}
        return Program(
            argv=tuple(expand(word, name) for word in definition.command),
            environment={**listed_environment((*BASIC, *definition.pass_environment)), **environment},
            folder=folder,
            takes_input=True,
        )

    async def _note_exit(self, spawned: CommandProcess) -> None:
        """Before the kill: whether it ended by itself, and its output."""
        if self._is_closed:
            return
        await asyncio.wait([spawned.link.lost], timeout=0.1)
        code = (spawned.link.report or {}).get("exit") if spawned.link.lost.done() else None
        if isinstance(code, int):
            self._fault = AgentCrashed(f"it {exit_words(code)}.", exit_code=code, stderr_tail=spawned.stderr_tail(), advice=self._advice)

    def _note_flood(self, fault: str) -> None:
        self._fault = AgentCrashed(f"{fault}.", advice="Check that server.")

    def _http_client(self) -> httpx2.AsyncClient:
        mcp = self._definition.mcp
        assert mcp is not None
        headers = {key: expand(value, self.name) for key, value in mcp.headers.items()}
        if token := token_for(self._definition):
            headers["Authorization"] = f"Bearer {token}"
        target = parse_target(expand(self._definition.address, self.name))
        if headers:
            must_be_private(target)
        ca_file = self._definition.ca_file
        tls: ssl.SSLContext | bool = True
        if target.scheme == "https":
            tls = tls_context(None if ca_file is None else self._deps.root / ca_file, "ca_file")
        hooks = {"response": [bound_by(httpx2.AsyncByteStream)]}
        return httpx2.AsyncClient(
            verify=tls, headers={**PLAIN, **headers}, timeout=httpx2.Timeout(30.0, read=None), trust_env=False, event_hooks=hooks
        )


def _words_of(error: BaseException) -> str:
    """The first cause in an exception group."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return one_line(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__, 500) + "."


def _progress_of(ctx: "Context") -> ProgressFnT:
    """Forwards the progress of a call, at a readable rate."""
    last = 0.0

    async def forward(progress: float, total: float | None, message: str | None) -> None:
        nonlocal last
        if time.monotonic() - last >= PROGRESS_SECONDS:
            last = time.monotonic()
            words = message or (f"{progress:g} of {total:g}" if total else f"{progress:g}")
            with contextlib.suppress(Stopped):
                ctx.progress(one_line(words, 500), min(1.0, max(0.0, progress / total)) if total else None)

    return forward


# ---- standard input and output


@contextlib.asynccontextmanager
async def _stdio(spawned: CommandProcess, ended: asyncio.Event, note_flood: Callable[[str], None]) -> AsyncIterator[Any]:
    """The library's transport over the pipes of a process from the pool."""
    to_us, ours = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    theirs, to_them = anyio.create_memory_object_stream[SessionMessage](0)

    async def read() -> None:
        async with to_us:
            with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                async for message in _messages(spawned.stdout, note_flood):
                    await to_us.send(message)
        ended.set()

    async def write() -> None:
        assert spawned.stdin is not None
        async with to_them:
            with contextlib.suppress(OSError, RuntimeError):
                async for message in to_them:
                    data = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    spawned.stdin.write(data.encode() + b"\n")
                    await spawned.stdin.drain()
        ended.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        tasks.start_soon(write)
        try:
            yield ours, theirs
        finally:
            ours.close()
            theirs.close()
            tasks.cancel_scope.cancel()


async def _messages(stdout: asyncio.StreamReader, note_flood: Callable[[str], None]) -> AsyncIterator[SessionMessage]:
    """Messages of a server, within limits. Other lines are ignored: some servers print a greeting."""
    count, since = 0, time.monotonic()
    while True:
        try:
            line = await stdout.readline()
        except ValueError:
            note_flood("it sent a line of many megabytes, without end")
            return
        except ConnectionError:
            return
        if not line:
            return
        count += 1
        if count == FLOOD_LINES:
            if (took := time.monotonic() - since) < FLOOD_SECONDS:
                note_flood(f"it sent {count} lines in {took:.1f} s")
                return
            count, since = 0, time.monotonic()
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            continue
        yield SessionMessage(message)
