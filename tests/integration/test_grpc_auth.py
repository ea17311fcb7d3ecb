"""Who comes in by gRPC and where it listens: the owner's socket, TLS, client certificates, tokens."""

import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from grpc_harness import Authority, Stage, ask, bearer, grpc_harness, refusal, trailer

from remit.core.errors import Misused, Unavailable
from remit.server.tokens import Grants, Permission

LOOPBACK = "127.0.0.1:0"


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    """By a socket and by a port of loopback."""
    async with grpc_harness(tmp_path, addresses=["unix", LOOPBACK]) as stage:
        yield stage


@pytest.fixture
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def messages() -> Any:
    from remit.agents.proto.v1 import tasks_pb2

    return tasks_pb2


def tls(authority: Authority, holder: str | None = None) -> Any:
    import grpc

    own = (None, None)
    if holder is not None:
        certificate, key = authority.issue(holder)
        own = (key.read_bytes(), certificate.read_bytes())
    return grpc.ssl_channel_credentials(authority.certificate.read_bytes(), *own)


# ---- who


async def test_socket_authenticates_its_owner_and_a_port_requires_a_token(stage: Stage) -> None:
    assert (await (await stage.tasks()).ExecuteTask(ask("echo"))).task.principal == "orchestrator"
    port = await stage.tasks(address=stage.api.addresses[1])
    error = await refusal(port.ExecuteTask(ask("echo")))
    assert (error.code().name, trailer(error, "remit-code")) == ("UNAUTHENTICATED", "UNAUTHENTICATED")
    task = (await port.ExecuteTask(ask("echo"), metadata=bearer(stage.token()))).task
    assert task.principal == "token:client"
    local = (stage.remit.folder / "run" / "serve.token").read_text().strip()
    assert (await port.ExecuteTask(ask("echo"), metadata=bearer(local))).task.principal == "orchestrator"


async def test_token_restricts_grants_on_the_socket(stage: Stage) -> None:
    tasks = await stage.tasks()
    shown = bearer(stage.token("narrow", agents=("text",)))
    assert (await tasks.ExecuteTask(ask("text.count", text="a"), metadata=shown)).task.principal == "token:narrow"
    error = await refusal(tasks.ExecuteTask(ask("echo", agent_id="echo"), metadata=shown))
    assert (error.code().name, trailer(error, "remit-code")) == ("PERMISSION_DENIED", "FORBIDDEN")


async def test_duplicate_credentials_are_refused(stage: Stage) -> None:
    tasks = await stage.tasks()
    shown = (*bearer(stage.token("a")), *bearer(stage.token("b")))
    assert (await refusal(tasks.Ping(messages().PingRequest(), metadata=shown))).code().name == "INVALID_ARGUMENT"


async def test_streams_are_limited_and_end_on_token_revocation(stage: Stage) -> None:
    tasks = await stage.tasks()
    shown = bearer(stage.token("streams", streams=2))
    calls = [tasks.RunTask(ask("slow"), metadata=shown) for _ in range(2)]
    for call in calls:
        assert (await call.read()).task_id
    error = await refusal(tasks.RunTask(ask("slow"), metadata=shown).read())
    assert trailer(error, "remit-code") == "RATE_LIMITED"
    calls[0].cancel()
    stage.authenticator.tokens.revoke("streams")

    async def to_its_end() -> None:
        while await calls[1].read():
            pass

    error = await refusal(to_its_end())
    assert (error.code().name, trailer(error, "remit-code")) == ("UNAUTHENTICATED", "UNAUTHENTICATED")
    assert len(stage.remit.engine.live()) == 2  # whoever leaves, or is sent away, ends nothing


async def test_only_health_checks_need_no_authentication(stage: Stage) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    channel = await stage.channel(address=stage.api.addresses[1])
    await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    asked = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
    call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(asked)
    assert (await refusal(call.read())).code().name == "UNAUTHENTICATED"


async def test_grpc_socket_behind_a_proxy_requires_a_token(tmp_path: Path) -> None:
    async with grpc_harness(tmp_path, behind_proxy=True) as stage:
        tasks, pb = await stage.tasks(), messages()
        assert (await refusal(tasks.Ping(pb.PingRequest()))).code().name == "UNAUTHENTICATED"
        await tasks.Ping(pb.PingRequest(), metadata=bearer(stage.token()))


# ---- TLS


async def test_mutual_tls_certificate_names_the_principal(tmp_path: Path, authority: Authority) -> None:
    certificate, key = authority.issue("server")
    files = {"tls_certificate": str(certificate), "tls_key": str(key), "client_ca": str(authority.certificate)}
    async with grpc_harness(tmp_path, addresses=[LOOPBACK], **files) as stage:
        stage.authenticator.tokens.new("builder", Grants(permissions=frozenset({Permission.DELEGATE})), certificate="build.example")
        known = await stage.tasks(credentials=tls(authority, "build.example"))
        assert (await known.ExecuteTask(ask("echo"))).task.principal == "cert:build.example"
        pb = messages()
        stranger = await stage.tasks(credentials=tls(authority, "other.example"))
        assert (await refusal(stranger.Ping(pb.PingRequest()))).code().name == "UNAUTHENTICATED"
        nobody = await stage.tasks(credentials=tls(authority))
        error = await refusal(nobody.Ping(pb.PingRequest(), timeout=5, metadata=bearer(stage.token())))
        assert error.code().name in ("UNAVAILABLE", "DEADLINE_EXCEEDED")
        foreign = Authority(tmp_path)
        forged_certificate, forged_key = foreign.issue("build.example")
        import grpc

        forged = grpc.ssl_channel_credentials(authority.certificate.read_bytes(), forged_key.read_bytes(), forged_certificate.read_bytes())
        error = await refusal((await stage.tasks(credentials=forged)).Ping(pb.PingRequest(), timeout=5))
        assert error.code().name in ("UNAVAILABLE", "DEADLINE_EXCEEDED")


async def test_renewed_certificate_is_used_from_the_next_connection(tmp_path: Path, authority: Authority) -> None:
    pb = messages()
    certificate, key = authority.issue("server")
    async with grpc_harness(tmp_path, addresses=[LOOPBACK], tls_certificate=str(certificate), tls_key=str(key)) as stage:
        shown = bearer(stage.token())
        await (await stage.tasks(credentials=tls(authority))).Ping(pb.PingRequest(), metadata=shown)
        other = Authority(tmp_path)
        certificate.write_bytes(b"half written")
        await (await stage.tasks(credentials=tls(authority))).Ping(pb.PingRequest(), metadata=shown)
        new_certificate, new_key = other.issue("server")
        certificate.write_bytes(new_certificate.read_bytes())
        key.write_bytes(new_key.read_bytes())
        await (await stage.tasks(credentials=tls(other))).Ping(pb.PingRequest(), metadata=shown)
        error = await refusal((await stage.tasks(credentials=tls(authority))).Ping(pb.PingRequest(), metadata=shown, timeout=5))
        assert error.code().name in ("UNAVAILABLE", "DEADLINE_EXCEEDED")


# ---- where


async def opens(root: Path, *addresses: str, **serve: Any) -> None:
    async with grpc_harness(root, addresses=addresses, **serve):
        pass


async def test_socket_is_private_and_removed_with_the_server(tmp_path: Path) -> None:
    before = os.umask(0)  # whatever others the project is shared with
    try:
        async with grpc_harness(tmp_path) as stage:
            path = stage.remit.folder / "run" / "grpc.sock"
            assert stage.address == f"unix:{path}"
            mode = path.lstat().st_mode
            assert (stat.S_ISSOCK(mode), stat.S_IMODE(mode)) == (True, 0o600)
            assert not list(path.parent.glob(".grpc-*"))
    finally:
        os.umask(before)
    assert not path.exists()


@pytest.mark.parametrize("address", ["unix:nowhere/at/all.sock", "unix:/proc/remit.sock"])
async def test_socket_that_cannot_be_bound_is_an_error(tmp_path: Path, address: str) -> None:
    with pytest.raises(Unavailable, match="listen"):
        await opens(tmp_path, address)


async def test_port_in_use_is_an_error(tmp_path: Path) -> None:
    """Also one of another gRPC server, with which the kernel would have us share it."""
    async with grpc_harness(tmp_path, addresses=[LOOPBACK]) as stage:
        with pytest.raises(Unavailable, match="listen"):
            await opens(tmp_path, stage.address)


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
async def test_non_loopback_address_without_tls_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(Misused, match="other machines"):
        await opens(tmp_path, address)


async def test_invalid_certificate_file_is_refused(tmp_path: Path, authority: Authority) -> None:
    certificate, key = authority.issue("server")
    certificate.write_text("no certificate")
    with pytest.raises(Misused, match="TLS cannot use"):
        await opens(tmp_path, LOOPBACK, tls_certificate=str(certificate), tls_key=str(key))
