"""The owner's end: gives running delegations their tokens, listens, and lets in whoever shows one that is its own.

The socket is made with the first token, so a `Remit` that starts no processes never has one. Tokens stand in memory alone, each on its
delegation: when that has ended there is nothing left to compare with. Used by `app`.
"""

import asyncio
import contextlib
import hmac
import logging
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from remit.agents.process.pool import marker
from remit.core.agents import Isolation
from remit.core.caller import REFUSED, UNSET, CallerToken, decode, new_secret
from remit.core.errors import ErrorInfo, Refused, Unavailable
from remit.engine.embedded import EmbeddedEngine
from remit.engine.running import Running
from remit.switchboard.address import Peer, address_of, listening
from remit.switchboard.kinship import Kin, is_kin
from remit.switchboard.visit import Visit
from remit.system.threads import off_loop

LINES_AT_ONCE = 1024
STRANGERS_AT_ONCE = 64
"""Who have not said yet who they are; the oldest makes room for a new one."""
TRIES_NOTED = 5
"""So often a refused token is noted on its delegation; then everybody knows."""

log = logging.getLogger("remit.switchboard")
OPEN_HERE: dict[str, "Switchboard"] = {}
"""Those of this process, by owner: a record in memory can be looked at here alone."""
Cancel = Callable[[str, str, str], Awaitable[list[dict[str, Any]]]]


class Switchboard:
    def __init__(self, engine: EmbeddedEngine, facts: Callable[[], dict[str, Any]], cancel: Cancel) -> None:
        """`facts`: what an attached process is told of the project. `cancel`: of session, reason and source."""
        self.engine = engine
        self.facts = facts
        self.cancel = cancel
        self._path = address_of(engine.run_folder, engine.owner.owner_id)
        self._is_listening = self._is_closed = False
        self._making = threading.Lock()
        self._server: asyncio.Server | None = None
        self._strangers: list[Visit] = []
        self._known: set[Visit] = set()
        self._tries: dict[str, int] = {}
        engine.token_for = self.token_for
        OPEN_HERE[engine.owner.owner_id] = self

    # ---- tokens

    def token_for(self, running: Running) -> str:
        """From any thread: an agent on a thread of its own asks here too."""
        if running.token is None:
            with self._making:
                self._listen()
                if running.token is None:
                    running.token = CallerToken(running.delegation.session_id, new_secret(), str(self._path)).encode()
        return running.token

    def _listen(self) -> None:
        if self._is_listening or self._is_closed:
            return
        try:
            sock = listening(self._path)
        except OSError as error:
            # The token is given all the same: whoever uses it is refused, which is better than a tree without limits.
            log.warning("Nobody can be attached: %s cannot be made: %s", self._path, error)
            return
        self._is_listening = True

        async def serve() -> None:
            self._server = await self.engine.loop.create_unix_server(self._connected, sock=sock)

        self.engine.loop.call_soon_threadsafe(lambda: self.engine.spawn(serve()))

    async def close(self) -> None:
        self._is_closed = True
        OPEN_HERE.pop(self.engine.owner.owner_id, None)
        if self._server is not None:
            self._server.close()
        if self._is_listening:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)
        await asyncio.gather(*(visit.line.close(0.2) for visit in (*self._strangers, *self._known)))

    # ---- who comes

    def _connected(self) -> asyncio.BaseProtocol:
        visit = Visit(self)
        if len(self._strangers) >= STRANGERS_AT_ONCE:
            self._strangers.pop(0).line.cut()
        self._strangers.append(visit)
        return visit.line

    def forget(self, visit: Visit) -> None:
        if visit in self._strangers:
            self._strangers.remove(visit)
        self._known.discard(visit)

    async def admit(self, visit: Visit, text: str, peer: Peer) -> Running:
        """The delegation whose token this is, used by a process of its own. Raises `Refused`."""
        if peer.uid is not None and peer.uid != os.getuid():
            raise _refused("It belongs to another user.")
        token = decode(text)
        running = self.engine.running.get(token.session_id)
        if running is None or running.is_settled:
            raise _refused(await self._why_unknown(token.session_id))
        if running.token is None or not hmac.compare_digest(running.token, text):
            raise self._note(running, peer, "altered: its secret is not the one that was given out")
        if not await off_loop(is_kin, peer.pid, self._kin(running)):
            raise self._note(running, peer, "used outside of the processes of its delegation")
        if len(self._known) >= LINES_AT_ONCE:
            for known in [known for known in self._known if known.has_ended]:
                self.forget(known)
                known.line.cut()
        if len(self._known) >= LINES_AT_ONCE:
            raise Unavailable(f"{LINES_AT_ONCE} processes are attached already.", code="QUEUE_FULL", advice="Delegate from fewer at once.")
        if visit in self._strangers:
            self._strangers.remove(visit)
            self._known.add(visit)
        return running

    def _kin(self, running: Running) -> Kin:
        options, owner = self.engine.options, self.engine.owner
        return Kin(
            session_id=running.delegation.session_id,
            owner_pid=os.getpid(),
            mark_prefix=marker(options.project, owner.owner_id),
            has_own_processes=running.agent.spec.isolation is Isolation.PROCESS,
            carrier=running.carrier,
        )

    async def _why_unknown(self, session_id: str) -> str:
        record = await off_loop(self.engine.store.get, session_id)
        if record is None:
            return f"It was not given out here: {session_id} is unknown."
        return f"It has expired: {record.agent} ({session_id}) has ended ({record.state})."

    def _note(self, running: Running, peer: Peer, what: str) -> Refused:
        """Somebody tries: the delegation's record and the ledger say so (a few times)."""
        session_id = running.delegation.session_id
        tries = self._tries[session_id] = self._tries.get(session_id, 0) + 1
        message = f"A token of {running.delegation.agent} ({session_id}) was refused: {what} (process {peer.pid})."
        if tries <= TRIES_NOTED:
            running.notice(message)
            error = ErrorInfo(type="caller", message=message, code=REFUSED, recoverable=False, recommendation=UNSET)
            self.engine.house.note_errors(running.delegation, [error], "")
        return _refused(f"It was {what}.")


def _refused(what: str) -> Refused:
    return Refused(f"The token of the caller is refused. {what}", code=REFUSED, advice=UNSET)
