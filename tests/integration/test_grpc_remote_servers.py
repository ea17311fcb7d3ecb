"""Agents of another remit server over gRPC: `[agents.NAME] grpc = "…"`."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from grpc_harness import AGENTS, Authority, Harness, grpc_api, grpc_harness, tls_proxy

from remit import Context, EventKind, Remit, agent, span_id_of
from support.pace import until
from support.server import Permission

RELAYING = frozenset({Permission.DELEGATE, Permission.RELAY})


@agent("place")
async def place(ctx: Context) -> dict[str, Any]:
    """Report depth, path and deadline."""
    return {"depth": ctx.depth, "path": list(ctx.path), "left": ctx.remaining, "session": ctx.session_id}


@agent("hurried", timeout=60)
async def hurried(ctx: Context) -> dict[str, Any]:
    """Hand in partial work at the soft deadline."""
    await ctx.wait_hand_in()
    return {"status": "partial", "summary": "Half of it was done in time.", "errors": [{"type": "timeout", "message": "no more time"}]}


def declared(address: str, *names: str, **more: Any) -> dict[str, Any]:
    return {"agents": {f"far-{name.replace('.', '-')}": {"grpc": address, "remote": name, **more} for name in names}}


@pytest.fixture(autouse=True)
def folders(tmp_path: Path) -> None:
    for folder in ("near", "far"):
        (tmp_path / folder).mkdir()


@contextlib.asynccontextmanager
async def both(tmp_path: Path, *names: str, **more: Any) -> AsyncIterator[tuple[Remit, Harness]]:
    """The local remit with agents `far-…`, and the remote server that runs them."""
    async with (
        grpc_harness(tmp_path / "far", agents=(*AGENTS, place, hurried)) as remote_server,
        Remit.open(tmp_path / "near", settings=declared(remote_server.address, *names, **more)) as local,
    ):
        yield local, remote_server


async def test_parameters_results_and_chunks_pass_through(tmp_path: Path) -> None:
    async with both(tmp_path, "text.count", "slow", "echo", "fails") as (local, remote_server):
        assert (await local.delegate("far-text-count", parameters={"text": "a bb ccc", "minLength": 2})).unwrap() == 2
        value = {"a": [1, None, "ü", {"b": 2.5}], "n": 2**53}
        assert (await local.delegate("far-echo", parameters={"value": value})).unwrap() == {"value": value}
        slept = await local.delegate("far-slow", parameters={"seconds": 0.05}, timeout=20)
        events = await local.events(slept.session_id)
        assert [e.body for e in events if e.kind is EventKind.PROGRESS] == [{"message": "begun", "fraction": 0.5}]
        assert [e.body for e in events if e.kind is EventKind.DATA] == [{"chunk": {"half": True}}]
        remote = slept.extra["remote"]
        assert (remote["agent"], remote["state"]) == ("slow", "COMPLETED")
        assert (await remote_server.remit.describe(remote["task_id"])).result is not None

        failed = await local.delegate("far-fails")
        assert (failed.status, failed.errors[0].code) == ("failed", "AGENT_RAISED")
        assert "it broke" in failed.errors[0].message
        wrong = await local.delegate("far-text-count", parameters={"words": 1, "text": "a"})
        assert (wrong.status, wrong.errors[0].code) == ("failed", "INVALID_PARAMETERS")


async def test_depth_path_deadline_and_trace_continue_with_the_relay_grant(tmp_path: Path) -> None:
    async with both(tmp_path, "place") as (local, remote_server):
        returned = await local.delegate("far-place", timeout=20)
        data = returned.unwrap()
        assert (data["depth"], data["path"]) == (2, ["orchestrator", "far-place", "place"])
        assert 10 < data["left"] <= 20
        record = await remote_server.remit.describe(data["session"])
        assert record.caller_info is not None
        assert record.caller_info.traceparent is not None
        assert record.caller_info.traceparent.split("-")[2] == span_id_of(returned.session_id), (
            "the remote trace is a child of the local delegation"
        )


async def test_local_deadline_applies_and_partial_work_is_kept(tmp_path: Path) -> None:
    async with both(tmp_path, "hurried", "slow") as (local, remote_server):
        early = await local.delegate("far-hurried", timeout=1.5)
        assert (early.status, early.summary) == ("partial", "Half of it was done in time.")
        late = await local.delegate("far-slow", timeout=1.0)
        assert (late.status, late.stop_reason) == ("partial", "deadline")
        await until(lambda: not remote_server.remit.engine.live())  # the remote task has ended too


async def test_broken_connection_is_resumed_by_task_id(tmp_path: Path) -> None:
    async with both(tmp_path, "slow") as (local, remote_server):
        handle = await local.start("far-slow", parameters={"seconds": 1.5}, timeout=30)
        await until(lambda: remote_server.remit.engine.live())
        await asyncio.sleep(0.2)
        await remote_server.api.stop(0.0)  # the work itself continues
        again = await grpc_api(remote_server.service, remote_server.authenticator, remote_server.remit.settings.serve)
        try:
            returned = await asyncio.wait_for(handle.result(), 60)
            assert returned.unwrap() == "Slept."
            assert remote_server.remit.store.count() == 1
        finally:
            await again.stop(0.0)


async def test_unreachable_or_refusing_server_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with grpc_harness(tmp_path / "far", addresses=["127.0.0.1:0"]) as remote_server:
        agents = {
            "gone": {"grpc": f"unix:{tmp_path}/nobody.sock"},
            "closed": {"grpc": remote_server.address, "remote": "echo", "token_variable": "FAR_TOKEN"},
            "unset": {"grpc": remote_server.address, "remote": "echo", "token_variable": "FAR_UNSET"},
            "unread": {"grpc": remote_server.address, "remote": "echo", "ca_file": "none.pem"},
        }
        monkeypatch.setenv("FAR_TOKEN", "rmt_" + "x" * 40)
        async with Remit.open(tmp_path / "near", settings={"agents": agents}) as local:
            assert local.directory.problems == []
            found = {}
            for name in agents:
                returned = await local.delegate(name, timeout=1.5 if name == "gone" else 10)
                assert returned.stop_reason == "unavailable", (name, returned.errors)
                found[name] = returned.errors[0]
            assert found["gone"].code == found["closed"].code == "AGENT_UNAVAILABLE"
            assert found["unset"].code == found["unread"].code == "TOOL_UNAVAILABLE"
            assert "FAR_UNSET" in found["unset"].message
            assert "x" * 40 not in found["closed"].message


async def test_tls_connection_works_and_the_token_is_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path / "near")
    certificate, key = authority.issue("server")
    async with (
        grpc_harness(tmp_path / "far", addresses=["127.0.0.1:0"]) as remote_server,
        tls_proxy(lambda: remote_server.address, (certificate, key)) as address,
    ):
        token = remote_server.token("near", RELAYING)
        monkeypatch.setenv("FAR_TOKEN", token)
        settings = declared(address, "echo", ca_file="ca.pem", token_variable="FAR_TOKEN")
        async with Remit.open(tmp_path / "near", settings=settings) as local:
            returned = await local.delegate("far-echo", parameters={"value": f"it is {token}, says it"}, timeout=20)
            assert returned.ok, returned.errors
        saved = b"".join(path.read_bytes() for path in (tmp_path / "near" / ".remit").rglob("*") if path.is_file())
        assert token.encode() not in saved
