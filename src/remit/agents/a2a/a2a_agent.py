"""The executor of agents that speak A2A (kind `a2a`). Imports the A2A library when an agent is first called."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from remit.agents.definition import Definition
from remit.agents.remote import RemoteExecutor
from remit.core.context import Context
from remit.core.redaction import SecretValues, register_secrets
from remit.system.packages import need
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.agents.a2a.client import RemoteAgent
    from remit.agents.executors import ExecutorDeps


class A2aAgent(RemoteExecutor):
    def __init__(self, definition: Definition, deps: "ExecutorDeps") -> None:
        super().__init__(definition, deps)
        self._remote: RemoteAgent | None = None
        self._secrets: SecretValues | None = None
        """Keeps the token redacted from everything stored."""

    async def perform(self, ctx: Context, arguments: Mapping[str, Any]) -> Any:
        await off_loop(need, "remit.agents.a2a.task", "a2a")
        from remit.agents.a2a.client import RemoteAgent
        from remit.agents.a2a.task import RemoteTask

        remote = self._remote = self._remote or RemoteAgent(self.definition.address, self.ca_file)
        token = self.token()
        if token is not None:
            self._secrets = register_secrets({"authorization": token})
        async with remote.open(token) as connection:
            task = RemoteTask(connection, self.definition, ctx, arguments)
            try:
                return await task.run()
            except BaseException:
                if task.is_left:
                    await self.cancel_remote(task.cancel(remote, token))
                raise
