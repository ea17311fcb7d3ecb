"""An agent that the owner of a tree borrowed from this process, as it is carried out here. The other side is `borrowed`.

Its `ctx` is the one of a worker (`agents.process.remote`) over a line: each question goes to the owner. What must be answered at once
(scratch folder, environment) came along; the budget is as the owner last told it.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from remit.agents.process.remote import RemoteDesk
from remit.core.caller import CALLER
from remit.core.errors import RemitError
from remit.core.ports import AgentPort
from remit.flow.context import Context
from remit.flow.plain import plain
from remit.switchboard.here import LENT

if TYPE_CHECKING:
    from remit.switchboard.line import Line


class Run:
    """One run of a lent agent: carries the questions of its desk (`agents.process.remote.Asks`)."""

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
    desk = RemoteDesk(run, facts)
    arguments = agent.check(dict(desk.delegation.parameters))
    return plain(await agent.perform(Context(desk), arguments))
