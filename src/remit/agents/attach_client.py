"""The attached side: a process that an agent started delegates through the owner of its tree, and lends it agents of its own."""

import asyncio
import os
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any, cast

from remit.agents.attach_server import MAX_FRAME_BYTES, VERSION, spec_from_wire, spec_to_wire
from remit.agents.directory import Directory
from remit.agents.remote_context import RemoteBackend, RemoteHandle
from remit.agents.rpc import Connection, error_to_wire
from remit.core.agents import AgentSpec, is_built_in
from remit.core.context import Context, Handle
from remit.core.errors import Misused, Refused, RemitError, Unavailable
from remit.core.ids import CALLER, REFUSED, UNSET, decode
from remit.core.jsonable import to_jsonable
from remit.core.ports import AgentPort, Store
from remit.core.request import Request
from remit.core.result import Return
from remit.runtime.deps import CURRENT
from remit.runtime.engine import Engine
from remit.stores.sqlite import open_read_only
from remit.system.threads import off_loop
from remit.system.unix_sockets import connect_to, peer_of

CONNECT_SECONDS = 5.0
HELLO_SECONDS = 10.0
ATTEMPTS = 3

LENT: ContextVar[RemoteBackend | None] = ContextVar("remit_lent", default=None)
"""The run of a lent agent that this context belongs to."""


def token_here() -> str | None:
    """The token of the delegation that this code runs in."""
    lent = LENT.get()
    if lent is not None:
        return str(lent.environment().get(CALLER, ""))
    running = CURRENT.get()
    if running is not None and (token := running.process_environment().get(CALLER)):
        return token
    return os.environ.get(CALLER) or None


def not_yours(agent: str) -> Misused:
    """Of a `Remit` that is used by an agent that did not open it: what it delegated would not be its child."""
    return Misused(
        f"{agent} cannot delegate by a Remit that was opened outside of it: it would not be {agent}'s child.",
        advice="Open one inside the agent (async with Remit.open(…)), or delegate with ctx.",
    )


class OwnersAgent:
    """An agent of the owner's, as it is listed here: the owner checks its parameters and performs it."""

    def __init__(self, spec: AgentSpec) -> None:
        self.spec = spec

    def check(self, parameters: dict[str, Any]) -> dict[str, Any]:
        return parameters

    async def perform(self, ctx: Context, arguments: Any) -> Any:
        raise Misused(f"{self.spec.name} is performed by the owner of the tree.")


class _NoRecord:
    """Where the owner keeps its record in memory, or a container hides it. Delegating works; queries do not."""

    def __getattr__(self, name: str) -> Any:
        raise Unavailable(
            "The record of this tree cannot be read here: its owner keeps it in memory, or this process is contained.",
            advice="Wait for results instead of asking for them later.",
        )


class Attachment:
    """The connection to the owner, and the facts of its project."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._runs: dict[int, RemoteBackend] = {}
        self._own: dict[str, AgentPort] = {}
        self.connection = Connection(self, self._spawn, max_frame_bytes=MAX_FRAME_BYTES)
        self.facts: Mapping[str, Any] = {}
        self._store: Store | None = None
        self._engine: Engine | None = None
        """The owner's, where it is in this process."""

    @property
    def root(self) -> Path:
        return Path(self.facts["root"])

    async def greet(self, token: str) -> None:
        async with asyncio.timeout(HELLO_SECONDS):
            facts = await self.connection.calls.call("hello", {"token": token})
        if not isinstance(facts, Mapping) or facts.get("version") != VERSION:
            raise Unavailable(
                "The process that runs this tree has another version of remit, which is not understood here.",
                advice=f"Use the same version in both. {UNSET}",
            )
        self.facts = facts
        current = CURRENT.get()
        if current is not None and current.engine.owner.owner_id == facts["owner_id"]:
            self._engine = current.engine

    def open_store(self) -> Store:
        """The owner's record, to look at."""
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
        """The owner's agents, and of our own those it does not have. What the program itself brings along (`given`) is not replaced by
        another function of that name."""
        both = Directory(lambda agent: agent)
        theirs = {spec.name: spec for spec in map(spec_from_wire, self.facts["agents"])}
        brought = set(given)
        for name in own.registered():  # what comes with remit is not loaded to be passed over
            agent = own.find(name)
            assert agent is not None
            if is_built_in(agent.spec):
                continue  # those of the owner count for everybody: what it leaves out is not brought in by the back door
            if name not in theirs or (name in brought and _function_of(agent.spec) != _function_of(theirs[name])):
                self.lend(both, agent)
        for name, spec in theirs.items():
            if name not in self._own:
                both.register(OwnersAgent(spec))
        both.add_problems(own.problems)
        return both

    def lend(self, directory: Directory, agent: AgentPort) -> None:
        """From now on it can be delegated to: the owner borrows it."""
        directory.register(agent)
        self._own[agent.spec.name] = agent

    # ---- delegating

    async def delegate(self, request: Request) -> Return:
        return Return.from_dict(await self._caller().call("delegate", self._asked(request)))

    async def start(self, request: Request) -> Handle:
        caller = self._caller()
        return RemoteHandle(caller.call, await caller.call("start", self._asked(request)))

    async def cancel(self, session_id: str, reason: str) -> list[dict[str, Any]]:
        nodes: list[dict[str, Any]] = await self.connection.calls.call("cancel", {"session_id": session_id, "reason": reason})
        return nodes

    def _caller(self) -> Any:
        """Inside of an agent that we lend, what is delegated is that agent's. In any other agent the connection would be a way around
        its limits."""
        lent = LENT.get()
        if lent is not None and lent.calls is self.connection.calls:
            return lent
        current = CURRENT.get()
        here = lent.delegation if lent is not None else None if current is None else current.delegation
        if here is not None and here.session_id != self.facts["session_id"]:
            raise not_yours(here.agent)
        return self.connection.calls

    def _asked(self, request: Request) -> dict[str, Any]:
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
        """The owner has us perform an agent that we lent."""
        if name != "perform" or body.get("agent") not in self._own:
            raise Misused(f"An attached process has no {name!r}.")
        agent = self._own[body["agent"]]
        backend = self._runs[run] = RemoteBackend(self.connection.calls, run, body["facts"])
        session_id = backend.delegation.session_id
        # In the context of this task alone: whatever the agent delegates by another way is its child all the same.
        LENT.set(backend)
        CURRENT.set(None if self._engine is None else self._engine.find(session_id))
        try:
            arguments = agent.check(dict(backend.delegation.parameters))
            return to_jsonable(await agent.perform(backend.context(), arguments))
        finally:
            del self._runs[run]

    def take(self, run: int, name: str, body: dict[str, Any]) -> None:
        """The owner sends no notifications."""

    def refused(self, run: int, error: RemitError) -> None:
        if run in self._runs:
            self._runs[run].refuse(error)

    def lost(self, fault: str) -> None:
        """Open calls have failed."""

    def _spawn(self, coroutine: Any) -> "asyncio.Task[None]":
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def attach(token: str) -> Attachment:
    """To the owner that gave out this token. Raises `Refused` when it is not valid (any more)."""
    path = Path(decode(token).address)
    for attempt in range(1, ATTEMPTS + 1):
        attachment = Attachment()
        try:
            await _connect(attachment.connection, path)
            await attachment.greet(token)
            return attachment
        except TimeoutError:
            attachment.connection.cut()
            raise Unavailable(
                "The process that runs this tree does not answer.", advice=f"Try again; or: {UNSET[0].lower()}{UNSET[1:]}"
            ) from None
        except Unavailable:  # disconnected before it was known who we are: too many came at once
            attachment.connection.cut()
            if attempt == ATTEMPTS:
                raise
            await asyncio.sleep(0.1 * attempt)
        except BaseException:
            attachment.connection.cut()
            raise
    raise AssertionError("the last attempt raises")


async def _connect(connection: Connection, path: Path) -> None:
    try:
        sock = await off_loop(connect_to, path, CONNECT_SECONDS)
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        raise Refused("The token of the caller has expired: the process that ran its tree is gone.", code=REFUSED, advice=UNSET) from None
    except OSError as error:
        raise Unavailable(f"The process that runs this tree cannot be reached: {error.strerror or error}.", advice="Try again.") from None
    listener, owner = peer_of(sock).pid, path.name.partition("-")[0]
    if listener and str(listener) != owner:  # 0: it is in another pid namespace, and is not known
        sock.close()
        raise Refused(
            f"Another process listens for the owner of this tree: process {listener} at {path}.",
            code=REFUSED,
            advice=f"See who it is. {UNSET}",
        )
    await connection.connect(sock)


def _function_of(spec: AgentSpec) -> str:
    """The name of the function: the same one has another module's name where it is loaded anew."""
    return spec.source.rpartition(":")[2]
