"""The messages of an agent on its pipes, one JSON object a line, for the protocol library's connection.

In place of the library's own reader: an agent is not trusted with our memory, our log, or with ending our reading by an odd line.
What is no message is skipped, up to a number; a line without end, or too much noise, ends the conversation, and `fault` says why.
"""

import asyncio
import json
from typing import Any

NOISE_BEFORE_LIMIT = 50
"""Lines that are no messages before the first message: some agents print a greeting; one that goes on does not speak the protocol."""
NOISE_LIMIT = 5_000
_OURS = "initialize"
"""What only we ask: whoever asks us repeats its input, as `cat` does."""
_BREATH = 32
"""After so many messages the loop is given to others: a flood must not hold it."""


class Lines:
    """The library's `Transport`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._noise = 0
        self._messages = 0
        self.first_noise = ""
        self.fault = ""
        """Why we stopped reading, when it was not the agent that ended."""

    async def send(self, message: dict[str, Any]) -> None:
        try:
            self._writer.write((json.dumps(message, separators=(",", ":")) + "\n").encode())
            await self._writer.drain()
        except (ConnectionError, RuntimeError) as error:
            if "method" in message:  # an answer that nobody reads is no loss; a question would never be answered
                raise ConnectionError("it reads no more") from error

    async def receive(self) -> dict[str, Any] | None:
        while not self.fault:
            try:
                line = await self._reader.readline()
            except ValueError:
                self.fault = "it sent a line of many megabytes, without end"
                break
            except ConnectionError:
                break
            if not line:
                break
            message = _message(line)
            if message is not None and message.get("method") == _OURS:
                self.fault = "it does not speak the Agent Client Protocol; it says back what it is told"
                break
            if message is not None:
                self._messages += 1
                if self._messages % _BREATH == 0:
                    await asyncio.sleep(0)
                return message
            await self._skip(line)
        return None

    async def close(self) -> None:
        """The pipes are closed by whoever started the process."""

    async def _skip(self, line: bytes) -> None:
        shown = line.decode(errors="replace").strip()
        if not shown:
            return
        self._noise += 1
        self.first_noise = self.first_noise or shown[:200]
        if self._noise > (NOISE_LIMIT if self._messages else NOISE_BEFORE_LIMIT):
            self.fault = f"it does not speak the Agent Client Protocol; it said: {self.first_noise}"
        if self._noise % _BREATH == 0:
            await asyncio.sleep(0)


def _message(line: bytes) -> dict[str, Any] | None:
    """The message a line is: of a shape that the library can be given without harm."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict):
        return None
    if "method" in message:
        return message if isinstance(message["method"], str) else None
    if type(message.get("id")) is not int:  # ours are numbers
        return None
    error = message.get("error")
    if error is not None and not (isinstance(error, dict) and isinstance(error.get("code"), int)):
        message["error"] = {"code": -32603, "message": str(error)[:500]}
    return message
