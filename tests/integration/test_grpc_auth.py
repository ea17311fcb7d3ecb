"""gRPC authentication and listening: the owner's socket, TLS, tokens."""

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from grpc_harness import Authority, Harness, ask, bearer, grpc_api, grpc_harness, messages, refusal, trailer

from remit import Misused, Settings, Unavailable
from remit.server.run import bound_apis

LOOPBACK = "127.0.0.1:0"


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[Harness]:
    """A server on the socket and on a loopback port."""
    async with grpc_harness(tmp_path, addresses=["unix", LOOPBACK]) as harness:
        yield harness


@pytest.fixture
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def tls(authority: Authority) -> Any:
    import grpc

    return grpc.ssl_channel_credentials(authority.certificate.read_bytes())


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


async def test_streams_are_limited_and_end_on_token_revocation(harness: Harness) -> None:
    tasks = await harness.tasks()
    metadata = bearer(harness.token("streams", streams=2))
    calls = [tasks.RunTask(ask("slow"), metadata=metadata) for _ in range(2)]
    for call in calls:
        assert (await call.read()).task_id
    error = await refusal(tasks.RunTask(ask("slow"), metadata=metadata).read())
    assert trailer(error, "remit-code") == "RATE_LIMITED"
    calls[0].cancel()
    harness.authenticator.tokens.revoke("streams")

    async def read_all() -> None:
        while await calls[1].read():
            pass

    error = await refusal(read_all())
    assert (error.code().name, trailer(error, "remit-code")) == ("UNAUTHENTICATED", "UNAUTHENTICATED")
    assert len(harness.remit.engine.live()) == 2  # a client that disconnects or is refused does not stop the task


async def test_calls_that_wait_count_as_streams_and_end_on_token_revocation(harness: Harness) -> None:
    tasks = await harness.tasks()
    metadata = bearer(harness.token("waits", streams=1))
    waiting = tasks.ExecuteTask(ask("slow", wait=60), metadata=metadata)
    before = set(harness.remit.engine.live())
    while set(harness.remit.engine.live()) <= before:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.01)
    error = await refusal(tasks.ExecuteTask(ask("slow", wait=1), metadata=metadata))
    assert trailer(error, "remit-code") == "RATE_LIMITED"
    assert (await tasks.ExecuteTask(ask("echo", wait=0), metadata=metadata)).task_id
    harness.authenticator.tokens.revoke("waits")
    error = await refusal(waiting)
    assert (error.code().name, trailer(error, "remit-code")) == ("UNAUTHENTICATED", "UNAUTHENTICATED")


async def test_only_health_checks_need_no_authentication(harness: Harness) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    channel = await harness.channel(address=harness.api.addresses[1])
    await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    request = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
    call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(request)
    assert (await refusal(call.read())).code().name == "UNAUTHENTICATED"


async def test_grpc_socket_behind_a_proxy_requires_a_token(tmp_path: Path) -> None:
    async with grpc_harness(tmp_path, behind_proxy=True) as harness:
        tasks, pb = await harness.tasks(), messages()
        assert (await refusal(tasks.Ping(pb.PingRequest()))).code().name == "UNAUTHENTICATED"
        await tasks.Ping(pb.PingRequest(), metadata=bearer(harness.token()))


# ---- TLS


async def test_tls_port_serves_clients_that_trust_its_authority(tmp_path: Path, authority: Authority) -> None:
    pb = messages()
    certificate, key = authority.issue("server")
    async with grpc_harness(tmp_path, addresses=[LOOPBACK], tls_certificate=str(certificate), tls_key=str(key)) as harness:
        metadata = bearer(harness.token())
        await (await harness.tasks(credentials=tls(authority))).Ping(pb.PingRequest(), metadata=metadata)
        stranger = await harness.tasks(credentials=tls(Authority(tmp_path)))
        error = await refusal(stranger.Ping(pb.PingRequest(), metadata=metadata, timeout=5))
        assert error.code().name in ("UNAVAILABLE", "DEADLINE_EXCEEDED")


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
def test_non_loopback_address_without_tls_is_refused(tmp_path: Path, api: str, address: str) -> None:
    with pytest.raises(Misused, match="other machines"), bound_apis(serving(apis=(api,), **{api: address}), tmp_path):
        pass


def test_invalid_certificate_file_is_refused(tmp_path: Path, authority: Authority) -> None:
    certificate, key = authority.issue("server")
    certificate.write_text("no certificate")
    files = {"tls_certificate": str(certificate), "tls_key": str(key)}
    with pytest.raises(Misused, match="TLS cannot use"), bound_apis(serving(apis=("grpc",), **files), tmp_path):
        pass


async def test_server_replaces_only_a_stale_socket(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    os.chmod(folder, 0o755)
    path = folder / "g.sock"
    path.write_text("a file of another user")
    with pytest.raises(Misused, match="is not a socket"):
        async with grpc_harness(tmp_path, addresses=[f"unix:{path}"]):
            pass
    assert path.read_text() == "a file of another user"
    path.unlink()
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as dead:
        dead.bind(str(path))
    async with grpc_harness(tmp_path, addresses=[f"unix:{path}"]) as harness:
        assert path.stat().st_mode & 0o777 == 0o600
        with pytest.raises(Unavailable, match="Another server"):
            await grpc_api(harness.service, harness.authenticator, harness.remit.settings.serve, f"unix:{path}")
        assert (await (await harness.tasks()).ExecuteTask(ask("echo"))).task.success
    assert os.listdir(folder) == []
    assert folder.stat().st_mode & 0o777 == 0o755
