"""A harness for agent frameworks: an agent whose runs can be awaited, scripted model calls, and `Harness`, which each framework
subclasses to say how its agents are made and run."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest
import pytest_asyncio
from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from pydantic import BaseModel

from remit import AgentSpec, Remit, agent
from remit.testing import Call, ModelRequest, ScriptedModels
from remit.testing.models.turns import Player, Script


class RunningAgents:
    """Counts running agents and waits for a number of them."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._waiting: list[tuple[int, asyncio.Event]] = []

    def add(self, name: str) -> None:
        self.names.add(name)
        for count, event in self._waiting:
            if len(self.names) >= count:
                event.set()

    async def until(self, count: int) -> None:
        event = asyncio.Event()
        self._waiting.append((count, event))
        async with asyncio.timeout(60):
            if len(self.names) < count:
                await event.wait()
        self._waiting.remove((count, event))


running = RunningAgents()


@agent("echo")
async def echo(text: str, wait: float = 0.0) -> str:
    """Echo a text."""
    running.add(text)
    try:
        await asyncio.sleep(wait)
    finally:
        running.names.discard(text)
    return f"echo {text}"


def delegate(target: str, **parameters: Any) -> Call:
    return Call("delegate", target=target, parameters=parameters)


class Verdict(BaseModel):
    """A judgement."""

    good: bool
    why: str


class Models(ScriptedModels):
    """One server for several scripts, one after another."""

    def play(self, script: Script) -> None:
        self._player = Player(script)
        self.requests.clear()


class Harness(ABC):
    """A scripted model, a project, and a framework agent whose only tool is delegate; the agent `guest` runs it."""

    package: ClassVar[str]
    """The package of the framework."""
    delegate_tool: ClassVar[Callable[..., Any]]
    """Make a tool of the framework from an open `Remit`."""
    own_tool: ClassVar[Callable[..., Any]]
    """Make a tool of the framework from a function."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._clients: dict[str, AsyncOpenAI] = {}
        self.models = Models([])

    async def __aenter__(self) -> Self:
        await self.models.__aenter__()
        self.remit = await Remit.open(self._folder, agents=[echo]).__aenter__()
        self.guest = self.agent(self.tool())
        self.register("guest", self.guest)
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.remit.close()
        for client in self._clients.values():
            await client.close()
        await self.models.__aexit__(*error)

    def client(self, at: Models | None = None) -> AsyncOpenAI:
        """A plain HTTP client: no certificate authorities are loaded, which takes long."""
        url = (at or self.models).openai_url
        if url not in self._clients:
            plain = DefaultAsyncHttpxClient(verify=False)
            self._clients[url] = AsyncOpenAI(base_url=url, api_key="none", max_retries=0, http_client=plain)
        return self._clients[url]

    @abstractmethod
    def agent(self, *tools: Any, at: Models | None = None, output: Any = None) -> Any:
        """A framework agent with these tools, whose model is served at `at` (default: the scripted model)."""

    @abstractmethod
    async def run(self, agent: Any, text: str) -> str:
        """Run it by the framework alone."""

    def tool(self, among: Callable[[AgentSpec], bool] | None = None, **more: Any) -> Any:
        return self.delegate_tool(self.remit, among, **more)

    def register(self, name: str, framework_agent: Any) -> None:
        @agent(name, timeout=20)
        async def run(task: str) -> str:
            return await self.run(framework_agent, task)

        self.remit.register(run)

    def play(self, script: Script) -> list[ModelRequest]:
        """Set the script of the model and record its requests."""
        self.models.play(script)
        return self.models.requests


def harness_fixtures(kind: type[Harness]) -> tuple[Any, Any]:
    """Two fixtures: `harness`, shared by the tests of a module, and a check after each test that no agent still runs."""

    @pytest_asyncio.fixture(scope="module", loop_scope="module")
    async def harness(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Harness]:
        async with kind(tmp_path_factory.mktemp("project")) as opened:
            yield opened

    @pytest.fixture(autouse=True)
    def no_agent_left() -> Iterator[None]:
        yield
        assert running.names == set()

    return harness, no_agent_left
