"""What a client of a api can do, and what it is told, whichever protocol it speaks. The checks of the suite know nothing else.

A client is the protocol's own (grpcio's, the a2a-sdk's, httpx, the MCP SDK's); what stands in `over_…` only puts its answers into the
values below. Nothing is guessed there: what a protocol does not tell is None.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from support.apis.traits import Traits


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """How a task stands, as this api tells it."""

    task_id: str
    shown: str
    """Its state in the words of the api."""
    status: str | None = None
    """Of the return: completed, partial, failed or blocked; None: it has not ended."""
    stop_reason: str | None = None
    data: Any = None
    summary: str = ""
    code: str | None = None
    """Of its first error: our own code."""
    artifacts: tuple[str, ...] = ()
    """Paths."""

    @property
    def has_ended(self) -> bool:
        return self.status is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One thing heard on a stream."""

    kind: str
    """`progress`, `data`, `status`, or `end`, the last one, with `seen`."""
    number: int | None = None
    """By which a stream is taken up again; None: this protocol tells none here."""
    value: Any = None
    """Words, or the chunk."""
    seen: Seen | None = None


class Page(NamedTuple):
    task_ids: list[str]
    next_page: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a caller stands that is a remit itself, as it says."""

    depth: int = 0
    path: tuple[str, ...] = ()
    seconds_left: float | None = None


class ApiFault(Exception):
    """What a client is told in place of an answer."""

    def __init__(self, code: str | None, status: object, words: str) -> None:
        super().__init__(f"{code} ({status}): {words}")
        self.code = code
        """Our own code."""
        self.status = status
        """In the words of the protocol: the name of gRPC's status, HTTP's number, the A2A error's name; None: it has no such thing."""


class ApiClient(Protocol):
    traits: Traits

    async def execute(self, arguments: Mapping[str, Any]) -> str:
        """Begin a task and give its id; does not wait for its end. `arguments`: of the delegate tool, and `key`, `budget` and
        `session` (a word for the conversation). Raises `ApiFault`, as do all."""

    async def status(self, task_id: str) -> Seen: ...

    def stream(self, task_id: str, after: int = 0) -> AsyncIterator[Said]:
        """From the chunk after that number, where the protocol numbers them; to the end."""

    async def cancel(self, task_id: str, reason: str = "") -> Seen:
        """How it stands then."""

    async def list(
        self, *, session: str | None = None, shown: str | None = None, agent: str | None = None, size: int = 50, page: str | None = None
    ) -> Page:
        """`shown`: a state in the words of the api."""

    async def agents(self) -> Sequence[str]:
        """Names, of those that may be used."""


class ApiStage(Protocol):
    """A project that is served with `agents.API_AGENTS` and `agents.POLICY`, and clients of the api under test."""

    root: Path

    async def client(self, who: str = "ann", standing: Standing | None = None) -> ApiClient:
        """Of that principal; with `standing` it is granted `relay`. Closed by the stage."""


async def ended(api: ApiClient, task_id: str, seconds: float = 15.0) -> Seen:
    """Polled until it has ended, as a client without streams would."""
    async with asyncio.timeout(seconds):
        while not (seen := await api.status(task_id)).has_ended:  # noqa: ASYNC110 - polling is what is tried
            await asyncio.sleep(0.02)
    return seen


async def done(api: ApiClient, target: str, **more: Any) -> Seen:
    """Begun and ended. `more`: parameters, and with a leading underscore other arguments."""
    return await ended(api, await api.execute(asked(target, **more)))


def asked(target: str, **more: Any) -> dict[str, Any]:
    arguments = {name[1:]: value for name, value in more.items() if name.startswith("_")}
    parameters = {name: value for name, value in more.items() if not name.startswith("_")}
    return {"target": target, "parameters": parameters, **arguments}


async def fault(waiting: Any) -> ApiFault:
    """The fault that it must end with."""
    try:
        got = await waiting
    except ApiFault as error:
        return error
    raise AssertionError(f"it was not refused: {got}")


async def heard(api: ApiClient, task_id: str, after: int = 0, seconds: float = 15.0) -> list[Said]:
    async with asyncio.timeout(seconds):
        return [said async for said in api.stream(task_id, after)]
