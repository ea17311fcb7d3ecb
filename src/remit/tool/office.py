"""Where the delegate tool delegates: as much of an open `Remit` as it needs, so that agents below `app` can be given the tool too."""

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from remit.core.agents import AgentSpec
from remit.core.clock import Clock
from remit.core.deadline import TimeLimits
from remit.core.events import Event
from remit.core.ports import AgentPort
from remit.core.record import Record
from remit.core.result import Return
from remit.flow.context import Handle


class Agents(Protocol):
    """The directory."""

    def specs(self) -> Sequence[AgentSpec]: ...
    def find(self, name: str) -> AgentPort | None: ...


class Limiting(Protocol):
    """The settings."""

    @property
    def model_requests(self) -> int: ...
    def limits_for(self, name: str) -> TimeLimits: ...


class Office(Protocol):
    """An open `Remit`. Called from inside of an agent, what it is handed is that agent's child."""

    @property
    def directory(self) -> Agents: ...
    @property
    def settings(self) -> Limiting: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The one it was opened on."""
        ...

    async def delegate(self, agent: str, /, **asked: Any) -> Return: ...
    async def start(self, agent: str, /, **asked: Any) -> Handle: ...
    async def describe(self, session_id: str) -> Record: ...
    async def events(self, session_id: str, after: int = 0) -> list[Event]: ...
