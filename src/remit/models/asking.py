"""`Models`: the models of one project, asked one question at a time. Fails over, counts, and never waits beyond the deadline."""

from collections.abc import Mapping, Sequence
from typing import Any

from remit.models.messages import Said
from remit.models.question import Asked, Choice, Purse, Question
from remit.settings import Settings


class Models:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def is_configured(self, own: str | Sequence[str] | None = None) -> bool:
        """Whether anybody said which model is meant; nothing is tried."""
        return bool(own or self._settings.model)

    def choice(self, own: str | Sequence[str] | None = None) -> Choice:
        """The models that are meant: `own` (an agent's), else the setting `model`. Raises `Unavailable` (TOOL_UNAVAILABLE) with the line
        to write, where there is none, one is unknown, or the package is not installed."""
        raise NotImplementedError

    async def ask(self, purse: Purse, question: Question) -> Asked:
        """The reply of the first model that answers. What it costs is drawn from the purse, also of a reply that was cut off. Raises
        `Unavailable` naming each that was tried and why it did not answer."""
        raise NotImplementedError

    async def write(
        self, purse: Purse, prompt: str, *, instructions: str = "", choice: Choice | None = None, schema: Mapping[str, Any] | None = None
    ) -> Asked:
        """One question, one answer in words."""
        question = Question(choice=choice or self.choice(), instructions=instructions, messages=(Said(text=prompt),), output_schema=schema)
        return await self.ask(purse, question)

    async def close(self) -> None:
        """Connections, and the local model's process."""
