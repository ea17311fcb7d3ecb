"""Carriers: a declared function gets the isolation it asked for (design 6), a definition the adapter of its kind."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from remit.agents.definition import Definition, Kind
from remit.agents.frameworks import FrameworkAgent
from remit.agents.function import FunctionAgent
from remit.agents.process.pool import Job, ProcessPool
from remit.agents.process.target import Place, Target, target_of
from remit.agents.role_bindings import UnavailableAgent
from remit.agents.thread import ThreadAgent, ThreadPool
from remit.core.agents import AgentSpec, Isolation
from remit.core.ports import AgentPort
from remit.models.client import Models
from remit.runtime.context import Context
from remit.runtime.tool.delegate_tool import Delegator

_OURS = "remit.builtin."
"""Whose functions may ask the models of the Remit process: a worker runs the module that it is named, so what is named so is ours."""


class ProcessAgent:
    """Carries out a `FunctionAgent` in a process of its own. Only those that come with remit are given models: what others spend on one
    is a delegation to a model agent, seen and limited as such."""

    __slots__ = ("_agent", "_models", "_pool", "_used", "spec", "target")

    def __init__(self, agent: FunctionAgent, pool: ProcessPool, used: Callable[[Target], None], models: Models) -> None:
        self._agent = agent
        self._pool = pool
        self._used = used
        self.spec: AgentSpec = agent.spec
        self.target: Target = target_of(agent.function)
        is_ours = self.target.place is Place.MODULE and self.target.module.startswith(_OURS)
        self._models = models if is_ours else None

    def check(self, parameters: dict[str, Any]) -> dict[str, Any]:
        self._agent.check(parameters)
        return parameters

    async def perform(self, ctx: Context, arguments: dict[str, Any]) -> Any:
        self._used(self.target)
        # The recorded parameters, not `arguments`: they are plain, and the worker checks them again into what the function takes.
        return await self._pool.run(Job(target=self.target, parameters=ctx.parameters, models=self._models), ctx)


class Executors:
    """The pools of one Remit."""

    def __init__(self, processes: ProcessPool, grace_seconds: float, models: Models, office: Delegator, root: Path | None = None) -> None:
        self.processes = processes
        self._models = models
        self._office = office
        self._root = root or Path()
        """Of the project: files that agents elsewhere name lie below it."""
        self.threads = ThreadPool()
        self._grace_seconds = grace_seconds
        self._targets: list[Target] = []
        """Whose modules are loaded ahead."""
        self._is_open = False
        self._has_commands = False
        self._leaving: list[Callable[[], Awaitable[None]]] = []
        """For agents elsewhere: what is still to be told there when this ends."""
        self._strangers: list[Callable[[], Coroutine[Any, Any, None]]] = []
        """Agents elsewhere that are to be asked what they take, once there is somebody to hear it."""
        self._greeting: set[asyncio.Task[None]] = set()

    def __call__(self, agent: FunctionAgent) -> AgentPort:
        match agent.spec.isolation:
            case Isolation.PROCESS:
                carrier = ProcessAgent(agent, self.processes, self._used, self._models)
                if not self._is_open:
                    self._targets.append(carrier.target)
                return carrier
            case Isolation.THREAD:
                return ThreadAgent(agent, self.threads, self._grace_seconds)
            case _:
                return agent.with_models(self._models) if isinstance(agent, FrameworkAgent) else agent

    def define(self, definition: Definition) -> AgentPort:
        """Each adapter is imported only where an agent of its kind is declared."""
        if definition.kind is Kind.PROFILE:
            return UnavailableAgent(definition)
        if definition.kind is Kind.MODEL:
            from remit.agents.model.model_agent import ModelAgent

            return ModelAgent(definition, self._models, self._office)
        if definition.kind is Kind.GRPC:
            from remit.agents.grpc.grpc_agent import GrpcAgent

            elsewhere = GrpcAgent(definition, self._root)
            self._leaving.append(elsewhere.close)
            self._greet(elsewhere.greet)
            return elsewhere
        if definition.kind is Kind.A2A:
            from remit.agents.a2a.a2a_agent import A2aAgent

            remote = A2aAgent(definition, self._root)
            self._leaving.append(remote.close)
            return remote
        self._has_commands = True
        match definition.kind:
            case Kind.COMMAND:
                from remit.agents.command import CommandAgent

                return CommandAgent(definition, self.processes)
            case Kind.ACP:
                from remit.agents.acp.acp_agent import AcpAgent

                return AcpAgent(definition, self.processes)
            case _:
                from remit.agents.coding.coding_agent import CodingAgent

                return CodingAgent(definition, self.processes)

    def warm_up(self) -> None:
        """Start what process agents need, in the background, if there are any, and ask those elsewhere what they take."""
        self._is_open = True
        for greet in self._strangers:
            self._greet(greet)
        self._strangers.clear()
        if self._targets or self._has_commands:
            self.processes.warm_up(self._targets, for_commands=self._has_commands)

    def _greet(self, greet: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if not self._is_open:
            self._strangers.append(greet)
            return
        task = asyncio.get_running_loop().create_task(greet())
        self._greeting.add(task)
        task.add_done_callback(self._greeting.discard)

    def _used(self, target: Target) -> None:
        """One that was registered later (those that come with remit are) has its module loaded ahead from its first use on: most are
        never used, and a process that has loaded them all costs each who opens a project."""
        if all(target.module != known.module for known in self._targets):
            self._targets.append(target)
            self.processes.warm_up(tuple(self._targets))

    async def close(self) -> None:
        for task in self._greeting:
            task.cancel()
        for leave in self._leaving:
            await leave()
        await self.processes.close()
        self.threads.close()
