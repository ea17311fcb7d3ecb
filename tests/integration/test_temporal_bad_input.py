"""What is wrong with the connection or the settings of the engine on Temporal is one sentence with what to do, and nothing starts."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_harness import Authority
from temporalio.api.workflowservice.v1 import DescribeNamespaceResponse, GetSystemInfoResponse
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError

from remit import Remit, State, agent, new_session_id
from remit.engines.temporal.workflow import VERSION
from remit.testing import Scripted, answer, hang
from support import cli
from support.temporal_server import TemporalServer


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


class FakeTemporal(grpc.GenericRpcHandler):
    """Answers as a server of some version, or refuses every call."""

    def __init__(self, version: str = "", refusal: str = "") -> None:
        self._version, self._refusal = version, refusal

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        return grpc.unary_unary_rpc_method_handler(lambda _, context: self._answer(details.method, context))

    def _answer(self, method: str, context: grpc.ServicerContext) -> bytes:
        if self._refusal:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, self._refusal)
        info = GetSystemInfoResponse(server_version=self._version)
        return (info if method.endswith("GetSystemInfo") else DescribeNamespaceResponse()).SerializeToString()


@contextlib.contextmanager
def fake(credentials: Any = None, **how: str) -> Iterator[str]:
    """Its address."""
    with ThreadPoolExecutor(2) as threads:
        server = grpc.server(threads, handlers=(FakeTemporal(**how),))
        port = server.add_insecure_port("127.0.0.1:0") if credentials is None else server.add_secure_port("127.0.0.1:0", credentials)
        server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.stop(0).wait()


def credentials_of(authority: Authority, *, needs_client: bool = False) -> grpc.ServerCredentials:
    certificate, key = authority.issue("server")
    pair = [(key.read_bytes(), certificate.read_bytes())]
    roots = authority.certificate.read_bytes() if needs_client else None
    return grpc.ssl_server_credentials(pair, root_certificates=roots, require_client_auth=needs_client)


def refused(root: Path, address: str, **variables: str) -> str:
    """What `remit worker` says."""
    (root / "remit.toml").write_text('builtin_agents = []\n[engine]\nkind = "temporal"\nproject = "bad"\n')
    done = cli.run("worker", cwd=root, env={**os.environ, "TEMPORAL_ADDRESS": address, **variables})
    lines = done.stderr.strip().splitlines()
    print(done.stderr)
    assert done.code != 0
    assert len(lines) == 1, lines
    assert "Taking work" not in done.stdout
    for noise in ("Traceback", "tonic", "Transport(", "MetadataMap", "{"):
        assert noise not in done.stderr
    return lines[0]


def test_server_that_is_not_there_and_one_without_tls(temporal: TemporalServer, tmp_path: Path) -> None:
    for address, variables in (("127.0.0.1:1", {}), (temporal.address, {"TEMPORAL_API_KEY": "a-key"})):
        said = refused(tmp_path, address, **variables)
        assert f"The Temporal server at {address} cannot be reached" in said
        assert "temporal server start-dev" in said


def test_certificate_or_key_that_is_refused(authority: Authority, tmp_path: Path) -> None:
    trusted = {"TEMPORAL_TLS": "true", "TEMPORAL_TLS_SERVER_CA_CERT_PATH": str(authority.certificate)}
    for why, needs_client, refusal, variables in (
        ("UnknownIssuer", False, "", {"TEMPORAL_TLS": "true"}),
        ("", True, "", trusted),
        ("Request unauthorized.", False, "Request unauthorized.", {**trusted, "TEMPORAL_API_KEY": "wrong"}),
    ):
        with fake(credentials_of(authority, needs_client=needs_client), version="1.30.0", refusal=refusal) as address:
            said = refused(tmp_path, address, **variables)
        assert f"refused the connection: {why}" in said
        assert "check [engine.temporal] address, TEMPORAL_ADDRESS, TEMPORAL_API_KEY" in said


def test_certificate_file_that_is_missing(tmp_path: Path) -> None:
    said = refused(tmp_path, "127.0.0.1:1", TEMPORAL_TLS_CLIENT_CERT_PATH="/nowhere.pem", TEMPORAL_TLS_CLIENT_KEY_PATH="/nowhere.key")
    assert "/nowhere.pem" in said
    assert "Correct the TEMPORAL_* variables" in said


def test_server_that_is_too_old(tmp_path: Path) -> None:
    with fake(version="1.20.4") as address:
        said = refused(tmp_path, address)
    assert "is too old (1.20.4). Upgrade it to 1.24 or later." in said


def test_package_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "temporalio.envconfig", None)
    said = refused(tmp_path, "127.0.0.1:1")
    assert "needs the package temporalio. Install it: pip install 'remit[temporal]'." in said


def settings_of(temporal: TemporalServer, root: Path) -> dict[str, Any]:
    temporal = {"address": temporal.address, "heartbeat_seconds": 5.0, "worker_wait_seconds": 2.0}
    return {"engine": {"kind": "temporal", "project": f"q{abs(hash(str(root)))}", "temporal": temporal}, "builtin_agents": ()}


async def test_delegation_of_a_newer_version_names_both_and_does_not_run(temporal: TemporalServer, tmp_path: Path) -> None:
    """A newer caller recorded it and started its workflow with a payload of the next version."""
    worker = Scripted("newer")
    settings = settings_of(temporal, tmp_path)
    async with Remit.open(tmp_path, agents=[worker], settings=settings) as remit:
        sent = remit.engine._order  # type: ignore[attr-defined]
        remit.engine._order = lambda delegation: replace(sent(delegation), version=VERSION + 1)  # type: ignore[attr-defined]
        await remit.work(["newer"])
        result = await asyncio.wait_for(remit.delegate("newer", timeout=60), 90)
    assert (result.errors[0].code, worker.calls) == ("AGENT_UNAVAILABLE", [])
    assert f"payload version {VERSION + 1}, this one knows {VERSION}" in result.errors[0].message
    assert "Upgrade the workers" in result.errors[0].message


async def test_payloads_that_nobody_sent_run_nothing_and_stop_no_worker(temporal: TemporalServer, tmp_path: Path) -> None:
    """Any client of the namespace can start workflows: for a session that is not on record, that runs in another process or whose agent
    was not checked, or with something other than a payload."""
    settings = settings_of(temporal, tmp_path)
    guarded, worker = Scripted("guarded", hang()), Scripted("served", answer("done"))
    async with (
        Remit.open(tmp_path, agents=[guarded], settings={"builtin_agents": ()}) as elsewhere,
        Remit.open(tmp_path, agents=[guarded, worker], settings=settings) as remit,
    ):
        await remit.work(["served"])
        local = await elsewhere.start("guarded", timeout=60)
        await guarded.called.wait()
        queued = await remit.start("guarded", timeout=60)
        sent = asdict(remit.engine._order(queued.delegation))  # type: ignore[attr-defined]
        served = {
            "agent": "served",
            "queue": f"remit:{settings['engine']['project']}:served",
            "definition": remit.directory.definition_hash("served"),
        }
        client = await Client.connect(temporal.address)

        async def begin(*payload: Any) -> WorkflowHandle[Any, Any]:
            name, queue = f"hostile-{os.urandom(4).hex()}", f"remit:{settings['engine']['project']}"
            return await client.start_workflow("remit.delegation", args=payload, id=name, task_queue=queue)

        forged = [await begin({**sent, **served, "session_id": one.session_id}) for one in (local, queued)]
        odd = [await begin({**sent, **served, "session_id": one}) for one in (new_session_id(), "../../etc")]
        odd += [await begin(), await begin("x"), await begin({"session_id": 1}), await begin({**sent, **served, "seconds": -1.0})]
        for one in odd:
            await one.signal("stop", args=[None, 5])
        for one in forged:
            await asyncio.wait_for(one.result(), 60)
        assert (await remit.delegate("served", timeout=60)).data == "done"
        assert (len(worker.calls), len(guarded.calls)) == (1, 1)
        still = await elsewhere.describe(local.session_id)
        assert (still.state, still.owner) == (State.RUNNING, elsewhere.owner.owner_id)
        for one in odd:
            with contextlib.suppress(RPCError):  # it has ended
                await one.terminate()


async def test_worker_whose_policy_refuses_names_both_policies(temporal: TemporalServer, tmp_path: Path) -> None:
    ran: list[str] = []

    @agent("guarded")
    async def guarded() -> None:
        ran.append("guarded")

    settings = settings_of(temporal, tmp_path)
    (tmp_path / ".remit").mkdir()
    (tmp_path / ".remit" / "policy.cedar").write_text(
        'permit (principal, action, resource);\n@id("no-guarded")\nforbid (principal, action, resource == Agent::"guarded");\n'
    )
    async with (
        Remit.open(tmp_path, agents=[guarded], settings={**settings, "policy_mode": "permissive"}) as caller,
        Remit.open(tmp_path, agents=[guarded], settings=settings) as worker,
    ):
        await worker.work(["guarded"])
        result = await asyncio.wait_for(caller.delegate("guarded", timeout=60), 90)
        theirs, ours = (remit.engine.deps.policy.fingerprint for remit in (worker, caller))  # type: ignore[attr-defined]
    assert ran == []
    assert theirs != ours
    for one in (theirs, ours):
        assert one in result.errors[0].message
    assert "policy.cedar" in result.errors[0].recommendation
