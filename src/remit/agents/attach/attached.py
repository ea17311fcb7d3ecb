"""The attached side: a process that an agent started delegates through the owner of its tree, and lends it agents of its own."""

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from remit.agents.attach.address import LENT, connected, not_yours, owner_at, peer_of
from remit.agents.attach.board import OPEN_HERE, VERSION, Run, carried_out, spec_from_wire, spec_to_wire
from remit.agents.attach.line import Line
from remit.agents.directory import Directory
from remit.agents.process.remote import RemoteHandle
from remit.agents.process.wire import error_to_wire
from remit.core.agents import AgentSpec, is_built_in
from remit.core.caller_token import REFUSED, UNSET, decode
from remit.core.errors import Misused, Refused, RemitError, Unavailable
from remit.core.jsonable import to_jsonable
from remit.core.ports import AgentPort, Store
from remit.core.request import Request
from remit.core.result import Return
from remit.runtime.context import Context, Handle
from remit.runtime.engine import CURRENT
from remit.stores.sqlite import open_to_look
from remit.system.threads import off_loop

CONNECT_SECONDS = 5.0
HELLO_SECONDS = 10.0
TRIES = 3


class OwnersAgent:
    """An agent of the owner's, as it is listed here: the owner checks its parameters and carries it out."""

    def __init__(self, spec: AgentSpec) -> None:
        self.spec = spec

    def check(self, parameters: dict[str, Any]) -> dict[str, Any]:
        return parameters

    async def perform(self, ctx: Context, arguments: Any) -> Any:
        raise Misused(f"{self.spec.name} is carried out by the owner of the tree.")


class _NoRecord:
    """Where the owner keeps its record in the memory of another process. Delegating works; looking does not."""

    def __getattr__(self, name: str) -> Any:
        raise Unavailable(
            "The owner of this tree keeps its record in memory: it can be looked at there alone.",
            advice="Open the owner with a project on disk.",
        )


class Attachment:
    """The line to the owner, and what was learnt of it."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._runs: dict[int, Run] = {}
        self._own: dict[str, AgentPort] = {}
        self.line = Line(self, self._spawn)
        self.facts: Mapping[str, Any] = {}
        self._store: Store | None = None

    @property
    def root(self) -> Path:
        return Path(self.facts["root"])

    def open_store(self) -> Store:
        """The owner's record, to look at."""
        if self.facts["database"] is not None:
            self._store = open_to_look(Path(self.facts["database"]))
            return self._store
        board = OPEN_HERE.get(self.facts["owner_id"])
        return board.store if board is not None else cast("Store", _NoRecord())

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)
        await self.line.close()
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
                continue  # those of the owner stand for everybody's: what it leaves out is not brought in by the back door
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
        return Return.from_dict(await self._asker().ask("delegate", **self._asked(request)))

    async def start(self, request: Request) -> Handle:
        asker = self._asker()
        return RemoteHandle(asker, await asker.ask("start", **self._asked(request)))

    async def cancel(self, session_id: str, reason: str) -> list[dict[str, Any]]:
        nodes: list[dict[str, Any]] = await self.line.ask("cancel", session_id=session_id, reason=reason)
        return nodes

    def _asker(self) -> Any:
        """Inside of an agent that we lend, what is delegated is that agent's. In anybody else's hands a line is a way around limits."""
        run = LENT.get()
        if run is not None and run.line is self.line:
            return run
        current = CURRENT.get()
        here = run if run is not None else None if current is None else current.delegation
        if here is not None and here.session_id != self.facts["session_id"]:
            raise not_yours(here.agent)
        return self.line

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

    # ---- what the owner asks of us

    async def call(self, name: object, body: object) -> Any:
        fields: Mapping[str, Any] = body if isinstance(body, Mapping) else {}
        if name == "perform" and fields.get("agent") in self._own:
            run = Run(self.line, fields["run"], fields["facts"])
            self._runs[run.number] = run
            board = OPEN_HERE.get(self.facts["owner_id"])
            CURRENT.set(None if board is None else board.engine.find(run.session_id))  # also where its owner is this process
            try:
                return await carried_out(self._own[fields["agent"]], run, fields["facts"])
            finally:
                del self._runs[run.number]
        if name == "hand_in":
            run_now = self._runs.get(fields.get("run", 0))
            if run_now is not None and not run_now.hand_in.done():
                run_now.hand_in.set_result(None)
            return None
        raise Misused(f"An attached process has no {name!r}.")

    def lost(self) -> None:
        """Whoever waits has been told by the line."""

    def _spawn(self, coroutine: Any) -> "asyncio.Task[None]":
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def attach(text: str) -> Attachment:
    """To the owner that gave out this token. Raises `Refused` when it is not valid (any more)."""
    token = decode(text)
    for attempt in range(1, TRIES + 1):
        attachment = Attachment()
        try:
            await _connect(attachment.line, Path(token.address))
            async with asyncio.timeout(HELLO_SECONDS):
                attachment.facts = _of_this_version(await attachment.line.ask("hello", token=text, version=VERSION))
            return attachment
        except TimeoutError:
            attachment.line.cut()
            raise Unavailable(
                "The process that runs this tree does not answer.", advice=f"Try again; or: {UNSET[0].lower()}{UNSET[1:]}"
            ) from None
        except Unavailable:  # cut off before it was known who we are: too many came at once
            attachment.line.cut()
            if attempt == TRIES:
                raise
            await asyncio.sleep(0.1 * attempt)
        except BaseException:
            attachment.line.cut()
            raise
    raise AssertionError("the last try raises")


async def _connect(line: Line, path: Path) -> None:
    try:
        sock = await off_loop(connected, path, CONNECT_SECONDS)
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        raise Refused("The token of the caller has expired: the process that ran its tree is gone.", code=REFUSED, advice=UNSET) from None
    except OSError as error:
        raise Unavailable(f"The process that runs this tree cannot be reached: {error.strerror or error}.", advice="Try again.") from None
    listener = peer_of(sock).pid
    if listener and listener != owner_at(path):  # 0: it is in another pid namespace, and cannot be told
        sock.close()
        raise Refused(
            f"Somebody else listens for the owner of this tree: process {listener} at {path}.",
            code=REFUSED,
            advice=f"See who it is. {UNSET}",
        )
    await asyncio.get_running_loop().create_unix_connection(lambda: line, sock=sock)


def _of_this_version(facts: object) -> Mapping[str, Any]:
    if isinstance(facts, Mapping) and facts.get("version") == VERSION:
        return facts
    raise Unavailable(
        "The process that runs this tree has another version of remit, which is not understood here.",
        advice=f"Use the same version in both. {UNSET}",
    )


def _function_of(spec: AgentSpec) -> str:
    """The name of the function: the same one has another module's name where it is loaded anew."""
    return spec.source.rpartition(":")[2]
