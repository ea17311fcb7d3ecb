"""Executors: gives a function the executor of its isolation, and a definition the executor of its kind.

The executors of definitions are named like entry points, `module:class`, and imported when an agent of the kind is declared. Each is called
with the `Definition` and `ExecutorDeps` and returns an `AgentPort`. An installed package adds a kind with an entry point of the group
`remit.executors`, whose name is the kind. To add a built-in kind: declare it in `definition.Kind` and enter its executor in `EXECUTORS`."""

import asyncio
import importlib
import logging
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.agents.function import FunctionAgent
from remit.agents.process.target import Place, Target, target_of
from remit.agents.python_files import FileAgent
from remit.core.agents import AgentSpec, Isolation
from remit.core.context import Context
from remit.core.ports import AgentPort
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.agents.definition import Definition
    from remit.agents.mcp.tool_agents import McpServers
    from remit.agents.process.pool import ProcessPool
    from remit.models.client import Models
    from remit.runtime.tool.delegate_tool import Delegator
    from remit.system.trust import ProjectTrust

EXECUTORS: Mapping[str, str] = {
    "command": "remit.agents.command:CommandAgent",
    "acp": "remit.agents.acp.acp_agent:AcpAgent",
    "claude": "remit.agents.coding.coding_agent:CodingAgent",
    "codex": "remit.agents.coding.coding_agent:CodingAgent",
    "opencode": "remit.agents.coding.coding_agent:CodingAgent",
    "model": "remit.agents.model.model_agent:ModelAgent",
    "a2a": "remit.agents.a2a.a2a_agent:A2aAgent",
    "mcp": "remit.agents.mcp.tool_agents:ToolAgent",
    "group": "remit.agents.group:GroupAgent",
    "profile": "remit.agents.role_bindings:UnavailableAgent",
}
"""By `Kind`: every one has an entry. Its names as text, so that a program without declared agents does not load their validation."""
CLOSE_SECONDS = 5.0
"""Time limit for the executors of declared agents when the project is closed."""
_IN_PROCESSES = ("command", "acp", "claude", "codex", "opencode")
"""Kinds that start a program: the fork server for commands is started early if one is declared."""
_OURS = "remit.builtin."
"""Modules whose functions may use the models of the Remit process."""
_KEYED = ("worker.web_search",)
"""Built-in agents that need keys from the environment: providers of web searches."""


log = logging.getLogger(__name__)


class ExecutorDeps:
    """What an executor may use of its project. Processes and models are created on first use."""

    def __init__(
        self,
        make_pool: "Callable[[], ProcessPool]",
        make_models: "Callable[[], Models]",
        delegator: "Delegator",
        root: Path,
        trust: "ProjectTrust | None" = None,
    ) -> None:
        """`trust`: the approvals of the project; None: everything."""
        self._make_pool, self._make_models = make_pool, make_models
        self.delegator = delegator
        self.root = root
        self.trust = trust

    @cached_property
    def processes(self) -> "ProcessPool":
        return self._make_pool()

    @cached_property
    def models(self) -> "Models":
        return self._make_models()

    @cached_property
    def mcp_servers(self) -> "McpServers":
        from remit.agents.mcp.tool_agents import McpServers

        return McpServers(self)

    def made(self, name: str) -> Any:
        """`processes`, `models` or `mcp_servers` if they were used, else None."""
        return vars(self).get(name)


class ProcessAgent:
    """Executes a `FunctionAgent` in its own process. Only built-in agents get models: others delegate to a model agent, which is recorded
    and limited."""

    __slots__ = ("_agent", "_deps", "_used", "_wire", "spec", "target")

    def __init__(self, agent: FunctionAgent | FileAgent, deps: ExecutorDeps, used: Callable[[Target], None]) -> None:
        self._agent = agent
        self._deps = deps
        self._used = used
        self.spec: AgentSpec = agent.spec
        self.target: Target = agent.target if isinstance(agent, FileAgent) else target_of(agent.function)
        self._wire = self.target.to_wire()

    def check(self, parameters: dict[str, Any]) -> dict[str, Any]:
        self._agent.check(parameters)
        return parameters

    async def perform(self, ctx: Context, arguments: dict[str, Any]) -> Any:
        from remit.agents.process.pool import Job

        self._used(self.target)
        is_ours = self.target.place is Place.MODULE and self.target.module.startswith(_OURS)
        job = Job(self._wire, self._deps.models if is_ours else None, is_listed=is_ours and self.spec.name not in _KEYED)
        # The worker validates the recorded parameters again: `arguments` are not all JSON.
        return await self._deps.processes.run(job, ctx)


class LazyAgent:
    """Executes an agent of a Python file in this process. The file is imported on the first delegation, off the loop and within its
    deadline."""

    __slots__ = ("_carried", "_file_agent", "_loading", "spec")

    def __init__(self, agent: FileAgent, carried: Callable[[FunctionAgent], AgentPort]) -> None:
        self._file_agent = agent
        self._carried = carried
        self._loading: asyncio.Future[FunctionAgent] | None = None
        """One import for all delegations: one that does not end takes one thread."""
        self.spec: AgentSpec = agent.spec

    def check(self, parameters: dict[str, Any]) -> Any:
        return self._file_agent.check(parameters)

    async def perform(self, ctx: Context, arguments: Any) -> Any:
        if self._loading is None or (self._loading.done() and (self._loading.cancelled() or self._loading.exception())):
            self._loading = asyncio.ensure_future(off_loop(self._file_agent.load))
            self._loading.add_done_callback(lambda done: done.cancelled() or done.exception())
        executor = self._carried(await asyncio.shield(self._loading))
        return await executor.perform(ctx, executor.check(arguments))


class Executors:
    """The executors and pools of one Remit."""

    def __init__(self, deps: ExecutorDeps, grace_seconds: float) -> None:
        self._deps = deps
        self._grace_seconds = grace_seconds
        self._targets: list[Target] = []
        """Targets whose modules are preloaded."""
        self._is_open = False
        self._has_commands = False
        self._made: list[AgentPort] = []

    def __call__(self, agent: FunctionAgent | FileAgent) -> AgentPort:
        if agent.spec.isolation is Isolation.PROCESS:
            executor = ProcessAgent(agent, self._deps, self._used)
            if not self._is_open:
                self._targets.append(executor.target)
            return executor
        if isinstance(agent, FileAgent):
            return LazyAgent(agent, self)
        if agent.spec.isolation is Isolation.THREAD:
            from remit.agents.thread import ThreadAgent

            return ThreadAgent(agent, self._grace_seconds)
        return agent

    def define(self, definition: "Definition") -> AgentPort:
        self._has_commands = self._has_commands or definition.kind in _IN_PROCESSES
        executor: AgentPort = _executor_of(definition.kind)(definition, self._deps)
        self._made.append(executor)
        return executor

    def warm_up(self) -> None:
        """Start what process agents need in the background, if there are any."""
        self._is_open = True
        if self._targets or self._has_commands:
            self._deps.processes.warm_up(self._targets, for_commands=self._has_commands)

    def _used(self, target: Target) -> None:
        """Agents registered later are preloaded from their first use on; most built-in ones are never used."""
        if all(target.module != known.module for known in self._targets):
            self._targets.append(target)
            self._deps.processes.warm_up(tuple(self._targets))

    async def close(self) -> None:
        closing = {asyncio.ensure_future(_close(executor)): executor.spec.name for executor in self._made if hasattr(executor, "close")}
        if closing:
            _, late = await asyncio.wait(closing, timeout=CLOSE_SECONDS)
            for task in late:
                task.cancel()
                log.warning("The agent %s did not close within %g s.", closing[task], CLOSE_SECONDS)
        for name in ("mcp_servers", "processes", "models"):
            if (made := self._deps.made(name)) is not None:
                await made.close()


async def _close(executor: Any) -> None:
    """An executor of a package may raise: everything else must be closed nevertheless."""
    try:
        await executor.close()
    except Exception:
        log.exception("The agent %s could not be closed.", executor.spec.name)


def _executor_of(kind: str) -> "Callable[[Definition, ExecutorDeps], Any]":
    place = EXECUTORS.get(kind)
    if place is None:
        from remit.agents.definition import packaged_kind

        found: Callable[[Definition, ExecutorDeps], Any] = packaged_kind(kind)
        return found
    module, _, name = place.partition(":")
    made: Callable[[Definition, ExecutorDeps], Any] = getattr(importlib.import_module(module), name)
    return made
