"""Which operations of registered agents are waited for when this server is killed: kept in small files (`engine.awaited`).

So what such an agent had is not settled as crashed when the project is opened again, but goes on when the agent is back; and nobody else
is given it meanwhile. Used by `registry`.
"""

import contextlib
import time
from pathlib import Path

from remit.access.private import private_folder, read_private, write_private
from remit.core.errors import RemitError
from remit.core.ports import Store
from remit.engine.awaited import FOLDER, awaited

_ENCODING = ("utf-8", "surrogatepass")


class Kept:
    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER
        self._ours: dict[str, str] = {}

    def note(self, operation: str, principal: str) -> None:
        """That it will be waited for. What cannot be written is not waited for."""
        if self._ours.get(operation) != principal:
            with contextlib.suppress(RemitError):
                write_private(private_folder(self._folder) / operation, principal.encode(*_ENCODING), fsync=False)
                self._ours[operation] = principal

    def forget(self, operation: str) -> None:
        if self._ours.pop(operation, None) is not None:
            with contextlib.suppress(OSError):
                (self._folder / operation).unlink(missing_ok=True)

    def waiting(self, store: Store) -> dict[str, tuple[str, float]]:
        """By operation, whose it was and for how many seconds something waits for it. Others are forgotten. Blocking."""
        ends: dict[str, float] = {}
        names = awaited(self._folder)
        for record in store.live() if names else ():
            if record.agent in names:
                ends[record.agent] = max(record.deadline_at, ends.get(record.agent, 0.0))
        found = {}
        for name in names:
            with contextlib.suppress(RemitError, OSError):
                if name in ends:
                    found[name] = ((read_private(self._folder / name) or b"").decode(*_ENCODING), ends[name] - time.time())
                elif name not in self._ours:
                    (self._folder / name).unlink(missing_ok=True)
        return found
