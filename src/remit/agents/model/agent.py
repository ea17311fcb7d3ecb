"""A model as an agent: made of a definition of kind `model` by `agents.carriers`."""

from collections.abc import Mapping
from typing import Any

from remit.agents.definition import Definition, checked_task
from remit.core.agents import AgentSpec
from remit.flow.context import Context
from remit.models.asking import Models
from remit.tool.office import Office


class ModelAgent:
    __slots__ = ("_models", "_office", "definition", "spec")

    def __init__(self, definition: Definition, models: Models, office: Office) -> None:
        self.spec: AgentSpec = definition.spec
        self.definition = definition
        self._models = models
        self._office = office

    def check(self, parameters: dict[str, Any]) -> dict[str, Any]:
        return checked_task(self.spec.name, parameters)

    async def perform(self, ctx: Context, arguments: Mapping[str, Any]) -> str:
        raise NotImplementedError
