"""The attached side: a process that an agent started delegates through the owner of its tree, and lends it its own agents."""

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from remit.agents.attach_server import MAX_FRAME_BYTES, VERSION
from remit.agents.directory import Directory
from remit.agents.function import spec_from_wire, spec_to_wire
from remit.agents.remote_context import RemoteBackend, RemoteHandle
from remit.agents.rpc import Connection, Handler, error_to_wire
from remit.core.agents import AgentSpec, is_built_in
from remit.core.context import Context, Handle
from remit.core.errors import Misused, Refused, RemitError, Unavailable
from remit.core.ids import REFUSED, UNSET, decode
from remit.core.jsonable import to_jsonable
from remit.core.ports import AgentPort, Store
from remit.core.request import Request
from remit.core.result import Return
from remit.runtime.deps import CURRENT, LENT
from remit.stores.sqlite import open_read_only
from remit.system.threads import off_loop
from remit.system.unix_sockets import connect_to, peer_of

if TYPE_CHECKING:
    from remit.runtime.engine import Engine

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


class Attachment(Handler):
    """The connection to the owner, and the facts of its project."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._runs: dict[int, RemoteBackend] = {}
        self._own: dict[str, AgentPort] = {}
        self.connection = Connection(self, self._spawn, max_frame_bytes=MAX_FRAME_BYTES)
        self.facts: Mapping[str, Any] = {}
        self._store: Store | None = None
        self._engine: Engine | None = None
        """The owner's engine, if it is in this process."""

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
        current = CURRENT.get()
        if current is not None and current.engine.owner.owner_id == facts["owner_id"]:
            self._engine = current.engine

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
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)
        await self.connection.close()
        if self._store is not None:
            await off_loop(self._store.close)

    # ---- agents

    def directory(self, own: Directory, given: Iterable[str]) -> Directory:
        """The owner's agents, plus own agents with other names. Agents that the program passes itself (`given`) are not replaced."""
        both = Directory(lambda agent: agent)
        theirs = {spec.name: spec for spec in map(spec_from_wire, self.facts["agents"])}
        brought = set(given)
        for name in own.registered():  # built-in agents are not loaded just to be skipped
            agent = own.find(name)
            assert agent is not None
            if is_built_in(agent.spec):
                continue  # the owner's agents apply to all: agents that it disabled must not be added this way
            if name not in theirs or (name in brought and _function_of(agent.spec) != _function_of(theirs[name])):
                self.lend(both, agent)
        for name, spec in theirs.items():
            if name not in self._own:
                both.register(OwnersAgent(spec))
        both.add_problems(own.problems)
        return both

    def lend(self, directory: Directory, agent: AgentPort) -> None:
        """Let the owner delegate to it."""
        directory.register(agent)
        self._own[agent.spec.name] = agent

    # ---- delegating

    async def delegate(self, request: Request) -> Return:
        return Return.from_dict(await self._caller().call("delegate", self._body_of(request)))

    async def start(self, request: Request) -> Handle:
        caller = self._caller()
        return RemoteHandle(caller.call, await caller.call("start", self._body_of(request)))

    async def cancel(self, session_id: str, reason: str) -> list[dict[str, Any]]:
        nodes: list[dict[str, Any]] = await self.connection.calls.call("cancel", {"session_id": session_id, "reason": reason})
        return nodes

    def _caller(self) -> Any:
        """Inside a lent agent, delegations belong to that agent. In any other agent the connection would bypass its limits."""
        lent = LENT.get()
        if isinstance(lent, RemoteBackend) and lent.calls is self.connection.calls:
            return lent
        current = CURRENT.get()
        here = lent.delegation if lent is not None else None if current is None else current.delegation
        if here is not None and here.session_id != self.facts["session_id"]:
            raise not_yours(here.agent)
        return self.connection.calls

    def _body_of(self, request: Request) -> dict[str, Any]:
        body: dict[str, Any] = {"request": to_jsonable(request.to_dict())}
        own = self._own.get(request.agent)
        if own is not None:
            fault = None
            try:
                own.check(dict(request.parameters))
            except RemitError as error:
                fault = error_to_wire(error)
            body["borrow"] = {"spec": spec_to_wire(own.spec), "fault": fault}
        return body

    # ---- `rpc.Handler`

    async def answer(self, run: int, name: str, body: dict[str, Any]) -> Any:
        """The owner asks this process to execute a lent agent."""
        if name != "perform" or body.get("agent") not in self._own:
            raise Misused(f"An attached process has no {name!r}.")
        agent = self._own[body["agent"]]
        backend = self._runs[run] = RemoteBackend(self.connection.calls, run, body["facts"])
        session_id = backend.delegation.session_id
        # Only in the context of this task: other delegations of the agent are its children as well.
        LENT.set(backend)
        CURRENT.set(None if self._engine is None else self._engine.find(session_id))
        try:
            arguments = agent.check(dict(backend.delegation.parameters))
            return to_jsonable(await agent.perform(backend.context(), arguments))
        finally:
            del self._runs[run]

    def refused(self, run: int, error: RemitError) -> None:
        if run in self._runs:
            self._runs[run].refuse(error)

    def _spawn(self, coroutine: Any) -> "asyncio.Task[None]":
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


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


def _function_of(spec: AgentSpec) -> str:
    """The function name: the same function has another module name where it is loaded again."""
    return spec.source.rpartition(":")[2]
