"""For the tests of other frameworks: an agent whose runs can be waited for, the calls a scripted model makes of it,
and the `Stage` on which each framework is tried, which says what differs: how an agent is made and run."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest
import pytest_asyncio
from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from pydantic import BaseModel

from remit import Remit, agent
from remit.core.agents import AgentSpec
from remit.testing import Call, ModelRequest, ScriptedModels
from remit.testing.models.turns import Player, Script


class Present:
    """What runs now; others can wait until so many do."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._waiting: list[tuple[int, asyncio.Event]] = []

    def come(self, name: str) -> None:
        self.names.add(name)
        for count, event in self._waiting:
            if len(self.names) >= count:
                event.set()

    async def until(self, count: int) -> None:
        event = asyncio.Event()
        self._waiting.append((count, event))
        async with asyncio.timeout(20):
            if len(self.names) < count:
                await event.wait()
        self._waiting.remove((count, event))


present = Present()


@agent("echo")
async def echo(text: str, wait: float = 0.0) -> str:
    """Says it again."""
    present.come(text)
    try:
        await asyncio.sleep(wait)
    finally:
        present.names.discard(text)
    return f"echo {text}"


def delegate(target: str, **parameters: Any) -> Call:
    return Call("delegate", target=target, parameters=parameters)


class Verdict(BaseModel):
    """A judgement."""

    good: bool
    why: str


class Models(ScriptedModels):
    """One server for many scripts, one after the other."""

    def play(self, script: Script) -> None:
        self._player = Player(script)
        self.requests.clear()


class Stage(ABC):
    """A scripted model, a project, and an agent of the framework whose only tool is delegate; an `@agent` named `guest` runs it."""

    package: ClassVar[str]
    """Where the framework's own code is."""
    delegate_tool: ClassVar[Callable[..., Any]]
    """From an open `Remit` to a tool of the framework's."""
    own_tool: ClassVar[Callable[..., Any]]
    """The same from a function."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._clients: dict[str, AsyncOpenAI] = {}
        self.models = Models([])

    async def __aenter__(self) -> Self:
        await self.models.__aenter__()
        self.remit = await Remit.open(self._folder, agents=[echo]).__aenter__()
        self.guest = self.agent(self.tool())
        self.admit("guest", self.guest)
        return self

    async def __aexit__(self, *gone: Any) -> None:
        await self.remit.close()
        for client in self._clients.values():
            await client.close()
        await self.models.__aexit__(*gone)

    def client(self, at: Models | None = None) -> AsyncOpenAI:
        """Over plain HTTP: no list of authorities is loaded, which takes long."""
        url = (at or self.models).openai_url
        if url not in self._clients:
            plain = DefaultAsyncHttpxClient(verify=False)
            self._clients[url] = AsyncOpenAI(base_url=url, api_key="none", max_retries=0, http_client=plain)
        return self._clients[url]

    @abstractmethod
    def agent(self, *tools: Any, at: Models | None = None, output: Any = None) -> Any:
        """One of the framework's, with these tools, whose model is at `at`: the stage's own models, if nothing is said."""

    @abstractmethod
    async def run(self, agent: Any, text: str) -> str:
        """By the framework alone."""

    def tool(self, among: Callable[[AgentSpec], bool] | None = None, **more: Any) -> Any:
        return self.delegate_tool(self.remit, among, **more)

    def admit(self, name: str, guest: Any) -> None:
        @agent(name, timeout=20)
        async def run(task: str) -> str:
            return await self.run(guest, task)

        self.remit.register(run)

    def play(self, script: Script) -> list[ModelRequest]:
        """From now on the models do this; what they are asked comes into the list."""
        self.models.play(script)
        return self.models.requests


def on_stage(kind: type[Stage]) -> tuple[Any, Any]:
    """The fixtures of a file: `stage`, one for all of its tests and their loop; and after each that nothing is left of it."""

    @pytest_asyncio.fixture(scope="module", loop_scope="module")
    async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
        async with kind(tmp_path_factory.mktemp("project")) as opened:
            yield opened

    @pytest.fixture(autouse=True)
    def nothing_is_left() -> Iterator[None]:
        yield
        assert present.names == set()

    return stage, nothing_is_left
