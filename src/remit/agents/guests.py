"""Agents of other frameworks declared as agents of remit's: what can be said of each, whichever framework it is of.

The declaration only. What its run is made of is an `Errand`; each adapter (`agents.pydantic_ai`, …) runs its own framework with it.
"""

import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, TypedDict

from pydantic import Field

from remit.agents.errand import Errand
from remit.agents.function import FunctionAgent, agent
from remit.core.agents import AgentSpec, Answers, Workspace
from remit.core.policy import Effect, Fact
from remit.flow.context import Context
from remit.models.client import Models
from remit.settings import load_settings

Task = Annotated[str, Field(min_length=1, description="What is to be done, in words.")]
Run = Callable[[Errand], Awaitable[Any]]


class Declared(TypedDict, total=False):
    """What `@agent(…)` takes of it, too."""

    description: str
    timeout: float | None
    idle: float | None
    answers: Answers | str
    """`value`: what it gives is the result (a structured output is `data`). `return`: it is told how to answer, read by the ladder, and
    asked once more where it is faulty (S3.7)."""
    requires_artifacts: bool
    retries: int
    slots: int | None
    workspace: Workspace | str
    effects: tuple[Effect | str, ...]
    acts_on: Mapping[str, Fact | str]


class GuestAgent(FunctionAgent):
    """Carried out with the models of the `Remit` it is registered with: by their prices its money is counted."""

    __slots__ = ("_models", "_run")

    def __init__(self, function: Callable[..., Any], spec: AgentSpec, run: Run, models: Models | None = None) -> None:
        super().__init__(function, spec)
        self._run = run
        self._models = models

    def with_models(self, models: Models) -> "GuestAgent":
        return GuestAgent(self.function, self.spec, self._run, models)

    async def perform(self, ctx: Context, arguments: dict[str, Any]) -> Any:
        models = self._models or Models(load_settings(ctx.root, {}))
        await models.load_prices()
        errand = Errand(ctx, self.spec, arguments, models)
        try:
            return await self._run(errand)
        finally:
            errand.close()


def guest(name: str, kind: str, run: Run, declared: Declared) -> FunctionAgent:
    """An agent that takes a task in words, and whatever else its caller names."""

    async def perform(ctx: Context, task: Task, **given: Any) -> Any:
        return await made.perform(ctx, {"task": task, **given})

    perform.__module__ = _declared_in()  # the directory takes of a file what was declared in it
    perform.__qualname__ = perform.__name__ = name
    options: dict[str, Any] = {**declared, "kind": kind}
    plain = agent(name, isolation="inline", **options)(perform)
    made = GuestAgent(plain.function, plain.spec, run)
    return made


def _declared_in() -> str:
    """The module that called the adapter."""
    frame: Any = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith("remit.agents."):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", "__main__")) if frame is not None else "__main__"
