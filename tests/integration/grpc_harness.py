"""A project served over gRPC in this process: the real API, authenticator and channels, and a proxy that terminates TLS."""

import asyncio
import contextlib
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remit import Context, Remit, agent
from support.server import Grants, Permission

SECOND = 10**9
DELEGATE_ONLY = frozenset({Permission.DELEGATE})


@agent("text.count")
async def count(text: str, min_length: int = 0) -> int:
    """Count the words of a text."""
    return len([part for part in text.split() if len(part) >= min_length])


@agent("echo")
async def echo(value: Any = None) -> Any:
    """Return the parameters."""
    return {"value": value}


@agent("slow", timeout=60)
async def slow(ctx: Context, seconds: float = 30.0) -> str:
    """Report the start, then sleep."""
    ctx.progress("begun", 0.5)
    ctx.emit({"half": True})
    await asyncio.sleep(seconds)
    return "Slept."


@agent("fails")
async def fails() -> None:
    """Fail."""
    raise ValueError("it broke")


@agent("loud", timeout=60)
async def loud(ctx: Context, chunks: int, size: int) -> str:
    """Emit much output."""
    for number in range(chunks):
        ctx.emit({"number": number, "text": "x" * size})
        await asyncio.sleep(0)
    return "said"


AGENTS = (count, echo, slow, fails, loud)


@dataclass(kw_only=True)
class TokenHarness:
    """A served project and the tokens of its callers."""

    remit: Remit
    authenticator: Any
    closing: contextlib.AsyncExitStack
    tokens: dict[str, str] = field(default_factory=dict)

    def token(self, name: str = "client", permissions: frozenset[Permission] = DELEGATE_ONLY, **grants: Any) -> str:
        if name not in self.tokens:
            self.tokens[name] = self.authenticator.tokens.new(name, Grants(permissions=permissions, **grants))[1]
        return self.tokens[name]


@dataclass(kw_only=True)
class Harness(TokenHarness):
    service: Any
    api: Any
    address: str

    async def channel(self, address: str | None = None, **options: Any) -> Any:
        import grpc.aio

        channel_options = [(f"grpc.{name}", value) for name, value in options.items()]
        channel_options.append(("grpc.use_local_subchannel_pool", 1))
        channel = grpc.aio.insecure_channel(address or self.address, options=channel_options)
        self.closing.push_async_callback(channel.close)
        return channel

    async def tasks(self, **options: Any) -> Any:
        """A stub of the task service."""
        from remit import tasks_pb2_grpc as rpc

        return rpc.TaskServiceStub(await self.channel(**options))


async def grpc_api(service: Any, authenticator: Any, settings: Any, *addresses: str) -> Any:
    """Listening, like `remit serve`."""
    from remit.server.grpc.registry import Registry
    from remit.server.grpc.server import GrpcApi
    from support.server import GRPC_SOCKET, Place, place_of

    api = GrpcApi(service, authenticator, settings, Registry(service, authenticator, settings))
    usual = service.remit.folder / "run" / GRPC_SOCKET
    places = [
        Place(path=Path(text.removeprefix("unix:"))) if text.startswith("unix:") else place_of(text, usual)
        for text in addresses or ("unix",)
    ]
    await api.start(*places)
    return api


@contextlib.asynccontextmanager
async def grpc_harness(root: Path, *, addresses: Sequence[str] = (), **serve: Any) -> AsyncIterator[Harness]:
    from support.server import Authenticator, Service

    async with Remit.open(root, agents=AGENTS) as remit, contextlib.AsyncExitStack() as closing:
        known = remit.settings.serve._replace(**serve)
        authenticator = Authenticator(remit.folder, running=remit.engine.find)
        authenticator.open()
        service = Service(remit)
        api = await grpc_api(service, authenticator, known, *addresses)
        closing.push_async_callback(api.stop, 0.0)
        yield Harness(remit=remit, service=service, authenticator=authenticator, api=api, address=api.address, closing=closing)


def messages() -> Any:
    from remit import tasks_pb2

    return tasks_pb2


def bearer(token: str, *more: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"), *more)


def ask(type_: str, *, agent_id: str = "", wait: float = 10.0, session: str = "", **parameters: Any) -> Any:
    from remit import tasks_pb2 as pb
    from support.protobuf import struct_of

    return pb.ExecuteTaskRequest(
        agent_id=agent_id,
        type=type_,
        session_id=session,
        wait_ns=int(wait * SECOND),
        config=pb.TaskConfig(parameters=struct_of(parameters)),
    )


async def refusal(call: Any) -> Any:
    """The error of a failed call."""
    import grpc.aio

    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error
    raise AssertionError("the call succeeded")


def trailer(error: Any, name: str) -> Any:
    return dict(error.trailing_metadata()).get(name)


@contextlib.asynccontextmanager
async def tls_proxy(address: Callable[[], str], files: tuple[Path, Path]) -> AsyncIterator[str]:
    """A proxy that terminates TLS in front of a server. `files`: a certificate and its key."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*files)
    context.set_alpn_protocols(["h2", "http/1.1"])

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = address().rpartition(":")
        there_reader, there_writer = await asyncio.open_connection(host, int(port))
        await asyncio.gather(pump(reader, there_writer), pump(there_reader, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


class Authority:
    """A certificate authority; certificates are valid for a day."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.certificate = folder, folder / "ca.pem"
        self._create("ca", "-subj", "/CN=remit test CA")

    def issue(self, name: str) -> tuple[Path, Path]:
        """A certificate and its key, for `name` and loopback."""
        signed = ("-CA", str(self.certificate), "-CAkey", str(self.folder / "ca.key"), "-addext", "basicConstraints=critical,CA:FALSE")
        names = f"subjectAltName=DNS:{name},DNS:localhost,IP:127.0.0.1"
        return self._create(name, "-subj", f"/CN={name}", *signed, "-addext", names)

    def _create(self, name: str, *options: str) -> tuple[Path, Path]:
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1", *options]
        subprocess.run([*words, "-out", str(certificate), "-keyout", str(key)], check=True, capture_output=True)
        return certificate, key
