"""The JavaScript remote agent of docs/examples, run by node."""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from remote_agent_harness import remote_agent_harness

from support.pace import until

ROOT = Path(__file__).parents[2]
MODULES = ROOT / ".tools" / "node_modules"

pytestmark = pytest.mark.skipif(
    shutil.which("node") is None or not (MODULES / "@grpc" / "grpc-js").is_dir(), reason="node or its gRPC is not installed: make tools"
)


@pytest.fixture
async def started(tmp_path: Path) -> AsyncIterator[Callable[[str], "asyncio.Future[asyncio.subprocess.Process]"]]:
    """Starts the agent and waits until it is registered."""
    (tmp_path / "node_modules").symlink_to(MODULES)
    program = shutil.copy(ROOT / "docs" / "examples" / "remote_agent.mjs", tmp_path)
    environment = {**os.environ, "REMIT_PROTO": str(ROOT / "src" / "remit" / "agents" / "proto" / "v1" / "tasks.proto")}
    running: list[asyncio.subprocess.Process] = []

    async def start(address: str, token: str = "") -> asyncio.subprocess.Process:
        variables = {**environment, "REMIT_TOKEN": token}
        process = await asyncio.create_subprocess_exec("node", program, address, env=variables, stdout=asyncio.subprocess.PIPE)
        running.append(process)
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), 30)
        assert line.startswith(b"registered as agent_"), line
        return process

    yield start  # type: ignore[misc]
    for process in running:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_remote_agent_works_is_killed_and_replaced(tmp_path: Path, started) -> None:  # type: ignore[no-untyped-def]
    async with remote_agent_harness(tmp_path / "project") as harness:
        remit = harness.remit
        first = await started(harness.address)
        returned = await remit.delegate("words.count", parameters={"text": "one two three"}, timeout=20)
        assert returned.unwrap() == {"words": 3, "by": first.pid}
        messages = [event.body["message"] for event in await remit.events(returned.session_id) if event.kind == "progress"]
        assert messages == ["counted one", "counted two", "counted three"]

        handle = await remit.start("words.count", parameters={"text": "a b c", "delay_ms": 300}, timeout=30)
        async with asyncio.timeout(10):
            async for event in remit.follow(handle.session_id):
                if event.kind == "progress":
                    break
        first.send_signal(signal.SIGKILL)
        second = await started(harness.address)
        assert (await asyncio.wait_for(handle.result(), 20)).errors[0].code == "AGENT_UNAVAILABLE"
        assert (await remit.delegate("words.count", parameters={"text": "a"}, timeout=20)).unwrap() == {"words": 1, "by": second.pid}

        # At its soft deadline it returns a partial count.
        early = await remit.delegate("words.count", parameters={"text": "w " * 100, "delay_ms": 50}, timeout=2)
        assert early.status == "completed"
        assert 0 < early.unwrap()["words"] < 100

        second.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(second.wait(), 10) == 0
        await until(lambda: remit.directory.find("words.count") is None)  # the first one has a grace period
