"""Client interface of an API and its answers, independent of the protocol. The checks of the suite use only this module.

Each client wraps the protocol's own library (grpcio, a2a-sdk, httpx, the MCP SDK). The `over_…` modules convert answers to the values
below without guessing: information that a protocol does not provide is None.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from support.apis.traits import Traits


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """State of a task as the API reports it."""

    task_id: str
    shown: str
    """State name of the API."""
    status: str | None = None
    """Status of the return: completed, partial, failed or blocked; None while the task runs."""
    stop_reason: str | None = None
    data: Any = None
    summary: str = ""
    code: str | None = None
    """Error code of the first error."""
    artifacts: tuple[str, ...] = ()
    """Paths."""

    @property
    def has_ended(self) -> bool:
        return self.status is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One event of a stream."""

    kind: str
    """`progress`, `data`, `status`, or `end`, the last one, with `seen`."""
    number: int | None = None
    """Position from which a stream can be resumed; None if the protocol does not provide it."""
    value: Any = None
    """Progress text, or the chunk."""
    seen: Seen | None = None


class Page(NamedTuple):
    task_ids: list[str]
    next_page: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Position of a caller that is itself a remit, as it reports it."""

    depth: int = 0
    path: tuple[str, ...] = ()
    seconds_left: float | None = None


class ApiFault(Exception):
    """Error that a client receives instead of an answer."""

    def __init__(self, code: str | None, status: object, words: str) -> None:
        super().__init__(f"{code} ({status}): {words}")
        self.code = code
        """Error code of remit."""
        self.status = status
        """Status of the protocol: gRPC status name, HTTP status code or A2A error name; None if the protocol has no statuses."""


class ApiClient(Protocol):
    traits: Traits

    async def execute(self, arguments: Mapping[str, Any]) -> str:
        """Start a task and return its id without waiting for its end. `arguments`: those of the delegate tool, plus `key`, `budget` and
        `session` (name of the conversation). Raises `ApiFault`, as do all methods."""

    async def status(self, task_id: str) -> Seen: ...

    def stream(self, task_id: str, after: int = 0) -> AsyncIterator[Said]:
        """Stream from the chunk after that number, if the protocol numbers chunks, to the end."""

    async def cancel(self, task_id: str, reason: str = "") -> Seen:
        """Cancel the task and return its state."""

    async def list(
        self, *, session: str | None = None, shown: str | None = None, agent: str | None = None, size: int = 50, page: str | None = None
    ) -> Page:
        """`shown`: a state name of the API."""

    async def agents(self) -> Sequence[str]:
        """Names of the agents that the caller may use."""


class ApiHarness(Protocol):
    """A served project with `agents.API_AGENTS` and `agents.POLICY`, and clients of the API under test."""

    root: Path

    async def client(self, who: str = "ann", standing: Standing | None = None) -> ApiClient:
        """Client for that principal; `standing` also grants it `relay`. The harness closes it."""


async def ended(api: ApiClient, task_id: str, seconds: float = 15.0) -> Seen:
    """Poll until the task has ended, like a client without streams."""
    async with asyncio.timeout(seconds):
        while not (seen := await api.status(task_id)).has_ended:  # noqa: ASYNC110 - polling is under test
            await asyncio.sleep(0.02)
    return seen


async def done(api: ApiClient, target: str, **more: Any) -> Seen:
    """Start a task and wait for its end. `more`: parameters; a leading underscore marks other arguments."""
    return await ended(api, await api.execute(asked(target, **more)))


def asked(target: str, **more: Any) -> dict[str, Any]:
    arguments = {name[1:]: value for name, value in more.items() if name.startswith("_")}
    parameters = {name: value for name, value in more.items() if not name.startswith("_")}
    return {"target": target, "parameters": parameters, **arguments}


async def fault(waiting: Any) -> ApiFault:
    """The fault that the call must raise."""
    try:
        got = await waiting
    except ApiFault as error:
        return error
    raise AssertionError(f"it was not refused: {got}")


async def heard(api: ApiClient, task_id: str, after: int = 0, seconds: float = 15.0) -> list[Said]:
    async with asyncio.timeout(seconds):
        return [said async for said in api.stream(task_id, after)]
