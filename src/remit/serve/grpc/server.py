"""The gRPC server: the task service, registered agents, health and reflection, at its addresses.

api = await grpc_server(Service(remit), entrance, remit.settings.serve)
await api.start()
…
await api.stop(5.0)
"""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_reflection.v1alpha import reflection

from remit.access.entrance import Entrance
from remit.core.errors import Misused, Unavailable
from remit.proto.v1 import tasks_pb2 as pb
from remit.proto.v1 import tasks_pb2_grpc as rpc
from remit.serve.addresses import GRPC_SOCKET, Certificates, Place, UnixSocket, bind_unix, certificates_of, must_be_safe, place_of
from remit.serve.grpc.auth_interceptor import AuthInterceptor
from remit.serve.grpc.tasks import TaskService
from remit.serve.service import Service
from remit.settings.values import ServeSettings
from remit.system.unix_path import as_target


class Renewing:
    """The server's certificate as its files are now: one that is renewed holds from the next connection on, without a restart."""

    def __init__(self, files: Certificates) -> None:
        self._files = files
        self._stamp = self._now()
        self._loaded = self._load()

    def credentials(self) -> grpc.ServerCredentials:
        """With a `client_ca` every caller must show a certificate that it signed."""
        asks = self._files.client_ca is not None
        return grpc.dynamic_ssl_server_credentials(self._loaded, self._renewed, require_client_authentication=asks)  # type: ignore[arg-type]

    def _renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """Asked at each connection, on a thread of gRPC's. Half-written files are no reason to turn callers away."""
        stamp = self._now()
        if stamp == self._stamp:
            return None
        try:
            self._loaded = self._load()
        except Misused:
            return None
        self._stamp = stamp
        return self._loaded

    def _now(self) -> tuple[int, ...]:
        found: list[int] = []
        for path in (self._files.certificate, self._files.key, self._files.client_ca):
            with contextlib.suppress(OSError):
                if path is not None:
                    known = path.stat()
                    found += [known.st_ino, known.st_mtime_ns, known.st_size]
        return tuple(found)

    def _load(self) -> grpc.ServerCertificateConfiguration:
        files = self._files
        try:
            checked = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            checked.load_cert_chain(files.certificate, files.key, password=lambda: b"")  # never asked at a terminal
            if files.client_ca is not None:
                checked.load_verify_locations(files.client_ca)
            authority = None if files.client_ca is None else files.client_ca.read_bytes()
            pair = (files.key.read_bytes(), files.certificate.read_bytes())
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            raise Misused(
                f"The certificate {files.certificate} or its key cannot be used: {error}.",
                advice="Both are PEM files, the key without a password: serve.tls_certificate, serve.tls_key, serve.client_ca.",
            ) from None
        return grpc.ssl_server_certificate_configuration([pair], authority)


TASKS = pb.DESCRIPTOR.services_by_name["TaskService"].full_name
AGENTS = pb.DESCRIPTOR.services_by_name["AgentService"].full_name
MOST_CONNECTIONS = 4000
METADATA_BYTES = 16 * 1024
TELLING_SECONDS = 1.0
"""So long at most it takes to tell whoever watches that we stop: one that does not read keeps nobody waiting."""

AddTo = Callable[[grpc.aio.Server], None]


class RemoteAgents(Protocol):
    """The agents that register here (`serve.grpc.registry`)."""

    def add_to(self, server: grpc.aio.Server) -> None: ...
    def name_of(self, agent_id: str) -> str | None:
        """The name in the directory of one that is registered, by its id."""
        ...


class GrpcApi:
    def __init__(self, server: grpc.aio.Server, entering: AuthInterceptor, service: Service, settings: ServeSettings) -> None:
        self._server = server
        self._entering = entering
        self._service = service
        self._settings = settings
        self._sockets: list[UnixSocket] = []
        self._health = HealthServicer()
        self._health_names: list[str] = [""]
        self._telling: asyncio.Future[None] | None = None
        self.addresses: list[str] = []
        """As gRPC names them: `unix:/…/grpc.sock`, `127.0.0.1:50051`."""

    @property
    def address(self) -> str:
        """The first of them."""
        return self.addresses[0] if self.addresses else ""

    async def start(self, addresses: Sequence[str] | None = None) -> None:
        """Listens at `unix`, `unix:PATH` or HOST:PORT; those of the settings where none are given. What cannot be is told at once."""
        root, folder = self._service.remit.root, self._service.remit.folder
        places = [place_of(text, folder / "run" / GRPC_SOCKET, root) for text in addresses or (self._settings.grpc,)]
        try:
            for place in places:
                must_be_safe(place, self._settings)
                self._listen(place)
            await self._server.start()
        except BaseException:
            await self.stop(0.0)
            raise
        for name in self._health_names:
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)

    def stop_taking(self) -> None:
        """Whoever asks whether we live hears that we stop; calls are answered all the same, and what begins new work is refused."""
        self._telling = self._telling or asyncio.ensure_future(self._health.enter_graceful_shutdown())

    async def stop(self, grace: float | None = None) -> None:
        """Nothing new from now on; calls that are being answered have `grace` seconds. Delegations go on: they are not the door's."""
        for sock in self._sockets:
            sock.remove()
        self.stop_taking()
        assert self._telling is not None
        await asyncio.wait([self._telling], timeout=TELLING_SECONDS)
        self._telling.cancel()
        await asyncio.sleep(0)  # those who watch are told before they are left
        self._entering.end_watching()
        await self._server.stop(grace)

    def _listen(self, place: Place) -> None:
        if place.path is not None:
            self._sockets.append(bind_unix(place.path, lambda name: self._server.add_insecure_port(as_target(name)), "grpc"))
            self.addresses.append(str(place))
            return
        files = certificates_of(self._settings, self._service.remit.root)
        try:
            if files is None:
                port = self._server.add_insecure_port(str(place))
            else:
                port = self._server.add_secure_port(str(place), Renewing(files).credentials())
        except RuntimeError:
            advice = "Choose another port in [serve] grpc; 0 takes any that is free."
            raise Unavailable(f"{place} cannot be listened on.", code="TOOL_UNAVAILABLE", advice=advice) from None
        self.addresses.append(str(Place(host=place.host, port=port)))

    def add(self, remote_agents: RemoteAgents | None, extra: Sequence[AddTo]) -> None:
        names = [TASKS]
        rpc.add_TaskServiceServicer_to_server(  # type: ignore[no-untyped-call]
            TaskService(self._service, remote_agents.name_of if remote_agents is not None else lambda _agent_id: None), self._server
        )
        if remote_agents is not None:
            remote_agents.add_to(self._server)
            names.append(AGENTS)
        known = _Listing(self._server)
        for add_to in extra:
            add_to(known)  # type: ignore[arg-type]
        names += known.names
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self._health_names += names
        reflection.enable_server_reflection([*names, "grpc.health.v1.Health", reflection.SERVICE_NAME], self._server)


class _Listing:
    """A server that notes the names of the services that are added to it."""

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server
        self.names: list[str] = []

    def add_registered_method_handlers(self, service_name: str, method_handlers: Any) -> None:
        if service_name not in self.names:
            self.names.append(service_name)
        self._server.add_registered_method_handlers(service_name, method_handlers)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)


def _is_news(record: logging.LogRecord) -> bool:
    """That a client left while it was being told something is its own affair; gRPC writes a traceback of it."""
    return "raised in core by servicer method" not in record.getMessage()


async def grpc_server(
    service: Service,
    entrance: Entrance,
    settings: ServeSettings,
    remote_agents: RemoteAgents | None = None,
    extra: Sequence[AddTo] = (),
) -> GrpcApi:
    """With every service, not yet listening. `extra`: further services, e.g. A2A's, behind the same entrance."""
    logging.getLogger("grpc._cython.cygrpc").addFilter(_is_news)  # a filter that is there already is not added again
    entering = AuthInterceptor(entrance, trusts_socket=not settings.behind_proxy)
    server = grpc.aio.server(
        interceptors=[entering],
        options=options_of(settings),
        maximum_concurrent_rpcs=4 * settings.streams + 1000,
    )
    door = GrpcApi(server, entering, service, settings)
    door.add(remote_agents, extra)
    return door


def options_of(settings: ServeSettings) -> list[tuple[str, Any]]:
    return [
        ("grpc.max_receive_message_length", settings.request_bytes),
        ("grpc.max_send_message_length", -1),  # our own results are bounded where they are made
        ("grpc.max_metadata_size", METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", METADATA_BYTES),
        ("grpc.max_concurrent_streams", settings.streams + 100),  # of one connection
        ("grpc.max_allowed_incoming_connections", MOST_CONNECTIONS),
        ("grpc.so_reuseport", 0),  # a second server at the same port is an error, not a partner
        ("grpc.server_handshake_timeout_ms", 10_000),
        ("grpc.http2.settings_timeout", 10_000),
        ("grpc.keepalive_time_ms", 60_000),  # a client whose machine is gone is noticed
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),  # more often is a flood
        ("grpc.http2.max_ping_strikes", 2),
        ("grpc.max_connection_idle_ms", 15 * 60_000),
    ]
