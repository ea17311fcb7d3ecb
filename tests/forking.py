"""Run Python programs as separate processes without their import time: a server process imports once and forks for each program.

Arguments, directory, environment, input, output and exit code equal those of `python PROGRAM …` and `python -m MODULE …`. Only the start
of the interpreter is skipped; tests of the start use `subprocess`. Used by tests that run `remit` or an example to completion.
"""

import atexit
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

LOADED = (
    *(
        "remit.cli.main",
        "remit.cli.project",
        "remit.cli.live",
        "remit.cli.results",
        "typer.rich_utils",
        "remit.app",
        "remit.policy.engine",
    ),
    *("remit.builtin.worker", "remit.builtin.coder", "remit.builtin.researcher", "remit.agents.coding.detect"),
    *("remit.agents.agent_files", "remit.agents.role_bindings", "remit.board", "remit.board.commits"),
)
"""What most of the commands import."""
AT_THE_START = ("PYTHON", "LANG", "LC_", "REMIT_")
"""Variables that are read as the interpreter starts, or from outside of the process, where only those are seen that it started with."""


STARTING = threading.Lock()
"""Several threads may ask at once; one of them starts it."""


def run(
    arguments: Sequence[str],
    folder: Path,
    *,
    stdin: str | None = None,
    timeout: float = 60.0,
    loaded: tuple[str, ...] = LOADED,
    **more: Any,
) -> "subprocess.CompletedProcess[str]":
    """Equivalent of `subprocess.run([sys.executable, *arguments], …)` with text output. Calls `subprocess.run` itself for additional
    options, and for environment variables that take effect at interpreter start."""
    environment: Mapping[str, str] = more.pop("env", None) or os.environ
    if more or _started_with(environment) != _started_with(os.environ) or _started_with(environment) != _server(loaded)[1]:
        more["env"] = dict(environment)
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=folder, input=stdin, capture_output=True, text=True, timeout=timeout, check=False, **more)
    asked = {"arguments": list(arguments), "folder": str(folder), "environment": dict(environment)}
    return _run(_server(loaded)[0], asked, stdin, timeout)


def _started_with(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(AT_THE_START)}


def _run(server: socket.socket, asked: dict[str, Any], stdin: str | None, timeout: float) -> "subprocess.CompletedProcess[str]":
    ours, theirs = socket.socketpair()
    pipes = [os.pipe() for _ in range(3)]
    (in_read, in_write), (out_read, out_write), (err_read, err_write) = pipes
    with ours:
        socket.send_fds(server, [b"!"], [theirs.fileno(), in_read, out_write, err_write])
        theirs.close()
        for end in (in_read, out_write, err_write):
            os.close(end)
        ours.sendall(json.dumps(asked).encode())
        ours.shutdown(socket.SHUT_WR)
        heard: dict[int, str] = {}
        readers = [threading.Thread(target=_read, args=(end, heard)) for end in (out_read, err_read)]
        for thread in (*readers, threading.Thread(target=_write, args=(in_write, stdin))):
            thread.start()
        code = _ended(ours, timeout, asked["arguments"])
    for thread in readers:
        thread.join()
    return subprocess.CompletedProcess(asked["arguments"], code, heard[out_read], heard[err_read])


def _ended(line: socket.socket, timeout: float, arguments: list[str]) -> int:
    answers = line.makefile("r")
    pid = int(answers.readline())
    line.settimeout(timeout)
    try:
        return int(answers.readline())
    except TimeoutError:
        os.kill(pid, signal.SIGKILL)
        raise subprocess.TimeoutExpired(arguments, timeout) from None


def _read(end: int, heard: dict[int, str]) -> None:
    with os.fdopen(end, "r", encoding="utf-8") as pipe:
        heard[end] = pipe.read()


def _write(end: int, text: str | None) -> None:
    with suppress(BrokenPipeError), os.fdopen(end, "w", encoding="utf-8") as pipe:  # the program may not read its input
        pipe.write(text or "")


def _server(loaded: tuple[str, ...]) -> tuple[socket.socket, dict[str, str]]:
    """One server per test process, which ends with it, and the environment that it started with."""
    with STARTING:
        return _started(loaded)


@cache
def _started(loaded: tuple[str, ...]) -> tuple[socket.socket, dict[str, str]]:
    ours, theirs = socket.socketpair()
    command = [sys.executable, __file__, str(theirs.fileno()), *loaded]
    pipe = subprocess.PIPE  # pipes, like those of the forked processes: the type of the streams is checked only at the start
    process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=pipe, stdout=pipe, stderr=pipe)
    theirs.close()
    atexit.register(lambda: (ours.close(), process.wait()))
    return ours, _started_with(os.environ)


# ---- code of the fork server


def _serve(control: socket.socket) -> dict[str, Any]:
    """Returns the request in each forked process; never returns in the server."""
    gc.freeze()  # keeps garbage collection from copying the pages of loaded modules
    signal.signal(signal.SIGCHLD, _reap)
    while True:
        _, ends, _, _ = socket.recv_fds(control, 1, 4)
        if not ends:
            os._exit(0)
        if os.fork() == 0:
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return _keep(ends)
        for end in ends:
            os.close(end)


def _reap(*_: Any) -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _keep(ends: list[int]) -> dict[str, Any]:
    """Report the pid and exit code of the program to the client; returns only in the program's process."""
    line = socket.socket(fileno=ends[0])
    asked: dict[str, Any] = json.load(line.makefile("r"))
    pid = os.fork()
    if pid == 0:
        line.close()
        for place, end in enumerate(ends[1:]):
            os.dup2(end, place)
            os.close(end)
        return asked
    for end in ends[1:]:
        os.close(end)
    line.sendall(f"{pid}\n".encode())
    _, status = os.waitpid(pid, 0)
    line.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _become(asked: dict[str, Any]) -> None:
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    first, *rest = asked["arguments"]
    if first == "-m":
        sys.path[0], sys.argv = asked["folder"], rest
        sys.modules.pop(rest[0], None)
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0], sys.argv = str(Path(first).parent), [first, *rest]
        runpy.run_path(first, run_name="__main__")


def _leave(code: Any) -> None:
    """Exit like the interpreter, but without tearing modules down, which would copy their pages."""
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit((code or 0) & 0xFF)


def _main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    for name in sys.argv[2:]:
        __import__(name)
    try:
        _become(_serve(control))
    except SystemExit as ended:
        _leave(ended.code)
    _leave(0)


if __name__ == "__main__":
    _main()
