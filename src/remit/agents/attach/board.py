"""The owner's side: attached processes are let in by their token, and delegate as children of the agent that started them."""

import asyncio
import contextlib
import dataclasses
import hmac
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from pydantic import TypeAdapter, ValidationError

from remit.agents.attach.address import LENT, Peer, address_of, listening, peer_of
from remit.agents.attach.line import Line
from remit.agents.function import agent_name
from remit.agents.process.pool import marker
from remit.agents.process.remote import RemoteBackend
from remit.agents.process.service import Service
from remit.agents.process.wire import AgentRaised, delegation_to_wire, error_from_wire, repair_to_wire, request_from_wire
from remit.core.agents import AgentSpec, Isolation
from remit.core.caller_token import CALLER, REFUSED, UNSET, CallerToken, decode, new_secret
from remit.core.errors import AgentCrashed, ErrorInfo, Failed, Misused, Refused, RemitError, Unavailable
from remit.core.jsonable import to_jsonable
from remit.core.ports import AgentPort, Store
from remit.core.request import Request
from remit.runtime.context import Context
from remit.runtime.deps import Agents, RuntimeDeps
from remit.runtime.engine import CURRENT, Engine, LiveDelegation
from remit.system.processes import has_proc, look, mark_of, process_start
from remit.system.threads import off_loop


class BorrowedAgent:
    __slots__ = ("_fault", "_grace_seconds", "_visit", "spec")

    def __init__(self, spec: AgentSpec, visit: "Visit", fault: RemitError | None, grace_seconds: float) -> None:
        self.spec = spec
        self._visit = visit
        self._fault = fault
        """What its owner found wrong with the parameters: only there they can be checked."""
        self._grace_seconds = grace_seconds

    def check(self, parameters: dict[str, Any]) -> dict[str, Any]:
        if self._fault is not None:
            raise self._fault
        return parameters

    async def perform(self, ctx: Context, arguments: dict[str, Any]) -> Any:
        visit, running = self._visit, CURRENT.get()
        assert running is not None
        if visit.pid is not None:
            visit.executes(running, (visit.pid, process_start(visit.pid) or ""))
        run = visit.begin_run(running)
        telling: asyncio.Task[None] | None = None
        try:
            number, answer = visit.line.question("perform", {"agent": self.spec.name, "run": run, "facts": _facts(ctx)})
            telling = running.engine.spawn(self._tell_hand_in(ctx, run))
            try:
                return await asyncio.shield(answer)
            except asyncio.CancelledError:
                await self._stop(number, answer, ctx)
                raise
        except Unavailable as error:
            if visit.line.is_lost:
                raise self._crashed() from None
            raise _as_failed(error) from None
        except (Failed, Misused, AgentRaised):
            raise
        except RemitError as error:
            raise _as_failed(error) from None
        finally:
            if telling is not None:
                telling.cancel()
            visit.end_run(run)

    async def _stop(self, number: int, answer: "asyncio.Future[Any]", ctx: Context) -> None:
        self._visit.line.withdraw(number)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait((answer,), timeout=self._grace_seconds)
        if not answer.done():
            gone = ctx.backend.abandoned(f"{self.spec.name} in process {self._visit.pid}")
            answer.add_done_callback(lambda _: gone())

    async def _tell_hand_in(self, ctx: Context, run: int) -> None:
        with contextlib.suppress(RemitError):
            await ctx.wait_hand_in()
            if ctx.hand_in:  # a stop, too, ends the wait
                self._visit.line.question("hand_in", {"run": run})

    def _crashed(self) -> AgentCrashed:
        return AgentCrashed(
            f"The process {self._visit.pid} that carried out {self.spec.name} has ended or closed the line.",
            advice="See how the process that delegated it ended.",
        )


def _as_failed(error: RemitError) -> Failed:
    """A refusal or unavailability the agent met and let through is how the *agent* failed."""
    return Failed(error.message, code=error.code, advice=error.advice)


def _facts(ctx: Context) -> dict[str, Any]:
    """Everything its context there can be asked for without asking us: over there a question must not be waited for on the loop."""
    backend = ctx.backend
    return {
        "delegation": delegation_to_wire(backend.delegation),
        "root": str(backend.root),
        "workspace": str(backend.workspace),
        "scratch": str(backend.scratch),
        "repair": repair_to_wire(backend.repair),
        "saved": backend.saved,
        "environment": backend.environment(),
        "budget": backend.budget_left().to_dict(),
    }


def spec_to_wire(spec: AgentSpec) -> dict[str, Any]:
    return {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec)}


def spec_from_wire(wire: object) -> AgentSpec:
    try:
        return _reader().validate_python(wire)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        raise Misused(f"The declaration of an agent is faulty: {'.'.join(map(str, fault['loc']))}: {fault['msg']}.") from None


@cache
def _reader() -> TypeAdapter[AgentSpec]:
    """Made when first needed: most who import this never read one."""
    return TypeAdapter(AgentSpec)


ZYGOTE = "zygote"
_LEVELS = 4096
_LOOKS = 3
"""A process on the way up may end while we look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kin:
    """What is known of the processes of one delegation."""

    session_id: str
    owner_pid: int
    mark_prefix: str
    """What the marks of all of the owner's processes begin with."""
    has_own_processes: bool
    carrier: tuple[int, str] | None
    """The process that carries it out for us, where another does."""


def is_kin(pid: int | None, kin: Kin) -> bool:
    """Whether `pid` may speak for the delegation. Blocking: a few reads of /proc."""
    if pid is None or not has_proc():
        return True  # a system that does not tell: the secret alone must do
    way = _way_up(pid, kin.owner_pid)
    if way is None:
        return False
    if kin.carrier is not None:
        return kin.carrier[0] in way and process_start(kin.carrier[0]) == kin.carrier[1]
    belongs_to = _owner_of(way, kin.mark_prefix)
    return not kin.has_own_processes if belongs_to is None else belongs_to == kin.session_id


def _way_up(pid: int, owner_pid: int) -> list[int] | None:
    """From `pid` up to the owner, both included; None: it does not descend from it."""
    for _ in range(_LOOKS):
        way = [pid]
        while way[-1] != owner_pid and len(way) < _LEVELS:
            process = look(way[-1])
            if process is None or process.parent <= 0:
                break
            way.append(process.parent)
        if way[-1] == owner_pid:
            return way
    return None


def _owner_of(way: list[int], mark_prefix: str) -> str | None:
    """None: nobody's but the owner's own, as what an agent on our loop starts."""
    found: str | None = None
    for pid in reversed(way[:-1]):
        mark = mark_of(pid)
        if mark is not None and mark.startswith(mark_prefix):
            found = mark.removeprefix(mark_prefix)
            if found != ZYGOTE:
                return found
    return found  # below a zygote and below no supervisor: one that killed its own, which makes it nobody's


class Run:
    """One run of a lent agent: carries the questions of its backend (`agents.process.remote.Asks`)."""

    def __init__(self, line: "Line", number: int, facts: Mapping[str, Any]) -> None:
        self.line = line
        self.number = number
        self.hand_in: Future[None] = Future()
        self._facts = dict(facts)
        self._refusal: BaseException | None = None

    @property
    def token(self) -> str:
        token: str = self._facts["environment"].get(CALLER, "")
        return token

    @property
    def session_id(self) -> str:
        session_id: str = self._facts["delegation"]["lineage"]["session_id"]
        return session_id

    @property
    def agent(self) -> str:
        name: str = self._facts["delegation"]["agent"]
        return name

    def tell(self, name: str, **body: Any) -> None:
        self._raise_refusal()
        _, heard = self.line.question(name, {"run": self.number, **body})
        heard.add_done_callback(self._note_refusal)

    def ask_now(self, name: str, **body: Any) -> Any:
        return self._facts[name]

    async def ask(self, name: str, **body: Any) -> Any:
        self._raise_refusal()
        answer = await self.line.ask(name, run=self.number, **body)
        if name in ("delegate", "gather", "result"):
            with contextlib.suppress(RemitError):
                self._facts["budget"] = await self.line.ask("budget", run=self.number)
        return answer

    def _note_refusal(self, heard: "asyncio.Future[Any]") -> None:
        if not heard.cancelled() and heard.exception() is not None:
            self._refusal = heard.exception()

    def _raise_refusal(self) -> None:
        """What was merely told is not waited for; if it was refused, the next word hears it."""
        refusal, self._refusal = self._refusal, None
        if isinstance(refusal, RemitError):
            raise refusal


async def carried_out(agent: AgentPort, run: Run, facts: Mapping[str, Any]) -> Any:
    """What the agent hands back, plain. Whatever it delegates by another way is its child all the same."""
    LENT.set(run)  # in the context of this task alone
    backend = RemoteBackend(run, facts)
    arguments = agent.check(dict(backend.delegation.parameters))
    return to_jsonable(await agent.perform(Context(backend), arguments))


HELLO_BYTES = 32 * 1024
HELLO_SECONDS = 5.0
VERSION = 1
KILLING_SECONDS = 0.25
"""What a lender may take, beyond the grace, to kill a process of its own."""
LASTING = frozenset({"delegate", "start", "gather"})
"""A line that is lost is no cancellation: what was delegated goes on, and its result is on record."""


class Visit:
    def __init__(self, board: "Switchboard") -> None:
        self.board = board
        self._desks: dict[int, CallersDesk] = {}
        """By the number of the run; 0 is the delegation that the token is of."""
        self._runs = 0
        self.line = Line(self, board.engine.spawn, limit=HELLO_BYTES, lasting=LASTING)
        self._patience = asyncio.get_running_loop().call_later(HELLO_SECONDS, self._lose_patience)
        self.pid: int | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the delegation it speaks for has: nothing more can be asked here."""
        return 0 in self._desks and self._desks[0].running.is_settled

    async def call(self, name: object, body: object) -> Any:
        if not isinstance(body, Mapping):
            raise Misused("A question carries its arguments by name.")
        if not self._desks:
            return await self._hello(name, body)
        if name == "cancel":
            source = f"{self._desks[0].running.delegation.agent} ({self._desks[0].running.delegation.session_id})"
            return await self.board.engine.cancel(str(body.get("session_id")), str(body.get("reason") or ""), source)
        try:
            backend = self._desks.get(body.get("run", 0))
            if backend is None:
                raise Misused("That run has ended.")
            return await backend.answer(name, {key: value for key, value in body.items() if key != "run"})
        except TypeError as error:  # arguments that the question does not have
            raise Misused(f"That was asked wrongly: {error}") from None

    def lost(self) -> None:
        self._patience.cancel()
        self.board.forget(self)

    def _lose_patience(self) -> None:
        if self.line.is_answering:  # it has said hello, and it is we who take our time
            self._patience = asyncio.get_running_loop().call_later(HELLO_SECONDS, self.line.cut)
        else:
            self.line.cut()

    async def _hello(self, name: object, body: Mapping[str, Any]) -> Any:
        sock = self.line.socket
        if name != "hello" or not isinstance(body.get("token"), str) or sock is None:
            self.line.cut()
            raise Refused("Say hello first.")
        try:
            peer = peer_of(sock)
            running = await self.board.admit(self, body["token"], peer)
        except RemitError:
            asyncio.get_running_loop().call_later(0.2, self.line.cut)  # when it has heard why
            raise
        self._patience.cancel()
        self.pid = peer.pid
        self.line.trust()
        self._desks[0] = CallersDesk(running, self)
        return {"version": VERSION, "session_id": running.delegation.session_id, **self.board.facts()}

    # ---- runs of agents that are borrowed from it

    def executes(self, running: LiveDelegation, process: tuple[int, str]) -> None:
        """This process, by pid and start, executes the delegation: its own processes may speak for it."""
        self.board.executors[running] = process

    def begin_run(self, running: LiveDelegation) -> int:
        self._runs += 1
        self._desks[self._runs] = CallersDesk(running, self)
        return self._runs

    def end_run(self, number: int) -> None:
        self._desks.pop(number, None)


class CallersDesk(Service):
    """What may be asked on behalf of one delegation: all that a worker may (`agents.process.service`), and to lend agents."""

    def __init__(self, running: LiveDelegation, visit: Visit) -> None:
        super().__init__(running.ctx)
        self.running = running
        self._visit = visit
        self._calls |= {"delegate": self._delegate_with, "start": self._start_with}

    async def answer(self, name: object, body: dict[str, Any]) -> Any:
        if isinstance(name, str) and name in self._tells:
            self.tell(name, body)
            return None
        return await self.call(name, body)

    async def _delegate_with(self, request: object, borrow: object = None) -> Any:
        asked = request_from_wire(request)
        return (await self.running.delegate(asked, self._deps(asked, borrow))).to_dict()

    async def _start_with(self, request: object, borrow: object = None) -> str:
        asked = request_from_wire(request)
        handle = await self.running.start(asked, self._deps(asked, borrow))
        self._handles[handle.session_id] = handle
        return handle.session_id

    def _deps(self, request: Request, borrow: object) -> RuntimeDeps | None:
        """The dependencies with an agent that only the attached process has, for this one request."""
        if borrow is None:
            return None
        server = self._visit.board
        agent = self._borrowed(request.agent, borrow)
        if server.deps.agents.find(request.agent) is None:
            server.engine.limit_slots(agent.spec.name, agent.spec.slots, is_default=True)
        return replace(server.deps, agents=_WithOneMore(agent, server.deps.agents))

    def _borrowed(self, name: str, borrow: object) -> BorrowedAgent:
        if not isinstance(borrow, Mapping):
            raise Misused("What is lent is described by its declaration.")
        spec = spec_from_wire(borrow.get("spec"))
        fault = error_from_wire(borrow["fault"]) if borrow.get("fault") else None
        is_process = spec.isolation is Isolation.PROCESS
        # From here it is like an agent on a thread: it can be told to stop and be left behind. After a crash nobody has it any more.
        spec = replace(spec, name=agent_name(name), resumable=False, isolation=spec.isolation if is_process else Isolation.THREAD)
        grace = self._visit.board.kill_grace_seconds + (KILLING_SECONDS if is_process else 0.0)
        return BorrowedAgent(spec, self._visit, fault, grace)


class _WithOneMore:
    """A directory with one agent more, which goes before others of its name."""

    def __init__(self, agent: AgentPort, agents: Agents) -> None:
        self._agent = agent
        self._agents = agents

    def find(self, name: str) -> AgentPort | None:
        return self._agent if name == self._agent.spec.name else self._agents.find(name)

    def names(self) -> Sequence[str]:
        return (*self._agents.names(), self._agent.spec.name)


LINES_AT_ONCE = 1024
STRANGERS_AT_ONCE = 64
"""Who have not said yet who they are; the oldest makes room for a new one."""
TRIES_NOTED = 5
"""So often a refused token is noted on its delegation; then everybody knows."""

log = logging.getLogger("remit.switchboard")
OPEN_HERE: dict[str, "Switchboard"] = {}
"""Those of this process, by owner: a record in memory can be looked at here alone."""


class Switchboard:
    def __init__(
        self,
        engine: Engine,
        deps: RuntimeDeps,
        store: Store,
        facts: Callable[[], dict[str, Any]],
        *,
        run_folder: Path,
        project: str,
        kill_grace_seconds: float,
    ) -> None:
        """`facts`: what an attached process is told of the project."""
        self.engine = engine
        self.deps = deps
        self.store = store
        self.facts = facts
        self.kill_grace_seconds = kill_grace_seconds
        self.executors: WeakKeyDictionary[LiveDelegation, tuple[int, str]] = WeakKeyDictionary()
        """The processes, pid and start, that execute delegations for us; others are executed by this process or its workers."""
        self._tokens: WeakKeyDictionary[LiveDelegation, str] = WeakKeyDictionary()
        self._project = project
        self._loop = asyncio.get_running_loop()
        self._path = address_of(run_folder, engine.owner.owner_id)
        self._is_listening = self._is_closed = False
        self._making = threading.Lock()
        self._server: asyncio.Server | None = None
        self._strangers: list[Visit] = []
        self._known: set[Visit] = set()
        self._tries: dict[str, int] = {}
        OPEN_HERE[engine.owner.owner_id] = self

    # ---- tokens

    def token_for(self, running: LiveDelegation) -> str:
        """From any thread: an agent on a thread of its own asks here too."""
        token = self._tokens.get(running)
        if token is None:
            with self._making:
                self._listen()
                fresh = CallerToken(running.delegation.session_id, new_secret(), str(self._path)).encode()
                token = self._tokens.setdefault(running, fresh)
        return token

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
            self._server = await asyncio.get_running_loop().create_unix_server(self._connected, sock=sock)

        self._loop.call_soon_threadsafe(lambda: self.engine.spawn(serve()))

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

    async def admit(self, visit: Visit, text: str, peer: Peer) -> LiveDelegation:
        """The delegation whose token this is, used by a process of its own. Raises `Refused`."""
        if peer.uid is not None and peer.uid != os.getuid():
            raise _refused("It belongs to another user.")
        token = decode(text)
        running = self.engine.find(token.session_id)
        if running is None or running.is_settled:
            raise _refused(await self._why_unknown(token.session_id))
        given = self._tokens.get(running)
        if given is None or not hmac.compare_digest(given, text):
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

    def _kin(self, running: LiveDelegation) -> Kin:
        return Kin(
            session_id=running.delegation.session_id,
            owner_pid=os.getpid(),
            mark_prefix=marker(self._project, self.engine.owner.owner_id),
            has_own_processes=running.agent.spec.isolation is Isolation.PROCESS,
            carrier=self.executors.get(running),
        )

    async def _why_unknown(self, session_id: str) -> str:
        record = await off_loop(self.store.get, session_id)
        if record is None:
            return f"It was not given out here: {session_id} is unknown."
        return f"It has expired: {record.agent} ({session_id}) has ended ({record.state})."

    def _note(self, running: LiveDelegation, peer: Peer, what: str) -> Refused:
        """Somebody tries: the delegation's record and the ledger say so (a few times)."""
        session_id = running.delegation.session_id
        tries = self._tries[session_id] = self._tries.get(session_id, 0) + 1
        message = f"A token of {running.delegation.agent} ({session_id}) was refused: {what} (process {peer.pid})."
        if tries <= TRIES_NOTED:
            running.notice(message)
            error = ErrorInfo(type="caller", message=message, code=REFUSED, recoverable=False, recommendation=UNSET)
            self.deps.note_errors(running.delegation, [error], "")
        return _refused(f"It was {what}.")


def _refused(what: str) -> Refused:
    return Refused(f"The token of the caller is refused. {what}", code=REFUSED, advice=UNSET)
