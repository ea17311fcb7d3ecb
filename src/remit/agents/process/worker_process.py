"""The fork server of Python agents, and the workers that it forks: each performs one agent and ends.

The fork server is a clean interpreter without threads. Beside the orders of `fork_server` it takes
  fork   descriptors of a worker's channel and of its supervisor's link come along: fork both
  grow   a control socket comes along: fork a second fork server that imports the agents' modules and then serves there
Agents' modules are never imported in the first one, so that a module that breaks or hangs at import cannot break it.

An async function gets `Context` on a loop of its own. A sync one runs on the main thread, so that it can be interrupted, and gets
`BlockingContext`. SIGTERM cancels the one and raises `Stopped` in the other: time to save what there is.
"""

import asyncio
import contextlib
import gc
import inspect
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from remit.agents.process import fork_server
from remit.agents.process.fork_server import ForkServer
from remit.agents.process.supervisor import Supervisor
from remit.agents.process.target import Target
from remit.agents.remote_context import RemoteBackend, facts_reader
from remit.agents.rpc import Calls, error_from_wire, error_to_wire
from remit.core.agents import AgentSpec
from remit.core.context import BlockingContext, Context, forgotten_await
from remit.core.errors import Stopped
from remit.core.jsonable import to_jsonable
from remit.system.frames import encode_frame, receive_frame, send_frame
from remit.system.interpreter import BASIC, TOOLCHAINS, drop_unlisted
from remit.system.processes import adopt_orphans, die_with_parent, write_mark

BROKEN = 70
"""Exit code of a worker that could not report."""

# ---- the fork server


class AgentForkServer(ForkServer):
    def execute(self, order: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        match order["op"]:
            case "fork":
                return self.report(self.fork(lambda: self._supervise(fds[0], fds[1], order)))
            case "grow":
                return {"pid": self.fork(lambda: self._grow(fds[0], order["mark"]))}
        return super().execute(order, fds)

    def _supervise(self, channel: int, link: int, order: dict[str, Any]) -> None:
        alarm = self.become_supervisor(order)
        stdout, stderr = os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)
        supervisor = os.getpid()
        pid = os.fork()
        if pid == 0:
            unneeded = [*alarm, link, stdout[0], stderr[0], *([] if self.owner is None else [self.owner])]
            _become_worker(supervisor, channel, (stdout[1], stderr[1]), unneeded)
        for fd in (channel, stdout[1], stderr[1]):
            os.close(fd)
        for fd in (stdout[0], stderr[0]):
            os.set_blocking(fd, False)
        sock = socket.socket(fileno=link)
        sock.setblocking(False)
        Supervisor(link=sock, worker=pid, owner=self.owner, alarm=alarm[0], stdout=stdout[0], stderr=stderr[0]).run()

    def _grow(self, control: int, mark: str) -> None:
        self.close_inherited()
        write_mark(self.mark_address, mark)
        adopt_orphans()
        sock = socket.socket(fileno=control)
        plan = receive_frame(sock)
        if plan is None:
            return
        failures = _import_ahead(plan)
        grown = AgentForkServer(sock, self.owner, self.mark_address)
        send_frame(sock, {"ready": True, "failures": failures})
        grown.serve()


def _import_ahead(plan: Mapping[str, Any]) -> dict[str, str]:
    """Import the agents' modules. Returns the failures and their reasons."""
    _use_import_paths(plan)
    failures = {}
    for wire in plan["targets"]:
        target = Target.from_wire(wire)
        try:
            target.load_module()
        except BaseException as error:  # noqa: BLE001 - an agent's module may raise anything at import; its worker reports it
            failures[str(target)] = f"{type(error).__name__}: {error}"
    gc.collect()
    gc.freeze()
    return failures


def _use_import_paths(plan: Mapping[str, Any]) -> None:
    """Use the import paths of the Remit process."""
    sys.path[:] = plan["sys_path"]
    with contextlib.suppress(OSError):
        os.chdir(plan["folder"])


def _become_worker(supervisor: int, channel: int, outputs: tuple[int, int], unneeded: list[int]) -> NoReturn:
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.setsid()
        die_with_parent(supervisor)
        os.dup2(outputs[0], 1)
        os.dup2(outputs[1], 2)
        for fd in (*unneeded, *outputs):
            os.close(fd)
        Worker(socket.socket(fileno=channel)).run()
    finally:
        os._exit(BROKEN)


def main() -> None:
    fork_server.main(AgentForkServer, _load_pydantic)


def _load_pydantic() -> None:
    """pydantic imports most of itself on first use."""
    _agent_of(_rehearsal).check({"word": ""})
    facts_reader()


def _rehearsal(ctx: BlockingContext, word: str = "") -> None: ...


# ---- the worker


class Worker:
    """The worker's end of its channel. A thread reads replies, so that any thread can wait for them, with or without a loop."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sending = threading.Lock()
        self._main_is_sending = False
        self._stop_after_sending = False
        self._calls = Calls(self._send, lambda: Stopped("The delegation is over: its Remit process has closed the connection."))
        job = receive_frame(sock)
        if job is None:
            os._exit(BROKEN)
        self._job = job

    def run(self) -> NoReturn:
        job = self._job["body"]
        try:
            _use_import_paths(job)
            if job["is_listed"]:
                drop_unlisted((*BASIC, *TOOLCHAINS))
            os.environ.update(job["environment"])
            os.environ.update(job["facts"]["environment"])
            found = Target.from_wire(job["target"]).load()
        except BaseException as error:  # noqa: BLE001 - an agent's module may raise anything at import; the caller gets it
            self._end({"error": error_to_wire(error, with_traceback=True, while_loading=True)})
        self._perform(found, job["facts"])

    def _perform(self, found: Any, facts: dict[str, Any]) -> NoReturn:
        try:
            agent = _agent_of(found)
            arguments = agent.check(facts["delegation"]["parameters"])
            context = self._open_context(facts) if agent.takes_context else None
            if inspect.iscoroutinefunction(agent.function):
                outcome = asyncio.run(self._run_async(agent, context, arguments))
            else:
                value = self._run_sync(agent.function, context, arguments)
                agent.check_result(value)
                outcome = {"value": to_jsonable(value)}
        except SystemExit as leaving:
            _leave(leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None))
        except BaseException as error:  # noqa: BLE001 - any exception of the agent is its outcome
            outcome = {"error": error_to_wire(error, with_traceback=True)}
        self._end(outcome)

    def _open_context(self, facts: Mapping[str, Any]) -> Context:
        backend = RemoteBackend(self._calls, facts)
        threading.Thread(target=self._read, args=(backend,), name="remit-channel", daemon=True).start()
        return backend.context()

    async def _run_async(self, agent: Any, context: Context | None, arguments: Mapping[str, Any]) -> Any:
        task = asyncio.ensure_future(agent.function(*([] if context is None else [context]), **arguments))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        try:
            value = await task
            if context is not None and context.unawaited:
                raise forgotten_await(context, agent.name)
            agent.check_result(value)
        except BaseException as error:  # noqa: BLE001 - as above
            if task.done() and not task.cancelled() and isinstance(leaving := task.exception(), SystemExit):
                raise leaving from None  # it ended the loop, which cancelled this task: that is what `error` reports
            self._end({"error": error_to_wire(error, with_traceback=True)})
        # Answered here: tasks that the function left behind must not delay the answer while the loop closes.
        self._end({"value": to_jsonable(value)})

    def _run_sync(self, function: Callable[..., Any], context: Context | None, arguments: Mapping[str, Any]) -> Any:
        signal.signal(signal.SIGTERM, self._stop)
        if context is None:
            return function(**arguments)
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, name="remit-loop", daemon=True).start()
        return function(BlockingContext(context, loop), **arguments)

    def _stop(self, *_: object) -> None:
        """SIGTERM, on the main thread. A partly sent frame would corrupt all that follow, so it is completed first."""
        self._stop_after_sending = self._main_is_sending
        if not self._main_is_sending:
            raise Stopped("The delegation is being stopped.")

    def _end(self, outcome: dict[str, Any]) -> NoReturn:
        """Send the outcome and exit at once, without waiting for threads and exit hooks of the agent."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        reply = {"k": "reply", "id": self._job["id"]}
        try:
            self._send(reply | outcome)
        except Exception as error:  # noqa: BLE001 - a value that is not JSON, or too large: reported instead of the value
            with contextlib.suppress(Exception):
                self._send(reply | {"error": error_to_wire(error, with_traceback=True)})
        _leave(0)

    def _send(self, message: dict[str, Any]) -> None:
        data = encode_frame(message)
        on_main = threading.current_thread() is threading.main_thread()
        self._main_is_sending = on_main or self._main_is_sending
        try:
            with self._sending:
                self._sock.sendall(data)
        except OSError as error:
            raise Stopped("The delegation is over: its Remit process has closed the connection.") from error
        finally:
            if on_main:
                self._main_is_sending = False
        if on_main and self._stop_after_sending:
            self._stop_after_sending = False
            raise Stopped("The delegation is being stopped.")

    def _read(self, backend: RemoteBackend) -> None:
        with contextlib.suppress(OSError):
            while (message := receive_frame(self._sock)) is not None:
                match message["k"]:
                    case "reply":
                        self._calls.take_reply(message)
                    case "refused":
                        backend.refuse(error_from_wire(message["error"]))
        self._calls.lose()


def _agent_of(found: Any) -> Any:
    """The agent. A plain function was declared elsewhere, `agent("name")(function)`: the rest is in its signature."""
    if hasattr(found, "check"):
        return found
    from remit.agents.function import FunctionAgent  # imported here, so that this package does not require it

    return FunctionAgent(found, AgentSpec(name=getattr(found, "__name__", "agent")))


def _leave(code: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)
