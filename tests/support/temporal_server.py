"""A real Temporal development server for tests, tuned so that it does not wait between polls of its single shard."""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROGRAM = Path(sys.executable).with_name("temporal")
TUNED = ("history.transferProcessorMaxPollRPS", "history.timerProcessorMaxPollRPS", "history.visibilityProcessorMaxPollRPS")
"""The development server polls its single shard 20 times a second, which costs 150 ms per delegation."""

NOTICES_LOST_MACHINES = ('frontend.keepAliveTime="1s"', 'frontend.keepAliveTimeout="1s"')
"""The server keeps polls of a machine that disappeared without closing its connections for 70 s by default, and gives work to them."""


def free_port() -> int:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listening:
        return int(listening.getsockname()[1])


@dataclass
class TemporalServer:
    """One server process; `database` preserves its state across a kill and restart."""

    port: int
    database: Path | None = None
    ip: str = "127.0.0.1"
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def listens(self) -> str:
        """Its services communicate through loopback, whatever address clients use."""
        return self.ip if self.ip == "127.0.0.1" else "0.0.0.0"

    @property
    def address(self) -> str:
        return f"{self.ip}:{self.port}"

    def start(self) -> None:
        chosen = [*(f"{key}=2000" for key in TUNED), *NOTICES_LOST_MACHINES]
        tuning = [word for value in chosen for word in ("--dynamic-config-value", value)]
        kept = [] if self.database is None else ["--db-filename", str(self.database)]
        words = [str(PROGRAM), "server", "start-dev", "--headless", "--ip", self.listens, "--port", str(self.port), "--log-level", "never"]
        environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/tmp")}
        self.process = subprocess.Popen([*words, *tuning, *kept], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)

    def wait_ready(self, seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while True:
            with contextlib.suppress(Exception):
                asyncio.run(asyncio.wait_for(self._answers(), 5))
                return
            assert time.monotonic() < end, "the Temporal server did not start"
            time.sleep(0.1)

    async def _answers(self) -> None:
        from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
        from temporalio.client import Client

        client = await Client.connect(self.address)
        await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace="default"))

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@contextlib.contextmanager
def temporal_server(database: Path | None = None) -> Iterator[TemporalServer]:
    server = TemporalServer(free_port(), database)
    server.start()
    try:
        server.wait_ready()
        yield server
    finally:
        server.kill()
