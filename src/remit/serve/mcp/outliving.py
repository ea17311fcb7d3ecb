"""How a stdio server outlives its client: the client started a process that only stands in front; the one behind it does the work.

Clients end the process they started: they close its input, wait a moment, then kill it with its whole group. What was delegated is to go
on all the same. So the process splits before anything is opened: the *front* stays where the client put it and only waits; the *keeper*
has a session of its own, speaks on the inherited descriptors, and when the client has gone stays until its delegations have ended.
Whatever ends the front, a signal too, means that the client has gone: nothing is cancelled by it. Used by `remit mcp` alone.
"""

import contextlib
import os
import signal
from dataclasses import dataclass
from typing import NoReturn

_GONE = b"!"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(slots=True)
class Leash:
    """The keeper's end: how it hears that the front has gone, and lets it go."""

    descriptor: int
    """At its end when the front has gone."""
    _told: int

    def let_go(self) -> None:
        """The client has left: nobody waits for the front any more."""
        with contextlib.suppress(OSError):
            os.write(self._told, _GONE)
            os.close(self._told)


def split() -> Leash:
    """Comes back in the keeper only. To be called before any thread is started and anything is opened."""
    leash, held = os.pipe()
    hears, told = os.pipe()
    keeper = os.fork()
    if keeper:
        os.close(leash)
        os.close(told)
        _stand_in_front(keeper, hears)
    os.close(held)
    os.close(hears)
    os.setsid()
    return Leash(leash, told)


def _stand_in_front(keeper: int, hears: int) -> NoReturn:
    """Until the keeper ends, or has no use for us, or somebody ends us."""
    for number in _SIGNALS:
        signal.signal(number, lambda *_: os._exit(0))
    if os.read(hears, 1) == _GONE:
        os._exit(0)
    _, status = os.waitpid(keeper, 0)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def leave_the_streams(*more: int) -> None:
    """Let go of the client's descriptors: what is printed from now on goes nowhere, and breaks nobody who prints."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2, *more):
        with contextlib.suppress(OSError):
            os.dup2(nowhere, number)
    os.close(nowhere)
