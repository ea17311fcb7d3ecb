"""Two remit servers that call each other over A2A."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from a2a_harness import Harness, a2a_harness

from remit import Context, Remit, State, agent
from support.pace import until
from support.server import Permission

TRUSTED = frozenset({Permission.DELEGATE, Permission.RELAY})


@agent("deep")
async def deep(ctx: Context) -> Any:
    return (await ctx.delegate("deeper")).data


@agent("deeper")
async def deeper(ctx: Context) -> Any:
    return [error.code for error in (await ctx.delegate("far-place")).errors]


@agent("place")
async def place(ctx: Context) -> dict[str, Any]:
    return {"depth": ctx.depth, "path": list(ctx.path), "left": ctx.remaining}


@agent("relay")
async def relay(ctx: Context) -> list[str]:
    """Delegates back to the calling server."""
    return [error.code for error in (await ctx.delegate("near")).errors]


@agent("slow")
async def slow(ctx: Context) -> str:
    ctx.progress("Working.")
    try:
        await asyncio.sleep(60)
    finally:
        (ctx.root / "stopped").write_text(ctx.session_id)
    return "never"


@contextlib.asynccontextmanager
async def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Harness]:
    """The local server, with agents `far-…` that run on the remote one, whose agent `near` runs on the local one."""
    near = {"near": {"a2a": "http://127.0.0.1:1", "remote": "far-relay", "token_variable": "NEAR_TOKEN"}}
    async with a2a_harness(tmp_path / "far", [place, relay, slow], agents=near) as remote:
        names = ("place", "relay", "slow")
        agents = {f"far-{name}": {"a2a": remote.url, "remote": name, "token_variable": "FAR_TOKEN"} for name in names}
        async with a2a_harness(tmp_path / "near", [deep, deeper], agents=agents, max_depth=6) as local:
            found: Any = remote.remit.directory.find("near")
            object.__setattr__(found.definition, "address", local.url)  # each server needs the port of the other, so one is set later
            monkeypatch.setenv("NEAR_TOKEN", local.token("far", TRUSTED))
            monkeypatch.setenv("FAR_TOKEN", remote.token("near", TRUSTED))
            monkeypatch.setenv("FAR_STRANGER", remote.token("stranger"))
            yield local


async def test_depth_path_and_deadline_continue_on_the_remote_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with both(tmp_path, monkeypatch) as local:
        returned = await local.remit.delegate("far-place", timeout=20)
        data = returned.unwrap()
        assert (data["depth"], data["path"]) == (2, ["orchestrator", "far-place", "place"])
        assert 10 < data["left"] <= 20

        # A cycle across both servers is refused, and the caller receives the reason.
        circle = await local.remit.delegate("far-relay", timeout=30)
        assert circle.unwrap() == ["CYCLE_DETECTED"]
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
    from grpc_harness import Authority, tls_proxy

    certificate, key = Authority(tmp_path).issue("far.example")
    address = ""
    async with (
        tls_proxy(lambda: address, (certificate, key)) as proxy,
        a2a_harness(tmp_path / "far", [place], public_url=f"https://{proxy}") as remote,
    ):
        address = remote.url.removeprefix("http://")
        monkeypatch.setenv("FAR_TOKEN", remote.token())
        trusting = {"a2a": f"https://{proxy}", "remote": "place", "token_variable": "FAR_TOKEN", "ca_file": str(tmp_path / "ca.pem")}
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
