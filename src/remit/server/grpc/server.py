"""The gRPC server: the task service, registered agents, health and reflection, at its addresses."""

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

from remit.agents.proto.v1 import tasks_pb2 as pb
from remit.agents.proto.v1 import tasks_pb2_grpc as rpc
from remit.core.settings import ServeSettings
from remit.server.addresses import Place, bind_unix, cannot_listen
from remit.server.authenticator import Authenticator
from remit.server.grpc.auth_interceptor import AuthInterceptor
from remit.server.grpc.tasks import TaskService
from remit.server.service import Service
from remit.system.unix_sockets import grpc_target

if TYPE_CHECKING:
    from remit.server.grpc.registry import Registry

TASKS = pb.DESCRIPTOR.services_by_name["TaskService"].full_name
AGENTS = pb.DESCRIPTOR.services_by_name["AgentService"].full_name
REFLECTION_V1 = "grpc.reflection.v1.ServerReflection"
MOST_CONNECTIONS = 4000
MOST_STREAMS = 2000
"""On one connection."""
METADATA_BYTES = 16 * 1024
STOP_NOTICE_SECONDS = 1.0
"""Time for health watchers to receive that the server stops."""


class GrpcApi:
    def __init__(self, service: Service, authenticator: Authenticator, settings: ServeSettings, registry: "Registry") -> None:
        """With every service, not listening yet."""
        logging.getLogger("grpc._cython.cygrpc").addFilter(_is_news)  # adding it twice has no effect
        interceptor = AuthInterceptor(authenticator, trusts_socket=not settings.behind_proxy)
        self._server = grpc.aio.server(interceptors=[interceptor], options=_options(settings), maximum_concurrent_rpcs=5 * MOST_STREAMS)
        self._sockets: list[Path] = []
        self._health = health.aio.HealthServicer()
        rpc.add_TaskServiceServicer_to_server(TaskService(service), self._server)  # type: ignore[no-untyped-call]
        rpc.add_AgentServiceServicer_to_server(registry, self._server)  # type: ignore[no-untyped-call]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        _add_reflection([TASKS, AGENTS, health.SERVICE_NAME, reflection.SERVICE_NAME], self._server)
        self._notice: asyncio.Future[None] | None = None
        self.addresses: list[str] = []
        """In gRPC notation: `unix:/…/grpc.sock`, `127.0.0.1:50051`."""

    @property
    def address(self) -> str:
        """The first of them."""
        return self.addresses[0] if self.addresses else ""

    async def start(self, *places: Place) -> None:
        """Listens at these checked places. Raises `Misused`, `Unavailable`."""
        try:
            for place in places:
                self._listen(place)
            await self._server.start()
        except BaseException:
            await self.stop(0.0)
            raise
        for name in ("", TASKS, AGENTS):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)

    def stop_taking(self) -> None:
        """Health checks report that the server stops. Calls are still answered, but the service refuses new work."""
        self._notice = self._notice or asyncio.ensure_future(self._health.enter_graceful_shutdown())

    async def stop(self, grace: float | None = None) -> None:
        """Accepts no more calls; current ones have `grace` seconds. Delegations continue."""
        for path in self._sockets:
            path.unlink(missing_ok=True)
        self._sockets.clear()
        self.stop_taking()
        assert self._notice is not None
        await asyncio.wait([self._notice], timeout=STOP_NOTICE_SECONDS)
        self._notice.cancel()
        await self._server.stop(grace)

    def _listen(self, place: Place) -> None:
        if place.path is not None:
            bind_unix(place.path, lambda name: self._server.add_insecure_port(grpc_target(name)))
            self._sockets.append(place.path)
            self.addresses.append(str(place))
            return
        try:
            port = self._server.add_insecure_port(str(place))
        except RuntimeError as error:
            raise cannot_listen(place, str(error)) from None
        self.addresses.append(str(Place(host=place.host, port=port)))


def _add_reflection(names: list[str], server: grpc.aio.Server) -> None:
    """Version v1alpha, and v1, which grpcio-reflection lacks: its messages are the same on the wire."""
    reflection.enable_server_reflection(names, server)
    method = grpc.stream_stream_rpc_method_handler(
        reflection.aio.ReflectionServicer(names).ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(REFLECTION_V1, {"ServerReflectionInfo": method}),))


def _is_news(record: logging.LogRecord) -> bool:
    """False for gRPC's traceback when a client leaves during an answer."""
    return "raised in core by servicer method" not in record.getMessage()


def _options(settings: ServeSettings) -> list[tuple[str, Any]]:
    return [
        ("grpc.max_receive_message_length", settings.request_bytes),
        ("grpc.max_send_message_length", -1),  # results are bounded where they are created
        ("grpc.max_metadata_size", METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", METADATA_BYTES),
        ("grpc.max_concurrent_streams", MOST_STREAMS),
        ("grpc.max_allowed_incoming_connections", MOST_CONNECTIONS),
        ("grpc.so_reuseport", 0),  # a second server at the same port is an error
        ("grpc.server_handshake_timeout_ms", 10_000),
        ("grpc.keepalive_time_ms", 60_000),  # detects clients whose machine is gone
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
        ("grpc.http2.max_ping_strikes", 2),
        ("grpc.max_connection_idle_ms", 15 * 60_000),
    ]
