"""gRPC authentication and listening: the owner's socket and tokens."""

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from grpc_harness import Harness, ask, bearer, grpc_api, grpc_harness, messages, refusal, trailer

from remit import Misused, Settings, Unavailable
from support.server import bound_apis

LOOPBACK = "127.0.0.1:0"


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[Harness]:
    """A server on the socket and on a loopback port."""
    async with grpc_harness(tmp_path, addresses=["unix", LOOPBACK]) as harness:
        yield harness


# ---- authentication


async def test_socket_authenticates_its_owner_and_a_port_requires_a_token(harness: Harness) -> None:
    assert (await (await harness.tasks()).ExecuteTask(ask("echo"))).task.principal == "orchestrator"
    port = await harness.tasks(address=harness.api.addresses[1])
    error = await refusal(port.ExecuteTask(ask("echo")))
    assert (error.code().name, trailer(error, "remit-code")) == ("UNAUTHENTICATED", "UNAUTHENTICATED")
    task = (await port.ExecuteTask(ask("echo"), metadata=bearer(harness.token()))).task
    assert task.principal == "token:client"
    local = (harness.remit.folder / "run" / "serve.token").read_text().strip()
    assert (await port.ExecuteTask(ask("echo"), metadata=bearer(local))).task.principal == "orchestrator"


async def test_streams_and_calls_that_wait_end_on_token_revocation(harness: Harness) -> None:
    tasks = await harness.tasks()
    metadata = bearer(harness.token("leaving"))
    stream = tasks.RunTask(ask("slow"), metadata=metadata)
    assert (await stream.read()).task_id
    waiting = tasks.ExecuteTask(ask("slow", wait=60), metadata=metadata)
    while len(harness.remit.engine.live()) < 2:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.01)
    harness.authenticator.tokens.revoke("leaving")

    async def read_all() -> None:
        while await stream.read():
            pass

    for call in (read_all(), waiting):
        error = await refusal(call)
        assert (error.code().name, trailer(error, "remit-code")) == ("UNAUTHENTICATED", "UNAUTHENTICATED")
    assert len(harness.remit.engine.live()) == 2  # a client that disconnects or is refused does not stop the task


async def test_only_health_checks_need_no_authentication(harness: Harness) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    channel = await harness.channel(address=harness.api.addresses[1])
    await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
    assert (await refusal(watch.read())).code().name == "UNAUTHENTICATED"


async def test_grpc_socket_behind_a_proxy_requires_a_token(tmp_path: Path) -> None:
    async with grpc_harness(tmp_path, behind_proxy=True) as harness:
        tasks, pb = await harness.tasks(), messages()
        assert (await refusal(tasks.Ping(pb.PingRequest()))).code().name == "UNAUTHENTICATED"
        await tasks.Ping(pb.PingRequest(), metadata=bearer(harness.token()))


# ---- addresses


async def test_socket_is_private_and_removed_with_the_server(tmp_path: Path) -> None:
    before = os.umask(0)  # other users may share the project folder
    try:
        async with grpc_harness(tmp_path) as harness:
            path = harness.remit.folder / "run" / "grpc.sock"
            assert harness.address == f"unix:{path}"
            mode = path.lstat().st_mode
            assert (stat.S_ISSOCK(mode), stat.S_IMODE(mode)) == (True, 0o600)
            assert not list(path.parent.glob(".grpc-*"))
    finally:
        os.umask(before)
    assert not path.exists()


def serving(**settings: Any) -> Any:
    return Settings().serve._replace(**settings)


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
@pytest.mark.parametrize("api", ["grpc", "http"])
def test_non_loopback_address_without_a_proxy_is_refused(tmp_path: Path, api: str, address: str) -> None:
    with pytest.raises(Misused, match="other machines"), bound_apis(serving(apis=(api,), **{api: address}), tmp_path):
        pass


async def test_server_replaces_only_a_stale_socket(harness: Harness, tmp_path: Path) -> None:
    path = tmp_path / "other" / "run" / "g.sock"
    path.parent.mkdir(parents=True)
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as dead:
        dead.bind(str(path))
    settings = harness.remit.settings.serve
    again = await grpc_api(harness.service, harness.authenticator, settings, f"unix:{path}")
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(Unavailable, match="another server"):
        await grpc_api(harness.service, harness.authenticator, settings, f"unix:{path}")
    await again.stop(0.0)
    assert not path.exists()
