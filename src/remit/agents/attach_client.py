"""The attached side: a process that an agent started delegates through the owner of its tree, to the owner's agents."""

import asyncio
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, cast

from remit.agents.attach_server import MAX_FRAME_BYTES, VERSION
from remit.agents.directory import Directory
from remit.agents.function import spec_from_wire
from remit.agents.remote_context import RemoteHandle
from remit.agents.rpc import Calls, Connection, Handler
from remit.core.agents import AgentSpec
from remit.core.context import Context, Handle
from remit.core.errors import Misused, Refused, Unavailable
from remit.core.ids import REFUSED, UNSET, decode
from remit.core.jsonable import to_jsonable
from remit.core.ports import Store
from remit.core.request import Request
from remit.core.result import Return
from remit.runtime.deps import CURRENT
from remit.stores.sqlite import open_read_only
from remit.system.threads import off_loop
from remit.system.unix_sockets import connect_to, peer_of

CONNECT_SECONDS = 5.0
HELLO_SECONDS = 10.0
_PAUSES = (0.1, 0.2, None)
"""Before each further attempt."""


def not_yours(agent: str) -> Misused:
    """The error if an agent uses a `Remit` that it did not open: its delegations would not be its children."""
    return Misused(
        f"{agent} cannot delegate through a Remit that was opened outside it: the delegation would not be its child.",
        advice="Open one inside the agent (async with Remit.open(…)), or delegate with ctx.",
    )


class OwnersAgent:
    """An agent of the owner, for listing: the owner checks its parameters and executes it."""

    def __init__(self, spec: AgentSpec) -> None:
        self.spec = spec

    def check(self, parameters: dict[str, Any]) -> dict[str, Any]:
        return parameters

    async def perform(self, ctx: Context, arguments: Any) -> Any:
        raise Misused(f"{self.spec.name} is performed by the owner of the tree.")


class _NoRecord:
    """The owner keeps its record in memory, or a container hides it. Delegating works; queries do not."""

    def __getattr__(self, name: str) -> Any:
        raise Unavailable(
            "The record of this tree cannot be read here: its owner keeps it in memory, or this process is contained.",
            advice="Wait for results instead of asking for them later.",
        )


class Attachment:
    """The connection to the owner, and the facts of its project."""

    def __init__(self) -> None:
        self._only_here: frozenset[str] = frozenset()
        """Agents of this program that the owner does not have."""
        self.connection = Connection(Handler(), asyncio.create_task, max_frame_bytes=MAX_FRAME_BYTES)
        self.facts: Mapping[str, Any] = {}
        self._store: Store | None = None

    @property
    def root(self) -> Path:
        return Path(self.facts["root"])

    async def greet(self, token: str) -> None:
        async with asyncio.timeout(HELLO_SECONDS):
            facts = await self.connection.calls.call("hello", {"token": token})
        if not isinstance(facts, Mapping) or facts.get("version") != VERSION:
            raise Unavailable(
                "The process that runs this tree has an incompatible version of remit.",
                advice=f"Use the same version in both. {UNSET}",
            )
        self.facts = facts

    def open_store(self) -> Store:
        """The owner's record, read only."""
        database = self.facts["database"]
        if database is not None and Path(database).exists():
            self._store = open_read_only(Path(database))
            return self._store
        return cast("Store", _NoRecord())

    @property
    def has_record(self) -> bool:
        return self._store is not None

    async def close(self) -> None:
        await self.connection.close()
        if self._store is not None:
            await off_loop(self._store.close)

    # ---- agents

    def directory(self, given: Collection[str]) -> Directory:
        """The owner's agents. `given`: the agents that the program passes itself, which only the owner's agents of that name replace."""
        directory = Directory(lambda agent: agent)
        for spec in map(spec_from_wire, self.facts["agents"]):
            directory.register(OwnersAgent(spec))
        self._only_here = frozenset(given) - set(directory.registered())
        return directory

    # ---- delegating

    async def delegate(self, request: Request) -> Return:
        return Return.from_dict(await self._caller().call("delegate", self._body_of(request)))

    async def start(self, request: Request) -> Handle:
        caller = self._caller()
        return RemoteHandle(caller.call, await caller.call("start", self._body_of(request)))

    async def cancel(self, session_id: str, reason: str) -> list[dict[str, Any]]:
        nodes: list[dict[str, Any]] = await self.connection.calls.call("cancel", {"session_id": session_id, "reason": reason})
        return nodes

    def _caller(self) -> Calls:
        """In another agent than the one that attached, the connection would bypass its limits."""
        current = CURRENT.get()
        if current is not None and current.delegation.session_id != self.facts["session_id"]:
            raise not_yours(current.delegation.agent)
        return self.connection.calls

    def _body_of(self, request: Request) -> dict[str, Any]:
        if request.agent in self._only_here:
            raise Misused(
                f"{request.agent} exists only in this process, which belongs to the tree of the project {self.root}.",
                code="INVALID_TARGET",
                advice="Declare it in that project, e.g. in .remit/agents, or call the function itself.",
            )
        return {"request": to_jsonable(request.to_dict())}


async def attach(token: str) -> Attachment:
    """Attach to the owner that issued this token. Raises `Refused` if it is not valid or has expired."""
    path = Path(decode(token).address)
    for pause in _PAUSES:
        attachment = Attachment()
        try:
            await _connect(attachment.connection, path)
            await attachment.greet(token)
            return attachment
        except BaseException as error:
            attachment.connection.cut()
            if isinstance(error, TimeoutError):
                advice = f"Try again; or: {UNSET[0].lower()}{UNSET[1:]}"
                raise Unavailable("The process that runs this tree does not answer.", advice=advice) from None
            if pause is None or not isinstance(error, Unavailable):
                raise
            await asyncio.sleep(pause)  # disconnected before authentication: too many connections at once
    raise AssertionError("the last attempt raises")


async def _connect(connection: Connection, path: Path) -> None:
    try:
        sock = await off_loop(connect_to, path, CONNECT_SECONDS)
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        raise Refused("The token of the caller has expired: the process that ran its tree is gone.", code=REFUSED, advice=UNSET) from None
    except OSError as error:
        raise Unavailable(f"The process that runs this tree cannot be reached: {error.strerror or error}.", advice="Try again.") from None
    listener, owner = peer_of(sock).pid, path.name.partition("-")[0]
    if listener and str(listener) != owner:  # 0: it is in another pid namespace and unknown
        sock.close()
        raise Refused(
            f"Another process listens for the owner of this tree: process {listener} at {path}.",
            code=REFUSED,
            advice=f"Check that process. {UNSET}",
        )
    await connection.connect(sock)
