"""What one attached process may ask of the owner of its tree: everything its delegation's `ctx` can do, and to cancel by session.

Until it has shown its token it may say one thing, briefly and soon. Agents that only it has are borrowed from it (see `borrowed`); while
it carries one out, it asks on behalf of that delegation, by the number of the run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from remit.agents.function import agent_name
from remit.agents.process.errors import error_from_wire
from remit.agents.process.service import Service
from remit.agents.process.wire import request_from_wire
from remit.core.agents import Isolation
from remit.core.errors import Misused, Refused, RemitError
from remit.core.ports import AgentPort
from remit.engine.context_backend import EngineDesk
from remit.engine.running import Running
from remit.flow.house import Agents, House
from remit.flow.request import Request
from remit.switchboard.address import peer_of
from remit.switchboard.borrowed import BorrowedAgent
from remit.switchboard.declared import spec_from_wire
from remit.switchboard.line import Line

if TYPE_CHECKING:
    from remit.switchboard.board import Switchboard

HELLO_BYTES = 32 * 1024
HELLO_SECONDS = 5.0
VERSION = 1
KILLING_SECONDS = 0.25
"""What a lender may take, beyond the grace, to kill a process of its own."""
LASTING = frozenset({"delegate", "start", "gather"})
"""A line that is lost is no cancellation: what was delegated goes on, and its result is on record."""


class Visit:
    def __init__(self, board: "Switchboard") -> None:
        self._board = board
        self._desks: dict[int, CallersDesk] = {}
        """By the number of the run; 0 is the delegation that the token is of."""
        self._runs = 0
        self.line = Line(self, board.engine.spawn, limit=HELLO_BYTES, lasting=LASTING)
        self._patience = board.engine.loop.call_later(HELLO_SECONDS, self._lose_patience)
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
            return await self._board.cancel(str(body.get("session_id")), str(body.get("reason") or ""), source)
        try:
            desk = self._desks.get(body.get("run", 0))
            if desk is None:
                raise Misused("That run has ended.")
            return await desk.answer(name, {key: value for key, value in body.items() if key != "run"})
        except TypeError as error:  # arguments that the question does not have
            raise Misused(f"That was asked wrongly: {error}") from None

    def lost(self) -> None:
        self._patience.cancel()
        self._board.forget(self)

    def _lose_patience(self) -> None:
        if self.line.is_answering:  # it has said hello, and it is we who take our time
            self._patience = self._board.engine.loop.call_later(HELLO_SECONDS, self.line.cut)
        else:
            self.line.cut()

    async def _hello(self, name: object, body: Mapping[str, Any]) -> Any:
        sock = self.line.socket
        if name != "hello" or not isinstance(body.get("token"), str) or sock is None:
            self.line.cut()
            raise Refused("Say hello first.")
        try:
            peer = peer_of(sock)
            running = await self._board.admit(self, body["token"], peer)
        except RemitError:
            self._board.engine.loop.call_later(0.2, self.line.cut)  # when it has heard why
            raise
        self._patience.cancel()
        self.pid = peer.pid
        self.line.trust()
        self._desks[0] = CallersDesk(running, self)
        return {"version": VERSION, "session_id": running.delegation.session_id, **self._board.facts()}

    # ---- runs of agents that are borrowed from it

    def begin_run(self, running: Running) -> int:
        self._runs += 1
        self._desks[self._runs] = CallersDesk(running, self)
        return self._runs

    def end_run(self, number: int) -> None:
        self._desks.pop(number, None)


class CallersDesk(Service):
    """What may be asked on behalf of one delegation: all that a worker may (`agents.process.service`), and to lend agents."""

    def __init__(self, running: Running, visit: Visit) -> None:
        super().__init__(running.ctx)
        self.running = running
        self._visit = visit
        desk = running.ctx._desk
        assert isinstance(desk, EngineDesk)
        self._desk = desk
        self._calls |= {"delegate": self._delegate_with, "start": self._start_with}

    async def answer(self, name: object, body: dict[str, Any]) -> Any:
        if isinstance(name, str) and name in self._tells:
            self.tell(name, body)
            return None
        return await self.call(name, body)

    async def _delegate_with(self, request: object, borrow: object = None) -> Any:
        asked = request_from_wire(request)
        return (await self._desk.delegate(asked, self._house(asked, borrow))).to_dict()

    async def _start_with(self, request: object, borrow: object = None) -> str:
        asked = request_from_wire(request)
        handle = await self._desk.start(asked, self._house(asked, borrow))
        self._handles[handle.session_id] = handle
        return handle.session_id

    def _house(self, request: Request, borrow: object) -> House | None:
        """The house, with an agent in it that only the attached process has, for this one request."""
        if borrow is None:
            return None
        engine = self.running.engine
        agent = self._borrowed(request.agent, borrow)
        if engine.house.agents.find(request.agent) is None:
            engine.slots.limit(agent.spec.name, agent.spec.slots, is_lent=True)
        return replace(engine.house, agents=_WithOneMore(agent, engine.house.agents))

    def _borrowed(self, name: str, borrow: object) -> BorrowedAgent:
        if not isinstance(borrow, Mapping):
            raise Misused("What is lent is described by its declaration.")
        spec = spec_from_wire(borrow.get("spec"))
        fault = error_from_wire(borrow["fault"]) if borrow.get("fault") else None
        is_process = spec.isolation is Isolation.PROCESS
        # From here it is like an agent on a thread: it can be told to stop and be left behind. After a crash nobody has it any more.
        spec = replace(spec, name=agent_name(name), resumable=False, isolation=spec.isolation if is_process else Isolation.THREAD)
        grace = self.running.engine.options.kill_grace_seconds + (KILLING_SECONDS if is_process else 0.0)
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
