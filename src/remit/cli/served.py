"""Agents that only the project's running server knows: those that registered there. The server is asked to have them work.

The project's own agents are run by the command itself; one on another machine hangs on the server's stream. What is begun there stands on
the same record, so that it is shown, followed and cancelled like everything else. Where nothing serves, or gRPC is not installed, there
are none. Used by `delegate` and `agents`.
"""

import contextlib
import time
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.core.errors import RemitError, Unavailable
from remit.system.announced import announced

if TYPE_CHECKING:
    from remit.app import Remit
    from remit.core.agents import AgentSpec
    from remit.core.result import Return
    from remit.proto.v1 import tasks_pb2 as pb
    from remit.tool.elsewhere.service import TaskService

KIND = "registered"
SOURCE = "the server of this project"
LATE_SECONDS = 5.0
"""So long after its deadline a return is still waited for."""


def is_served(folder: Path) -> bool:
    """Whether a server of this project lives: costs a look at a file."""
    return announced(folder / ".remit" / "run") is not None


async def served_agents(folder: Path) -> "list[AgentSpec]":
    """Every agent of the running server; empty where there is none that answers."""
    if not is_served(folder):
        return []
    try:
        async with _service(folder) as service:
            found = await service.agents()
    except (RemitError, ModuleNotFoundError):
        return []
    return [_spec(one) for one in found]


def only_served(folder: Path, known: Collection[str]) -> "list[AgentSpec]":
    """Those of them that the project itself does not have."""
    import asyncio

    return [spec for spec in asyncio.run(served_agents(folder)) if spec.name not in known] if is_served(folder) else []


def _spec(told: "pb.AgentInfo") -> "AgentSpec":
    from remit.core.agents import AgentSpec
    from remit.proto.values import dict_of

    return AgentSpec(
        name=told.name,
        description=told.description,
        timeout_seconds=told.timeout_ns / 1e9 if told.timeout_ns > 0 else None,
        kind=KIND,
        parameters_schema=dict_of(told.parameters_schema),
        source=SOURCE,
    )


def named(agent: str, given: list[str], among: "list[AgentSpec]") -> "tuple[AgentSpec, list[str]] | None":
    """`words.count …`, or `words count …`."""
    by_name = {one.name: one for one in among}
    if agent in by_name:
        return by_name[agent], given
    both = f"{agent}.{given[0]}" if given else ""
    return (by_name[both], given[1:]) if both in by_name else None


async def begun_there(remit: "Remit", agent: str, parameters: Mapping[str, Any], options: Mapping[str, Any]) -> "Begun":
    """Raises what the server refuses it with."""
    from remit.proto.times import nanoseconds
    from remit.proto.v1 import tasks_pb2 as pb
    from remit.proto.values import struct_of

    timeout, idle, limits = options["timeout"], options["idle"], options["budget"]
    config = pb.TaskConfig(
        parameters=struct_of(parameters),
        timeout_ns=nanoseconds(timeout) if timeout else 0,
        idle_ns=nanoseconds(idle) if idle else 0,
        key=options["key"] or "",
        resume=options.get("resume") or "",
        accept=options["accept"],
    )
    if limits is not None:
        config.budget.CopyFrom(struct_of({kind: value for kind, value in limits.to_dict().items() if value is not None}))
    async with _service(remit.root) as service:
        task = await service.execute(pb.ExecuteTaskRequest(agent_id=agent, priority=int(options["priority"]), config=config))  # type: ignore[arg-type]
    if task.task_id is None:
        raise Unavailable(f"The server did not begin {agent}.", advice="Its log says why.")
    return Begun(remit, task.task_id)


class Begun:
    """A delegation that the server runs, as a handle: its return is read off the record."""

    def __init__(self, remit: "Remit", session_id: str) -> None:
        self._remit = remit
        self.session_id = session_id

    async def result(self) -> "Return":
        record = await self._remit.describe(self.session_id)
        wait = max(0.0, record.deadline_at - time.time()) + LATE_SECONDS
        result = await self._remit.result(self.session_id, wait_seconds=wait)
        if result is None:
            raise Unavailable(f"{self.session_id} has no return yet.", advice=f"remit follow {self.session_id}")
        return result


@contextlib.asynccontextmanager
async def _service(folder: Path) -> AsyncIterator["TaskService"]:
    from remit.client import discover
    from remit.tool.elsewhere.connecting import Reach
    from remit.tool.elsewhere.service import TaskService

    found = discover(folder)
    service = TaskService(Reach(address=found.address, token=lambda: found.token))
    try:
        yield service
    finally:
        await service.close()
