"""For the tests of other frameworks: an agent whose runs can be waited for, the calls a scripted model makes of it, and a model that
never comes to an end."""

import asyncio
import json
from typing import Any

from remit import agent
from remit.testing.models import Call


class Present:
    """What runs now; others can wait until so many do."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._waiting: list[tuple[int, asyncio.Event]] = []

    def come(self, name: str) -> None:
        self.names.add(name)
        for count, event in self._waiting:
            if len(self.names) >= count:
                event.set()

    async def until(self, count: int) -> None:
        event = asyncio.Event()
        self._waiting.append((count, event))
        async with asyncio.timeout(20):
            if len(self.names) < count:
                await event.wait()
        self._waiting.remove((count, event))


present = Present()


@agent("echo")
async def echo(text: str, wait: float = 0.0) -> str:
    """Says it again."""
    present.come(text)
    try:
        await asyncio.sleep(wait)
    finally:
        present.names.discard(text)
    return f"echo {text}"


def delegate(target: str, **parameters: Any) -> Call:
    return Call("delegate", target=target, parameters=parameters)


class Endless:
    """Speaks like OpenAI's chat completions, word after word, until nobody listens."""

    async def __aenter__(self) -> "Endless":
        self._server = await asyncio.start_server(self._speak, "127.0.0.1", 0)
        self.openai_url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    async def __aexit__(self, *gone: Any) -> None:
        self._server.close()

    async def _speak(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        choice = {"index": 0, "delta": {"role": "assistant", "content": "and so on " * 10}, "finish_reason": None}
        words = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "endless", "choices": [choice]}
        piece = f"data: {json.dumps(words)}\n\n".encode()
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
            while True:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.002)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
