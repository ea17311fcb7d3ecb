"""Worker processes for checks whose agents are closures: a worker runs the delegation, and the agent's code runs in the test process.

Run as a program, it is the fork server of the workers: `remit` and `temporalio` are imported once for all of them.
"""

import asyncio
import base64
import contextlib
import itertools
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from remit import AgentDefinition, AgentPort, AgentSpec, Context, FunctionAgent, Isolation, Remit, RemitError, Stopped
from remit.agents.remote_context import ContextService, RemoteBackend
from remit.agents.rpc import Connection, Handler
from remit.agents.thread import ThreadAgent
from remit.core.jsonable import to_jsonable
from support.network import enter

START_SECONDS = 60.0


class _InWorker(Handler):
    """Serves the context of one delegation; without a service it learns the caller's definitions."""

    def __init__(self, service: ContextService | None = None, define: Callable[[AgentDefinition], None] = lambda _: None) -> None:
        self._service, self._define = service, define
        self.connection = Connection(self, asyncio.create_task)

    async def answer(self, name: str, body: dict[str, Any]) -> Any:
        assert self._service is not None
        return await self._service.answer(name, body)

    def take(self, name: str, body: dict[str, Any]) -> None:
        if self._service is None:
            self._define(pickle.loads(base64.b64decode(body["definition"])))
        else:
            self._service.take(name, body)


class _InTest(Handler):
    """Runs the agents of a check."""

    def __init__(self, agents: dict[str, AgentPort]) -> None:
        self._agents = agents
        self.connection = Connection(self, asyncio.create_task)
        self._backend: RemoteBackend | None = None

    async def answer(self, name: str, body: dict[str, Any]) -> Any:
        agent = self._agents[body["agent"]]
        backend = self._backend = RemoteBackend(self.connection.calls, body["facts"])
        arguments = agent.check(body["facts"]["delegation"]["parameters"])
        try:
            return to_jsonable(await agent.perform(backend.context(), arguments))
        finally:
            # The last output is sent in message order: this call is answered after the output is taken.
            with contextlib.suppress(RemitError):
                await asyncio.shield(self.connection.calls.call("permitted", {"paths": []}))

    def refused(self, error: RemitError) -> None:
        if self._backend is not None:
            self._backend.refuse(error)


class BridgedAgent:
    """Forwards the context of a delegation to the test process and the agent's actions back."""

    def __init__(self, spec: AgentSpec, socket: str, local: AgentPort | None = None) -> None:
        self.spec = spec
        self._socket = socket
        self._local = local

    def check(self, parameters: dict[str, Any]) -> dict[str, Any]:
        return parameters if self._local is None else self._local.check(parameters)

    async def perform(self, ctx: Context, arguments: dict[str, Any]) -> Any:
        backend = ctx.backend
        handler = _InWorker(ContextService(backend))
        await asyncio.get_running_loop().create_unix_connection(lambda: handler.connection, self._socket)
        answers = {"scratch": str(backend.scratch()), "budget": backend.budget().to_dict()}
        body = {"agent": self.spec.name, "facts": backend.facts().to_dict() | answers}
        number, future = handler.connection.calls.begin("perform", body)
        answer = asyncio.wrap_future(future)
        is_cancelled = False
        try:
            while True:
                try:
                    return await asyncio.shield(answer)
                except asyncio.CancelledError:  # as inline: the agent may continue or still return an answer
                    is_cancelled = True
                    handler.connection.calls.cancel(number)
                except Stopped:
                    if is_cancelled:
                        raise asyncio.CancelledError from None
                    raise
        finally:
            handler.connection.cut()


class AgentServer:
    """Runs the agents of a check for worker processes."""

    def __init__(self, folder: str, agents: Sequence[Any]) -> None:
        """`folder`: needs a short path because of the socket length limit."""
        self._agents = {one.spec.name: self._executor(one) for one in agents}
        self._connections: list[Connection] = []
        self.socket = f"{folder}/{os.urandom(4).hex()}"

    @staticmethod
    def _executor(one: Any) -> AgentPort:
        return ThreadAgent(one, 0.5) if isinstance(one, FunctionAgent) and one.spec.isolation is Isolation.THREAD else one

    @property
    def specs(self) -> tuple[AgentSpec, ...]:
        return tuple(one.spec for one in self._agents.values())

    def bridged(self) -> list[BridgedAgent]:
        """Agents for the caller, which delegates to them and runs none."""
        return [BridgedAgent(one.spec, self.socket, one) for one in self._agents.values()]

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(self._connected, self.socket)
        try:
            yield
        finally:
            server.close()

    def _connected(self) -> Connection:
        handler = _InTest(self._agents)
        self._connections.append(handler.connection)
        return handler.connection

    @property
    def connected(self) -> int:
        return len(self._connections)

    def define(self, definition: AgentDefinition) -> None:
        """Send the caller's definitions to every worker."""
        for connection in self._connections:
            connection.calls.notify("define", {"definition": base64.b64encode(pickle.dumps(definition)).decode()})


# ---- processes


@dataclass(frozen=True)
class _Order:
    """Request to fork a worker process."""

    root: str
    settings: dict[str, Any]
    ready: str
    """File that the worker creates when it accepts work."""
    environment: dict[str, str]
    specs: tuple[AgentSpec, ...] = ()
    socket: str = ""
    serves: tuple[str, ...] | None = None
    clock_offset: float = 0.0
    host: str = ""
    """A namespace of `support.network`."""


@dataclass(frozen=True)
class WorkerProcess:
    pid: int
    _ready: Path

    @property
    def is_ready(self) -> bool:
        return self._ready.exists()

    async def wait_ready(self) -> None:
        end = time.monotonic() + START_SECONDS
        while not self.is_ready:
            assert time.monotonic() < end, "a worker process did not start"
            await asyncio.sleep(0.005)

    def send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)


class WorkerForks:
    """Starts worker processes within milliseconds."""

    def __init__(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        words = [sys.executable, "-m", "support.worker_processes"]
        self._server = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        self._numbers = itertools.count(1)
        self._folder = TemporaryDirectory(prefix="remit-ready-")

    def start(self, root: Path, settings: dict[str, Any], **more: Any) -> "WorkerProcess":
        """`more`: fields of `_Order`."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        ready = Path(self._folder.name) / str(next(self._numbers))
        order = pickle.dumps(_Order(str(root), settings, str(ready), dict(os.environ), **more))
        self._server.stdin.write(base64.b64encode(order).decode() + "\n")
        self._server.stdin.flush()
        return WorkerProcess(int(self._server.stdout.readline()), ready)

    def close(self) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait(timeout=30)
        self._folder.cleanup()


async def _work(order: _Order) -> None:
    bridged = [BridgedAgent(spec, order.socket) for spec in order.specs]
    if order.clock_offset:
        real = time.time
        time.time = lambda: real() + order.clock_offset
    async with Remit.open(order.root, agents=bridged, settings=order.settings, is_worker=True) as remit:
        await remit.work(order.serves)
        if order.socket:
            told = _InWorker(define=remit.directory.define)
            await asyncio.get_running_loop().create_unix_connection(lambda: told.connection, order.socket)
        await asyncio.to_thread(Path(order.ready).touch)
        await asyncio.Event().wait()


def _serve() -> None:
    """Serve until stdin ends, then kill all remaining workers."""
    import remit.engines.temporal.engine
    import remit.engines.temporal.worker  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.setpgid(0, 0)
    for line in sys.stdin:
        order = pickle.loads(base64.b64decode(line))
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.close(0)
            os.dup2(2, 1)
            os.environ.update(order.environment)
            if order.host:
                enter(order.host)
            asyncio.run(_work(order))
        print(pid, flush=True)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    _serve()
