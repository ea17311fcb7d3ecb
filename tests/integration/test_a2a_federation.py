"""Two remit servers in separate processes that call each other over A2A."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from a2a_harness import Harness, a2a_harness

from remit import Context, State, agent
from support.pace import until
from support.server import Permission


@agent("deep")
async def deep(ctx: Context) -> Any:
    return (await ctx.delegate("deeper")).data


@agent("deeper")
async def deeper(ctx: Context) -> Any:
    return [error.code for error in (await ctx.delegate("far-place")).errors]


@contextlib.asynccontextmanager
async def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Harness]:
    """The local server, with agents `far-…` that run on the remote one."""
    remote_root = tmp_path / "far"
    remote_root.mkdir()
    agents: dict[str, Any] = {
        f"far-{name}": {"a2a": "http://127.0.0.1:1", "remote": name, "token_variable": "FAR_TOKEN"} for name in ("place", "relay", "slow")
    }
    async with a2a_harness(tmp_path / "near", [deep, deeper], agents=agents, max_depth=6) as local:
        token = local.token("far", frozenset({Permission.DELEGATE, Permission.RELAY}))
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "NEAR_URL": local.url, "NEAR_TOKEN": token}
        program = Path(__file__).with_name("a2a_remote_server.py")
        remote_process = await asyncio.create_subprocess_exec(
            sys.executable, program, remote_root, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            assert remote_process.stdout is not None
            info = json.loads(await asyncio.wait_for(remote_process.stdout.readline(), 30))
            monkeypatch.setenv("FAR_TOKEN", info["trusted"])
            monkeypatch.setenv("FAR_STRANGER", info["stranger"])
            for name in agents:
                found: Any = local.remit.directory.find(name)
                object.__setattr__(found.definition, "address", info["url"])  # each server needs the port of the other, so one is set later
            yield local
        finally:
            assert remote_process.stdin is not None
            remote_process.stdin.close()
            await asyncio.wait_for(remote_process.wait(), 60)


async def test_depth_path_and_deadline_continue_on_the_remote_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with both(tmp_path, monkeypatch) as local:
        returned = await local.remit.delegate("far-place", timeout=20)
        data = returned.unwrap()
        assert (data["depth"], data["path"]) == (2, ["orchestrator", "far-place", "place"])
        assert 10 < data["left"] <= 20

        # A cycle across both servers is refused, and the caller receives the reason.
        circle = await local.remit.delegate("far-relay", timeout=30)
        assert circle.unwrap()["codes"] == ["CYCLE_DETECTED"]
        refused = await local.remit.history(agent="far-relay", status="refused")
        assert [record.path for record in refused] == [("orchestrator", "far-relay", "relay", "near", "far-relay")]

        # The maximum depth of the remote server applies, even if the local one allows more.
        assert (await local.remit.delegate("deep")).data == ["MAX_DEPTH_EXCEEDED"]

        # The remote task ends slightly before the local deadline, so that its partial work arrives in time.
        late = await local.remit.delegate("far-slow", timeout=2)
        assert (str(late.status), str(late.stop_reason), late.errors[0].code) == ("partial", "deadline", "TIMEOUT")
        stopped = tmp_path / "far" / "stopped"
        await until(stopped.exists)
        stopped.unlink()

        # Cancelling the local delegation stops the remote task.
        handle = await local.remit.start("far-slow")
        await wait_for_message(local, handle.session_id, "Working.")
        await handle.cancel("not needed")
        assert (await local.remit.describe(handle.session_id)).state is State.CANCELLED
        await until(stopped.exists)

        # Without the relay grant, the depth and path of the caller are ignored.
        monkeypatch.setenv("FAR_TOKEN", os.environ["FAR_STRANGER"])
        data = (await local.remit.delegate("far-place")).unwrap()
        assert (data["depth"], data["path"]) == (1, ["token:stranger", "place"])


async def test_remote_server_is_verified_by_its_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from a2a_remote_server import place
    from grpc_harness import Authority

    from remit import Remit

    certificate, key = Authority(tmp_path).issue("far.example")
    async with a2a_harness(tmp_path / "far", [place], tls=(certificate, key)) as remote:
        monkeypatch.setenv("FAR_TOKEN", remote.token())
        trusting = {"a2a": remote.url, "remote": "place", "token_variable": "FAR_TOKEN", "ca_file": str(tmp_path / "ca.pem")}
        agents = {"trusting": trusting, "untrusting": {name: value for name, value in trusting.items() if name != "ca_file"}}
        async with Remit.open(tmp_path, settings={"builtin_agents": [], "agents": agents}) as remit:
            assert (await remit.delegate("trusting")).unwrap()["path"] == ["token:client", "place"]
            untrusting = await remit.delegate("untrusting")
            assert (str(untrusting.stop_reason), untrusting.errors[0].code) == ("unavailable", "AGENT_UNAVAILABLE")
            assert "certificate" in untrusting.errors[0].message.lower()


async def wait_for_message(harness: Harness, session_id: str, text: str) -> None:
    async with asyncio.timeout(60):
        async for event in harness.remit.follow(session_id):
            if event.body.get("message") == text:
                return
