"""The network access of a container: a CONNECT proxy with a list of hosts, and ports of the host's loopback address.

A container has its own network namespace. Its first process opens listening sockets there and passes them to remit, which accepts their
connections. Names are resolved and connected on the host, so that a name cannot lead to another address later."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from remit.agents.containment.hosts import HostList
from remit.core.errors import Misused, Refused, RemitError
from remit.system.http import Permit, Target, UnreachableError, parse_target, resolve
from remit.system.ip_addresses import Address, AddressKind, classify_address

CONNECT = "contain.connect"
"""The action in policy requests."""
HEAD_BYTES = 16 * 1024
HEAD_SECONDS = 10.0
CONNECT_SECONDS = 20.0
CONNECTIONS_AT_ONCE = 256
_PIECE = 64 * 1024
_HANDSHAKE, _CLIENT_HELLO = 22, 1
_SERVER_NAME, _ENCRYPTED_HELLO = 0, 0xFE0D
_REASONS = {400: "Bad Request", 403: "Forbidden", 405: "Method Not Allowed", 502: "Bad Gateway", 503: "Service Unavailable"}

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Gateway:
    """The gateway of one container. Every decision goes to the policy or, if the list of hosts refuses, to `note_refusal`: both write the
    audit log."""

    def __init__(
        self,
        hosts: HostList,
        permit: Permit,
        note_refusal: Callable[[Mapping[str, Any], str], Awaitable[None]],
        *,
        resolve: Callable[[str, int], Awaitable[Sequence[Address]]] = resolve,
    ) -> None:
        self._hosts = hosts
        self._permit = permit
        self._note_refusal = note_refusal
        self._resolve = resolve
        self._servers: list[asyncio.Server] = []
        self._open: set[asyncio.Task[None]] = set()

    async def serve(self, proxy: socket.socket, forwarded: Mapping[int, socket.socket]) -> None:
        """Serve these sockets; `forwarded` by the host's port that each maps to."""
        self._servers.append(await asyncio.start_server(partial(self._serve, self._answer), sock=proxy, limit=HEAD_BYTES))
        for port, sock in forwarded.items():
            self._servers.append(await asyncio.start_server(partial(self._serve, partial(_forward, port)), sock=sock))

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, answer: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            if len(self._open) > CONNECTIONS_AT_ONCE:
                await _refuse(writer, 503, f"{CONNECTIONS_AT_ONCE} connections are open already.")
            else:
                await answer(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # one of the two ends or the container is gone
        finally:
            self._open.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle one CONNECT to its end."""
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return
        method, authority = (*head.split(b"\r\n", 1)[0].decode("latin-1").split(" "), "")[:2]
        if method != "CONNECT":
            await _refuse(writer, 405, 'Only https passes this proxy (CONNECT). List a local server as hosts = ["127.0.0.1:PORT"].')
            return
        try:
            target = parse_target(f"https://{authority}/")
            addresses = await self._admit(target)
            async with _connected(addresses, target.port) as far:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                if target.address is None:
                    far[1].write(await self._hello(reader, target))
                await _join((reader, writer), far)
        except Misused as error:
            await _refuse(writer, 400, error.message)
        except UnreachableError as error:
            await _refuse(writer, 502, str(error))
        except RemitError as error:
            await _refuse(writer, 403, f"{error.message} {error.advice or ''}")

    async def _admit(self, target: Target) -> Sequence[Address]:
        """The addresses to connect to. Raises `Refused`."""
        facts = {"host": target.host, "port": target.port, "method": "CONNECT"}
        if not self._hosts.allows(target):
            await self._refused(facts, f"{target.host}:{target.port} is not in the list of hosts of this agent.")
        addresses = [target.address] if target.address is not None else await self._resolve(target.host, target.port)
        for address in addresses:
            kind = classify_address(address)
            if kind is not AddressKind.PUBLIC and not self._hosts.lists_address(address, target.port):
                await self._refused(facts, f"{target.host} leads to {address}, which is not a public address ({kind}).")
        await self._permit(CONNECT, effects=["network"], scheme="https", **facts)
        return addresses

    async def _hello(self, reader: asyncio.StreamReader, target: Target) -> bytes:
        """The first TLS message. It must name the requested host: shared servers serve whichever host it names."""
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                sent = await _read_hello(reader)
            named = server_name(sent)
        except (TimeoutError, ValueError, IndexError, asyncio.IncompleteReadError):
            sent, named = b"", None
        if named != target.host:
            words = f"names {named}" if named else "names no readable host"
            await self._refused({"host": target.host, "port": target.port, "method": "CONNECT"}, f"TLS to {target.host} {words}.")
        return sent

    async def _refused(self, facts: Mapping[str, Any], because: str) -> None:
        await self._note_refusal(facts, because)
        raise Refused(because, code="POLICY_DENIED", advice=f'Have a person add it: hosts = ["{facts["host"]}"].')


async def _read_hello(reader: asyncio.StreamReader) -> bytes:
    """The records of one handshake message. Raises `ValueError` for anything else."""
    sent, message = b"", b""
    while len(message) < 4 or len(message) < 4 + int.from_bytes(message[1:4]):
        head = await reader.readexactly(5)
        length = int.from_bytes(head[3:])
        if head[0] != _HANDSHAKE or not 0 < length <= HEAD_BYTES or len(sent) > 4 * HEAD_BYTES:
            raise ValueError("not the beginning of TLS")
        body = await reader.readexactly(length)
        sent, message = sent + head + body, message + body
    return sent


def server_name(records: bytes) -> str | None:
    """The host in a ClientHello; None if there is none or it hides another one (Encrypted Client Hello)."""
    message = b""
    while records:
        length = 5 + int.from_bytes(records[3:5])
        message, records = message + records[5:length], records[length:]
    if message[0] != _CLIENT_HELLO:
        return None
    at = 4 + 2 + 32
    for width in (1, 2, 1):  # session, ciphers, compression
        at += width + int.from_bytes(message[at : at + width])
    end = at + 2 + int.from_bytes(message[at : at + 2])
    at, named = at + 2, None
    while at < end:
        kind, length = int.from_bytes(message[at : at + 2]), int.from_bytes(message[at + 2 : at + 4])
        data = message[at + 4 : at + 4 + length]
        at += 4 + length
        if kind == _ENCRYPTED_HELLO or (kind == _SERVER_NAME and named is not None):
            return None
        if kind == _SERVER_NAME:
            if data[2] != 0 or int.from_bytes(data[:2]) != 3 + int.from_bytes(data[3:5]):  # one name, of the only type
                return None
            named = data[5 : 5 + int.from_bytes(data[3:5])].decode("ascii", "replace").lower()
    return named


@contextlib.asynccontextmanager
async def _connected(addresses: Sequence[object], port: int) -> AsyncIterator[Streams]:
    fault: object = "it has no address"
    for address in addresses:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                reader, writer = await asyncio.open_connection(str(address), port)
        except (OSError, TimeoutError) as error:
            fault = error or "no answer"
            continue
        try:
            yield reader, writer
        finally:
            writer.close()
        return
    raise UnreachableError(f"Port {port} cannot be connected to: {fault}.")


async def _forward(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    async with _connected(("127.0.0.1",), port) as far:
        await _join((reader, writer), far)


async def _join(near: Streams, far: Streams) -> None:
    """Pass on bytes in both directions until both have ended."""
    async with asyncio.TaskGroup() as both:
        both.create_task(_pass_on(near[0], far[1]))
        both.create_task(_pass_on(far[0], near[1]))


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_PIECE):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError, RuntimeError):
        writer.write_eof()


async def _refuse(writer: asyncio.StreamWriter, status: int, words: str) -> None:
    body = f"remit: {words}\n".encode()
    head = f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
