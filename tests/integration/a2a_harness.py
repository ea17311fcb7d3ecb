"""A project that serves A2A over all three bindings on loopback, in this process, and clients of the SDK."""

import contextlib
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remit import Remit
from support.server import Grants, Permission

BINDINGS = ("JSONRPC", "HTTP+JSON", "GRPC")
DELEGATE_ONLY = frozenset({Permission.DELEGATE})


@dataclass
class Harness:
    remit: Remit
    service: Any
    authenticator: Any
    api: Any
    url: str
    grpc_address: str
    closing: contextlib.AsyncExitStack
    tokens: dict[str, str] = field(default_factory=dict)

    def token(self, name: str = "client", permissions: frozenset[Permission] = DELEGATE_ONLY, **grants: Any) -> str:
        if name not in self.tokens:
            self.tokens[name] = self.authenticator.tokens.new(name, Grants(permissions=permissions, **grants))[1]
        return self.tokens[name]

    async def client(self, binding: str = "JSONRPC", token: str | None = None, *, streaming: bool = True) -> Any:
        """A client of the SDK, configured by the served agent card."""
        import grpc.aio
        import httpx
        from a2a.client import ClientConfig, ClientFactory
        from a2a.client.card_resolver import A2ACardResolver

        headers = {"Authorization": f"Bearer {token or self.token()}"}
        http = await self.closing.enter_async_context(httpx.AsyncClient(headers=headers, timeout=30))
        card = await A2ACardResolver(http, self.url).get_agent_card()
        config = ClientConfig(
            streaming=streaming,
            httpx_client=http,
            grpc_channel_factory=grpc.aio.insecure_channel,
            supported_protocol_bindings=[binding],
        )
        client = ClientFactory(config).create(card, [_Bearer(token or self.token())])
        self.closing.push_async_callback(client.close)
        return client


class _Bearer:
    """Sends the token over gRPC, where HTTP client headers do not apply."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def before(self, args: Any) -> None:
        from a2a.client import ClientCallContext

        args.context = args.context or ClientCallContext()
        args.context.service_parameters = {**(args.context.service_parameters or {}), "authorization": f"Bearer {self._token}"}

    async def after(self, args: Any) -> None:
        pass


@contextlib.asynccontextmanager
async def a2a_harness(
    root: Path, functions: Sequence[Any] = (), *, is_public: bool = False, tls: Any = None, **settings: Any
) -> AsyncIterator[Harness]:
    import grpc.aio
    from starlette.applications import Starlette

    from remit.server.a2a.api import OPEN_PATHS, A2aApi
    from remit.server.grpc.auth_interceptor import AuthInterceptor
    from remit.server.http.http_server import HttpServer
    from remit.server.http.middleware import AuthMiddleware
    from support.server import Authenticator, Service

    root.mkdir(exist_ok=True)  # noqa: ASYNC240 - nothing else runs here yet
    async with contextlib.AsyncExitStack() as closing:
        remit = await closing.enter_async_context(Remit.open(root, agents=functions, settings={"builtin_agents": [], **settings}))
        service = Service(remit)
        authenticator = Authenticator(remit.folder, remit.settings.serve, running=remit.engine.find)
        listening = socket.create_server(("127.0.0.1", 0))
        url = f"{'http' if tls is None else 'https'}://127.0.0.1:{listening.getsockname()[1]}"
        server = grpc.aio.server(interceptors=[AuthInterceptor(authenticator)])
        port = server.add_insecure_port("127.0.0.1:0")
        api = A2aApi(service, remit.settings.serve, base_url=lambda: url, grpc_url=lambda: f"127.0.0.1:{port}", is_public=is_public)
        api.add_to(server)
        await server.start()
        closing.push_async_callback(server.stop, 0.2)
        app = AuthMiddleware(Starlette(routes=api.routes), authenticator, remit.settings.serve, open_paths=OPEN_PATHS)
        http = HttpServer(app, tls=tls)
        await http.start([listening])
        closing.push_async_callback(http.stop, 0.2)
        yield Harness(remit, service, authenticator, api, url, f"127.0.0.1:{port}", closing)


def message(text: str = "", data: Any = None, *, message_id: str = "", skill: str | None = None, **fields: Any) -> Any:
    """A client message."""
    import uuid

    from a2a.types import Message, Part, Role
    from google.protobuf.json_format import ParseDict
    from google.protobuf.struct_pb2 import Struct, Value

    parts = [Part(text=text)] if text else []
    if data is not None:
        parts.append(Part(data=ParseDict(data, Value())))
    metadata = {**fields.pop("metadata", {}), **({"skill": skill} if skill else {})}
    return Message(
        message_id=message_id or uuid.uuid4().hex, role=Role.ROLE_USER, parts=parts, metadata=ParseDict(metadata, Struct()), **fields
    )


async def send(client: Any, request_message: Any, **configuration: Any) -> list[Any]:
    """Send a message and collect all events."""
    from a2a.types import SendMessageConfiguration, SendMessageRequest

    request = SendMessageRequest(message=request_message, configuration=SendMessageConfiguration(**configuration))
    return [event async for event in client.send_message(request)]


def state_name(task_or_status: Any) -> str:
    from a2a.types import TaskState

    status = getattr(task_or_status, "status", task_or_status)
    return TaskState.Name(status.state).removeprefix("TASK_STATE_")
