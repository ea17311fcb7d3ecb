"""Two remits, in two processes and folders, that call each other over A2A."""

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
from a2a_harness import Stage, a2a_harness

from remit import Context, agent
from remit.core.states import State
from remit.server.tokens import Permission
from support.pace import until


@agent("deep")
async def deep(ctx: Context) -> Any:
    return (await ctx.delegate("deeper")).data


@agent("deeper")
async def deeper(ctx: Context) -> Any:
    return [error.code for error in (await ctx.delegate("far-place")).errors]


@contextlib.asynccontextmanager
async def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    """This end, with agents `far-…` that are the other end's."""
    far_root = tmp_path / "far"
    far_root.mkdir()
    agents: dict[str, Any] = {
        f"far-{name}": {"a2a": "http://127.0.0.1:1", "remote": name, "token_variable": "FAR_TOKEN"} for name in ("place", "relay", "slow")
    }
    async with a2a_harness(tmp_path / "near", [deep, deeper], agents=agents, max_depth=6) as near:
        token = near.token("far", frozenset({Permission.DELEGATE, Permission.RELAY}))
        environment = {**os.environ, "NEAR_URL": near.url, "NEAR_TOKEN": token}
        program = Path(__file__).with_name("a2a_remote_server.py")
        far = await asyncio.create_subprocess_exec(
            sys.executable, program, far_root, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            assert far.stdout is not None
            told = json.loads(await asyncio.wait_for(far.stdout.readline(), 30))
            monkeypatch.setenv("FAR_TOKEN", told["trusted"])
            monkeypatch.setenv("FAR_STRANGER", told["stranger"])
            for name in agents:
                found: Any = near.remit.directory.find(name)
                object.__setattr__(found.definition, "address", told["url"])  # each is told of the other's port: one of them must wait
            yield near
        finally:
            assert far.stdin is not None
            far.stdin.close()
            await asyncio.wait_for(far.wait(), 20)


async def test_depth_path_and_deadline_continue_on_the_remote_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with both(tmp_path, monkeypatch) as near:
        returned = await near.remit.delegate("far-place", timeout=20)
        data = returned.unwrap()
        assert (data["depth"], data["path"]) == (2, ["orchestrator", "far-place", "place"])
        assert 10 < data["left"] <= 20

        # From here to there and back to where it came from: refused, in words that reach whoever asked first.
        circle = await near.remit.delegate("far-relay", timeout=30)
        assert circle.unwrap()["codes"] == ["CYCLE_DETECTED"]
        refused = await near.remit.history(agent="far-relay", status="refused")
        assert [record.path for record in refused] == [("orchestrator", "far-relay", "relay", "near", "far-relay")]

        # Three are the most over there, whoever may go deeper here.
        assert (await near.remit.delegate("deep")).data == ["MAX_DEPTH_EXCEEDED"]

        # Our deadline ends it there, a little earlier, so that what it had comes back.
        late = await near.remit.delegate("far-slow", timeout=2)
        assert (str(late.status), str(late.stop_reason), late.errors[0].code) == ("partial", "deadline", "TIMEOUT")
        stopped = tmp_path / "far" / "stopped"
        await until(stopped.exists)
        stopped.unlink()

        # Stopped here, it is stopped there too, and soon.
        handle = await near.remit.start("far-slow")
        await until_said(near, handle.session_id, "Working.")
        await handle.cancel("not needed")
        assert (await near.remit.describe(handle.session_id)).state is State.CANCELLED
        await until(stopped.exists)

        # Nobody is believed who was not granted it.
        monkeypatch.setenv("FAR_TOKEN", os.environ["FAR_STRANGER"])
        data = (await near.remit.delegate("far-place")).unwrap()
        assert (data["depth"], data["path"]) == (1, ["token:stranger", "place"])


async def test_remote_server_is_verified_by_its_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from a2a_remote_server import place
    from grpc_harness import Authority

    from remit import Remit
    from remit.server.addresses import Certificates

    shown, key = Authority(tmp_path).issue("far.example")
    async with a2a_harness(tmp_path / "far", [place], tls=Certificates(certificate=shown, key=key)) as far:
        monkeypatch.setenv("FAR_TOKEN", far.token())
        trusting = {"a2a": far.url, "remote": "place", "token_variable": "FAR_TOKEN", "ca_file": str(tmp_path / "ca.pem")}
        agents = {"trusting": trusting, "wary": {name: value for name, value in trusting.items() if name != "ca_file"}}
        async with Remit.open(tmp_path, settings={"builtin_agents": [], "agents": agents}) as remit:
            assert (await remit.delegate("trusting")).unwrap()["path"] == ["token:client", "place"]
            wary = await remit.delegate("wary")
            assert (str(wary.stop_reason), wary.errors[0].code) == ("unavailable", "AGENT_UNAVAILABLE")
            assert "certificate" in wary.errors[0].message.lower()


async def until_said(stage: Stage, session_id: str, words: str) -> None:
    async with asyncio.timeout(60):
        async for event in stage.remit.follow(session_id):
            if event.body.get("message") == words:
                return
