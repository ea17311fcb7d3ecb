"""An agent elsewhere that speaks A2A: made of a definition of kind `a2a` by `agents.executors`.

Loads nothing until it is first asked. Deadline and record are ours, whatever the other side does; when a delegation is stopped here, its
task there is cancelled too, and what is still on its way then is waited for when the project is closed.
"""

import asyncio
import importlib
import os
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.agents.definition import Definition
from remit.core.agents import AgentSpec
from remit.core.errors import Misused, Unavailable
from remit.core.redaction import SecretValues, register_secrets
from remit.runtime.context import Context
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.agents.a2a.client import RemoteAgent


CLOSE_SECONDS = 2.0
"""For cancellations that are on their way when the project is closed."""


class A2aAgent:
    __slots__ = ("_held", "_leaving", "_remote", "_root", "definition", "spec")

    def __init__(self, definition: Definition, root: Path) -> None:
        self.spec: AgentSpec = definition.spec
        self.definition = definition
        self._root = root
        self._remote: RemoteAgent | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        self._held: SecretValues | None = None

    def check(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """What it takes is known where it is, unless its definition says so: then that is held to (`parameters`)."""
        required = self.spec.parameters_schema.get("required", ())
        if missing := [name for name in required if name not in parameters]:
            raise Misused(f"Parameters of {self.spec.name}: {', '.join(missing)}: required.", code="INVALID_PARAMETERS")
        return parameters

    async def perform(self, ctx: Context, arguments: Mapping[str, Any]) -> Any:
        try:
            if self._remote is None:  # most of a second: nobody else's work waits for it
                await off_loop(importlib.import_module, "remit.agents.a2a.task")
            from remit.agents.a2a.client import RemoteAgent
            from remit.agents.a2a.task import RemoteTask
        except ModuleNotFoundError as error:
            raise Unavailable(
                f"{self.spec.name} is asked over A2A, and {error.name} is not installed.",
                code="TOOL_UNAVAILABLE",
                advice='pip install "remit[a2a]"',
            ) from None
        if self._remote is None:
            ca_file = self.definition.ca_file
            self._remote = RemoteAgent(self.definition.address, None if ca_file is None else self._root / ca_file)
        token = self._token()
        async with await self._remote.open(token) as line:
            task = RemoteTask(line, self.definition, ctx, arguments)
            try:
                return await task.done()
            except BaseException:
                if task.is_left:
                    await self._leave(task.cancelled(self._remote, token))
                raise

    def _token(self) -> str | None:
        """Of the environment as it is now, and struck out of whatever is kept from then on."""
        variable = self.definition.token_variable
        if variable is None:
            return None
        token = os.environ.get(variable, "").strip()
        if not token:
            raise Unavailable(
                f"{self.spec.name} needs a token, and the variable {variable} is not set.",
                code="TOOL_UNAVAILABLE",
                advice=f"export {variable}=…, with a token of the other side's.",
            )
        self._held = register_secrets({"authorization": token})
        return token

    async def _leave(self, cancelling: Coroutine[Any, Any, None]) -> None:
        """Sent off, and waited for no longer than a stopped agent may take."""
        task = asyncio.create_task(cancelling)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        await asyncio.wait([task], timeout=0.15)

    async def close(self) -> None:
        if self._leaving:
            await asyncio.wait(set(self._leaving), timeout=CLOSE_SECONDS)
            for task in set(self._leaving):
                task.cancel()
