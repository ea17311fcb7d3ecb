"""The number of connections to the HTTP server."""

import asyncio
import contextlib
import socket

from remit.server.http.http_server import HttpLimits, HttpServer


async def test_connections_that_arrive_together_respect_the_limit() -> None:
    listening = socket.create_server(("127.0.0.1", 0), backlog=200)
    server = HttpServer(None, limits=HttpLimits(connections=5))
    clients = [socket.create_connection(listening.getsockname()) for _ in range(100)]  # all accepted in one iteration of the loop
    try:
        await server.start([listening])
        async with asyncio.timeout(20):
            await asyncio.gather(*(_wait_for_close(client) for client in clients[:-5]))
        assert server.connections == 5
    finally:
        await server.stop(grace_seconds=0.1)
        for client in clients:
            client.close()


async def _wait_for_close(client: socket.socket) -> None:
    client.setblocking(False)
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
