"""The pool of agent processes and commands: starts them through fork servers and kills them with all their descendants."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from remit.agents.process.command_process import AbandonmentNotes, CommandProcess, Program, ProgramContext, program_to_wire
from remit.agents.process.model_access import answer_questions
from remit.agents.process.target import Target
from remit.agents.process.worker_client import SupervisorLink, WorkerClient, wait_dead
from remit.agents.remote_context import ContextService
from remit.core.context import Context, ContextFacts
from remit.core.errors import Misused, RemitError, Unavailable
from remit.system.frames import FramingError, encode_frame, take_frames
from remit.system.interpreter import BASIC, NETWORK, TOOLCHAINS, agent_path, listed_environment
from remit.system.processes import FORK_SERVER, MARK, is_alive, kill_tree_async, marker, padded, process_start

if TYPE_CHECKING:
    from remit.models.questions import TextModel

# ---- fork servers

_START = """\
import gc, json, sys
gc.disable()
sys.path[:] = json.loads(sys.argv.pop(1))
from remit.agents.process.worker_process import main
main()
"""
_START_FOR_COMMANDS = """\
import json, sys, types
for name, path in json.loads(sys.argv.pop(1)):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = path
from remit.agents.process.fork_server import main
main()
"""
"""Packages without the imports of their `__init__`: submodules are then imported one by one on demand."""
_PACKAGES = ("remit", "remit.agents", "remit.agents.process", "remit.system")
_START_LIMIT = 20.0
_ORDER_LIMIT = 5.0
_PRELOAD_LIMIT = 120.0
_CLOSE_LIMIT = 1.0
_REAP_LIMIT = 0.5

log = logging.getLogger(__name__)


class ForkServerGone(Exception):
    """It died, or did not answer in time."""


class ForkServerClient:
    """A fork server as seen by the Remit process: one order at a time, each answered."""

    def __init__(self, control: socket.socket, pid: int, process: subprocess.Popen[bytes] | None) -> None:
        control.setblocking(False)
        self.pid = pid
        self._control = control
        self._started = process_start(pid)
        self._process = process
        self._order = asyncio.Lock()
        self.is_gone = False

    async def order(self, message: dict[str, Any], fds: Sequence[int] = ()) -> dict[str, Any]:
        """Must not be cancelled halfway: shield it, or the next order gets this answer."""
        async with self._order:
            if self.is_gone:
                raise ForkServerGone
            try:
                socket.send_fds(self._control, [encode_frame(message)], list(fds))
            except OSError:
                self.kill()
                raise ForkServerGone from None
            return await self.receive(_ORDER_LIMIT)

    async def receive(self, limit: float) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        buffer = bytearray()
        with contextlib.suppress(TimeoutError, OSError, FramingError):
            async with asyncio.timeout(limit):
                while data := await loop.sock_recv(self._control, 65536):
                    buffer += data
                    for message in take_frames(buffer):
                        return message
        self.kill()
        raise ForkServerGone

    def kill(self) -> None:
        """Its workers continue: each is watched by its own supervisor."""
        self.is_gone = True
        self._control.close()
        if is_alive(self.pid, self._started):
            with contextlib.suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)

    async def close(self) -> None:
        """It ends by itself when its control socket is closed."""
        self.is_gone = True
        self._control.close()
        if not await wait_dead(self.pid, _CLOSE_LIMIT):
            self.kill()
        await self.wait_reaped()

    async def wait_reaped(self) -> None:
        """After its end: a killed process stays a zombie until it is waited for."""
        await wait_dead(self.pid, _REAP_LIMIT)
        if self._process is not None:
            self._process.poll()


class ForkServers:
    """Started on first use and replaced when they die: a clean one, one with the agents' modules, one for commands."""

    def __init__(self, *, mark_prefix: str, passed: Sequence[str] | None = None) -> None:
        self._mark = f"{mark_prefix}{FORK_SERVER}"
        self._passed = passed
        self._servers: dict[str, ForkServerClient] = {}
        self._starting = {"clean": asyncio.Lock(), "commands": asyncio.Lock()}

    async def fork(self, order: dict[str, Any], fds: Sequence[int], *, is_command: bool = False) -> dict[str, Any]:
        """Fork a supervisor: with a worker (`fds`: its channel and link), or for a command that it receives over its link (`fds`: the link,
        then output and input of the command). Returns its pid and start."""
        for _ in range(3):  # the grown one, the clean one, a new one
            server = await (self.for_commands() if is_command else self._for_agents())
            try:
                answer = await server.order(order, fds)
            except ForkServerGone:
                continue
            if "pid" in answer:
                return answer
            raise Unavailable(f"No process could be started: {answer.get('error')}.", advice="Free processes or memory, try again.")
        raise Unavailable("No process could be started: the fork server dies each time.", advice="Try again; see the log.")

    async def for_commands(self) -> ForkServerClient:
        return await self._running("commands")

    async def _for_agents(self) -> ForkServerClient:
        grown = self._servers.get("grown")
        return grown if grown is not None and not grown.is_gone else await self._running("clean")

    async def _running(self, kind: str) -> ForkServerClient:
        async with self._starting[kind]:
            server = self._servers.get(kind)
            if server is None or server.is_gone:
                server = self._servers[kind] = await self._start(kind)
            return server

    async def sweep(self) -> None:
        """Kill orphans of killed supervisors that the fork servers adopted."""
        for server in list(self._servers.values()):
            if not server.is_gone:
                with contextlib.suppress(ForkServerGone):
                    await server.order({"op": "sweep"})

    async def preload(self, targets: Sequence[Target]) -> None:
        """Fork a fork server that imports the targets' modules."""
        clean = await self._running("clean")
        ours, theirs = socket.socketpair()
        try:
            answer = await asyncio.shield(clean.order({"op": "grow", "mark": self._mark}, [theirs.fileno()]))
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        if "pid" not in answer:
            ours.close()
            return
        grown = ForkServerClient(ours, int(answer["pid"]), None)
        try:
            plan = {"sys_path": agent_path(), "folder": os.getcwd(), "targets": [target.to_wire() for target in targets]}
            await asyncio.get_running_loop().sock_sendall(ours, encode_frame(plan))
            ready = await grown.receive(_PRELOAD_LIMIT)
        except BaseException:
            grown.kill()
            raise
        before, self._servers["grown"] = self._servers.get("grown"), grown
        if before is not None:
            await before.close()
        for name, why in ready.get("failures", {}).items():
            log.warning("The agent %s could not be loaded ahead: %s", name, why)

    async def close(self) -> None:
        servers, self._servers = self._servers, {}
        for kind in ("grown", "clean", "commands"):
            if kind in servers:
                await servers[kind].close()

    async def _start(self, kind: str) -> ForkServerClient:
        ours, theirs = socket.socketpair()
        process = _spawn(kind, theirs, self._mark, self._passed)
        server = ForkServerClient(ours, process.pid, process)
        assert process.stderr is not None
        try:
            await server.receive(_START_LIMIT)
        except ForkServerGone:
            await server.wait_reaped()
            words = process.stderr.read().decode(errors="replace").strip()
            raise Unavailable(
                f"The process that starts agents did not start: {words[-500:] or 'it printed nothing'}",
                advice="Check that this Python can import remit outside this program.",
            ) from None
        except BaseException:
            server.kill()
            await server.wait_reaped()
            raise
        finally:
            process.stderr.close()
        return server


def _spawn(kind: str, control: socket.socket, mark: str, passed: Sequence[str] | None) -> "subprocess.Popen[bytes]":
    if kind == "commands":
        packages = [(name, list(sys.modules[name].__path__)) for name in _PACKAGES]
        words, environment = ["-S", "-c", _START_FOR_COMMANDS, json.dumps(packages)], {MARK: padded(mark)}
    else:
        inherited = os.environ if passed is None else listed_environment((*BASIC, *TOOLCHAINS, *NETWORK, *passed))
        words, environment = ["-c", _START, json.dumps(agent_path())], {**inherited, MARK: padded(mark)}
    with control:
        return subprocess.Popen(
            [sys.executable, "-I", *words, str(control.fileno()), str(os.getpid())],
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[control.fileno()],
            start_new_session=True,
        )


# ---- the pool

TERM_GRACE_SECONDS = 0.25
_GONE_LIMIT = 3.0
"""Time for a supervisor to kill everything and report before it is bypassed; usually milliseconds."""
_WAIT_LIMIT = 0.2
"""After the grace period, how long a caller waits for all to be dead. The kill continues after that and is reported."""
_LEAVE_LIMIT = 1.0
"""Time for a worker to end by itself after its answer."""


class Job(NamedTuple):
    """The job of a worker."""

    target: dict[str, str]
    models: "TextModel | None" = None
    """Models it may use (`models_of`), called in the Remit process."""
    is_listed: bool = False
    """It gets no keys from the environment; otherwise it is the user's own code and sees this process's environment."""


class ProcessPool:
    def __init__(
        self,
        *,
        project: str,
        owner_id: str,
        term_grace: float = TERM_GRACE_SECONDS,
        environment: Mapping[str, str] | None = None,
        passed: Sequence[str] | None = None,
    ) -> None:
        """`environment` is added to the inherited one: settings that agents read. `passed`: of this process's variables, agents get those
        that every program needs and these; None: all."""
        self._environment = dict(environment or {})
        self._mark_prefix = marker(project, owner_id)
        self._term_grace = term_grace
        self._fork_servers = ForkServers(mark_prefix=self._mark_prefix, passed=passed)
        self._warming: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._processes: dict[WorkerClient | CommandProcess, str] = {}
        """Running processes and their delegations."""
        self._sys_path: tuple[list[str], list[str]] = ([], [])
        """The last known `sys.path` of this process, and the part that agents get."""
        self._is_closed = False

    def warm_up(self, targets: Sequence[Target], *, for_commands: bool = False) -> None:
        """Preload the targets' modules and the fork server for commands in the background. A repeated request runs after the first."""
        if not self._is_closed:
            self._warming = asyncio.create_task(self._warm_up(targets, for_commands, self._warming))

    async def wait_warm(self) -> None:
        if self._warming is not None:
            await asyncio.shield(self._warming)

    async def run(self, job: Job, ctx: Context) -> Any:
        backend = ctx.backend
        facts = backend.facts()

        def make_service() -> ContextService:
            return ContextService(backend, {"write": _no_model if job.models is None else answer_questions(ctx, job.models)})

        worker = WorkerClient(make_service)
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        working = self._own(self._work(worker, job, facts, answered))
        try:
            await answered
        except asyncio.CancelledError:
            worker.stop()
            await asyncio.wait([working], timeout=self._term_grace + _WAIT_LIMIT)
            raise
        finally:
            _report_abandoned(working, backend)
            if printed := worker.printed():
                backend.printed(printed)
        return worker.outcome()

    async def _work(self, worker: WorkerClient, job: Job, facts: ContextFacts, answered: "asyncio.Future[None]") -> None:
        """The whole life of a worker. The pool owns it: cancelling a caller interrupts neither start nor kill."""
        mark = self._register(worker, facts.delegation.lineage.session_id)
        failure: RemitError | None = None
        try:
            await self._fork(worker, mark, job, facts)
            await worker.wait_ended(_LEAVE_LIMIT)
        except RemitError as error:
            failure = error
        finally:
            patience = asyncio.get_running_loop().call_later(self._term_grace + _WAIT_LIMIT, _settle, answered, failure)
            await self._end(worker, mark)
            patience.cancel()
            _settle(answered, failure)

    async def contains(self) -> bool:
        return False

    @contextlib.asynccontextmanager
    async def spawn(self, program: Program, ctx: ProgramContext) -> AsyncIterator[CommandProcess]:
        """A running command. When the block ends, it and all its descendants are dead.

        Raises `Unavailable` if it cannot be started, and `Misused` if its arguments cannot be passed to a program."""
        backend, session_id = ctx.backend, ctx.session_id
        command = CommandProcess(program)
        mark = self._register(command, session_id)
        starting = self._own(self._launch(command, mark, session_id, program))
        try:
            await asyncio.shield(starting)
            await command.wait_begun()
            yield command
        finally:
            ending = self._own(self._end(command, mark, starting))
            await asyncio.wait([ending], timeout=self._term_grace + _WAIT_LIMIT)
            _report_abandoned(ending, backend)

    def stop_at_once(self, session_ids: Collection[str]) -> None:
        """Kill the processes of these delegations without grace; their waiters clean up."""
        for process, session_id in self._processes.items():
            if session_id in session_ids:
                process.order_stop(0.0)
                if process.link.pid is not None:
                    process.link.wake()

    async def close(self) -> None:
        """End everything; no process is left when this returns."""
        self._is_closed = True
        if self._warming is not None:
            self._warming.cancel()
            await asyncio.wait([self._warming])
        for process in self._processes:
            process.order_stop(0.0)
        while self._tasks:
            await asyncio.wait(self._tasks)
        await self._fork_servers.close()

    def _own(self, coroutine: Any) -> "asyncio.Task[Any]":
        task: asyncio.Task[Any] = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._disown)
        return task

    def _disown(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # raised where it is awaited; otherwise dropped

    async def _warm_up(self, targets: Sequence[Target], for_commands: bool, before: "asyncio.Task[None] | None") -> None:
        if before is not None:
            await before
        # Preloading is optional: without it workers import themselves and report faults.
        with contextlib.suppress(Unavailable, ForkServerGone):
            if for_commands:
                await self._fork_servers.for_commands()
            if targets:
                await self._fork_servers.preload(targets)

    def _register(self, process: WorkerClient | CommandProcess, session_id: str) -> str:
        """Register it and return the mark of its processes."""
        if self._is_closed:
            raise Misused("The process pool is closed.", advice="Open a new Remit.")
        self._processes[process] = session_id
        return f"{self._mark_prefix}{session_id}"

    async def _fork(self, worker: WorkerClient, mark: str, job: Job, facts: ContextFacts) -> None:
        if self._sys_path[0] != sys.path:
            self._sys_path = (list(sys.path), agent_path())
        message = {
            "target": job.target,
            "sys_path": self._sys_path[1],
            "folder": os.getcwd(),
            "environment": self._environment,
            "is_listed": job.is_listed,
            "facts": {**facts.to_dict(), "has_model": job.models is not None and job.models.is_configured()},
        }
        try:
            sockets = [*socket.socketpair(), *socket.socketpair()]
        except OSError as error:
            raise Unavailable(f"No process could be started: {error}.", advice="Raise the limit of open files.") from None
        channel, channel_end, link, link_end = sockets
        with channel_end, link_end:
            await worker.start(channel, link, message)
            order = {"op": "fork", "mark": mark, "session_id": self._processes[worker]}
            worker.link.set_supervisor(await self._fork_servers.fork(order, [channel_end.fileno(), link_end.fileno()]))

    async def _launch(self, command: CommandProcess, mark: str, session_id: str, program: Program) -> None:
        wire = program_to_wire(program, {MARK: mark})
        with contextlib.ExitStack() as theirs:
            fds = await command.open(theirs)
            command.link.send(encode_frame(wire))
            order = {"op": "exec", "mark": mark, "session_id": session_id}
            command.link.set_supervisor(await self._fork_servers.fork(order, fds, is_command=True))

    async def _end(self, process: WorkerClient | CommandProcess, mark: str, starting: "asyncio.Task[Any] | None" = None) -> None:
        """When this returns, the whole process tree is dead and every descriptor closed."""
        link = process.link
        if starting is not None:
            await asyncio.wait([starting])
        try:
            if link.pid is not None and not link.is_gone:
                process.order_stop(self._term_grace)
                link.wake()
                if not await link.wait_gone(self._term_grace + _GONE_LIMIT):
                    await self._kill_without_supervisor(link, mark)
            await link.wait_dead()
        finally:
            await process.close(limit=0.1)
            self._processes.pop(process, None)

    async def _kill_without_supervisor(self, link: SupervisorLink, mark: str) -> None:
        """The supervisor was killed or is stuck. Its worker died with it; the fork server adopted its orphans."""
        await kill_tree_async(link.pid, started=link.started, marker=mark, term_grace=0.0, limit=1.0)
        await self._fork_servers.sweep()


async def _no_model(**_: Any) -> Any:
    raise Unavailable("No model is available here.", code="TOOL_UNAVAILABLE", advice="Delegate to a model agent.")


def _settle(answered: "asyncio.Future[None]", failure: RemitError | None) -> None:
    if answered.done():
        return
    if failure is None:
        answered.set_result(None)
    else:
        answered.set_exception(failure)


def _report_abandoned(ending: "asyncio.Task[Any]", backend: AbandonmentNotes) -> None:
    if not ending.done():
        gone = backend.abandoned("its processes are still being killed")
        ending.add_done_callback(lambda _: gone())
