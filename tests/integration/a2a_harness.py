"""A project that serves A2A over both bindings on loopback, in this process, and clients of the SDK."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grpc_harness import TokenHarness

from remit import Remit

BINDINGS = ("JSONRPC", "HTTP+JSON")


@dataclass(kw_only=True)
class Harness(TokenHarness):
    url: str

    async def client(self, binding: str = "JSONRPC", token: str | None = None, *, streaming: bool = True) -> Any:
        """A client of the SDK, configured by the served agent card."""
        from support.apis.over_a2a import sdk_client

        return await sdk_client(self.closing, self.url, token or self.token(), binding, streaming=streaming)


@contextlib.asynccontextmanager
async def a2a_harness(
    root: Path, functions: Sequence[Any] = (), *, is_public: bool = False, public_url: str | None = None, **settings: Any
) -> AsyncIterator[Harness]:
    from support.server import Apis, bound_apis

    root.mkdir(exist_ok=True)  # noqa: ASYNC240 - nothing else runs here yet
    serve: dict[str, Any] = {"apis": ["a2a"], "http": "127.0.0.1:0", "public_url": public_url or "none"}
    async with contextlib.AsyncExitStack() as closing:
        remit = Remit.open(root, agents=functions, settings={"builtin_agents": [], "serve": serve, **settings})
        bound = closing.enter_context(bound_apis(remit.settings.serve, root))
        await closing.enter_async_context(remit)
        apis = await closing.enter_async_context(Apis(remit, replace(bound, is_local=not is_public)))
        assert apis.http_address is not None
        async with contextlib.AsyncExitStack() as clients:
            yield Harness(remit=remit, authenticator=apis.authenticator, url=apis.http_address, closing=clients)


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
