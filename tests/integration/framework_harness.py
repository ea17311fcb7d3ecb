"""A harness for agent frameworks: an agent whose runs can be awaited, scripted model calls, and `Harness`, which each framework
subclasses to say how its agents are made and run."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self

from openai import AsyncOpenAI, DefaultAsyncHttpxClient

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
        self._client: AsyncOpenAI | None = None
        self.models = Models([])

    async def __aenter__(self) -> Self:
        await self.models.__aenter__()
        self.remit = await Remit.open(self._folder, agents=[echo]).__aenter__()
        self.guest = self.agent(self.tool())
        self.register("guest", self.guest)
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.remit.close()
        if self._client is not None:
            await self._client.close()
        await self.models.__aexit__(*error)

    def client(self) -> AsyncOpenAI:
        """A plain HTTP client: no certificate authorities are loaded, which takes long."""
        if self._client is None:
            plain = DefaultAsyncHttpxClient(verify=False)
            self._client = AsyncOpenAI(base_url=self.models.openai_url, api_key="none", max_retries=0, http_client=plain)
        return self._client

    @abstractmethod
    def agent(self, *tools: Any) -> Any:
        """A framework agent with these tools."""

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
