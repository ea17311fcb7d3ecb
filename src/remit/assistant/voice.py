"""The words of a reply, told as they come (S5.7): as `{"text": …}`, and `{"restart": true}` where another model begins anew.

Gathered for a moment, since each piece that is told is an event on record. Remembers what of the reply was said so far.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from remit.core.errors import RemitError
from remit.models.messages import RESTART

GATHER_SECONDS = 0.05
GATHER_CHARACTERS = 2000
PAUSE = "\n\n"
"""Told by itself between two replies: before a call and after it. What is said anew after a restart begins behind it."""


class Voice:
    def __init__(self, emit: Callable[[Any], None]) -> None:
        self._emit = emit
        self._loop = asyncio.get_running_loop()
        self._gathered: list[str] = []
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None
        self._said: list[str] = []
        self._owes_pause = False

    def hear(self, piece: str) -> None:
        if piece == RESTART:
            self._flush()
            if self._said:
                self._emit({"restart": True})
            self._said = []
            return
        if self._owes_pause:
            self._owes_pause = False
            self._emit({"text": PAUSE})
        self._said.append(piece)
        self._gathered.append(piece)
        self._size += len(piece)
        if self._size >= GATHER_CHARACTERS:
            self._flush()
        elif self._timer is None:
            self._timer = self._loop.call_later(GATHER_SECONDS, self._flush)

    @property
    def said(self) -> str:
        """Of the reply that is being given."""
        return "".join(self._said)

    def end_reply(self, text: str) -> None:
        """It is whole. What a model said without being heard is told at once."""
        if text and not self._said:
            self.hear(text)
        self._flush()
        self._owes_pause = self._owes_pause or bool(self._said)
        self._said = []

    def close(self) -> None:
        self._flush()

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        text, self._gathered, self._size = "".join(self._gathered), [], 0
        if text:
            try:
                self._emit({"text": text})
            except RemitError:
                return  # the delegation has ended meanwhile: nobody listens any more
