"""A project with agents and a `remit serve` process, ended by its pid."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import httpx

from support.server import ServerEntry, announced

AGENTS = """
import asyncio
from pathlib import Path
from remit import Context, agent

@agent("echo")
async def echo(ctx: Context, text: str) -> str:
    return text

@agent("slow", timeout=60)
async def slow(ctx: Context, seconds: float = 30.0) -> str:
    ctx.progress("begun")
    await asyncio.sleep(seconds)
    return "Slept well."

@agent("again", resumable=True, timeout=60)
async def again(ctx: Context) -> str:
    run = (ctx.saved or 0) + 1
    await ctx.checkpoint(run)
    if run == 1:
        ctx.progress("run 1")
        await asyncio.sleep(50)
    return f"Done in run {run}."
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    root: Path
    process: "subprocess.Popen[str]"
    at: ServerEntry
    stderr: IO[str]
    """Its stderr: a file, since an unread pipe would block it when full."""

    @property
    def token(self) -> str:
        assert self.at.token_file is not None
        return Path(self.at.token_file).read_text().strip()

    def http(self, token: str | None = None) -> httpx.Client:
        assert self.at.http is not None
        return httpx.Client(base_url=self.at.http, headers={"authorization": f"Bearer {token or self.token}"}, timeout=20)

    def begin(self, target: str, wait: float = 0.0, **parameters: Any) -> dict[str, Any]:
        with self.http() as http:
            answer = http.post("/v1/tasks", params={"wait": wait}, json={"target": target, "parameters": parameters})
            assert answer.status_code in (201, 202), answer.text
            return dict(answer.json())

    def send_signal(self, number: int = signal.SIGTERM) -> None:
        os.kill(self.process.pid, number)

    def wait(self, seconds: float = 20.0) -> tuple[int, str]:
        code = self.process.wait(seconds)
        return code, _all(self.stderr)


def project(root: Path) -> Path:
    (root / ".remit" / "agents").mkdir(parents=True, exist_ok=True)
    (root / ".remit" / "agents" / "some.py").write_text(AGENTS)
    return root


@contextlib.contextmanager
def serving(root: Path, *options: str, environment: dict[str, str] | None = None) -> Iterator[Server]:
    """Start a server and wait until it is ready; it is killed at the end of the test."""
    command = [sys.executable, "-m", "remit", "serve", "--root", str(root), "--http", "127.0.0.1:0", *options]
    with tempfile.TemporaryFile("w+") as stderr:
        process = subprocess.Popen(command, stderr=stderr, stdout=subprocess.DEVNULL, text=True, env={**os.environ, **(environment or {})})
        try:
            yield Server(root=root, process=process, at=_ready(process, root, stderr), stderr=stderr)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(10)


def _all(stderr: IO[str]) -> str:
    stderr.seek(0)
    return stderr.read()


def _ready(process: "subprocess.Popen[str]", root: Path, stderr: IO[str]) -> ServerEntry:
    give_up = time.monotonic() + 120
    while time.monotonic() < give_up:
        found = announced(root / ".remit" / "run")
        if found is not None and found.pid == process.pid:
            return found
        if process.poll() is not None:
            raise AssertionError(f"the server ended: {_all(stderr)}")
        time.sleep(0.02)
    raise AssertionError("the server did not get ready")
