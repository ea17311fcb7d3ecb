"""The connection to a Temporal server: configured by settings and `TEMPORAL_*` variables, checked before anything starts."""

import asyncio
import ipaddress
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from remit.core.errors import Misused, Unavailable
from remit.core.settings import EngineSettings, StoreSettings, TemporalSettings

if TYPE_CHECKING:
    from temporalio.client import Client
    from temporalio.runtime import Runtime

CONNECT_SECONDS = 5.0
OLDEST_SERVER = (1, 24)
"""Earlier servers have no task priorities on every queue."""
RPC_SECONDS = timedelta(seconds=5)
POLL_SECONDS = 75.0
"""A poller that was not heard of for longer is gone: a poll takes a minute at most."""
MISSING = "Install it: pip install 'remit[temporal]'."


@dataclass(frozen=True, slots=True)
class TemporalConfig:
    project: str
    settings: TemporalSettings
    store: str
    """Where the record is: the same for all processes of the project, and another one for another project of the same name."""
    exits_when_cut_off: bool
    """A worker process exits if an agent that cannot be stopped would overlap with its next attempt elsewhere."""

    @classmethod
    def from_settings(cls, settings: EngineSettings, *, store: str, exits_when_cut_off: bool) -> "TemporalConfig":
        """Raises `Misused` for contradictory settings."""
        if settings.project is None:
            raise Misused(
                "The engine on Temporal needs a name for the project.",
                advice='Set [engine] project = "NAME" in remit.toml, the same on every machine.',
            )
        if settings.temporal.files == "shipped" and settings.temporal.blobs is None:
            raise Misused(
                'files = "shipped" requires an object store, but none is configured.',
                advice='Set [engine.temporal] blobs = "s3://BUCKET/PREFIX", or files = "shared" if all see the same project directory.',
            )
        return cls(settings.project, settings.temporal, store, exits_when_cut_off)

    @property
    def system_queue(self) -> str:
        """Polled by every process of the project: workflows, and outcomes that no worker can record."""
        return f"remit:{self.project}"

    def queue_of(self, agent: str) -> str:
        return f"remit:{self.project}:{target_of(agent)}"


def target_of(agent: str) -> str:
    """Operations of one target (`coder.review_code`) share a task queue."""
    return agent.partition(".")[0]


def connect_options(config: TemporalConfig) -> dict[str, Any]:
    """Arguments of `Client.connect`: settings first, then Temporal's variables and profiles."""
    try:
        from temporalio.envconfig import ClientConfig
    except ImportError:
        raise Misused("The engine on Temporal needs the package temporalio.", advice=MISSING) from None
    try:
        options = dict(ClientConfig.load_client_connect_config(profile=config.settings.profile))
    except Exception as error:  # noqa: BLE001 - temporalio raises its own RuntimeError for an unreadable file
        raise Misused(
            f"The configuration of Temporal could not be read: {error}.",
            advice="Correct the TEMPORAL_* variables, or the file that TEMPORAL_CONFIG_FILE names.",
        ) from None
    options["target_host"] = config.settings.address or options.get("target_host") or "localhost:7233"
    options["namespace"] = config.settings.namespace or options.get("namespace") or "default"
    return options


async def connect(config: TemporalConfig, identity: str) -> "Client":
    """A client whose server answers and has the namespace. Raises `Misused` or `Unavailable` with advice."""
    options = connect_options(config)
    from temporalio.client import Client
    from temporalio.service import RPCError

    address, namespace = options["target_host"], options["namespace"]
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            client = await Client.connect(**options, identity=identity, runtime=_runtime())
    except TimeoutError:
        raise _not_connected(address, f"no answer within {CONNECT_SECONDS:g} s") from None
    except (RuntimeError, ValueError, RPCError, OSError) as error:
        raise _not_connected(address, str(error)) from None
    await _check_server(client, address, namespace)
    return client


@lru_cache(1)
def _runtime() -> "Runtime":
    """Of this process. The library writes a line to the terminal for each poll that fails; the engine warns once."""
    from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

    errors = TelemetryFilter(core_level="ERROR", other_level="ERROR")
    return Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(filter=errors)))


async def _check_server(client: "Client", address: str, namespace: str) -> None:
    from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, GetSystemInfoRequest
    from temporalio.service import RPCError, RPCStatusCode

    service = client.workflow_service
    try:
        info = await service.get_system_info(GetSystemInfoRequest(), timeout=RPC_SECONDS)
        await service.describe_namespace(DescribeNamespaceRequest(namespace=namespace), timeout=RPC_SECONDS)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            raise Misused(
                f"The Temporal server at {address} has no namespace {namespace!r}.",
                advice=f"Create it: temporal operator namespace create --address {address} --namespace {namespace}",
            ) from None
        raise _not_connected(address, str(error)) from None
    version = info.server_version
    if _parsed(version) < OLDEST_SERVER:
        wanted = ".".join(map(str, OLDEST_SERVER))
        raise Misused(f"The Temporal server at {address} is too old ({version}).", advice=f"Upgrade it to {wanted} or later.")


def _parsed(version: str) -> tuple[int, ...]:
    parts = version.split("-")[0].split(".")[:2]
    return tuple(int(part) for part in parts) if len(parts) == 2 and all(part.isdigit() for part in parts) else OLDEST_SERVER


_MESSAGES = re.compile(r'message: "((?:[^"\\]|\\.)+)"|(?:InvalidCertificate|AlertReceived|InvalidMessage)\((\w+)')
"""The innermost message of an error of the client library, which shows the objects around it."""


def _not_connected(address: str, why: str) -> Unavailable:
    found = _MESSAGES.findall(why)
    said = ("".join(found[-1]) if found else why.splitlines()[0])[:300].rstrip(".")
    return Unavailable(
        f"The Temporal server at {address} cannot be reached or refused the connection: {said}.",
        advice="Start it (`temporal server start-dev`), or check [engine.temporal] address, TEMPORAL_ADDRESS, TEMPORAL_API_KEY, "
        "TEMPORAL_TLS and the files that the TEMPORAL_TLS_ variables name.",
    )


def must_be_one_machine(config: TemporalConfig) -> None:
    """A SQLite database serves one machine; a remote server implies remote workers."""
    host = str(connect_options(config)["target_host"]).rpartition(":")[0].strip("[]")
    if config.settings.one_machine or host in ("localhost", "") or _is_loopback(host):
        return
    raise Misused(
        f"The store is a SQLite database of this machine and the Temporal server is at {host}: workers elsewhere would not see it.",
        advice='Set [store] url = "postgresql://…", or [engine.temporal] one_machine = true if all workers run here.',
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def place_of(store: StoreSettings, path: Path) -> str:
    """Where the record is, the same in all processes of a project. `path`: of its SQLite database."""
    if store.url is not None:
        return f"the PostgreSQL database {urlsplit(store.url).path.strip('/') or 'of the user'}, schema {store.schema}"
    return f"{path} ({path.stat().st_ino})" if path.exists() else "memory"


_RECORD = ", record in "


def identity_of(owner_id: str, host: str, store: str) -> str:
    """Of a process, as Temporal shows it."""
    return f"remit {owner_id}@{host}{_RECORD}{store}"


def parse_identity(identity: str) -> tuple[str, str]:
    """Which process, and where its record is."""
    process, _, store = identity.partition(_RECORD)
    return process, store


async def poll_times(client: "Client", queue: str) -> dict[str, datetime]:
    """Who asked for attempts of a queue, and when by the clock of the server. Raises `RPCError`."""
    from temporalio.api.enums.v1 import TaskQueueType
    from temporalio.api.taskqueue.v1 import TaskQueue
    from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest

    kind = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
    request = DescribeTaskQueueRequest(namespace=client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind)
    found = await client.workflow_service.describe_task_queue(request, timeout=RPC_SECONDS)
    return {poller.identity: poller.last_access_time.ToDatetime(UTC) for poller in found.pollers}
