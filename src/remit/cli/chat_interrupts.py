"""Ctrl-C while a chat lasts: at a terminal it stops what runs and never the chat, whenever and however often it is pressed.

Through a pipe nobody presses it to go on talking: there it has its usual force, except while something listens. Used by `chat_session`.
"""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator


class Ear:
    def __init__(self, *, is_terminal: bool) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_terminal = is_terminal

    def rest(self) -> None:
        """Nothing runs that could be stopped. To be said again whenever another had the signal: a line editor gives it back unheard."""
        if self._is_terminal:
            self._loop.add_signal_handler(signal.SIGINT, lambda: None)
        else:
            self.close()

    @contextlib.contextmanager
    def heard_by(self, act: Callable[[], object]) -> Iterator[None]:
        """Every time, also the second: whoever is impatient wants what runs to end, not the conversation."""
        self._loop.add_signal_handler(signal.SIGINT, act)
        try:
            yield
        finally:
            self.rest()

    def close(self) -> None:
        self._loop.remove_signal_handler(signal.SIGINT)
