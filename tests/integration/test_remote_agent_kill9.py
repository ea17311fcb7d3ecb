"""A server killed while remote agents work: repeatable delegations are resumed when server and agent return."""

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from remote_agent_harness import RemoteAgent
from serve_harness import Server, project, serving

from remit import Remit
from support.pace import allowed


async def forever(far: RemoteAgent, order: Any) -> None:
    await asyncio.Event().wait()


def stage_of(server: Server) -> Any:
    """The part of a stage that a remote agent needs."""
    import grpc.aio

    async def channel() -> Any:
        return grpc.aio.insecure_channel(server.at.grpc, options=(("grpc.use_local_subchannel_pool", 1),))

    return SimpleNamespace(channel=channel)


async def agent_of(server: Server, does: Any = None, **declared: Any) -> RemoteAgent:
    far = RemoteAgent(stage_of(server))
    if does is not None:
        far.does = does
    await far.register(**declared)
    await far.connect()
    return far


async def test_repeatable_delegation_is_resumed_after_the_server_returns(tmp_path: Path) -> None:
    """A repeatable delegation is queued again; any other fails with AGENT_CRASHED."""
    project(tmp_path)
    with serving(tmp_path) as first:
        far = await agent_of(first, forever, is_safe_to_repeat=True)
        once = await agent_of(first, forever, name="once")
        safe = await asyncio.to_thread(first.begin, "words.count", text="a b c")
        unsafe = await asyncio.to_thread(first.begin, "once.count", text="a b c")
        await far.until(lambda: far.orders)
        await once.until(lambda: once.orders)
        first.process.kill()
        first.process.wait()
    async with Remit.open(tmp_path) as other:  # another process does not settle it
        assert not (await other.describe(safe["taskId"])).state.is_settled
        lost = await other.result(unsafe["taskId"], wait_seconds=5)
        assert lost is not None
        assert [error.code for error in lost.errors] == ["AGENT_CRASHED"]
    with serving(tmp_path) as second:
        began = time.monotonic()
        back = await agent_of(second, is_safe_to_repeat=True)

        def get_task() -> dict[str, Any]:
            with second.http() as http:
                return dict(http.get(f"/v1/tasks/{safe['taskId']}", params={"wait": 10}).json())

        ended = await asyncio.to_thread(get_task)
        assert (ended["taskState"], ended["data"]) == ("COMPLETED", 3), ended
        assert time.monotonic() - began < allowed(8)
        assert [order.context["session_id"] for order in back.orders] == [safe["taskId"]]
        assert back.orders[0].delegation_token
        await back.calls.Unregister(back.pb.UnregisterRequest(agent_id=back.registered.agent_id, secret=back.registered.secret))
    assert not list((tmp_path / ".remit" / "registered").iterdir())
