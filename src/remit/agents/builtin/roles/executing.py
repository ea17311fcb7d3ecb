"""The built-in task executor: hands a phase of a plan on to the role `implementer`, and gives back what that one returned.

It writes nothing itself and never pretends: where nobody can implement, it says so and which lines put that right.
"""

from typing import Any

from remit.agents.builtin.roles.answering import Words, handed_on
from remit.agents.function import FunctionAgent, agent
from remit.flow.context import Context
from remit.settings import Settings

IMPLEMENTER = "implementer"


def task_executor(settings: Settings) -> FunctionAgent:
    """The agent; how long an implementer may be given is the settings' to say."""
    longest = settings.limits_for(IMPLEMENTER).maximum_seconds

    @agent("task-executor", effects=("read", "write"))
    async def execute(ctx: Context, task: Words, **more: Any) -> dict[str, Any]:
        """Carry out one phase of a plan, by the implementer."""
        ctx.progress("The implementer has it")
        # All the time there is: its own default could be less than what this phase was given.
        returned = await ctx.delegate(IMPLEMENTER, parameters=dict(ctx.parameters), timeout=min(max(1.0, ctx.remaining), longest))
        return handed_on(returned)

    return execute
