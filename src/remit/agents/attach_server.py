"""Attached processes: one delegation tree across processes.

The owner of a tree listens on a socket and issues a token for each running delegation on demand. A process that opens a `Remit` with a
token is *attached*: its delegations run in the owner's engine as children of the token's delegation. So depth, path, deadline, budget,
slots, cancellation and record work unchanged: it is the same code. The other end is `agents.attach_client`.
"""

import asyncio
import contextlib
import hmac
import logging
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from remit.agents.remote_context import ContextService
from remit.agents.rpc import Connection, Handler
from remit.core.agents import Isolation
from remit.core.delegation import Delegation
from remit.core.errors import ErrorInfo, Refused, RemitError, Unavailable
from remit.core.ids import REFUSED, UNSET, decode, new_token
from remit.core.ports import Store
from remit.runtime.deps import RuntimeDeps
from remit.runtime.engine import Engine
from remit.runtime.local_context import LocalRun
from remit.system.processes import FORK_SERVER, look, mark_of, marker
from remit.system.threads import off_loop
from remit.system.unix_sockets import Peer, listen_at, peer_of

HELLO_BYTES = 32 * 1024
HELLO_SECONDS = 5.0
MAX_FRAME_BYTES = 16 * 1024 * 1024
"""Largest message of an admitted process. A larger result is on record."""
VERSION = 4
LASTING = frozenset({"delegate", "start", "gather"})
"""A lost connection is not a cancellation: these continue, and their results are on record."""
CONNECTIONS_AT_ONCE = 1024
UNKNOWN_AT_ONCE = 64
"""Maximum unauthenticated connections; the oldest is closed for a new one."""
REFUSALS_NOTED = 5
"""How often a refused token is noted on its delegation."""

log = logging.getLogger("remit.attach")


class AttachServer:
    """Issues tokens, listens, and admits processes that present one."""

    def __init__(
        self,
        engine: Engine,
        deps: RuntimeDeps,
        store: Store,
        facts: Callable[[], dict[str, Any]],
        *,
        loop: asyncio.AbstractEventLoop,
        run_folder: Path,
        project: str,
    ) -> None:
        """`facts`: facts about the project for attached processes."""
        self.engine = engine
        self.deps = deps
        self.facts = facts
        self._store = store
        self._tokens: WeakKeyDictionary[LocalRun, str] = WeakKeyDictionary()
        self._mark_prefix = marker(project, engine.owner.owner_id)
        self._loop = loop
        self._path = run_folder / f"{engine.owner.owner_id}.sock"
        self._is_listening = self._is_closed = False
        self._making = threading.Lock()
        self._server: asyncio.Server | None = None
        self._unknown: list[AttachedProcess] = []
        self._admitted: set[AttachedProcess] = set()
        self._refusals: dict[str, int] = {}

    # ---- tokens

    def token_for(self, running: LocalRun) -> str:
        """Callable from any thread: agents on threads call it too."""
        token = self._tokens.get(running)
        if token is None:
            with self._making:
                self._listen()
                fresh = new_token(running.delegation.lineage.session_id, str(self._path))
                token = self._tokens.setdefault(running, fresh)
        return token

    def _listen(self) -> None:
        if self._is_listening or self._is_closed:
            return
        try:
            sock = listen_at(self._path)
        except OSError as error:
            # The token is issued nevertheless: its use is refused, which is better than a tree without limits.
            log.warning("No process can be attached: %s cannot be made: %s", self._path, error)
            return
        self._is_listening = True

        async def serve() -> None:
            self._server = await self._loop.create_unix_server(self._accept, sock=sock)

        self._loop.call_soon_threadsafe(lambda: self.engine.spawn(serve()))

    async def close(self) -> None:
        self._is_closed = True
        if self._server is not None:
            self._server.close()
        if self._is_listening:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)
        await asyncio.gather(*(process.connection.close(0.2) for process in (*self._unknown, *self._admitted)))

    # ---- connections

    def _accept(self) -> asyncio.BaseProtocol:
        process = AttachedProcess(self)
        if len(self._unknown) >= UNKNOWN_AT_ONCE:
            self._unknown.pop(0).connection.cut()
        self._unknown.append(process)
        return process.connection

    def forget(self, process: "AttachedProcess") -> None:
        if process in self._unknown:
            self._unknown.remove(process)
        self._admitted.discard(process)

    async def admit(self, process: "AttachedProcess", text: str, peer: Peer) -> LocalRun:
        """The delegation of this token, if the process belongs to it. Raises `Refused`."""
        if peer.uid is not None and peer.uid != os.getuid():
            raise _refused("It belongs to another user.")
        token = decode(text)
        running = self.engine.find(token.session_id)
        if running is None or running.is_settled:
            raise _refused(await self._why_unknown(token.session_id))
        given = self._tokens.get(running)
        if given is None or not hmac.compare_digest(given, text):
            raise self._note(running, peer, "altered: its secret is not the one that was given out")
        if not await off_loop(self._is_process_of, peer.pid, running):
            raise self._note(running, peer, "used outside the processes of its delegation")
        if len(self._admitted) >= CONNECTIONS_AT_ONCE:
            for ended in [one for one in self._admitted if one.has_ended]:
                self.forget(ended)
                ended.connection.cut()
        if len(self._admitted) >= CONNECTIONS_AT_ONCE:
            message = f"{CONNECTIONS_AT_ONCE} processes are attached already."
            raise Unavailable(message, code="QUEUE_FULL", advice="Delegate from fewer at once.")
        if process in self._unknown:
            self._unknown.remove(process)
            self._admitted.add(process)
        return running

    async def require_same_tree(self, caller: Delegation, session_id: str) -> None:
        """Raise `Refused` for a delegation of another tree or an unknown one."""
        running = self.engine.find(session_id)
        record = await off_loop(self._store.get, session_id) if running is None else None
        root_id = running.delegation.lineage.root_id if running is not None else record.root_id if record is not None else None
        if root_id != caller.lineage.root_id:
            raise Refused(
                f"{session_id:.80} is not in the tree of {caller.agent} ({caller.session_id}).",
                code="FORBIDDEN",
                advice="Cancel what was delegated in this tree; a person cancels the rest with `remit cancel`.",
            )

    def _is_process_of(self, pid: int, running: LocalRun) -> bool:
        """Whether a process may act for the delegation. Blocking: reads /proc."""
        ancestors = _ancestors(pid)
        if ancestors is None:
            return False
        session_id = _session_of(ancestors, self._mark_prefix)
        if session_id is None:
            return running.agent.spec.isolation is not Isolation.PROCESS
        return session_id == running.delegation.session_id

    async def _why_unknown(self, session_id: str) -> str:
        record = await off_loop(self._store.get, session_id)
        if record is None:
            return f"It was not given out here: {session_id} is unknown."
        return f"It has expired: {record.agent} ({session_id}) has ended ({record.state})."

    def _note(self, running: LocalRun, peer: Peer, what: str) -> Refused:
        """Note the attempt on the delegation and, up to a limit, in the error ledger."""
        session_id = running.delegation.session_id
        count = self._refusals[session_id] = self._refusals.get(session_id, 0) + 1
        message = f"A token of {running.delegation.agent} ({session_id}) was refused: {what} (process {peer.pid})."
        if count <= REFUSALS_NOTED:
            running.notice(message)
            error = ErrorInfo(type="caller", message=message, code=REFUSED, recoverable=False, recommendation=UNSET)
            self.deps.note_errors(running.delegation, [error], "")
        return _refused(f"It was {what}.")


def _refused(what: str) -> Refused:
    return Refused(f"The token of the caller is refused. {what}", code=REFUSED, advice=UNSET)


class AttachedProcess(Handler):
    """One connection: it must present a token, then it delegates on behalf of its delegation."""

    def __init__(self, server: AttachServer) -> None:
        self.server = server
        self._running: LocalRun | None = None
        """The delegation of its token, once it presented that."""
        self._service: ContextService | None = None
        self.connection = Connection(self, server.engine.spawn, max_frame_bytes=MAX_FRAME_BYTES, lasting=LASTING)
        self.connection.limit_frames(HELLO_BYTES)
        self._timer = asyncio.get_running_loop().call_later(HELLO_SECONDS, self._give_up)

    @property
    def has_ended(self) -> bool:
        """Whether its delegation has ended; then no calls are answered."""
        return self._running is not None and self._running.is_settled

    # ---- `rpc.Handler`

    async def answer(self, name: str, body: dict[str, Any]) -> Any:
        if self._running is None or self._service is None:
            return await self._hello(name, body)
        if name == "cancel":
            caller, session_id = self._running.delegation, str(body.get("session_id"))
            await self.server.require_same_tree(caller, session_id)
            return await self.server.engine.cancel(session_id, str(body.get("reason") or ""), f"{caller.agent} ({caller.session_id})")
        return await self._service.answer(name, body)

    def take(self, name: str, body: dict[str, Any]) -> None:
        if self._service is not None:
            self._service.take(name, body)

    def lost(self, fault: str) -> None:
        self._timer.cancel()
        self.server.forget(self)

    def _give_up(self) -> None:
        if self.connection.is_answering:  # it presented its token, which is being checked
            self._timer = asyncio.get_running_loop().call_later(HELLO_SECONDS, self.connection.cut)
        else:
            self.connection.cut()

    async def _hello(self, name: str, body: Mapping[str, Any]) -> Any:
        sock = self.connection.peer_socket
        if name != "hello" or not isinstance(body.get("token"), str) or sock is None:
            self.connection.cut()
            raise Refused("Show a token first.")
        try:
            peer = peer_of(sock)
            running = await self.server.admit(self, body["token"], peer)
        except RemitError:
            asyncio.get_running_loop().call_later(0.2, self.connection.cut)  # after it has received the reason
            raise
        self._timer.cancel()
        self.connection.limit_frames(MAX_FRAME_BYTES)
        self._running, self._service = running, ContextService(running.ctx.backend)
        return {"version": VERSION, "session_id": running.delegation.session_id, **self.server.facts()}


# ---- whether a process belongs to a delegation

_LEVELS = 4096
_LOOKS = 3
"""Attempts: an ancestor may end during the check."""


def _ancestors(pid: int) -> list[int] | None:
    """From `pid` up to this process, both included; None: it is not a descendant."""
    owner_pid = os.getpid()
    for _ in range(_LOOKS):
        found = [pid]
        while found[-1] != owner_pid and len(found) < _LEVELS:
            process = look(found[-1])
            if process is None or process.parent <= 0:
                break
            found.append(process.parent)
        if found[-1] == owner_pid:
            return found
    return None


def _session_of(ancestors: list[int], mark_prefix: str) -> str | None:
    """None: not below one of the owner's fork servers, like processes started by an agent on its loop."""
    found: str | None = None
    for pid in reversed(ancestors[:-1]):
        mark = mark_of(pid)
        if mark is not None and mark.startswith(mark_prefix):
            found = mark.removeprefix(mark_prefix)
            if found != FORK_SERVER:
                return found
    return found  # below a fork server but no supervisor: it killed its own, and belongs to no delegation
