"""`remit serve --engine temporal`: the server runs no agent; workers do, and every command sees them."""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest
from serve_harness import project, serving

from support import cli
from support.pace import wait_until
from support.temporal_server import TemporalServer
from support.worker_command import worker_command

pytestmark = pytest.mark.timeout(400)
WAITS = """
import asyncio
from remit import agent

@agent("waits", timeout=1000)
async def waits() -> None:
    await asyncio.sleep(1000)
"""


async def test_a_delegation_through_the_server_is_carried_out_by_a_worker_and_every_command_sees_it(
    temporal: TemporalServer, tmp_path: Path
) -> None:
    root = project(tmp_path)
    (root / ".remit" / "agents" / "more.py").write_text(WAITS)
    (root / "remit.toml").write_text(
        f'describe_seconds = 60\nbuiltin_agents = []\n[engine]\nkind = "temporal"\nproject = "served"\n'
        f'[engine.temporal]\naddress = "{temporal.address}"\n'
    )
    async with worker_command(root) as worker:

        def remit(*words: str) -> str:
            done = subprocess.run([*cli.COMMAND, *words, "--json"], cwd=root, capture_output=True, text=True, timeout=100, check=False)
            assert done.returncode == 0, done
            return done.stdout

        def through_server() -> None:
            with serving(root, "--engine", "temporal") as served, served.http() as http:
                echoed = served.begin("echo", wait=20, text="hello")
                assert "hello" in str(echoed)
                assert "hello" in remit("follow", str(echoed["taskId"]))
                session_id = str(served.begin("waits")["taskId"])
                wait_until(lambda: http.get(f"/v1/tasks/{session_id}").json()["taskState"] == "RUNNING")
                assert str(worker.pid) in remit("workers")
                for words in (["status"], ["show", session_id], ["history"]):
                    assert session_id in remit(*words)
                assert json.loads(remit("metrics"))["delegation.live"] == 1
                assert "stopped" in remit("cancel", session_id)
                assert http.get(f"/v1/tasks/{session_id}").json()["taskState"] == "CANCELLED"

        await asyncio.to_thread(through_server)
